"""Reads one schema object into operations: one spelling for the keywords of all drafts, without annotations.

    {"type": "integer", "minimum": 1, "title": "n"}   ("type", (NUMBER, True)), ("low", (Fraction(1), False, "minimum"))
    {"items": {"type": "null"}}                       ("array", None)

An operation is `(name, value)`, in the order of the text. Keywords that mean something only together, such as
`properties` and `additionalProperties`, become one operation. What an operation does to a set of values is in
`keywords/`; this module knows neither negation nor references.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from espalier.schema.read.documents import Subschema
from espalier.schema.read.values import BITS, count, exact, key

Operation: TypeAlias = tuple[str, Any]


def operations(subschema: Subschema, *, formats: bool, unevaluated: bool, closed: bool = False) -> Iterator[Operation]:
    """The operations of a schema that is an object.

    formats: `format` is asserted. unevaluated: some schema has an `unevaluated*` keyword, so that keywords which assert
    nothing, such as `properties: {}`, still count as evaluating. closed: so they do where undeclared names are refused.
    """
    schema = subschema.value
    draft = subschema.resource.draft
    if draft.ref_alone and "$ref" in schema:
        yield "ref", "$ref"
        return
    seen: set[str] = set()
    for keyword, value in schema.items():
        if keyword not in draft.keywords:
            continue
        if keyword in SIMPLE:
            name, read = SIMPLE[keyword]
            yield name, read(value)
        elif keyword in GROUPS:
            name = GROUPS[keyword]
            if name not in seen:
                seen.add(name)
                if unevaluated or (closed and name == "object") or _says_something(subschema, name):
                    yield name, None
        elif keyword in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum"):
            if not isinstance(value, bool):
                strict = keyword[0] == "e" or (
                    draft.boolean_exclusive and schema.get(f"exclusive{keyword.capitalize()}") is True
                )
                yield ("low" if keyword.endswith("nimum") else "high"), (exact(value), strict, keyword)
        elif keyword == "type":
            yield "type", _types(value)
        elif keyword in ("enum", "const"):
            values = value if keyword == "enum" else [value]
            yield "values", ({key(member): member for member in values}, keyword)
        elif keyword == "format":
            if formats and value in draft.formats:
                yield "format", value
        elif keyword == "uniqueItems":
            if value:
                yield "unique", None
        elif keyword == "contains":
            least, most = (schema[k] if k in schema and k in draft.keywords else None for k in _CONTAINS)
            least, most = 1 if least is None else count(least), None if most is None else count(most)
            if unevaluated or least or most is not None:
                yield "contains", (least, most)
        elif keyword == "if":
            if unevaluated or "then" in schema or "else" in schema:
                yield "if", ("then" in schema, "else" in schema)
        elif keyword == "dependencies":
            names = {name: wanted for name, wanted in value.items() if isinstance(wanted, list)}
            if names:
                yield "dependent_required", (names, keyword)
            if len(names) < len(value):
                yield "dependent_schemas", keyword


_CONTAINS = ("minContains", "maxContains")


def _says_something(subschema: Subschema, name: str) -> bool:
    if name == "object":
        kids = (subschema.kids.get("properties"), subschema.kids.get("patternProperties"))
        rest = subschema.kids.get("additionalProperties")
        return any(kids) or (rest is not None and not _is_true(rest))
    if isinstance(subschema.value.get("items"), list):
        return bool(subschema.value["items"]) or "additionalItems" in subschema.kids
    items = subschema.kids.get("items")
    return "prefixItems" in subschema.kids or (items is not None and not _is_true(items))


def _is_true(subschema: Subschema) -> bool:
    return subschema.value is True or subschema.value == {}


def _types(value: Any) -> tuple[int, bool]:
    names = [value] if isinstance(value, str) else value
    mask = 0
    for name in names:
        mask |= BITS[name]
    return mask, "integer" in names and "number" not in names


def _same(value: Any) -> Any:
    return value


def _names(value: Any) -> tuple[Any, str]:
    return value, "dependentRequired"


SIMPLE: dict[str, tuple[str, Any]] = {
    "multipleOf": ("multiple", exact),
    "minLength": ("min_length", count),
    "maxLength": ("max_length", count),
    "pattern": ("pattern", _same),
    "minItems": ("min_items", count),
    "maxItems": ("max_items", count),
    "required": ("required", _same),
    "minProperties": ("min_properties", count),
    "maxProperties": ("max_properties", count),
    "propertyNames": ("names", _same),
    "dependentRequired": ("dependent_required", _names),
    "dependentSchemas": ("dependent_schemas", lambda _: "dependentSchemas"),
    "$ref": ("ref", lambda _: "$ref"),
    "$dynamicRef": ("ref", lambda _: "$dynamicRef"),
    "$recursiveRef": ("ref", lambda _: "$recursiveRef"),
    "allOf": ("all", _same),
    "anyOf": ("any", _same),
    "oneOf": ("one", _same),
    "not": ("not", _same),
    "unevaluatedItems": ("unevaluated_items", _same),
    "unevaluatedProperties": ("unevaluated_properties", _same),
}
"""By keyword: the operation, and the function that reads the value."""
GROUPS = {
    "properties": "object",
    "patternProperties": "object",
    "additionalProperties": "object",
    "prefixItems": "array",
    "items": "array",
    "additionalItems": "array",
}
"""Keywords that mean something only together, and their common operation."""
