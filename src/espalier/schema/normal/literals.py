"""Literals: a schema that must hold, or must not. And what stands in a schema, keyword by keyword, ready to be used.

An operation is `(name, value)`: keywords of all drafts in one spelling, in the order of the text, without annotations.
What an operation does to a set of values is in `keywords.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeAlias

from espalier.schema.patterns.formats import FORMATS
from espalier.schema.read.documents import Place, Resource
from espalier.schema.read.values import BITS, count, exact, key
from espalier.time_limit import check as check_time

Scope: TypeAlias = tuple[Resource, ...]
"""The resources that were entered, outermost first, each once; empty where no reference depends on it."""
Operation: TypeAlias = tuple[str, Any]


class Literal:
    """A place whose schema holds (positive) or does not. constant: 1 if anything fits, -1 if nothing does, else 0.
    origins: the keywords that brought a negation, or the negations that it is part of."""

    __slots__ = ("constant", "group", "ops", "origins", "place", "positive", "scope")

    def __init__(self, place: Place, scope: Scope, positive: bool, constant: int, ops: tuple[Operation, ...]) -> None:
        self.place = place
        self.scope = scope
        self.positive = positive
        self.constant = constant
        self.ops = ops
        self.origins: dict[str | Literal, None] = {}
        self.group: Any = None

    def __repr__(self) -> str:
        return f"{'' if self.positive else 'not '}{self.place.pointer or '/'}"

    @property
    def origin(self) -> str:
        """The first of the keywords that brought the negation."""
        return next(iter(self.all_origins()))

    def all_origins(self) -> list[str]:
        """All of those keywords that are known by now; the place itself where there is none."""
        found: dict[str, None] = {}
        stack, seen = [self], {self}
        while stack:
            check_time()
            for origin in stack.pop().origins:
                if isinstance(origin, str):
                    found[origin] = None
                elif origin not in seen:
                    seen.add(origin)
                    stack.append(origin)
        return list(found) or [self.place.at()]

    @property
    def rank(self) -> tuple[int, bool]:
        """By place in the text."""
        return (self.place.order, self.positive)


def operations(place: Place, *, formats: bool, unevaluated: bool) -> Iterator[Operation]:
    """The operations of a schema that is an object. formats: they are asserted. unevaluated: some schema asks what was
    evaluated, so that what asserts nothing still counts."""
    schema = place.schema
    draft = place.resource.draft
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
                if unevaluated or _says_something(place, name):
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
            if formats and value in FORMATS:
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


def _says_something(place: Place, name: str) -> bool:
    if name == "object":
        kids = (place.kids.get("properties"), place.kids.get("patternProperties"))
        rest = place.kids.get("additionalProperties")
        return any(kids) or (rest is not None and not _is_true(rest))
    if isinstance(place.schema.get("items"), list):
        return bool(place.schema["items"]) or "additionalItems" in place.kids
    items = place.kids.get("items")
    return "prefixItems" in place.kids or (items is not None and not _is_true(items))


def _is_true(place: Place) -> bool:
    return place.schema is True or place.schema == {}


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
"""Keyword: the operation, and how its value is read."""
GROUPS = {
    "properties": "object",
    "patternProperties": "object",
    "additionalProperties": "object",
    "prefixItems": "array",
    "items": "array",
    "additionalItems": "array",
}
"""Keywords that mean something only together."""


class ObjectGroup:
    """`properties`, `patternProperties` and `additionalProperties` of one schema (or what amounts to them).
    at: the pointer to name where its patterns are too many."""

    __slots__ = ("at", "found", "patterns", "properties", "rest")

    def __init__(
        self,
        properties: dict[str, Literal],
        patterns: tuple[tuple[str, Literal], ...],
        rest: Literal | None,
        at: str,
    ) -> None:
        self.at = at
        self.properties = properties
        self.patterns = patterns
        self.rest = rest
        self.found: dict[str, tuple[Literal, ...]] = {}


class ArrayGroup:
    """`prefixItems` and `items` of one schema, or what amounts to them. None: anything."""

    __slots__ = ("prefix", "rest")

    def __init__(self, prefix: tuple[Literal | None, ...], rest: Literal | None) -> None:
        self.prefix = prefix
        self.rest = rest
