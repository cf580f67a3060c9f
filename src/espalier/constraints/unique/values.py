"""Items as keys that are equal where the values are: 1 and 1.0, objects in any order of names.

Numbers are compared twice: as the decimals that are written, and as the floats that most parsers make of them. Two
items that are equal in either way count as equal, so no validator finds a repeated item.
"""

from __future__ import annotations

import json
import re
from collections.abc import Hashable
from fractions import Fraction
from typing import Any, TypeVar

from espalier.constraints.watching import Seen
from espalier.schema.read.values import key

_DECODER = json.JSONDecoder(parse_float=Fraction)
DIGITS = 15
"""Decimals of so few digits are equal where they are as floats."""
PLAIN = re.compile(
    rb'"[^"\\]*"|true|false|null|0|-?[1-9][0-9]{0,%d}' % (DIGITS - 1)
    + rb"|-?(?=[0-9.]{3,%d}\Z)(?:0|[1-9][0-9]*)\.[0-9]*[1-9]" % (DIGITS + 1)
)
"""Scalars in the one way in which they are keys: other ways to write them are taken for this one."""
NUMBER = re.compile(rb"(-?[0-9]+)(?:\.([0-9]+))?(?:[eE]([-+]?[0-9]+))?")

BLANK = b" \t\r\n"
Key = TypeVar("Key", bound=Hashable)


def added(seen: tuple[frozenset[Key], ...], new: frozenset[Key]) -> tuple[frozenset[Key], ...]:
    while seen and len(seen[-1]) <= len(new):
        new |= seen[-1]
        seen = seen[:-1]
    return (*seen, new)


def is_among(item: bytes, seen: Seen) -> bool:
    """Whether an item, as it is written, equals one whose keys are there; False for nothing but blanks."""
    item = item.strip(BLANK)
    if PLAIN.fullmatch(item):
        for some in seen:  # noqa: SIM110 (half as long as `any`, and asked for each mask)
            if item in some:
                return True
        return False
    return bool(item) and any(key in some for key in keys(item) for some in seen)


def equal(item: bytes, other: bytes) -> bool:
    """Whether two items are equal; False for nothing but blanks."""
    return is_among(item, (frozenset(keys(other)),))


def keys(text: bytes) -> tuple[Hashable, ...]:
    """The keys of a JSON value as it is written: one, or two where there are numbers in it. A scalar's key is its
    plain text, if it has one. Raises ValueError for what is no JSON value."""
    if PLAIN.fullmatch(text):
        return (text,)
    if number := NUMBER.fullmatch(text):
        plain = _plain_number(*number.groups(b""))
        if plain is not None:
            return (plain,)
        exact = Fraction(text.decode())
        is_whole = not (number[2] or number[3])
        rounded = exact if is_whole else _plain_float(float(exact))  # parsers keep whole numbers as they are
        return (exact,) if exact == rounded else (exact, rounded)
    value = read_value(text)
    return (b'"%b"' % value.encode("utf-8", "surrogatepass"),) if isinstance(value, str) else value_keys(value)


def _plain_number(whole: bytes, decimals: bytes, exponent: bytes) -> bytes | None:
    """The plain text of a number, None where it has none. decimals, exponent: empty where there are none."""
    sign, digits = (b"-", whole[1:]) if whole.startswith(b"-") else (b"", whole)
    digits = (digits + decimals).lstrip(b"0")
    power = int(exponent or 0) - len(decimals)
    short = digits.rstrip(b"0")
    power += len(digits) - len(short)
    if not short:
        return b"0"
    if max(len(short) + power, len(short), 1 - power) > DIGITS:
        return None
    if power >= 0:
        return sign + short + b"0" * power
    short = short.rjust(1 - power, b"0")
    return sign + short[:power] + b"." + short[power:]


def _plain_float(value: float) -> Hashable:
    text = repr(value)
    number = NUMBER.fullmatch(text.encode())
    return (None if number is None else _plain_number(*number.groups(b""))) or Fraction(text)


def read_value(text: bytes) -> Any:
    """A JSON value with exact numbers. Raises ValueError."""
    return _DECODER.decode(text.decode())


def value_keys(value: Any) -> tuple[Hashable, ...]:
    """The keys of a value with exact numbers. Values are equal if one of their keys is."""
    exact, rounded = key(value), key(_round(value))
    return (exact,) if exact == rounded else (exact, rounded)


def _round(value: Any) -> Any:
    if isinstance(value, list):
        return [_round(item) for item in value]
    if isinstance(value, dict):
        return {name: _round(inner) for name, inner in value.items()}
    return float(value) if isinstance(value, Fraction) else value
