"""Finds the rules of a schema's normal form for a matcher: one for each node that a value can enter, and what it costs
at least. Nothing is explored: a rule's positions are made when a text first reaches them.

    rules = SchemaRules(expand(schema), layout("natural"))
    rules.start      the first position of the document
    rules.gaps       what the schema demands and the rules do not enforce

With `named=True` nothing is shared, so that every position knows the JSON pointer of its rule; explanations use that.
It knows neither keywords of JSON Schema nor vocabularies.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from espalier.automata.languages.dfa import Dfa
from espalier.automata.lazy.costs import least_bytes
from espalier.automata.lazy.explored import LazyState, LazyStates
from espalier.automata.lazy.linear import ENDLESS, MOST, Linear
from espalier.automata.lazy.rules import Later, Start
from espalier.automata.lazy.table import Table
from espalier.automata.lazy.words import one_of_texts
from espalier.grammar.analysis import references
from espalier.grammar.ast import NEVER, Node, RuleRef
from espalier.schema.form import Array, Boolean, Case, NodeId, NormalForm, Null, NumberForm, String, Values
from espalier.schema.lazy.leaves import (
    NO_REMARKS,
    ExpressionBook,
    Leaf,
    LeafCase,
    Remarks,
    converted,
    current,
    quoted_dfa,
)
from espalier.schema.lazy.objects import LazyObjects
from espalier.schema.lowering.any_order import AnyOrder
from espalier.schema.lowering.arrays import ArrayRules
from espalier.schema.lowering.layout import Layout
from espalier.schema.lowering.linear import join
from espalier.schema.lowering.nodes import NodeLowering
from espalier.schema.lowering.rulebook import Remark, RuleContext, quoted
from espalier.schema.lowering.strings import QUOTE, StringRules
from espalier.time_limit import check as check_time

LEAF_CASES = (String, NumberForm, Boolean, Null)
ANY_STRING = String()
reference = lru_cache(maxsize=4096)(RuleRef)
"""The reference to a rule by its name; all schemas name their rules alike."""


@dataclass(slots=True, eq=False)
class _Rule:
    """bodies: the cases, as expressions or automata. uses: the rules that they mention. cost: the least bytes."""

    node: NodeId | None
    depth: int
    shallow: bool
    number: int
    bodies: list[Node | Linear] = field(default_factory=list)
    uses: list[_Rule] = field(default_factory=list)
    cost: int = ENDLESS
    place: LazyState | None = None
    explored: LazyStates | None = None


class SchemaRules(NodeLowering):
    """The rules of one schema. Raises SchemaError where no document can be written, LimitExceeded, and what the form
    raises."""

    def __init__(self, form: NormalForm, written: Layout, *, named: bool = False) -> None:
        book = ExpressionBook()
        super().__init__(form, written, book)
        self._named = named
        self._leaves = current()
        self._explored = LazyStates(self)
        self._by_name: dict[str, _Rule | LazyState | Later] = {}
        self._values: dict[tuple[NodeId, int], Node] = {}
        self._leaf_refs: dict[LazyState, Node] = {}
        self._converted: dict[LeafCase, tuple[Node | Table | None, Remarks]] = {}  # where they are named
        self._undeclared: dict[tuple[LazyStates, tuple[str, ...]], Node] = {}
        self._members_of: dict[Node, Node] = {}
        self._queue: list[_Rule] = []
        self._current: _Rule | None = None
        self._objects = LazyObjects(
            book=book,
            strings=StringRules(book),
            layout=written,
            value=self._value,
            cases=form.cases,
            undeclared=self._undeclared_names,
            of_names=self._of_names,
            rule=self._own_rule,
            member_of=self._member_of,
        )
        self._arrays = ArrayRules(book=book, layout=written, value=self._value, cases=form.cases, members=self._members)
        try:
            self._make_rules()
        except BaseException:  # of which the schema's limit on time is one
            self.release()
            raise

    def _make_rules(self) -> None:
        form = self._form
        root = self._rule(form.root, 0, shallow=False)
        for rule in self._queue:  # grows as nodes are mentioned
            check_time()
            self._check_parts(len(self._queue))
            self._current = rule
            if rule.node is None:
                continue
            rule.bodies = [body for case in form.cases(rule.node) for body in self._bodies(case, rule)]
        self._settle()
        if root.cost >= ENDLESS:
            raise self._nothing()
        self.start = self._start_of(root)

    @property
    def gaps(self) -> tuple[Remark, ...]:
        """What the schema demands and the rules do not enforce."""
        return tuple(self._book.gaps)

    @property
    def notes(self) -> tuple[Remark, ...]:
        """What the schema allows and the rules do not."""
        return tuple(self._book.notes)

    # Rules

    def _rule(self, node: NodeId | None, depth: int, *, shallow: bool) -> _Rule:
        rule = _Rule(node, depth, shallow, len(self._queue))
        if self._named:
            at = self._current.node if node is None and self._current is not None else node
            rule.explored = LazyStates(self, name=self._form.pointer(self._form.root if at is None else at))
        self._by_name[f"n{rule.number}"] = rule
        self._queue.append(rule)
        return rule

    def _value(self, node: NodeId, depth: int) -> Node:
        """A reference to the rule of a node at a depth; NEVER where no value fits."""
        value = self._values.get((node, depth))
        if value is None:
            value = self._values[node, depth] = self._new_value(node, depth)
        if self._current is not None and isinstance(value, RuleRef):
            used = self._by_name[value.name]
            if isinstance(used, _Rule):
                self._current.uses.append(used)
        return value

    def _new_value(self, node: NodeId, depth: int) -> Node:
        if self._is_never(node):
            return NEVER
        cases = self._form.cases(node)
        if len(cases) == 1 and isinstance(cases[0], LEAF_CASES) and not self._named:
            return self._leaf(cases[0], self._form.pointer(node))
        shallow = self._is_too_deep(node, depth)
        return reference(f"n{self._rule(node, depth, shallow=shallow).number}")

    def _bodies(self, case: Case, rule: _Rule) -> list[Node | Linear]:
        """The expressions and automata of a case; none where nothing fits."""
        assert rule.node is not None
        pointer = self._form.pointer(rule.node)
        body: Node | Linear | None
        if isinstance(case, LEAF_CASES):
            body = self._scalar(case, pointer)
        else:
            context = RuleContext(base="", pointer=pointer, depth=rule.depth)
            if isinstance(case, Values):
                return one_of_texts(*self._listed(case, context))
            if rule.shallow:
                return []
            if isinstance(case, Array):
                body = self._arrays.automaton(case, context)
            else:
                body = self._objects.automaton(case, context)
        return [] if body is None else [body]

    def _scalar(self, case: LeafCase, pointer: str) -> Node | Table | None:
        if not self._named:
            return self._leaf(case, pointer)
        if case not in self._converted:
            self._converted[case] = converted(case, "pattern")
        automaton, remarks = self._converted[case]
        self._note(remarks, pointer)
        return automaton

    def _leaf(self, case: LeafCase, pointer: str, keyword: str = "pattern") -> Node:
        return self._leaf_ref(self._note_leaf(self._leaves.leaf(case, keyword), pointer))

    def _note_leaf(self, leaf: Leaf, pointer: str) -> LazyState | None:
        if leaf.remarks is not NO_REMARKS:
            self._note(leaf.remarks, pointer)
        return leaf.start

    def _note(self, remarks: Remarks, pointer: str) -> None:
        for keyword, text in remarks.gaps:
            self._book.gap(pointer, keyword, text)
        for keyword, text in remarks.notes:
            self._book.note(pointer, keyword, text)
        for keyword, text in remarks.general:
            self._book.note("", keyword, text)
        if remarks.limit is not None:
            self._book.limit(pointer, remarks.limit)

    def _own_rule(self, automaton: AnyOrder) -> Node:
        """A reference to a rule for an object that belongs to no node: a constant."""
        rule = self._rule(None, 0, shallow=False)
        rule.bodies = [automaton]
        for member in automaton.members:
            named = [self._by_name[ref.name] for ref in references(member)]
            rule.uses += [used for used in named if isinstance(used, _Rule)]
        if self._current is not None:
            self._current.uses.append(rule)
        return reference(f"n{rule.number}")

    def _member_of(self, colon: Node, value: Node) -> Node:
        """See `LazyObjects`. All schemas share what leads to a value, and a value without structure with it."""
        if self._named:
            return join(QUOTE, join(colon, value))
        member = self._members_of.get(value)
        if member is None:
            leaf = self._by_name[value.name] if isinstance(value, RuleRef) else None
            if isinstance(leaf, LazyState) and leaf.explored is self._leaves.explored:
                member = self._leaf_ref(self._leaves.member(colon, leaf))
            else:
                member = join(self._leaf_ref(self._leaves.member(colon, None)), value)
            self._members_of[value] = member
        return member

    def _leaf_ref(self, start: LazyState | None) -> Node:
        if start is None:
            return NEVER
        leaf = self._leaf_refs.get(start)
        if leaf is None:
            name = f"l{len(self._leaf_refs)}"
            self._by_name[name] = start
            leaf = self._leaf_refs[start] = reference(name)
        return leaf

    def _undeclared_names(self, wanted: String, declared: tuple[str, ...], pointer: str) -> Node:
        start = self._note_leaf(self._leaves.leaf(wanted, "patternProperties"), pointer)
        if start is None or not declared:
            return self._leaf_ref(start)
        explored = self._table(self._current)

        def make() -> LazyState | None:
            words = tuple(sorted(quoted(name).encode() for name in declared))
            return explored.excepted(start, words)

        if wanted != ANY_STRING:
            return self._leaf_ref(make())
        names = (explored, declared)
        if names not in self._undeclared:  # some name is always left, and most texts have none
            rule = reference(f"u{len(self._undeclared)}")
            self._by_name[rule.name] = Later(make, 2)
            self._undeclared[names] = rule
        return self._undeclared[names]

    def _table(self, rule: _Rule | None) -> LazyStates:
        return self._explored if rule is None or rule.explored is None else rule.explored

    def _of_names(self, names: Dfa | None, pointer: str) -> Node:
        if names is None:
            return NEVER
        return self._leaf_ref(self._leaves.start(quoted_dfa(names, self._book)))

    # Costs

    def _settle(self) -> None:
        """The least bytes of every rule: the least fixpoint, children first. Only rules that use one which comes after
        them in this order are looked at again, and then what uses a rule whose cost has changed."""
        stale: set[_Rule] = set()
        for rule in reversed(self._queue):
            check_time()
            rule.cost = self._cost_of(rule)
            if any(used.number <= rule.number for used in rule.uses):
                stale.add(rule)
        users: dict[_Rule, list[_Rule]] = {}
        for rule in self._queue if stale else ():
            for used in rule.uses:
                users.setdefault(used, []).append(rule)
        while stale:
            again: set[_Rule] = set()
            for rule in sorted(stale, key=lambda rule: -rule.number):
                check_time()
                cost = self._cost_of(rule)
                if cost != rule.cost:
                    rule.cost = cost
                    again.update(users.get(rule, ()))
            stale = again

    def _cost_of(self, rule: _Rule) -> int:
        costs = [
            self._cost(body) if isinstance(body, Node) else body.least(self._cost)(body.start) for body in rule.bodies
        ]
        least = min([ENDLESS, *costs])
        return least if least >= ENDLESS else min(least, MOST)

    def _cost(self, node: Node) -> int:
        if isinstance(node, RuleRef):
            return self.cost_of(node.name)
        return least_bytes(node, self.cost_of)

    def cost_of(self, name: str) -> int:
        """See `LiteralRules`."""
        rule = self._reached(name)
        return rule.least if isinstance(rule, LazyState) else rule.cost

    # Positions

    def shared(self, node: Node) -> Start | None:
        """See `LiteralRules`."""
        return None if self._named else self._leaves.structure(node)

    def release(self) -> None:
        """Drop all it holds and its tables, which nobody explores any more: its parts hold methods of it."""
        if not vars(self):  # a table asks for it too
            return
        tables = [self._explored, *[rule.explored for rule in self._queue if rule.explored is not None]]
        for rule in self._queue:
            rule.uses = []
        vars(self).clear()
        for explored in tables:
            explored.release()

    def start_of(self, name: str) -> Start:
        """See `LiteralRules`."""
        rule = self._reached(name)
        return rule if isinstance(rule, LazyState) else self._start_of(rule)

    def _reached(self, name: str) -> _Rule | LazyState:
        """The rule, or the position, that a reference leads to."""
        rule = self._by_name[name]
        if isinstance(rule, Later):
            rule = self._by_name[name] = rule.place()
        return rule

    def _start_of(self, rule: _Rule) -> LazyState:
        if rule.place is None:
            explored = self._table(rule)
            rule.place = explored.begin(rule.bodies)
        return rule.place
