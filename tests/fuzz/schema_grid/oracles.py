"""Two validators that judge a value, each corrected where it reads a keyword otherwise than the standard does.

`jsonschema` gets patterns that Python's `re` reads as ECMA-262 does, and the checks of some formats from
`jsonschema-rs`. `jsonschema-rs` gets patterns without the two parts that it reads in its own way. So each judges all
keywords of a schema, whatever stands beside them. Formats that a draft does not define are left out for both.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cache, lru_cache
from typing import Any

import jsonschema
import jsonschema_rs
from jsonschema.validators import extend, validator_for
from referencing import Registry

from tests.fuzz.schema.oracle import parse

FORMATS_SINCE = {"date": 2, "time": 2, "regex": 2, "uuid": 3, "json-pointer": 1, "email": 0, "ipv4": 0, "ipv6": 0}
"""The first draft that defines a format, by its place in `DRAFTS`."""
CHECKED_BY_THE_OTHER = ("time", "json-pointer", "email", "regex")
"""Formats that `jsonschema` checks only with further packages, or too loosely: an email address needs a domain (RFC
5321, 4.1.2), and a regex is one of ECMA-262 with the flag u (Core 6.4), where a bracket alone is an error."""
SPACES = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
PARTS = re.compile(r"\\.|\[(?:[^\]\\]|\\.)*\]|.", re.DOTALL)
ECMA = {
    r"\d": "[0-9]",
    r"\D": "[^0-9]",
    r"\w": "[A-Za-z0-9_]",
    r"\W": "[^A-Za-z0-9_]",
    r"\s": f"[{SPACES}]",
    r"\S": f"[^{SPACES}]",
    r"\b": r"(?a:\b)",
    r"\B": r"(?a:\B)",
    ".": r"[^\n\r\u2028\u2029]",
    "$": r"\Z",
}
"""Parts of a pattern outside classes, as Python's `re` spells what ECMA-262 means by them."""
WORD = "[A-Za-z0-9_]"
ECMA_IN_RUST = {
    r"\b": f"(?:(?<={WORD})(?!{WORD})|(?<!{WORD})(?={WORD}))",
    r"\B": f"(?:(?<={WORD})(?={WORD})|(?<!{WORD})(?!{WORD}))",
    ".": ECMA["."],
}
"""The parts that `jsonschema-rs` reads otherwise: ECMA-262, IsWordChar, has ASCII alone, and a dot matches no U+000D,
U+2028 and U+2029 (LineTerminator)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A kind of schema that `jsonschema-rs` judges as the standard does, and `jsonschema` does not."""

    name: str
    #: What the standard says, and where.
    reason: str
    #: Whether a schema, as JSON text, is of the kind.
    applies: Callable[[str], bool]


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        name="what additionalProperties evaluates in 2019-09",
        reason="Core 9.3.2.4 of 2019-09: names evaluated by additionalProperties or unevaluatedProperties, whatever "
        "their schemas; jsonschema looks for the names in these schemas",
        applies=lambda schema: (
            "2019-09" in schema
            and '"unevaluatedProperties"' in schema
            and ('"additionalProperties"' in schema or schema.count('"unevaluatedProperties"') > 1)
        ),
    ),
)


class Undecided(Exception):
    """The two validators differ, and no row of `DIFFERENCES` has such schemas."""


class Judges:
    """Both validators of one schema."""

    def __init__(self, schema: dict[str, Any], place_of_draft: int, *, has_formats: bool) -> None:
        known = _with_known_formats(schema, place_of_draft)
        self._text = json.dumps(schema, ensure_ascii=False)
        exact = json.loads(json.dumps(_with_patterns(known, ecma)), parse_float=Decimal)
        checker = _format_checker(validator_for(schema)) if has_formats else None
        self._one = _exact(validator_for(schema))(exact, registry=Registry(), format_checker=checker).is_valid
        self._other = jsonschema_rs.validator_for(_with_patterns(known, ecma_in_rust), validate_formats=has_formats)
        #: The names of the rows that decided, each time.
        self.decided: list[str] = []

    def is_valid(self, text: str) -> bool:
        """The verdict on the value of a JSON text. Raises Undecided, RecursionError."""
        exact, plain = _read(text)
        one, other = self._one(exact), self._other.is_valid(plain)
        if one == other:
            return one
        for row in DIFFERENCES:
            if row.applies(self._text):
                self.decided.append(row.name)
                return other
        raise Undecided(f"jsonschema says {one}, jsonschema-rs says {other}")


