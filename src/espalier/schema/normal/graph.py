"""The graph of nodes: each is a set of literals that must all hold, expanded into cases when first asked for.

    node((literal of {"type": "integer"}, literal of {"minimum": 1}))      7
    raw(7)                                                                 (NumberForm(integer=True, minimum=1),)

To expand a node, its literals are read for one JSON type after another (`keywords/`), choices are made (`branch.py`)
and cases are built (`assemble.py`). Properties and items lead to nodes again; equal sets of literals are one node, so a
recursive schema gives a finite graph. `settle` finds the nodes that no value satisfies.

Nothing here is safe to share between threads: `expand.py` holds the lock.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any

from espalier.errors import LimitExceeded, RegexError, UnsupportedError
from espalier.owners import owner
from espalier.schema.form import Array, Boolean, Case, NodeId, Null, NumberForm, Object, Rest, String, Values, needed
from espalier.schema.normal.assemble import assemble
from espalier.schema.normal.branch import ANY_OF, EXACT, NO_CHOICES, NO_NEGATIONS, Branch, Overflow, grow
from espalier.schema.normal.cases import has_value, led_to
from espalier.schema.normal.facts import Contradiction
from espalier.schema.normal.inspect import Inspector, stated
from espalier.schema.normal.keywords.table import KeywordRules
from espalier.schema.normal.literals import SchemaLiteral
from espalier.schema.read.documents import Subschema
from espalier.schema.read.values import OBJECT, TYPES, key
from espalier.time_limit import check as check_time

MAX_CASES = 512
"""Alternatives of one type in one node."""
MAX_NODES = 1_000_000
MAX_JOINED = 20_000
"""Nodes at which several schemas must hold at once: their number is not bounded by the size of the schema."""
FALSE: NodeId = 0
"""The node that no value satisfies."""
ANYTHING: NodeId = 1
"""The node that every value satisfies."""
GENERIC: tuple[Case, ...] = (
    Null(),
    Boolean(),
    NumberForm(),
    String(),
    Array(items=ANYTHING),
    Object(rest=(Rest(node=ANYTHING),)),
)
"""The cases of ANYTHING."""
_GENERIC = frozenset(GENERIC)
SCALAR = frozenset(("type", "low", "high", "multiple", "min_length", "max_length", "pattern", "format"))
"""Operations that lead to no other node: what they say of arrays and objects is at most that there may be some."""
MAX_SCALARS = 10_000
_SCALARS: dict[Hashable, tuple[Case, ...]] = {}
"""The cases of nodes of such operations alone, none of them empty, for all schemas of the process."""
UNJUDGED = "some of the values could not be judged"


class GraphNode:
    """literals: all must hold. raw: the cases, which may lead to empty nodes. cases: those without them. empty: whether
    no value fits, None until it is settled. left: keywords left out (a pointer or a literal), and why. reasons: the
    pointers of contradictions found. running: it is being expanded."""

    __slots__ = ("cases", "empty", "left", "literals", "raw", "reasons", "running")

    def __init__(self, literals: tuple[SchemaLiteral, ...]) -> None:
        self.literals = literals
        self.raw: tuple[Case, ...] | None = None
        self.cases: tuple[Case, ...] | None = None
        self.empty: bool | None = None
        self.left: dict[str | SchemaLiteral, str] = {}
        self.reasons: list[tuple[str, ...]] = []
        self.running = False


class Graph:
    """All nodes of one schema, by id. judged: subschemas whose listed values were judged one by one."""

    def __init__(self, inspector: Inspector) -> None:
        self.inspector = inspector
        self.rules = KeywordRules()
        self.judged: set[Subschema] = set()
        self.nodes: list[GraphNode] = [GraphNode(()), GraphNode(())]
        false, anything = self.nodes
        false.empty, false.raw, false.cases = True, (), ()
        anything.empty, anything.raw, anything.cases = False, GENERIC, GENERIC
        self._ids: dict[frozenset[SchemaLiteral], NodeId] = {frozenset(): ANYTHING}
        self._of_one: dict[SchemaLiteral, NodeId] = {}
        self._current = anything
        self._joined = 0

    @property
    def false(self) -> NodeId:
        return FALSE

    def node(self, literals: tuple[SchemaLiteral, ...]) -> NodeId:
        """The node of the values that satisfy all of these. Raises LimitExceeded."""
        if len(literals) == 1 and (number := self._of_one.get(literals[0])) is not None:
            return number
        demands = frozenset([literal for literal in literals if literal.constant <= 0])
        known = self._ids.get(demands)
        if known is not None:
            return known
        if any(literal.constant < 0 for literal in demands):
            self._ids[demands] = FALSE
            return FALSE
        self._joined += len(demands) > 1
        if self._joined > MAX_JOINED or len(self.nodes) > MAX_NODES:
            at = min(demands, key=lambda literal: literal.rank).subschema.at() or "the top"
            raise LimitExceeded(f"the schema takes too many nodes ({len(self.nodes):,}); the last is for {at}")
        self._ids[demands] = number = len(self.nodes)
        if len(demands) == 1:
            (only,) = demands
            self._of_one[only] = number
            self.nodes.append(GraphNode((only,)))
        else:
            self.nodes.append(GraphNode(tuple(sorted(demands, key=lambda literal: literal.rank))))
        return number

    def pointer(self, node: NodeId) -> str:
        """The pointer of the first positive literal of a node, or of its first literal."""
        literals = self.nodes[node].literals
        if len(literals) == 1:
            return literals[0].subschema.at()
        chief = next((literal for literal in literals if literal.positive), literals[0] if literals else None)
        return "" if chief is None else chief.subschema.at()

    def leave(self, pointer: str | SchemaLiteral, note: str) -> None:
        """Leave a keyword out at the node that is being expanded, so that more values fit than should."""
        self._current.left.setdefault(pointer, note)

    # Expansion

    def raw(self, node: NodeId) -> tuple[Case, ...]:
        """The cases of a node; they may lead to empty nodes. Raises SchemaError, UnsupportedError, LimitExceeded."""
        known = self.nodes[node]
        if known.raw is None:
            if (key := self._scalar_key(known)) is not None and (cases := _SCALARS.get(key)) is not None:
                known.raw = known.cases = cases
                known.empty = False
                return cases
            before, self._current = self._current, known
            known.running = True
            try:
                known.raw = self._expand(known)
                if key is not None and known.raw and not known.left and not known.reasons:
                    if len(_SCALARS) >= MAX_SCALARS:
                        _SCALARS.clear()
                    _SCALARS[key] = known.raw
            except RegexError as error:
                where = self.pointer(node) or "the top"
                message = f"a pattern at {where} cannot be used: {error.message}"
                raise UnsupportedError(message, field="schema") from None
            except RecursionError:
                where = self.pointer(node) or "the top"
                raise LimitExceeded(f"the schemas that apply at {where} refer to one another too deeply") from None
            finally:
                known.running = False
                self._current = before
        return known.raw

    def _scalar_key(self, node: GraphNode) -> Hashable | None:
        """What the cases of a node depend on if a schema of scalar keywords alone says all of it; None for others."""
        if len(node.literals) != 1:
            return None
        (literal,) = node.literals
        if not literal.positive or not all(name in SCALAR for name, _ in literal.ops):
            return None
        if self.inspector.table.closed and self.inspector.types(node.literals) & OBJECT:
            return None
        return literal.ops, owner()

    def _expand(self, node: GraphNode) -> tuple[Case, ...]:
        values, undecided = self.inspector.finite(node.literals)
        if values is not None:
            self.judged.update(literal.subschema for literal in node.literals)
            if undecided is not None:
                node.left[undecided] = UNJUDGED
            if not values:
                node.reasons.append(stated(node.literals))
            return (Values(values=tuple(values)),) if values else ()
        mask = self.inspector.types(node.literals)
        return simplified(case for kind in TYPES if mask & kind for case in self._of_type(node, kind))

    def _of_type(self, node: GraphNode, kind: int) -> list[Case]:
        """The cases of one type, at the first level of approximation that stays within MAX_CASES."""
        for level in (EXACT, ANY_OF, NO_NEGATIONS, NO_CHOICES):
            left = dict(node.left)
            try:
                return self._at_level(node, kind, level)
            except Overflow:
                node.left = left
        where = self.pointer(self._ids[frozenset(node.literals)])
        raise LimitExceeded(f"the schema at {where or 'the top'} has more than {MAX_CASES} alternatives")

    def _at_level(self, node: GraphNode, kind: int, level: int) -> list[Case]:
        try:
            start = self.branch(node, kind, level)
        except Contradiction as why:
            node.reasons.append(why.pointers)
            return []
        cases: list[Case] = []
        for branch in grow(start, MAX_CASES, node.reasons):
            try:
                built = list(assemble(branch, self))
            except Contradiction as why:
                node.reasons.append(why.pointers)
                continue
            if branch.values is not None:
                fitting, undecided = self.inspector.filtered(list(branch.values.values()), node.literals)
                built = [Values(values=tuple(fitting))] if fitting else []
                if undecided is not None:
                    node.left[undecided] = UNJUDGED
            cases += built
            node.left.update({pointer: note for pointer, note in branch.left if pointer not in node.left})
            if len(cases) > MAX_CASES:
                raise Overflow
        return cases

    def branch(self, node: GraphNode, kind: int, level: int = EXACT) -> Branch:
        """The literals of a node on one branch, its choices still open. Raises Contradiction."""
        start = Branch(self.inspector, self.rules, kind, level)
        for literal in node.literals:
            start.add(literal)
        start.facts.settle(self.inspector)
        return start

    def decides(self, literals: tuple[SchemaLiteral, ...]) -> bool:
        """Whether the normal form of these is exact: no keyword was left out at their node, or below it."""
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

    # Emptiness

    def is_empty(self, node: NodeId) -> bool:
        """Whether a settled node has no value."""
        return self.nodes[node].empty is True

    def settle(self, node: NodeId) -> None:
        """Find out whether any value satisfies a node: the least fixpoint over the nodes that this may depend on."""
        self.raw(node)
        if self.nodes[node].empty is not None:
            return
        closure, seen = [node], {node}
        for current in closure:
            if self._is_possible(current):
                self.nodes[current].empty = False
                self.nodes[current].reasons.clear()
                continue
            for case in self.raw(current):
                for child in needed(case):
                    if child not in seen and self.nodes[child].empty is None:
                        seen.add(child)
                        closure.append(child)
        changed = True
        while changed:
            check_time()
            changed = False
            for current in reversed(closure):
                if self.nodes[current].empty is None and self._is_possible(current):
                    self.nodes[current].empty = False
                    changed = True
        for current in closure:
            if self.nodes[current].empty is None:
                self.nodes[current].empty = True

    def _is_possible(self, node: NodeId) -> bool:
        """Whether some case has a value, counting only nodes that are known to have one."""
        return any(has_value(case, self._is_unproven, FALSE) for case in self.raw(node))

    def _is_unproven(self, node: NodeId) -> bool:
        return self.nodes[node].empty is not False


def simplified(cases: Iterable[Case]) -> tuple[Case, ...]:
    """The cases without duplicates, without those that a generic case includes, without arrays of unique items that an
    array with repeats plainly includes, and with all finite sets as one."""
    distinct: dict[Case, None] = {}
    values: dict[Any, Any] = {}
    at = 0
    for case in cases:
        if isinstance(case, Values):
            at = at if values else len(distinct)
            values.update({key(value): value for value in case.values})
        else:
            distinct[case] = None
    wide = {type(case) for case in distinct if case in _GENERIC}
    needed = [case for case in distinct if case in _GENERIC or type(case) not in wide]
    repeating = [case for case in needed if isinstance(case, Array) and not case.unique]
    if repeating:
        needed = [case for case in needed if not any(_includes(other, case) for other in repeating)]
    if values:
        needed.insert(min(at, len(needed)), Values(values=tuple(values.values())))
    return tuple(needed)


def _includes(wide: Array, case: Case) -> bool:
    """Whether it is plain to see that an array that may repeat items is every array of this case, whose items are
    unique."""
    if not isinstance(case, Array) or not case.unique or wide.min_items > case.min_items:
        return False
    if wide.max_items is not None and (case.max_items is None or case.max_items > wide.max_items):
        return False
    if wide.contains:
        return (wide.prefix, wide.items, wide.contains) == (case.prefix, case.items, case.contains)
    places = range(max(len(wide.prefix), len(case.prefix)) + 1)
    return all(_at(wide, i) in (ANYTHING, _at(case, i)) or _at(case, i) == FALSE for i in places)


def _at(case: Array, index: int) -> NodeId:
    return case.prefix[index] if index < len(case.prefix) else case.items
