"""The keywords of each JSON type, with values at their bounds, for every draft that has them."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from math import prod
from typing import Any, Literal, TypeAlias

Kind: TypeAlias = Literal["object", "array", "string", "number"]
KINDS: tuple[Kind, ...] = ("object", "array", "string", "number")
DRAFTS = ("draft-04", "draft-06", "draft-07", "2019-09", "2020-12")
ADDRESSES = {
    "draft-04": "http://json-schema.org/draft-04/schema#",
    "draft-06": "http://json-schema.org/draft-06/schema#",
    "draft-07": "http://json-schema.org/draft-07/schema#",
    "2019-09": "https://json-schema.org/draft/2019-09/schema",
    "2020-12": "https://json-schema.org/draft/2020-12/schema",
}
OLD, NEW = DRAFTS[:3], DRAFTS[3:]
NEVER: Any = {"not": {}}
"""The schema of no value, as every draft can write it."""
FORMATS = {
    "date": ("2024-02-29", "2023-02-29"),
    "time": ("12:00:00Z", "25:00:00Z"),
    "email": ("a@b.co", "a@"),
    "ipv4": ("1.2.3.4", "1.2.3.256"),
    "ipv6": ("::1", "::1::"),
    "uuid": ("12345678-1234-1234-1234-123456789abc", "12345678"),
    "json-pointer": ("/a", "a/"),
    "regex": ("ab", "(a"),
}
"""Formats with a text that has the format and one that has not."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Keyword:
    #: As the standard spells it.
    name: str
    #: At the bounds of what its neighbours may hold.
    values: Sequence[Any]
    #: Those in which the keyword takes these values.
    drafts: Sequence[str] = DRAFTS


def _counts(name: str, drafts: Sequence[str] = DRAFTS) -> Keyword:
    return Keyword(name=name, values=(1, 2, 0, 3), drafts=drafts)


def _any(kind: Kind, listed: Sequence[Any]) -> tuple[Keyword, ...]:
    """The keywords that every type has. listed: values for `enum`."""
    types = {"object": "null", "array": "string", "string": "null", "number": "array"}
    return (
        Keyword(name="type", values=(kind, [kind, types[kind]])),
        Keyword(name="enum", values=([*listed], [*listed[:2], None])),
        Keyword(name="const", values=listed[:3], drafts=DRAFTS[1:]),
    )


WHOLE, TEXT, ONE = {"type": "integer"}, {"type": "string"}, {"enum": [1]}
OBJECTS = (
    *_any("object", ({"a": 1}, {"a": 1, "b": "x"}, {}, {"c": 1})),
    Keyword(
        name="properties",
        values=({"a": {}, "b": {}}, {"a": WHOLE}, {"a": WHOLE, "b": TEXT, "c": {}}, {"a": NEVER, "b": {}}, {"é": ONE}),
    ),
    Keyword(name="patternProperties", values=({"^a": WHOLE}, {"b$": {}, "^c": TEXT}, {"\\w": WHOLE}, {"^$": {}})),
    Keyword(name="additionalProperties", values=(False, WHOLE, True)),
    Keyword(name="required", values=(["a"], ["a", "b"], ["c"])),
    _counts("minProperties"),
    _counts("maxProperties"),
    Keyword(
        name="propertyNames",
        values=({"maxLength": 1}, {"pattern": "^[ab]$"}, {"enum": ["a", "c"]}, {"minLength": 1}),
        drafts=DRAFTS[1:],
    ),
    Keyword(name="dependentRequired", values=({"a": ["b"]}, {"b": ["a", "c"]}), drafts=NEW),
    Keyword(
        name="dependentSchemas",
        drafts=NEW,
        values=(
            {"a": {"required": ["b"]}},
            {"a": {"maxProperties": 1}},
            {"b": False},
            {"b": {"properties": {"a": WHOLE}}},
        ),
    ),
    Keyword(
        name="dependencies",
        values=({"a": ["b"]}, {"a": {"maxProperties": 1}}, {"b": {"properties": {"a": WHOLE}}}),
        drafts=OLD,
    ),
    Keyword(name="unevaluatedProperties", values=(False, WHOLE, TEXT), drafts=NEW),
)
ARRAYS = (
    *_any("array", ([1], [1, "x"], [], [2, 1])),
    Keyword(name="prefixItems", values=([WHOLE], [WHOLE, TEXT], [{}, False]), drafts=NEW[1:]),
    Keyword(name="items", values=(WHOLE, False, ONE, {"type": ["integer", "string"]}), drafts=NEW[1:]),
    Keyword(name="items", values=(WHOLE, [WHOLE], [WHOLE, TEXT], ONE, [{}]), drafts=DRAFTS[:4]),
    Keyword(name="additionalItems", values=(False, WHOLE, TEXT), drafts=DRAFTS[:4]),
    Keyword(name="contains", values=(ONE, TEXT, WHOLE, {}), drafts=DRAFTS[1:]),
    _counts("minContains", NEW),
    _counts("maxContains", NEW),
    _counts("minItems"),
    _counts("maxItems"),
    Keyword(name="uniqueItems", values=(True,)),
    Keyword(name="unevaluatedItems", values=(False, TEXT, WHOLE), drafts=NEW),
)
STRINGS = (
    *_any("string", ("a", "ab", "", "é\n")),
    _counts("minLength"),
    _counts("maxLength"),
    Keyword(
        name="pattern",
        values=(
            "^a",
            "^a$",
            "b",
            "\\d",
            "^\\w+$",
            "^[^a]*$",
            "^.$",
            "\\s",
            "^(a|b)?$",
            "\\W",
            "\\bb",
            "^\\S*$",
            "a|^$",
        ),
    ),
    Keyword(name="format", values=tuple(FORMATS)),
)
BOUNDS = (1, 0, -1, 2, 1.5, 0.5, 3)
NUMBERS = (
    *_any("number", (1, 1.5, 0, -1)),
    Keyword(name="minimum", values=BOUNDS),
    Keyword(name="maximum", values=BOUNDS),
    Keyword(name="exclusiveMinimum", values=BOUNDS, drafts=DRAFTS[1:]),
    Keyword(name="exclusiveMaximum", values=BOUNDS, drafts=DRAFTS[1:]),
    Keyword(name="exclusiveMinimum", values=(True, False), drafts=DRAFTS[:1]),
    Keyword(name="exclusiveMaximum", values=(True, False), drafts=DRAFTS[:1]),
    Keyword(name="multipleOf", values=(1, 2, 0.5, 1.5, 3, 0.1, 1e10)),
)
FAMILIES: dict[Kind, tuple[Keyword, ...]] = {"object": OBJECTS, "array": ARRAYS, "string": STRINGS, "number": NUMBERS}
NEEDS = {
    "additionalItems": "items",
    "minContains": "contains",
    "maxContains": "contains",
    "exclusiveMinimum": "minimum",
    "exclusiveMaximum": "maximum",
}
"""Keywords that assert nothing without another one; some only in the drafts of `NEEDED_IN`."""
NEEDED_IN = {"exclusiveMinimum": DRAFTS[:1], "exclusiveMaximum": DRAFTS[:1]}
STEP = 10_007
"""A prime: no number of combinations has it as a factor."""


