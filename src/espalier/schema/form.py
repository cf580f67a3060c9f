"""The normal form of a JSON Schema: a graph of nodes, each a union of cases, one JSON type (or finite set) a case.

Whoever enforces schemas reads this and nothing else: references, drafts, `allOf`, `not`, `if` and their kin are gone.
The cases of a node may overlap; a value is valid if it fits one of them. It knows neither tokens nor text.
"""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Protocol, TypeAlias

NodeId: TypeAlias = int
"""A node of the graph. Nodes may lead back to themselves."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Values:
    """Exactly these JSON values, as Python has them (dict, list, str, int, float, Decimal, bool, None); 1 and 1.0 are
    one value, True and 1 are two. Never empty."""

    values: tuple[Any, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Null:
    """null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Boolean:
    """true and false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """Numbers within bounds. integer: whole ones only (1.0 is whole). multiples: of all of these. excluded: not these.
    not_multiples: of none of these."""

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
    """Strings. Lengths count code points. patterns: each is found somewhere in it (`re.search`, ECMA-262 dialect).
    not_patterns: none is. formats: each is kept (only those that are asserted). excluded: not these."""

    min_length: int = 0
    max_length: int | None = None
    patterns: tuple[str, ...] = ()
    not_patterns: tuple[str, ...] = ()
    formats: tuple[str, ...] = ()
    excluded: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Contains:
    """How many items fit: at least `least`, at most `most`. match: items that fit (what all items are, and this).
    other: items that do not; None where that cannot be said, and then `most` is None too."""

    match: NodeId
    other: NodeId | None
    least: int = 1
    most: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Array:
    """Arrays. prefix: the first items, one by one. items: all that follow; FALSE where none may. unique: no two items
    are equal."""

    prefix: tuple[NodeId, ...] = ()
    items: NodeId
    min_items: int = 0
    max_items: int | None = None
    contains: tuple[Contains, ...] = ()
    unique: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Property:
    """A declared name. node: its value; FALSE where the name may not occur (then it is not required)."""

    name: str
    node: NodeId
    required: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """Names that are not declared, match all of `patterns` and none of `not_patterns`: their values."""

    node: NodeId
    patterns: tuple[str, ...] = ()
    not_patterns: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Object:
    """Objects. properties: in the order in which they are written. rest: disjoint groups of other names; a name in none
    may not occur. names: what every name, declared or not, must be as a string; None for anything (declared names that
    are not are FALSE already). min_properties, max_properties: of distinct names."""

    properties: tuple[Property, ...] = ()
    rest: tuple[Rest, ...] = ()
    names: NodeId | None = None
    min_properties: int = 0
    max_properties: int | None = None


Case: TypeAlias = Values | Null | Boolean | Number | String | Array | Object


class Shapes(Protocol):
    """The graph of one schema. Nodes are expanded when they are first asked for; safe to share once built."""

    @property
    def root(self) -> NodeId: ...

    @property
    def false(self) -> NodeId:
        """The node that nothing fits; every node that is known to be empty is this one."""
        ...

    def cases(self, node: NodeId) -> tuple[Case, ...]:
        """What fits, as a union; `()` for nothing. Raises what building the schema raises."""
        ...

    def pointer(self, node: NodeId) -> str:
        """A JSON pointer into the schema that the user gave: where this node chiefly comes from."""
        ...
