"""Two validators that judge a value, and what the standard says where they differ.

`jsonschema` judges with patterns rewritten so that it reads them as ECMA-262 does; `jsonschema-rs` reads them so by
itself, but for what `DIFFERENCES` says. Formats that a draft does not define are left out for both.
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
UNCHECKED = frozenset(("time", "json-pointer"))
"""Formats that `jsonschema` checks only with further packages."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A kind of value on which the two validators differ."""

    name: str
    #: What the standard says, and where.
    reason: str
    #: Which of the two judges as the standard does.
    right: str
    #: Whether a schema (with its JSON text) and a value are of the kind.
    applies: Callable[[str, str], bool]


DIFFERENCES: tuple[Difference, ...] = (
    Difference(
        name="a dot and a line end",
        reason="ECMA-262, CharacterClassEscape and LineTerminator: `.` matches no U+000D, U+2028 and U+2029",
        right="jsonschema",
        applies=lambda schema, value: "^.$" in schema and any(char in value for char in ("\\r", "\u2028", "\u2029")),
    ),
    Difference(
        name="a word boundary beside a letter beyond ASCII",
        reason="ECMA-262, IsWordChar: word characters are A-Z, a-z, 0-9 and _",
        right="jsonschema",
        applies=lambda schema, value: "\\\\b" in schema and not value.isascii(),
    ),
    Difference(
        name="a format that jsonschema cannot check",
        reason="its checker needs a package that is not there; Validation 7.3 defines the format",
        right="jsonschema-rs",
        applies=lambda schema, _: any(f'"format": "{name}"' in schema for name in UNCHECKED),
    ),
    Difference(
        name="a pattern that Python alone takes",
        reason="Core 6.4 has patterns compiled with the flag u of ECMA-262, where a bracket alone is an error",
        right="jsonschema-rs",
        applies=lambda schema, _: '"format": "regex"' in schema,
    ),
    Difference(
        name="what additionalProperties evaluates in 2019-09",
        reason="Core 9.3.2.4 of 2019-09: names evaluated by additionalProperties or unevaluatedProperties, whatever "
        "their schemas; jsonschema looks for the names in these schemas",
        right="jsonschema-rs",
        applies=lambda schema, _: (
            "2019-09" in schema
            and '"unevaluatedProperties"' in schema
            and ('"additionalProperties"' in schema or schema.count('"unevaluatedProperties"') > 1)
        ),
    ),
    Difference(
        name="an address without a host",
        reason="RFC 5321, 4.1.2: a mailbox has a domain after the @; jsonschema looks for the @ alone",
        right="jsonschema-rs",
        applies=lambda schema, _: '"format": "email"' in schema,
    ),
)


class Undecided(Exception):
    """The two validators differ, and no row of `DIFFERENCES` says which one is right."""


class Judges:
    """Both validators of one schema."""

    def __init__(self, schema: dict[str, Any], place_of_draft: int, *, has_formats: bool) -> None:
        known = _with_known_formats(schema, place_of_draft)
        self._text = json.dumps(schema, ensure_ascii=False)
        exact = json.loads(json.dumps(_with_ecma_patterns(known)), parse_float=Decimal)
        checker = validator_for(schema).FORMAT_CHECKER if has_formats else None
        self._one = _exact(validator_for(schema))(exact, registry=Registry(), format_checker=checker).is_valid
        self._other = jsonschema_rs.validator_for(known, validate_formats=has_formats)
        #: The names of the rows that decided, each time.
        self.decided: list[str] = []

    def is_valid(self, text: str) -> bool:
        """The verdict on the value of a JSON text. Raises Undecided, RecursionError."""
        exact, plain = _read(text)
        one, other = self._one(exact), self._other.is_valid(plain)
        if one == other:
            return one
        for row in DIFFERENCES:
            if row.applies(self._text, text):
                self.decided.append(row.name)
                return one if row.right == "jsonschema" else other
        raise Undecided(f"jsonschema says {one}, jsonschema-rs says {other}")


@cache
def _exact(base: Any) -> Any:
    """A validator class of jsonschema for numbers that are decimals."""
    types = base.TYPE_CHECKER.redefine_many({"integer": _is_whole, "number": _is_number})
    return extend(base, {"multipleOf": _multiple_of}, type_checker=types)


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


def _with_ecma_patterns(schema: Any) -> Any:
    return _changed(schema, {"pattern": ecma, "patternProperties": _ecma_names})


def _ecma_names(schemas: Mapping[str, Any]) -> dict[str, Any]:
    return {ecma(pattern): _with_ecma_patterns(schema) for pattern, schema in schemas.items()}


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
