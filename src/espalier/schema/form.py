"""The normal form of a JSON Schema: a graph of nodes; a node is a union of cases; a case is one JSON type or a value
list.

    {"properties": {"n": {"type": ["integer", "null"]}}, "type": "object"}
    root      (Object(properties=(Property(name="n", node=2),), rest=(Rest(node=1),)),)
    node 2    (Null(), NumberForm(integer=True))

Code that enforces schemas reads this and nothing else: references, drafts, `allOf`, `not`, `if` and the like are
resolved. The cases of a node may overlap; a value is valid if it fits at least one. It knows neither tokens nor text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

NodeId: TypeAlias = int
"""A node of the graph. The graph may have cycles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Exactly these JSON values as Python objects (dict, list, str, int, float, Decimal, bool, None). 1 and 1.0 are one
    value, True and 1 are two. Never empty. any_order: the names of their objects come in every order."""

    values: tuple[Any, ...]
    any_order: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Null:
    """null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boolean:
    """true and false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberForm:
    """Numbers within bounds. integer: whole numbers only (1.0 is whole). multiples: a value is a multiple of
    each. not_multiples: a value is a multiple of none. excluded: values that are not allowed."""

    integer: bool = False
    minimum: Fraction | None = None
    exclusive_minimum: bool = False
    maximum: Fraction | None = None
    exclusive_maximum: bool = False
    multiples: tuple[Fraction, ...] = ()
    not_multiples: tuple[Fraction, ...] = ()
    excluded: tuple[Fraction, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class String:
    """Strings. Lengths count code points. patterns: each matches somewhere (ECMA-262, as `re.search`). not_patterns:
    none matches anywhere. formats: the asserted ones, all hold. excluded: none of these."""

    min_length: int = 0
    max_length: int | None = None
    patterns: tuple[str, ...] = ()
    not_patterns: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contains:
    """How many items match: at least `least`, at most `most`. match: the node of items that match (with what all items
    must satisfy, where there is no prefix). other: the node of items that do not; None where it cannot be expressed,
    and then `most` is None too. first: the index from which on items count."""

    match: NodeId
    other: NodeId | None
    least: int = 1
    most: int | None = None
    first: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ItemKind:
    """Items at one index by what they match. matches: the numbers of `Array.contains` that they match, a bit for each.
    Where the items that do not match cannot be expressed, those that may match are among them. node: the node of these
    items, with all that an item there must satisfy."""

    matches: int
    node: NodeId


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """Arrays. prefix: the nodes of the first items. items: the node of all further items; FALSE where there may be
    none. kinds: the items by what they match, for each index of the prefix and then for all further items; empty where
    `contains` is, or where there are too many to be told apart. unique: no two items are equal."""

    prefix: tuple[NodeId, ...] = ()
    items: NodeId
    min_items: int = 0
    max_items: int | None = None
    contains: tuple[Contains, ...] = ()
    kinds: tuple[tuple[ItemKind, ...], ...] = ()
    unique: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """A declared name. node: the node of its value; FALSE where the name may not occur (then it is not required)."""

    name: str
    node: NodeId
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Undeclared names that match all of `patterns` and none of `not_patterns`."""

    #: The node of their values.
    node: NodeId
    patterns: tuple[str, ...] = ()
    not_patterns: tuple[str, ...] = ()
    #: The node of these names as strings; None for any name.
    names: NodeId | None = None
    #: The numbers of `Object.demands` that each such member meets, a bit for each.
    meets: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """At least one undeclared member meets it. Comes from a negation: `not {"additionalProperties": false}`."""

    #: The pointer of the keyword that negates.
    at: str
    #: Whether a member meets it by its value, so that another member of the same name could undo that.
    by_value: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """Objects. properties: in the order in which they are generated. rest: the members with other names; a name in none
    of these groups may not occur. Groups of different patterns are disjoint; where several have the same patterns, the
    first one includes the others, which are there because they meet `demands`. min_properties, max_properties: bounds
    on the number of distinct names. any_order: properties and other names come in every order."""

    properties: tuple[Property, ...] = ()
    rest: tuple[Rest, ...] = ()
    demands: tuple[Demand, ...] = ()
    min_properties: int = 0
    max_properties: int | None = None
    any_order: bool = False


Case: TypeAlias = Values | Null | Boolean | NumberForm | String | Array | Object


def needed(case: Case) -> Iterator[NodeId]:
    """The nodes on which it may depend whether the case has a value."""
    if isinstance(case, Object):
        yield from (prop.node for prop in case.properties if prop.required)
        if case.min_properties:
            yield from (prop.node for prop in case.properties if not prop.required)
        if case.min_properties or case.demands:
            yield from nodes_of_rest(case)
    elif isinstance(case, Array):
        yield from case.prefix[: case.min_items]
        if case.min_items > len(case.prefix):
            yield case.items
        yield from (counted.match for counted in case.contains if counted.least)


def nodes_of_rest(case: Object) -> Iterator[NodeId]:
    """The nodes of undeclared names and of their values."""
    for group in case.rest:
        yield group.node
        if group.names is not None:
            yield group.names


def fewest(meets: Sequence[int], missing: int) -> int | None:
    """The least number of members that meet all missing demands, a bit for each, None where no members do. meets: for
    each kind of member, the demands that it meets."""
    reached, count = {0}, 0
    while not any(met & missing == missing for met in reached):
        more = {met | kind & missing for met in reached for kind in meets}
        if more <= reached:
            return None
        reached, count = reached | more, count + 1
    return count


class NormalForm(Protocol):
    """The graph of one schema. Nodes are expanded when they are first asked for. Safe to share between threads."""

    @property
    def root(self) -> NodeId: ...

    @property
    def false(self) -> NodeId:
        """The node that no value fits."""
        ...

    def cases(self, node: NodeId) -> tuple[Case, ...]:
        """The cases of a node, as a union; `()` for no value. Raises what expanding the schema raises."""
        ...

    def pointer(self, node: NodeId) -> str:
        """A JSON pointer into the user's schema: where this node mainly comes from."""
        ...
