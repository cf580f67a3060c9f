"""What can be seen of a set of literals without expanding it: its types, and its values where they are few and listed.

Branches ask this to drop what cannot be. "Not seen" is always a right answer.
"""

from __future__ import annotations

from typing import Any

from espalier.schema.form import Case, NodeId
from espalier.schema.normal.cases import led_to
from espalier.schema.normal.judge import Oracle, Undecided
from espalier.schema.normal.literals import Literal
from espalier.schema.normal.overlap import may_overlap
from espalier.schema.read.documents import Place, Store
from espalier.schema.read.values import ANY_TYPE, BITS, STRING, type_of

MAX_REFERENCES = 20
"""Steps through `$ref` and `allOf` that are followed to see a type or a list of values."""


class Node:
    """literals: what must hold. raw: its cases, before empty nodes are taken out. left: keywords left out."""

    __slots__ = ("cases", "empty", "left", "literals", "raw", "reasons", "running")

    def __init__(self, literals: tuple[Literal, ...]) -> None:
        self.literals = literals
        self.raw: tuple[Case, ...] | None = None
        self.cases: tuple[Case, ...] | None = None
        self.empty: bool | None = None
        self.left: dict[str | Literal, str] = {}
        """By pointer, or by the literal that was left out."""
        self.reasons: list[tuple[str, ...]] = []
        self.running = False


def stated(literals: tuple[Literal, ...]) -> tuple[str, ...]:
    """The pointers of all that these assert."""
    return tuple(
        literal.place.at(keyword)
        for literal in literals
        if isinstance(literal.place.schema, dict)
        for keyword in literal.place.schema
        if keyword in literal.place.resource.draft.keywords and keyword != "format"
    )


