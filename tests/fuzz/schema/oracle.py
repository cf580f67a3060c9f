"""The verdict of the `jsonschema` package on a text, with numbers as the decimals that are written and patterns as
ECMA-262 reads them (`tests/unit/schema/test_ecma.py` compares that reading with an engine of JavaScript)."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import jsonschema
from jsonschema.validators import extend, validator_for
from referencing import Registry

from espalier.schema.normal.validator import validator_class
from espalier.schema.patterns.ecma import found as found_by_ecma

LATER_FORMATS = ("regex", "date", "time", "uuid", "duration")
"""Formats that neither draft 4 nor draft 6 defines."""


def parse(text: str) -> tuple[Any, bool]:
    """The value of a JSON text, floats as Decimal, and whether a name stands twice in an object; the last one counts.
    Raises ValueError for what is no JSON."""
    twice = False

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal twice
        found = dict(pairs)
        twice = twice or len(found) != len(pairs)
        return found

    value = json.loads(text, parse_float=Decimal, parse_constant=_no_constant, object_pairs_hook=once)
    return value, twice


def valid(schema: Any, *, has_formats: bool = False) -> Callable[[Any], bool]:
    """`valid(value)` for values of `parse`, by the validator of the schema's draft. has_formats: assert the formats
    that the package can check."""
    exact = json.loads(json.dumps(schema), parse_float=Decimal)
    base = validator_for(exact, default=jsonschema.Draft202012Validator)
    types = base.TYPE_CHECKER.redefine_many({"integer": _is_whole, "number": _is_number})
    made = validator_class(extend(base, type_checker=types), found_by_ecma)
    formats = _formats(base) if has_formats else None
    found: Callable[[Any], bool] = made(exact, registry=Registry(), format_checker=formats).is_valid
    return found


def _formats(base: Any) -> jsonschema.FormatChecker:
    """The formats of a draft: the package also checks some in drafts 4 and 6 that only later ones define."""
    formats = jsonschema.FormatChecker(())
    later = LATER_FORMATS if base in (jsonschema.Draft4Validator, jsonschema.Draft6Validator) else ()
    formats.checkers = {name: check for name, check in base.FORMAT_CHECKER.checkers.items() if name not in later}
    return formats


def declared_twice(schema: Any, text: str) -> bool:
    """Whether a name under `properties` of the schema itself stands twice in the document."""
    pairs = json.loads(text, object_pairs_hook=tuple)
    declared = schema.get("properties", {}) if isinstance(schema, dict) else {}
    if not text.lstrip().startswith("{"):
        return False
    names = [name for name, _ in pairs]
    return any(names.count(name) > 1 for name in declared)


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is no JSON")


def _is_number(_checker: Any, value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)


def _is_whole(_checker: Any, value: Any) -> bool:
    return _is_number(_checker, value) and value == int(value)