@cache
def _exact(base: Any) -> Any:
    """A validator class of jsonschema for numbers that are decimals."""
    types = base.TYPE_CHECKER.redefine_many({"integer": _is_whole, "number": _is_number})
    return extend(base, {"multipleOf": _multiple_of}, type_checker=types)


@cache
def _format_checker(base: Any) -> jsonschema.FormatChecker:
    """The format checker of a validator class of jsonschema, with the checks that the other validator has better."""
    checker = jsonschema.FormatChecker(())
    checker.checkers = dict(base.FORMAT_CHECKER.checkers)
    for name in CHECKED_BY_THE_OTHER:
        checker.checkers[name] = (jsonschema_rs.validator_for({"format": name}, validate_formats=True).is_valid, ())
    return checker


def _is_number(_checker: Any, value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_whole(_checker: Any, value: Any) -> bool:
    return _is_number(_checker, value) and value == int(value)


def _multiple_of(validator: Any, factor: Any, value: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    if validator.is_type(value, "number") and Fraction(value) % Fraction(factor):
        yield jsonschema.ValidationError("not a multiple")


@lru_cache(maxsize=4096)
def _read(text: str) -> tuple[Any, Any]:
    """The value with numbers as decimals, and with whole numbers as int and others as float."""
    exact, _ = parse(text)
    return exact, _plain(exact)


def _plain(value: Any) -> Any:
    if isinstance(value, Decimal):
        return int(value) if value == int(value) else float(value)
    if isinstance(value, dict):
        return {name: _plain(held) for name, held in value.items()}
    return [_plain(held) for held in value] if isinstance(value, list) else value


@lru_cache(maxsize=1024)
def ecma(pattern: str) -> str:
    """A pattern for Python's `re` that matches what ECMA-262 says. Raises ValueError for what it does not know."""
    parts = PARTS.findall(pattern)
    for part in parts:
        if part[0] == "[" and re.search(r"\\[dDwWsSbB]", part):
            raise ValueError(f"a set within a class: {pattern}")
    return "".join(ECMA.get(part, part) for part in parts)


@lru_cache(maxsize=1024)
def ecma_in_rust(pattern: str) -> str:
    """A pattern that `jsonschema-rs` reads as ECMA-262 does."""
    return "".join(ECMA_IN_RUST.get(part, part) for part in PARTS.findall(pattern))


def _with_patterns(schema: Any, spelled: Callable[[str], str]) -> Any:
    def names(schemas: Mapping[str, Any]) -> dict[str, Any]:
        return {spelled(pattern): _with_patterns(schema, spelled) for pattern, schema in schemas.items()}

    return _changed(schema, {"pattern": spelled, "patternProperties": names})


def _with_known_formats(schema: Any, place_of_draft: int) -> Any:
    def known(name: str) -> str:
        return name if FORMATS_SINCE[name] <= place_of_draft else "unknown"

    return _changed(schema, {"format": known})


def _changed(schema: Any, changes: Mapping[str, Callable[[Any], Any]]) -> Any:
    """The schema with the values of some keywords changed, wherever they stand. The grid has no property and no value
    with the name of one of these keywords."""
    if isinstance(schema, dict):
        return {
            name: changes[name](held) if name in changes else _changed(held, changes) for name, held in schema.items()
        }
    return [_changed(held, changes) for held in schema] if isinstance(schema, list) else schema


def strings(value: Any) -> Iterator[str]:
    """The strings and names of a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for held in value.values():
            yield from strings(held)
    elif isinstance(value, list):
        for held in value:
            yield from strings(held)


def numbers(value: Any) -> Iterator[Decimal]:
    """The numbers of a value."""
    if isinstance(value, bool):
        return
    if isinstance(value, int | float | Decimal):
        yield Decimal(str(value))
    elif isinstance(value, dict | list):
        for held in value.values() if isinstance(value, dict) else value:
            yield from numbers(held)
