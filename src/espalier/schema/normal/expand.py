"""A schema as the normal form of `form.py`, node by node, when first asked for; and the contract on its keywords.

A node is a set of literals (`literals.py`), all of which must hold. To expand it, its keywords are read for one type
after another (`keywords.py`), choices are made (`branch.py`), and what is left is built into cases (`assemble.py`).
The nodes of properties and items are such sets again, so what is recursive closes by itself.

Everything is exact, or lets more fit than it should: then the contract says so, keyword by keyword. In `Contains`,
`match` holds what all items are only where there is no prefix. It knows neither texts nor tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from threading import RLock
from typing import Any, TypeAlias

from espalier.errors import LimitExceeded, RegexError, SchemaError, UnsupportedError
from espalier.schema.contract import Contract
from espalier.schema.form import Array, Boolean, Case, NodeId, Null, Number, Object, Property, Rest, String, Values
from espalier.schema.normal.assemble import assemble
from espalier.schema.normal.branch import ANY_OF, EXACT, NO_CHOICES, NO_NEGATIONS, Alternative, Branch, Overflow, grow
from espalier.schema.normal.cases import led_to, needed, trimmed
from espalier.schema.normal.contract import contract_of
from espalier.schema.normal.facts import Contradiction
from espalier.schema.normal.inspect import Node, Supposing, stated
from espalier.schema.normal.judge import Oracle
from espalier.schema.normal.keywords import OPERATIONS, Inexpressible
from espalier.schema.normal.literals import Literal, operations
from espalier.schema.read.documents import Place, Store
from espalier.schema.read.drafts import Draft
from espalier.schema.read.values import ANY_TYPE, TYPES, key
from espalier.time_limit import check as check_time

Order: TypeAlias = "str | tuple[str, ...]"

MAX_CASES = 512
"""Alternatives of one type in one node."""
MAX_NODES = 1_000_000
MAX_JOINED = 20_000
"""Nodes at which several schemas must hold at once: their number is not bounded by the size of the schema."""


class Expansion(Supposing):
    """The graph of one schema. Every method raises what the schema deserves: SchemaError, UnsupportedError with a
    pointer, or LimitExceeded."""

    def __init__(self, store: Store, *, formats: bool, order: Order) -> None:
        self.store = store
        self.formats = formats
        self.order = order
        self.unevaluated = bool({"unevaluatedProperties", "unevaluatedItems"} & store.keywords)
        self.scoped = bool({"$dynamicRef", "$recursiveRef"} & store.keywords)
        self.literals: dict[tuple[Place, Any, bool], Literal] = {}
        self.reached: set[Place] = set()
        self.judged: set[Place] = set()
        """Places that the oracle judged as a whole."""
        self.oracle = Oracle(self)
        self.start()
        root = store.main.root
        self.anything = Literal(root, (), True, 1, ())
        self.nodes: list[Node] = [Node(()), Node(())]
        self.nodes[0].empty, self.nodes[0].raw, self.nodes[0].cases = True, (), ()
        self.nodes[1].empty = False
        self.nodes[1].raw = self.nodes[1].cases = GENERIC
        self.by_literals: dict[frozenset[Literal], NodeId] = {frozenset(): 1}
        self.current = self.nodes[1]
        self.joined = 0
        self.lock = RLock()
        """Nodes are expanded by one thread at a time; what is expanded stays as it is."""
        self._contract: Contract | None = None
        top = self.literal(root, None, True)
        self.top = self.node((top,))
        self.settle(self.top)
        if self.top == 0:
            raise SchemaError("no document can satisfy this schema: it is `false`", pointer=top.place.at())
        if self.nodes[self.top].empty:
            raise self.unsatisfiable()

    @property
    def root(self) -> NodeId:
        return self.top

    @property
    def false(self) -> NodeId:
        return 0

    @property
    def draft(self) -> Draft:
        """The draft of the main document."""
        return self.store.main.root.resource.draft

    @property
    def contract(self) -> Contract:
        """One verdict a keyword; expands all that can be reached."""
        with self.lock:
            if self._contract is None:
                left: dict[str, str] = {}
                for node in self.reachable():
                    for what, note in self.nodes[node].left.items():
                        for pointer in what.all_origins() if isinstance(what, Literal) else (what,):
                            left.setdefault(pointer, note)
                self._contract = contract_of(self.store, self.reached, self.judged, left, formats=self.formats)
        return self._contract

    def cases(self, node: NodeId) -> tuple[Case, ...]:
        found = self.nodes[node]
        if found.cases is None:
            with self.lock:
                return self.find_cases(node, found)
        return found.cases

    def find_cases(self, node: NodeId, found: Node) -> tuple[Case, ...]:
        if found.cases is None:
            self.settle(node)
            if found.empty:
                found.cases = ()
            else:
                for case in self.raw(node):
                    for child in led_to(case):
                        self.settle(child)
                kept = (trimmed(case, self.is_empty, 0) for case in self.raw(node))
                found.cases = simplified(self.published(case) for case in kept if case is not None)
        return found.cases

    def pointer(self, node: NodeId) -> str:
        literals = self.nodes[node].literals
        chief = next((literal for literal in literals if literal.positive), literals[0] if literals else None)
        return "" if chief is None else chief.place.at()

    def reachable(self) -> list[NodeId]:
        """All nodes that a value can enter, the root first."""
        order, seen = [self.top], {self.top}
        for node in order:
            for case in self.cases(node):
                for child in led_to(case):
                    if child not in seen:
                        seen.add(child)
                        order.append(child)
        return order

    def published(self, case: Case) -> Case:
        """In the order that was asked for, and empty nodes as the one that is known to be."""
        if isinstance(case, Object) and self.order != "schema" and case.properties:
            wanted = {name: i for i, name in enumerate(self.order)} if isinstance(self.order, tuple) else {}
            last = len(wanted)
            by_need = self.order == "required_first"
            ordered = sorted(case.properties, key=lambda p: (wanted.get(p.name, last), by_need and not p.required))
            return Object(
                properties=tuple(ordered),
                rest=case.rest,
                names=case.names,
                min_properties=case.min_properties,
                max_properties=case.max_properties,
            )
        return case

    # Literals

    def literal(self, place: Place, parent: Literal | None, positive: bool, origin: str | Literal = "") -> Literal:
        """The literal of a place that stands in the parent, or is referred to by it."""
        scope = () if parent is None else parent.scope
        seen: set[Place] = set()
        while True:
            check_time()
            if self.scoped and place.resource not in scope:
                scope = (*scope, place.resource)
            known = self.literals.get((place, scope, positive))
            if known is not None:
                if origin and not positive:
                    known.origins[origin] = None
                return known
            ops = place.ops
            if ops is None:
                ops = place.ops = self.operations(place)
            if len(ops) != 1 or ops[0][0] != "ref":
                break
            if place in seen:
                raise SchemaError("this reference leads to itself", pointer=place.at(ops[0][1]))
            seen.add(place)
            place = self.target(Literal(place, scope, True, 0, ops), ops[0][1])
        constant = (-1 if place.schema is False else 0 if ops else 1) * (1 if positive else -1)
        made = Literal(place, scope, positive, constant, ops)
        if origin and not positive:
            made.origins[origin] = None
        self.literals[place, scope, positive] = made
        return made

    def operations(self, place: Place) -> tuple[tuple[str, Any], ...]:
        self.reached.add(place)
        if isinstance(place.schema, bool):
            return ()
        return tuple(operations(place, formats=self.formats, unevaluated=self.unevaluated))

    def target(self, literal: Literal, keyword: str) -> Place:
        place = literal.place
        if keyword == "$recursiveRef":
            found = place.resource.root
            if found.resource.recursive:
                for resource in reversed(literal.scope):
                    if not resource.recursive:
                        break
                    found = resource.root
            return found
        found, fragment = self.store.resolve(place, place.schema[keyword], keyword)
        if keyword == "$dynamicRef" and found.resource.dynamic.get(fragment) is found:
            for resource in literal.scope:
                if fragment in resource.dynamic:
                    return resource.dynamic[fragment]
        return found

    # Nodes

    def node(self, literals: tuple[Literal, ...]) -> NodeId:
        """The node of what fits all of these."""
        kept = frozenset([literal for literal in literals if literal.constant <= 0])
        known = self.by_literals.get(kept)
        if known is not None:
            return known
        if any(literal.constant < 0 for literal in kept):
            self.by_literals[kept] = 0
            return 0
        self.joined += len(kept) > 1
        if self.joined > MAX_JOINED or len(self.nodes) > MAX_NODES:
            at = min(kept, key=lambda literal: literal.rank).place.at() or "the top"
            raise LimitExceeded(f"the schema takes too many nodes ({len(self.nodes):,}); the last is for {at}")
        self.by_literals[kept] = made = len(self.nodes)
        self.nodes.append(Node(tuple(sorted(kept, key=lambda literal: literal.rank))))
        return made

    def raw(self, node: NodeId) -> tuple[Case, ...]:
        """The cases of a node, empty nodes among what they lead to."""
        found = self.nodes[node]
        if found.raw is None:
            before, self.current = self.current, found
            found.running = True
            try:
                found.raw = self.expanded(found)
            except RegexError as error:
                where = self.pointer(node) or "the top"
                message = f"a pattern at {where} cannot be used: {error.message}"
                raise UnsupportedError(message, field="schema") from None
            except RecursionError:
                where = self.pointer(node) or "the top"
                raise LimitExceeded(f"the schemas that apply at {where} refer to one another too deeply") from None
            finally:
                found.running = False
                self.current = before
        return found.raw

    def expanded(self, node: Node) -> tuple[Case, ...]:
        values, undecided = self.finite(node.literals)
        if values is not None:
            self.judged.update(literal.place for literal in node.literals)
            if undecided is not None:
                node.left[undecided] = "some of the values could not be judged"
            if not values:
                node.reasons.append(stated(node.literals))
            return (Values(values=tuple(values)),) if values else ()
        found: list[Case] = []
        mask = ANY_TYPE
        for literal in node.literals:
            mask &= self.mask(literal)
        for kind in TYPES:
            if mask & kind:
                found += self.of_kind(node, kind)
        return simplified(found)

    def of_kind(self, node: Node, kind: int) -> list[Case]:
        for level in (EXACT, ANY_OF, NO_NEGATIONS, NO_CHOICES):
            left = dict(node.left)
            try:
                return self.branches(node, kind, level)
            except Overflow:
                node.left = left
        where = self.pointer(self.by_literals[frozenset(node.literals)])
        raise LimitExceeded(f"the schema at {where or 'the top'} has more than {MAX_CASES} alternatives")

    def branches(self, node: Node, kind: int, level: int) -> list[Case]:
        start = Branch(self, kind, level)
        try:
            for literal in node.literals:
                start.add(literal)
            start.facts.settle(self)
        except Contradiction as why:
            node.reasons.append(why.pointers)
            return []
        found: list[Case] = []
        for branch in grow(start, MAX_CASES, node.reasons):
            try:
                built = list(assemble(branch, self))
            except Contradiction as why:
                node.reasons.append(why.pointers)
                continue
            if branch.values is not None:
                kept, undecided = self.filtered(list(branch.values.values()), node.literals)
                built = [Values(values=tuple(kept))] if kept else []
                if undecided is not None:
                    node.left[undecided] = "some of the values could not be judged"
            found += built
            node.left.update({pointer: note for pointer, note in branch.left if pointer not in node.left})
            if len(found) > MAX_CASES:
                raise Overflow
        return found

    def leave(self, pointer: str | Literal, note: str) -> None:
        self.current.left.setdefault(pointer, note)

    def keyword(self, literal: Literal, name: str, value: Any, branch: Branch) -> None:
        kinds, holds, _ = OPERATIONS[name]
        if kinds & branch.kind:
            holds(branch, literal, value)

    def negated(self, literal: Literal, branch: Branch) -> list[Alternative] | None:
        found: list[Alternative] = []
        missing = ""
        for name, value in literal.ops:
            kinds, _, fails = OPERATIONS[name]
            if not kinds & branch.kind:
                continue
            try:
                ways = fails(branch, literal, value)
            except Inexpressible as error:
                missing = literal.place.at(error.keyword)
                continue
            if ways is None:
                return None
            found += ways
        if missing:
            branch.leave(literal, f"that {missing} fails cannot be said")
            return None
        return found

    # Emptiness

    def is_empty(self, node: NodeId) -> bool:
        return self.nodes[node].empty is True

    def settle(self, node: NodeId) -> None:
        """Find out whether anything fits a node: the least fixpoint over the nodes that this may depend on."""
        if self.nodes[node].empty is not None:
            return
        closure, seen = [node], {node}
        for current in closure:
            cases = self.raw(current)
            if any(trimmed(case, self.unproven, 0) is not None for case in cases):
                self.nodes[current].empty = False
                self.nodes[current].reasons.clear()
                continue
            for case in cases:
                for child in needed(case):
                    if child not in seen and self.nodes[child].empty is None:
                        seen.add(child)
                        closure.append(child)
        changed = True
        while changed:
            check_time()
            changed = False
            for current in reversed(closure):
                if self.nodes[current].empty is None and any(
                    trimmed(case, self.unproven, 0) is not None for case in self.raw(current)
                ):
                    self.nodes[current].empty = False
                    changed = True
        for current in closure:
            if self.nodes[current].empty is None:
                self.nodes[current].empty = True

    def unproven(self, node: NodeId) -> bool:
        return self.nodes[node].empty is not False

    def unsatisfiable(self) -> SchemaError:
        """Names the keywords that contradict each other, at the root or in what it cannot do without."""
        queue, seen = [self.top], {self.top}
        reasons: list[tuple[str, ...]] = []
        counted: list[str] = []
        for current in queue:
            node = self.nodes[current]
            children = {child for case in node.raw or () for child in needed(case) if self.nodes[child].empty}
            queue += sorted(children - seen)
            seen |= children
            if not node.raw:
                reasons += self.why_empty(node)
            elif not children:
                counted += [at for at in stated(node.literals) if at.rpartition("/")[2] in COUNTING]
        widest = [why for why in reasons if len(why) > 1] or reasons
        named = list(dict.fromkeys(pointer for why in widest for pointer in why)) or counted
        if not named:
            return SchemaError(
                "no document can satisfy this schema: a part of it requires itself without end",
                pointer=self.pointer(queue[-1]),
                hint="make a property on the way optional, or allow something else",
            )
        if len(named) == 1:
            return SchemaError("no document can satisfy this schema, because of what is", pointer=named[0])
        shown = ", ".join(pointer or "the top" for pointer in named[1:6])
        return SchemaError(f"no document can satisfy this schema: {shown} contradicts what is", pointer=named[0])

    def why_empty(self, node: Node) -> list[tuple[str, ...]]:
        """The pointers that leave nothing, type by type."""
        if any(literal.constant < 0 for literal in node.literals):
            return [tuple(literal.place.at() for literal in node.literals if literal.constant < 0)]
        if self.finite(node.literals)[0] is not None:
            return [stated(node.literals)]
        found = list(node.reasons)
        for kind in TYPES:
            start = Branch(self, kind, EXACT)
            try:
                for literal in node.literals:
                    start.add(literal)
                start.facts.settle(self)
            except Contradiction as why:
                found.append(why.pointers)
        return found


COUNTING = frozenset(
    (
        "minProperties",
        "maxProperties",
        "minItems",
        "maxItems",
        "required",
        "properties",
        "additionalProperties",
        "propertyNames",
        "items",
        "prefixItems",
        "contains",
    )
)
"""Keywords that may leave nothing together although each value alone is possible."""
GENERIC: tuple[Case, ...] = (
    Null(),
    Boolean(),
    Number(),
    String(),
    Array(items=1),
    Object(rest=(Rest(node=1),)),
)
"""What anything is: node 1."""
_GENERIC = frozenset(GENERIC)


def simplified(cases: Iterable[Case]) -> tuple[Case, ...]:
    """Without cases that are said twice; all finite sets as one."""
    kept: dict[Case, None] = {}
    values: dict[Any, Any] = {}
    at = 0
    for case in cases:
        if isinstance(case, Values):
            at = at if values else len(kept)
            values.update({key(value): value for value in case.values})
        else:
            kept[case] = None
    wide = {type(case) for case in kept if case in _GENERIC}
    found = [case for case in kept if case in _GENERIC or type(case) not in wide]
    if values:
        found.insert(min(at, len(found)), Values(values=tuple(values.values())))
    return tuple(found)


def expand(
    schema: Any,
    *,
    format: str = "annotate",  # noqa: A002  # as the keyword is called
    order: Order = "schema",
    documents: Mapping[str, Any] | None = None,
) -> Expansion:
    """The normal form of a schema.

    format: "annotate", or "assert" those that are known. order: of properties, "schema" (as in the text),
    "required_first", or the names that come first. documents: others that `$ref` and `$schema` may name, by address;
    nothing is ever fetched.

    Raises SchemaError, with a pointer, for what is not a schema, leads to nothing, or cannot be satisfied;
    UnsupportedError for a draft, document, format or pattern that cannot be had; LimitExceeded.
    """
    if format not in ("annotate", "assert"):
        raise SchemaError(f"format={format!r} is neither 'annotate' nor 'assert'")
    if not isinstance(order, tuple) and order not in ("schema", "required_first"):
        raise SchemaError(f"order={order!r} is neither 'schema' nor 'required_first' nor a tuple of names")
    return Expansion(Store(schema, documents), formats=format == "assert", order=order)


__all__ = ["Expansion", "Property", "expand"]
