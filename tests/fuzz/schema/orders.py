"""Documents that must be accepted where properties come in any order: valid ones, written as every style can be.

The other way round than the rest of the fuzzer, which looks for what is wrongly accepted. A schema counts here if its
contract says that no keyword is narrowed: then every valid value has a text, and its names may come in every order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from decimal import Decimal
from random import Random
from typing import Any

from espalier.constraints.json_schema.lowered import LoweredSchema, Use
from espalier.constraints.spec import JsonSchema
from tests.fuzz.schema.oracle import parse
from tests.fuzz.schema.texts import styled

DIGITS = 12
"""Numbers of more digits than this have no certain spelling here."""
FRACTION = re.compile("at most ([0-9]+) digits after the point")
VARIANTS = 3


def promised_digits(spec: JsonSchema, use: Use) -> int | None:
    """How many digits after the point of a number certainly have a text, if the contract of this use promises that
    every valid document has one, in every order of its names; None if it does not. Keywords that are only checked
    promise so too. Asserted formats are left out: the oracle checks only some of them."""
    if spec.used_order != "any" or (spec.format == "assert" and '"format"' in spec.text):
        return None
    entries = LoweredSchema(spec).contract(use).entries
    if any(one.verdict == "narrowed" and (one.pointer or one.keyword == "order") for one in entries):
        return None
    return min([DIGITS, *(int(one) for entry in entries for one in FRACTION.findall(entry.note))])


def variants(text: str, random: Random) -> Iterator[Any]:
    """The value of a text with its names in other orders, with names left out, added and exchanged."""
    try:
        value, is_twice = parse(text)
    except (ValueError, RecursionError):
        return
    if is_twice:
        return
    for _ in range(VARIANTS):
        yield shuffled(value, random)
    if isinstance(value, dict) and value:
        names = list(value)
        random.shuffle(names)
        left = random.randint(0, len(names))
        yield {name: value[name] for name in names[:left]}
        yield {name: value[other] for name, other in zip(names, reversed(names), strict=True)}
        yield {random.choice(("a", "b", "ab", "c1", "x")): random.choice([*value.values()]), **shuffled(value, random)}
    if isinstance(value, list) and value:
        yield [shuffled(one, random) for one in random.sample(value, random.randint(0, len(value)))]
        yield [*value, shuffled(random.choice(value), random)]


def shuffled(value: Any, random: Random) -> Any:
    """The value with the names of all its objects in a random order."""
    if isinstance(value, dict):
        names = list(value)
        random.shuffle(names)
        return {name: shuffled(value[name], random) for name in names}
    return [shuffled(one, random) for one in value] if isinstance(value, list) else value


def written(value: Any, spec: JsonSchema, digits: int) -> str | None:
    """The value in the one spelling of each of its parts; None where that is not certain. digits: see
    `promised_digits`."""
    plain = _plain(value, digits)
    if plain is UNCERTAIN:
        return None
    text = styled(plain, spec.whitespace)
    if LONG_RUN.search(text):
        return None  # a run of whitespace is bounded, as the contract says
    return None if any(0xD800 <= ord(char) < 0xE000 for char in text) else text


UNCERTAIN = object()
LONG_RUN = re.compile(r"[ \t\r\n]{41}")


def _plain(value: Any, digits: int) -> Any:
    if isinstance(value, dict):
        found = {name: UNCERTAIN if name.endswith("\n") else _plain(one, digits) for name, one in value.items()}
        return UNCERTAIN if any(one is UNCERTAIN for one in found.values()) else found
    if isinstance(value, list):
        items = [_plain(one, digits) for one in value]
        return UNCERTAIN if any(one is UNCERTAIN for one in items) else items
    if isinstance(value, str) and value.endswith("\n"):
        return (
            UNCERTAIN  # Python's `$`, which the oracle reads, also matches before a last line end; ECMA-262's does not
        )
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return value
    number = Decimal(str(value))
    if number.adjusted() > DIGITS or len(number.as_tuple().digits) > DIGITS or abs(number.adjusted()) > DIGITS // 2:
        return UNCERTAIN
    if number == int(number):
        return int(number)
    if -int(number.as_tuple().exponent) > digits:
        return UNCERTAIN
    return float(number) if "e" not in repr(float(number)) else UNCERTAIN
