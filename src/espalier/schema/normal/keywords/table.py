"""The table of rules by operation, and how a literal is applied to a branch with it.

A failure that the normal form cannot express is left out: more values fit than should, and the contract reports it.
"""

from __future__ import annotations

from espalier.schema.normal.branch import Alternative, Branch
from espalier.schema.normal.keywords import any_type, arrays, objects, scalars
from espalier.schema.normal.keywords.rules import (
    Fails,
    Holds,
    Inexpressible,
    fails_as,
    inexpressible,
    least,
    most,
    unevaluated,
)
from espalier.schema.normal.literals import SchemaLiteral
from espalier.schema.read.values import ANY_TYPE, ARRAY, NUMBER, OBJECT, STRING

OPERATIONS: dict[str, tuple[int, Holds, Fails]] = {
    "type": (ANY_TYPE, any_type.type_holds, any_type.type_fails),
    "values": (ANY_TYPE, any_type.values_hold, any_type.values_fail),
    "ref": (ANY_TYPE, any_type.ref_holds, any_type.ref_fails),
    "all": (ANY_TYPE, any_type.all_hold, any_type.all_fail),
    "any": (ANY_TYPE, any_type.any_holds, any_type.any_fails),
    "one": (ANY_TYPE, any_type.one_holds, any_type.one_fails),
    "not": (ANY_TYPE, any_type.not_holds, any_type.not_fails),
    "if": (ANY_TYPE, any_type.if_holds, any_type.if_fails),
    "low": (NUMBER, scalars.low_holds, fails_as("below", lambda value: (value[0], not value[1]))),
    "high": (NUMBER, scalars.high_holds, fails_as("above", lambda value: (value[0], not value[1]))),
    "multiple": (NUMBER, scalars.multiple_holds, fails_as("not_multiple", lambda value: (value,))),
    "min_length": (STRING, *least("minLength")),
    "max_length": (STRING, *most("maxLength")),
    "pattern": (STRING, scalars.pattern_holds, fails_as("not_pattern", lambda value: (value,))),
    "format": (STRING, scalars.format_holds, inexpressible("format")),
    "object": (OBJECT, objects.object_holds, objects.object_fails),
    "required": (OBJECT, objects.required_holds, objects.required_fails),
    "min_properties": (OBJECT, *least("minProperties")),
    "max_properties": (OBJECT, *most("maxProperties")),
    "names": (OBJECT, objects.names_hold, objects.names_fail),
    "dependent_required": (OBJECT, objects.dependent_required_holds, objects.dependent_required_fails),
    "dependent_schemas": (OBJECT, objects.dependent_schemas_hold, objects.dependent_schemas_fail),
    "unevaluated_properties": (OBJECT, *unevaluated("unevaluatedProperties")),
    "array": (ARRAY, arrays.array_holds, arrays.array_fails),
    "min_items": (ARRAY, *least("minItems")),
    "max_items": (ARRAY, *most("maxItems")),
    "contains": (ARRAY, arrays.contains_holds, arrays.contains_fails),
    "unique": (ARRAY, arrays.unique_holds, inexpressible("uniqueItems")),
    "unevaluated_items": (ARRAY, *unevaluated("unevaluatedItems")),
}
"""By operation (`normal/operations.py`): the types it applies to, what it does when it holds, how it can fail."""


class KeywordRules:
    """The `LiteralRules` of `branch.py`, by this table."""

    def hold(self, literal: SchemaLiteral, branch: Branch) -> None:
        for name, value in literal.ops:
            kinds, holds, _ = OPERATIONS[name]
            if kinds & branch.kind:
                holds(branch, literal, value)

    def ways_to_fail(self, literal: SchemaLiteral, branch: Branch) -> list[Alternative] | None:
        alternatives: list[Alternative] = []
        missing = ""
        for name, value in literal.ops:
            kinds, _, fails = OPERATIONS[name]
            if not kinds & branch.kind:
                continue
            try:
                ways = fails(branch, literal, value)
            except Inexpressible as error:
                missing = literal.subschema.at(error.keyword)
                continue
            if ways is None:
                return None
            alternatives += ways
        if missing:
            branch.leave(literal, f"that {missing} fails cannot be expressed")
            return None
        return alternatives