@cache
def drafts_of(kind: Kind, names: tuple[str, ...]) -> tuple[str, ...]:
    """The drafts that have all of the keywords and that the validators judge as the standard does; the newest is
    last."""
    return tuple(
        draft
        for draft in DRAFTS
        if all(_of_draft(kind, name, draft) for name in names) and not is_misjudged(draft, names)
    )


def is_misjudged(draft: str, names: Collection[str]) -> bool:
    """Whether both validators judge these keywords in one schema otherwise than the standard does: in 2019-09 they let
    `contains` evaluate items, and Core 9.3.1.3 names `items`, `additionalItems` and `unevaluatedItems` alone."""
    return draft == "2019-09" and "unevaluatedItems" in names and not CONTAINS.isdisjoint(names)


CONTAINS = frozenset(("contains", "minContains", "maxContains"))


@cache
def keyword_sets(kind: Kind) -> tuple[tuple[str, ...], ...]:
    """Each pair and triple of keywords that some draft has together."""
    every = dict.fromkeys(keyword.name for keyword in FAMILIES[kind])
    return tuple(names for size in (2, 3) for names in combinations(every, size) if drafts_of(kind, names))


def values_at(kind: Kind, names: tuple[str, ...], draft: str, number: int) -> dict[str, Any]:
    """The schema of these keywords whose values are those of a number: numbers in a row go through all combinations,
    in an order in which neighbours differ."""
    needed = [NEEDS[name] for name in names if name in NEEDS and draft in NEEDED_IN.get(name, DRAFTS)]
    names = tuple(dict.fromkeys((*names, *needed)))
    choices = [_require(kind, name, draft).values for name in names]
    left = number * STEP % prod(map(len, choices))
    schema: dict[str, Any] = {}
    for name, values in zip(names, choices, strict=True):
        left, place = divmod(left, len(values))
        schema[name] = values[place]
    if "additionalItems" in schema and not isinstance(schema["items"], list):
        schema["items"] = [schema["items"]]  # it asserts something beside a list alone
    return schema


def _require(kind: Kind, name: str, draft: str) -> Keyword:
    keyword = _of_draft(kind, name, draft)
    assert keyword is not None, f"{name} of {draft}"
    return keyword


@cache
def _of_draft(kind: Kind, name: str, draft: str) -> Keyword | None:
    return next((one for one in FAMILIES[kind] if one.name == name and draft in one.drafts), None)


def pairs(names: Sequence[str]) -> Iterator[str]:
    """The names of the pairs in a set of keywords."""
    yield from (f"{one} + {other}" for one, other in combinations(sorted(names), 2))
