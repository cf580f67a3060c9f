"""The verdict of the `jsonschema` package on a text, with numbers as the decimals that are written."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import jsonschema
from jsonschema.validators import extend, validator_for
from referencing import Registry


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
    made = extend(base, {"multipleOf": _multiple_of}, type_checker=types)
    found: Callable[[Any], bool] = made(
        exact, registry=Registry(), format_checker=base.FORMAT_CHECKER if has_formats else None
    ).is_valid
    return found


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


def _multiple_of(validator: Any, factor: Any, value: Any, _schema: Any) -> Iterator[jsonschema.ValidationError]:
    if validator.is_type(value, "number") and Fraction(value) % Fraction(factor):
        yield jsonschema.ValidationError("not a multiple")