class Supposing:
    """The half of an expansion that answers such questions; `Expansion` is the other one."""

    store: Store
    nodes: list[Node]
    oracle: Oracle

    def literal(self, place: Place, parent: Literal | None, positive: bool, origin: str | Literal = "") -> Literal:
        raise NotImplementedError

    def target(self, literal: Literal, keyword: str) -> Place:
        raise NotImplementedError

    def leave(self, pointer: str | Literal, note: str) -> None:
        raise NotImplementedError

    def node(self, literals: tuple[Literal, ...]) -> NodeId:
        raise NotImplementedError

    def start(self) -> None:
        self.masks: dict[Literal, int] = {}
        self.fixings: dict[Literal, dict[Any, Any] | None] = {}
        self.listed: dict[frozenset[Literal], tuple[list[Any] | None, str | None]] = {}
        self.doomed: dict[frozenset[Literal], tuple[str, ...] | None] = {}

    # Types

    def mask(self, literal: Literal) -> int:
        """The types that can fit."""
        return self.find_mask(literal, 0)

    def find_mask(self, literal: Literal, depth: int) -> int:
        known = self.masks.get(literal)
        if known is None:
            self.masks[literal] = ANY_TYPE  # for who leads back here
            known = self.masks[literal] = self.new_mask(literal, depth)
        return known

    def new_mask(self, literal: Literal, depth: int) -> int:
        if not literal.positive:
            if len(literal.ops) == 1 and literal.ops[0][0] == "type":
                mask, whole = literal.ops[0][1]
                denied: int = mask & ~BITS["number"] if whole else mask
                return ANY_TYPE & ~denied
            return ANY_TYPE
        found = ANY_TYPE
        for name, value in literal.ops:
            if name == "type":
                found &= value[0]
            elif name in ("ref", "all") and depth < MAX_REFERENCES:
                for inner in self.inner(literal, name, value):
                    if inner.constant <= 0:
                        found &= 0 if inner.constant else self.find_mask(inner, depth + 1)
        return found

    def inner(self, literal: Literal, name: str, value: Any) -> list[Literal]:
        """What holds because of a `$ref` or `allOf`."""
        places = [self.target(literal, value)] if name == "ref" else list(literal.place.kids["allOf"].values())
        return [self.literal(place, literal, True) for place in places]

    # Values

    def fixed(self, literal: Literal, depth: int = 0) -> dict[Any, Any] | None:
        """The values that the literal lists, among which all that fit it are."""
        if literal not in self.fixings:
            self.fixings[literal] = None  # for who leads back here
            self.fixings[literal] = self.new_fixed(literal, depth)
        return self.fixings[literal]

    def new_fixed(self, literal: Literal, depth: int) -> dict[Any, Any] | None:
        if not literal.positive and len(literal.ops) == 1 and literal.ops[0][0] == "not":
            literal = self.literal(literal.place.kids["not"], literal, True)
        if not literal.positive or depth > MAX_REFERENCES:
            return None
        found: dict[Any, Any] | None = None
        for name, value in literal.ops:
            listed: list[dict[Any, Any] | None] = []
            if name == "values":
                listed = [value[0]]
            elif name in ("ref", "all"):
                listed = [self.fixed(inner, depth + 1) for inner in self.inner(literal, name, value)]
            for values in listed:
                if values is not None and (found is None or len(values) < len(found)):
                    found = values
        return found

    def finite(self, literals: tuple[Literal, ...]) -> tuple[list[Any] | None, str | None]:
        """All values that fit, where a literal lists them; and the pointer of one that could not be judged."""
        known = frozenset(literals)
        if known not in self.listed:
            lists = [values for values in map(self.fixed, literals) if values is not None]
            found: tuple[list[Any] | None, str | None] = (None, None)
            if lists:
                found = self.filtered(list(min(lists, key=len).values()), literals)
            self.listed[known] = found
        return self.listed[known]

    def filtered(self, values: list[Any], literals: tuple[Literal, ...]) -> tuple[list[Any], str | None]:
        """Those that fit; one that could not be judged is kept, and the pointer of what could not judge it given."""
        undecided: str | None = None
        for literal in literals:
            names = sorted(name for name, _ in literal.ops)
            if literal.positive and names == ["values"] and len(literals) == 1:
                continue
            if literal.positive and names == ["type", "values"] and len(literals) == 1:
                mask, whole = next(value for name, value in literal.ops if name == "type")
                if not whole:
                    values = [value for value in values if type_of(value) & mask]
                    continue
            kept = []
            for value in values:
                try:
                    if self.oracle.holds(literal, value):
                        kept.append(value)
                except Undecided:
                    kept.append(value)
                    undecided = literal.place.at()
            values = kept
        return values, undecided

    # What branches ask

    def hopeless(self, literals: tuple[Literal, ...]) -> tuple[str, ...] | None:
        if len(literals) < 2 and not any(literal.constant < 0 for literal in literals):
            return None
        known = frozenset(literals)
        if known not in self.doomed:
            self.doomed[known] = self.find_hopeless(literals)
        return self.doomed[known]

    def find_hopeless(self, literals: tuple[Literal, ...]) -> tuple[str, ...] | None:
        mask = ANY_TYPE
        for literal in literals:
            if literal.constant < 0:
                return (literal.place.at(),)
            mask &= self.mask(literal)
        if not mask:
            return tuple(literal.place.at() for literal in literals if self.mask(literal) != ANY_TYPE)
        values, _ = self.finite(literals)
        if values is not None:
            return None if values else stated(literals)
        if mask == STRING:
            patterns = [(v, lit) for lit in literals if lit.positive for name, v in lit.ops if name == "pattern"]
            for i, (pattern, literal) in enumerate(patterns):
                for other, second in patterns[:i]:
                    if not may_overlap(*sorted((pattern, other))):
                        return second.place.at("pattern"), literal.place.at("pattern")
        return None

    def implies(self, literals: tuple[Literal, ...], literal: Literal) -> bool:
        if literal in literals or literal.constant > 0:
            return True
        if all(name == "type" and not value[1] for name, value in literal.ops):
            mask = ANY_TYPE
            for other in literals:
                mask &= self.mask(other)
            if not mask & ~self.mask(literal):
                return True
        values, undecided = self.finite(literals)
        if values is None or undecided is not None or len(values) > 1000:
            return False
        try:
            return all(self.oracle.holds(literal, value) for value in values)
        except Undecided:
            return False

    # What building asks

    def raw(self, node: NodeId) -> tuple[Case, ...]:
        raise NotImplementedError

    def decides(self, literals: tuple[Literal, ...]) -> bool:
        """Everything that these say is in the normal form: nothing was left out at their node, or below it."""
        top = self.node(literals)
        queue, seen = [top], {top}
        for node in queue:
            if self.nodes[node].running:
                return False
            for case in self.raw(node):
                for child in led_to(case):
                    if child not in seen:
                        seen.add(child)
                        queue.append(child)
            if self.nodes[node].left:
                return False
        return True

    def name_fits(self, literals: tuple[Literal, ...], name: str) -> bool:
        try:
            return all(self.oracle.holds(literal, name) for literal in literals)
        except Undecided:
            self.leave(literals[0].place.at(), f"whether {name!r} fits could not be judged")
            return True

    def names_of(self, literals: tuple[Literal, ...]) -> tuple[tuple[str, ...] | None, NodeId]:
        """What names must be: all of them where they are few, and the node."""
        place = self.store.main.root
        made = place.made.get("string")
        if made is None:
            made = place.made["string"] = Place({"type": "string"}, "", place.resource, place.order, place.depth)
        everything = (*literals, self.literal(made, None, True))
        values, _ = self.finite(everything)
        if values is not None:
            return tuple(str(value) for value in values if type_of(value) == STRING), 0
        return None, self.node(everything)
