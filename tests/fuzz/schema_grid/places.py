"""The places of a schema in which another schema can stand, each with the documents in which its values stand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

from tests.fuzz.schema_grid.keywords import DRAFTS, KINDS, NEVER, NEW, ONE, WHOLE, Kind

COMPANIONS: dict[Kind, tuple[dict[str, Any], ...]] = {
    "object": (
        {"type": "object"},
        {"required": ["b"]},
        {"properties": {"a": WHOLE}, "additionalProperties": False},
        {"maxProperties": 1},
    ),
    "array": ({"type": "array"}, {"minItems": 1}, {"items": WHOLE}, {"maxItems": 1}),
    "string": ({"type": "string"}, {"minLength": 1}, {"pattern": "^a"}, {"maxLength": 1}),
    "number": ({"type": "number"}, {"minimum": 1}, {"multipleOf": 1}, {"maximum": 1}),
}
"""Schemas that stand beside the one that is tried, by its kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """What a place is filled with."""

    #: The schema that is tried.
    schema: Any
    #: One of `COMPANIONS`.
    companion: Any
    draft: str
    #: Chooses among variants of a place.
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    name: str
    wrap: Callable[[Part], dict[str, Any]]
    #: The documents that hold a value in this place.
    embed: Callable[[Any], Sequence[Any]] = lambda value: (value,)
    drafts: Sequence[str] = DRAFTS
    kinds: Sequence[Kind] = KINDS
    #: How often the place comes in a turn through all places; more for one that few kinds have.
    times: int = 1


def _if(part: Part) -> dict[str, Any]:
    branches = ({"then": part.companion}, {"else": part.companion}, {"then": part.companion, "else": NEVER})
    return {"if": part.schema} | branches[part.number % len(branches)]


def _definitions(part: Part) -> str:
    return "$defs" if part.draft in NEW else "definitions"


def _referred(part: Part) -> dict[str, Any]:
    name = _definitions(part)
    return {name: {"s": part.schema}, "allOf": [{"$ref": f"#/{name}/s"}]}


def _not_referred(part: Part) -> dict[str, Any]:
    name = _definitions(part)
    return {name: {"s": part.schema}, "not": {"$ref": f"#/{name}/s"}}


def _recursive(part: Part) -> dict[str, Any]:
    return {"anyOf": [part.schema, {"type": "array", "items": {"$ref": "#"}, "minItems": 2, "maxItems": 2}]}


def _depends(part: Part) -> dict[str, Any]:
    return {"dependentSchemas" if part.draft in NEW else "dependencies": {"p": part.schema}}


def _first_item(part: Part) -> dict[str, Any]:
    return {"type": "array", "prefixItems" if part.draft == "2020-12" else "items": [part.schema]}


def _unevaluated_items(part: Part) -> dict[str, Any]:
    prefix = "prefixItems" if part.draft == "2020-12" else "items"
    return {"type": "array", prefix: [ONE], "unevaluatedItems": part.schema}


def _with_p(value: Any) -> Sequence[Any]:
    return (value, value | {"p": 1}) if isinstance(value, dict) else (value,)


PLACES = (
    Place(name="plain", wrap=lambda part: dict(part.schema)),
    Place(name="not", wrap=lambda part: {"not": part.schema}),
    Place(name="not not", wrap=lambda part: {"not": {"not": part.schema}}),
    Place(name="allOf", wrap=lambda part: {"allOf": [part.companion, part.schema]}),
    Place(name="anyOf first", wrap=lambda part: {"anyOf": [part.schema, part.companion]}),
    Place(name="anyOf second", wrap=lambda part: {"anyOf": [part.companion, part.schema]}),
    Place(name="oneOf first", wrap=lambda part: {"oneOf": [part.schema, part.companion]}),
    Place(name="oneOf second", wrap=lambda part: {"oneOf": [part.companion, part.schema]}),
    Place(name="if", wrap=_if, drafts=DRAFTS[2:]),
    Place(name="then", wrap=lambda part: {"if": part.companion, "then": part.schema}, drafts=DRAFTS[2:]),
    Place(name="else", wrap=lambda part: {"if": part.companion, "else": part.schema}, drafts=DRAFTS[2:]),
    Place(name="dependentSchemas", wrap=_depends, embed=_with_p, kinds=("object",)),
    Place(name="$ref", wrap=_referred),
    Place(name="not $ref", wrap=_not_referred),
    Place(name="$ref to itself", wrap=_recursive, embed=lambda value: (value, [value, value])),
    Place(
        name="property",
        wrap=lambda part: {"type": "object", "properties": {"p": part.schema}},
        embed=lambda value: ({"p": value},),
    ),
    Place(
        name="patternProperties",
        wrap=lambda part: {"type": "object", "patternProperties": {"^p": part.schema}},
        embed=lambda value: ({"p": value},),
    ),
    Place(
        name="additionalProperties",
        wrap=lambda part: {"type": "object", "additionalProperties": part.schema},
        embed=lambda value: ({"p": value},),
    ),
    Place(
        name="unevaluatedProperties",
        wrap=lambda part: {"type": "object", "properties": {"q": {}}, "unevaluatedProperties": part.schema},
        embed=lambda value: ({"p": value}, {"q": value}),
        drafts=NEW,
    ),
    Place(
        name="beside unevaluatedProperties",
        wrap=lambda part: {"anyOf": [part.schema, part.companion], "unevaluatedProperties": False},
        drafts=NEW,
        kinds=("object",),
    ),
    Place(
        name="propertyNames",
        wrap=lambda part: {"type": "object", "propertyNames": part.schema, "maxProperties": 1},
        embed=lambda value: ({value: 1},) if isinstance(value, str) else (),
        drafts=DRAFTS[1:],
        kinds=("string",),
        times=4,
    ),
    Place(name="items", wrap=lambda part: {"type": "array", "items": part.schema}, embed=lambda value: ([value],)),
    Place(name="first item", wrap=_first_item, embed=lambda value: ([value], [value, 1])),
    Place(
        name="contains",
        wrap=lambda part: {"type": "array", "contains": part.schema, "maxItems": 2},
        embed=lambda value: ([value], [1, value]),
        drafts=DRAFTS[1:],
    ),
    Place(name="unevaluatedItems", wrap=_unevaluated_items, embed=lambda value: ([1, value],), drafts=NEW),
    Place(
        name="beside unevaluatedItems",
        wrap=lambda part: {"anyOf": [part.schema, part.companion], "unevaluatedItems": False},
        drafts=NEW,
        kinds=("array",),
    ),
)


@cache
def places_of(kind: Kind, drafts: tuple[str, ...]) -> tuple[Place, ...]:
    """The places in which a schema of these drafts and this kind can stand."""
    here = [place for place in PLACES if kind in place.kinds and set(drafts) & set(place.drafts)]
    return tuple(place for place in here for _ in range(place.times))
