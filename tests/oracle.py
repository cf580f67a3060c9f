"""The verdict of the `jsonschema` package on a value, with numbers taken for what their decimal text says, and
patterns as ECMA-262 reads them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jsonschema
from jsonschema.validators import extend, validator_for
from referencing import Registry

from espalier.schema.normal.validator import validator_class
from espalier.schema.patterns.ecma import found


def _is_whole(checker: Any, value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value == int(value)


def validator(schema: Any) -> Callable[[Any], bool]:
    """`valid(value)` by the validator of the schema's draft. In draft 4 too 1.0 is taken for an integer, as a value is
    not its spelling."""
    base = validator_for(schema, default=jsonschema.Draft202012Validator)
    whole = base.TYPE_CHECKER.redefine("integer", _is_whole)
    exact = validator_class(extend(base, type_checker=whole), found)
    valid: Callable[[Any], bool] = exact(schema, registry=Registry()).is_valid
    return valid
