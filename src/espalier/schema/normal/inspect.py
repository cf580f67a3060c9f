"""Cheap, conservative facts about a set of literals: possible types, enumerated values, plain contradictions.

    types of {"type": "string"} and {"maxLength": 3}        STRING
    finite of {"enum": [1, 2, 3]} and {"minimum": 2}        [2, 3]
    contradiction of {"type": "null"} and {"minimum": 2}    None: numbers alone are bounded

Branches ask this to drop impossible choices early. "Not known" is always a correct answer. It expands no node.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from espalier.schema.normal.judge import UndecidedValue, ValueJudge
from espalier.schema.normal.literals import LiteralTable, SchemaLiteral
from espalier.schema.normal.overlap import may_overlap
from espalier.schema.read.values import ANY_TYPE, BITS, STRING, type_of

MAX_REFERENCES = 20
"""Steps through `$ref` and `allOf` that are followed to see a type or a list of values."""
MAX_IMPLIED = 1000
"""Values that are judged one by one to see an implication."""


def stated(literals: tuple[SchemaLiteral, ...]) -> tuple[str, ...]:
    """The pointers of all keywords of these literals, without annotations."""
    return tuple(
        literal.subschema.at(keyword)
        for literal in literals
        if isinstance(literal.subschema.value, dict)
        for keyword in literal.subschema.value
        if keyword in literal.subschema.resource.draft.keywords and keyword != "format"
    )


def _disjoint_patterns(literals: tuple[SchemaLiteral, ...]) -> tuple[str, ...] | None:
    """The pointers of two patterns that no string matches together, None if there are no such two."""
    patterns = [(v, lit) for lit in literals if lit.positive for name, v in lit.ops if name == "pattern"]
    for i, (pattern, literal) in enumerate(patterns):
        for other, second in patterns[:i]:
            if not may_overlap(*sorted((pattern, other))):
                return second.subschema.at("pattern"), literal.subschema.at("pattern")
    return None


class Inspector:
    """Answers such questions about the literals of one table, and keeps the answers."""

    def __init__(self, table: LiteralTable, judge: ValueJudge) -> None:
        self.table = table
        self.judge = judge
        self._masks: dict[SchemaLiteral, int] = {}
        self._lists: dict[SchemaLiteral, dict[Any, Any] | None] = {}
        self._finite: dict[frozenset[SchemaLiteral], tuple[list[Any] | None, str | None]] = {}
        self._contradictions: dict[frozenset[SchemaLiteral], tuple[str, ...] | None] = {}

    # Types

    def types(self, literals: Iterable[SchemaLiteral]) -> int:
        """The bits of the types that values satisfying all of these may have."""
        mask = ANY_TYPE
        for literal in literals:
            mask &= self._mask(literal, 0)
        return mask

    def _mask(self, literal: SchemaLiteral, depth: int) -> int:
        known = self._masks.get(literal)
        if known is None:
            self._masks[literal] = ANY_TYPE  # the answer for references that lead back here
            known = self._masks[literal] = self._find_mask(literal, depth)
        return known

    def _find_mask(self, literal: SchemaLiteral, depth: int) -> int:
        if not literal.positive:
            if len(literal.ops) == 1 and literal.ops[0][0] == "type":
                mask, whole = literal.ops[0][1]
                denied: int = mask & ~BITS["number"] if whole else mask
                return ANY_TYPE & ~denied
            return ANY_TYPE
        types = ANY_TYPE
        for name, value in literal.ops:
            if name == "type":
                types &= value[0]
            elif name in ("ref", "all") and depth < MAX_REFERENCES:
                for inner in self._applied_literals(literal, name, value):
                    if inner.constant <= 0:
                        types &= 0 if inner.constant else self._mask(inner, depth + 1)
        return types

    def _applied_literals(self, literal: SchemaLiteral, name: str, value: Any) -> list[SchemaLiteral]:
        """The literals that a `$ref` or `allOf` applies to the same value."""
        subschemas = (
            [self.table.target(literal, value)] if name == "ref" else list(literal.subschema.kids["allOf"].values())
        )
        return [self.table.literal(subschema, literal, True) for subschema in subschemas]

    # Values

    def _listed_values(self, literal: SchemaLiteral, depth: int = 0) -> dict[Any, Any] | None:
        """The values of an `enum` or `const` in the literal, by key: no other value can satisfy it."""
        if literal not in self._lists:
            self._lists[literal] = None  # the answer for references that lead back here
            self._lists[literal] = self._find_listed(literal, depth)
        return self._lists[literal]

    def _find_listed(self, literal: SchemaLiteral, depth: int) -> dict[Any, Any] | None:
        if not literal.positive and len(literal.ops) == 1 and literal.ops[0][0] == "not":
            literal = self.table.literal(literal.subschema.kids["not"], literal, True)
        if not literal.positive or depth > MAX_REFERENCES:
            return None
        shortest: dict[Any, Any] | None = None
        for name, value in literal.ops:
            listed: list[dict[Any, Any] | None] = []
            if name == "values":
                listed = [value[0]]
            elif name in ("ref", "all"):
                listed = [
                    self._listed_values(inner, depth + 1) for inner in self._applied_literals(literal, name, value)
                ]
            for values in listed:
                if values is not None and (shortest is None or len(values) < len(shortest)):
                    shortest = values
        return shortest

    def finite(self, literals: tuple[SchemaLiteral, ...]) -> tuple[list[Any] | None, str | None]:
        """All values that satisfy these, None where no literal lists its values. Second: the pointer of a literal that
        could not be judged on some value, which is then kept."""
        known = frozenset(literals)
        if known not in self._finite:
            lists = [values for values in map(self._listed_values, literals) if values is not None]
            listed: tuple[list[Any] | None, str | None] = (None, None)
            if lists:
                listed = self.filtered(list(min(lists, key=len).values()), literals)
            self._finite[known] = listed
        return self._finite[known]

    def filtered(self, values: list[Any], literals: tuple[SchemaLiteral, ...]) -> tuple[list[Any], str | None]:
        """The values that satisfy all of these. A value that could not be judged is kept; second: the pointer of the
        literal that could not be judged on it."""
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
            fitting = []
            for value in values:
                try:
                    if self.judge.holds(literal, value):
                        fitting.append(value)
                except UndecidedValue:
                    fitting.append(value)
                    undecided = literal.subschema.at()
            values = fitting
        return values, undecided

    # Contradiction and implication

    def contradiction(self, literals: tuple[SchemaLiteral, ...]) -> tuple[str, ...] | None:
        """The pointers that show why no value satisfies all of these; None where that is not plain to see."""
        if len(literals) < 2 and not any(literal.constant < 0 for literal in literals):
            return None
        known = frozenset(literals)
        if known not in self._contradictions:
            self._contradictions[known] = self._find_contradiction(literals)
        return self._contradictions[known]

    def _find_contradiction(self, literals: tuple[SchemaLiteral, ...]) -> tuple[str, ...] | None:
        for literal in literals:
            if literal.constant < 0:
                return (literal.subschema.at(),)
        mask = self.types(literals)
        if not mask:
            return tuple(literal.subschema.at() for literal in literals if self._mask(literal, 0) != ANY_TYPE)
        values, _ = self.finite(literals)
        if values is not None:
            return None if values else stated(literals)
        return _disjoint_patterns(literals) if mask == STRING else None

    def implies(self, literals: tuple[SchemaLiteral, ...], literal: SchemaLiteral) -> bool:
        """Whether it is plain to see that every value satisfying these satisfies `literal` too."""
        if literal in literals or literal.constant > 0:
            return True
        only_types = all(name == "type" and not value[1] for name, value in literal.ops)
        if only_types and not self.types(literals) & ~self._mask(literal, 0):
            return True
        values, undecided = self.finite(literals)
        if values is None or undecided is not None or len(values) > MAX_IMPLIED:
            return False
        try:
            return all(self.judge.holds(literal, value) for value in values)
        except UndecidedValue:
            return False
