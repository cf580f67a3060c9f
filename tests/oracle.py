"""The verdict of the `jsonschema` package on a value, with numbers taken for what their decimal text says."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import Any

import jsonschema
from jsonschema.validators import extend, validator_for
from referencing import Registry


def _multiple_of(validator: Any, factor: Any, value: Any, schema: Any) -> Iterator[jsonschema.ValidationError]:
    if validator.is_type(value, "number") and Fraction(repr(value)) % Fraction(repr(factor)):
        yield jsonschema.ValidationError("not a multiple")


def _is_whole(checker: Any, value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)


def validator(schema: Any) -> Callable[[Any], bool]:
    """`valid(value)` by the validator of the schema's draft. In draft 4 too 1.0 is taken for an integer, as a value is
    not its spelling."""
    base = validator_for(schema, default=jsonschema.Draft202012Validator)
    whole = base.TYPE_CHECKER.redefine("integer", _is_whole)
    exact = extend(base, {"multipleOf": _multiple_of}, type_checker=whole)
    valid: Callable[[Any], bool] = exact(schema, registry=Registry()).is_valid
    return valid
