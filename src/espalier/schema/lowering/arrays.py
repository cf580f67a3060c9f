"""Writes arrays as grammar rules: prefix and other items, counts, `contains`, and `uniqueItems` for few values.

    items node 3, at least one      "[" item ("," item)* "]"

It does not know values: what an item holds is another rule.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from functools import partial
from math import ceil, floor
from typing import Any

from espalier.automata.lazy.linear import ENDLESS, Cost, Edges, Linear, State, nearest
from espalier.automata.lazy.table import Table
from espalier.grammar.ast import NEVER, Literal, Node
from espalier.schema.form import Array, Boolean, Case, NodeId, Null, NumberForm, Values
from espalier.schema.lowering.layout import Layout
from espalier.schema.lowering.linear import join, write
from espalier.schema.lowering.rulebook import RuleBook, RuleContext
from espalier.schema.lowering.spelling import Members, literal
from espalier.schema.read.values import key

MAX_UNIQUE = 8
"""Distinct values of an array with unique items: the automaton has a state for every set of them."""
MAX_LISTED = 32
"""Up to so many possible values, an array with unique items has that many items at most."""
MAX_STATES = 5_000
"""States of an automaton that counts items and matching items."""
START, END = "before the bracket", "after the bracket"
"""The states of an array outside its brackets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArrayRules:
    """Converts arrays. value: the reference to the rule of a node, at a depth. cases: the cases of a node. members:
    makes constant objects whose names come in every order. distinct: rules of arrays with unique items, by everything
    they depend on: they are large, so equal ones are written once."""

    book: RuleBook
    layout: Layout
    value: Callable[[NodeId, int], Node]
    cases: Callable[[NodeId], tuple[Case, ...]]
    members: Callable[[RuleContext], Members]
    distinct: dict[Hashable, Node] = field(default_factory=dict)

    def node(self, case: Array, context: RuleContext) -> Node:
        """The expression of an array; its rules go into the book."""
        automaton = self.automaton(case, context)
        if automaton is None:
            return NEVER
        if not isinstance(automaton, _Sets):
            return self._write_array(automaton, context)
        same = (*automaton.same, context.depth)
        if same not in self.distinct:
            name = self.book.name(f"{context.base}-set", context.pointer)
            self.distinct[same] = self.book.add(name, self._write_array(automaton, context))
        return self.distinct[same]

    def automaton(self, case: Array, context: RuleContext) -> Linear | None:
        """The automaton of an array, explored on demand; None where no array fits. What it does not enforce becomes a
        gap here."""
        inside = self.layout.deeper(context.depth)
        prefix = [self.value(node, inside) for node in case.prefix]
        others = self.value(case.items, inside)
        never = next((i for i, node in enumerate([*prefix, others]) if node is NEVER), None)
        high = case.max_items if never is None else min(never, never if case.max_items is None else case.max_items)
        low = case.min_items
        if high is not None and high < low:
            return None
        contains = self._is_counted(case, context)
        unique = case.unique and (high is None or high > 1)
        if unique and contains and any(map(partial(self._lacks_values, case), range(len(case.contains)))):
            return None
        if unique and (most := self._most_values([*case.prefix, case.items])) is not None:
            if most < low:
                return None
            high = high if most > MAX_LISTED else min(most, most if high is None else high)
        automaton: Linear | None = None
        if contains:
            automaton = self._counting(case, prefix, others, low, high, context)
            if unique:
                self.book.gap(context.pointer, "uniqueItems", "it is not combined with contains")
        elif unique:
            automaton = self._distinct(case, low, high, context)
        return self._plain(prefix, others, low, high, context) if automaton is None else automaton

    def _write_array(self, automaton: Linear, context: RuleContext) -> Node:
        node, rules = write(automaton, self.book.fresh(context.base, context.pointer))
        self.book.add_all(rules)
        return node

    def _is_counted(self, case: Array, context: RuleContext) -> bool:
        if case.contains and not case.kinds:
            self.book.gap(context.pointer, "contains", f"{len(case.contains)} of them are too many to count at a time")
        return bool(case.kinds)

    # In every automaton below: START is before `[`, END after `]`.

    def _plain(self, prefix: list[Node], others: Node, low: int, high: int | None, context: RuleContext) -> Linear:
        edges: list[list[tuple[Node, int]]] = [[(Literal("["), 2)], []]
        for i, item in enumerate(prefix):
            row = [(self._close(i, context), 1)] if i >= low else []
            if high is None or i < high:
                row.append((self._item(item, i, context), i + 3))
            edges.append(row)
        count = len(prefix)
        least, most = max(0, low - count), None if high is None else max(0, high - count)
        many = self._item(others, 1, context)
        row = []
        if count:
            row.append((join(self.book.counted(many, least, most), self._close(1, context)), 1))
        else:
            row += [(self._close(0, context), 1)] if least == 0 else []
            if most != 0:
                more = self.book.counted(many, max(0, least - 1), None if most is None else most - 1)
                row.append((join(self._item(others, 0, context), join(more, self._close(1, context))), 1))
        edges.append(row)
        return _PlainArray(rows=edges, ends=[state == 1 for state in range(len(edges))])

    def _item(self, item: Node, written: int, context: RuleContext) -> Node:
        before = self.layout.between(context.depth) if written else self.layout.first(context.depth)
        return join(before, item)

    def _close(self, written: int, context: RuleContext) -> Node:
        return join(self.layout.last(context.depth) if written else self.layout.blank, Literal("]"))

    def _counting(
        self, case: Array, prefix: list[Node], others: Node, low: int, high: int | None, context: RuleContext
    ) -> Linear | None:
        """Counts items and matching items, each as far as it matters. None, and a gap, for too many states."""
        wanted = tuple(Matching(least=matching.least, most=matching.most) for matching in case.contains)
        most_items = max(low, len(prefix), 1) if high is None else high
        states = most_items + 1
        for matching in wanted:
            states *= matching.cap + 1
        if states > MAX_STATES:
            fits = ", ".join(str(matching.cap) for matching in wanted)
            text = f"up to {most_items} items and {fits} of them that fit are too many to count at a time"
            self.book.gap(context.pointer, "contains", text)
            return None
        inside = self.layout.deeper(context.depth)
        return _CountingArray(
            nodes=(*prefix, others),
            kinds=tuple(tuple((kind.matches, self.value(kind.node, inside)) for kind in row) for row in case.kinds),
            wanted=wanted,
            low=low,
            high=high,
            most_items=most_items,
            item=lambda node, written: self._item(node, written, context),
            close=lambda written: self._close(written, context),
        )

    def _distinct(self, case: Array, low: int, high: int | None, context: RuleContext) -> _Sets | None:
        """Each value at most once. None, and a gap, where the items are not a few values."""
        number: dict[Hashable, int] = {}
        spelled: list[Node] = []
        sets: list[list[int]] = []
        for node in (*case.prefix, case.items):
            values = self._values(node)
            if values is None:
                self.book.gap(context.pointer, "uniqueItems", f"items are not one of at most {MAX_UNIQUE} values")
                return None
            numbers: dict[int, None] = {}
            for value in values:
                which = key(value)
                if which not in number:
                    number[which] = len(spelled)
                    spelled.append(self._spell_value(value, node, context))
                numbers[number[which]] = None
            sets.append(list(numbers))
        if len(spelled) > MAX_UNIQUE:
            text = f"items are one of {len(spelled)} values; at most {MAX_UNIQUE} are told apart"
            self.book.gap(context.pointer, "uniqueItems", text)
            return None
        return _Sets(
            spelled=tuple(spelled),
            sets=tuple(map(tuple, sets)),
            low=low,
            high=high,
            item=lambda node, written: self._item(node, written, context),
            close=lambda written: self._close(written, context),
        )

    def _spell_value(self, value: Any, node: NodeId, context: RuleContext) -> Node:
        """The expression of one value of a node."""
        inside = self.layout.deeper(context.depth)
        is_any = any(isinstance(case, Values) and case.any_order for case in self.cases(node))
        members = self.members(context) if is_any else None
        return literal(value, self.layout, inside, self.book.constants, members)

    def _lacks_values(self, case: Array, which: int) -> bool:
        """Whether fewer different items match one `contains` than must."""
        most = self._most_values([kind.node for row in case.kinds for kind in row if kind.matches >> which & 1])
        return most is not None and most < case.contains[which].least

    def _most_values(self, nodes: Sequence[NodeId]) -> int | None:
        """At most so many different items of these nodes are possible; None where there is no plain limit."""
        keys: set[Hashable] = set()
        ranges = 0
        for node in dict.fromkeys(nodes):
            for case in self.cases(node):
                match case:
                    case Values(values=values):
                        keys |= set(map(key, values))
                    case Null():
                        keys.add(key(None))
                    case Boolean():
                        keys |= {key(False), key(True)}
                    case NumberForm(integer=True, minimum=Fraction() as least, maximum=Fraction() as most):
                        ranges += max(0, floor(most) - ceil(least) + 1)
                    case _:
                        return None
        return len(keys) + ranges

    def _values(self, node: NodeId) -> list[Any] | None:
        """The values of a node, None where they are not few."""
        listed: list[Any] = []
        for case in self.cases(node):
            match case:
                case Values(values=values) if len(values) <= MAX_UNIQUE * 4:
                    listed += values
                case Null():
                    listed.append(None)
                case Boolean():
                    listed += [False, True]
                case _:
                    return None
        return listed


@dataclass(frozen=True, slots=True, kw_only=True)
class _ArrayAutomaton(ABC):
    """An array as an automaton. item: an item with the separator before it, given how many are written. close: the
    closing bracket. low, high: the least and the most items."""

    low: int
    high: int | None
    item: Callable[[Node, int], Node]
    close: Callable[[int], Node]

    @property
    def start(self) -> State:
        return START

    def final(self, state: State) -> bool:
        return state == END

    def least(self, cost: Cost) -> Callable[[State], int]:
        return nearest(self, cost)

    @abstractmethod
    def edges(self, state: State) -> Edges: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Matching:
    """How many items match one `contains`."""

    least: int
    most: int | None

    @property
    def cap(self) -> int:
        """Matching items are counted up to this."""
        return self.least if self.most is None else self.most


@dataclass(frozen=True, slots=True, kw_only=True)
class _CountingArray(_ArrayAutomaton):
    """Counts items and, for each `contains`, matching items: a state inside the brackets is (items, matching items),
    each as far as it matters.

    nodes: the items at each index, the last for all further ones. kinds: the same by what they match, see `ItemKind`.
    """

    nodes: Sequence[Node]
    kinds: tuple[tuple[tuple[int, Node], ...], ...]
    wanted: tuple[Matching, ...]
    most_items: int

    def edges(self, state: State) -> Edges:
        if not isinstance(state, tuple):
            return [(Literal("["), (0, (0,) * len(self.wanted)))] if state == START else []
        items: int
        counts: tuple[int, ...]
        items, counts = state
        is_met = all(count >= matching.least for count, matching in zip(counts, self.wanted, strict=True))
        row: list[tuple[Node, State]] = []
        if items >= self.low and is_met:
            row.append((self.close(items), END))
        if self.high is not None and items >= self.high:
            return row
        more = items + 1 if self.high is not None else min(items + 1, self.most_items)
        at = min(items, len(self.nodes) - 1)
        if is_met and all(matching.most is None for matching in self.wanted):
            return [*row, (self.item(self.nodes[at], items), (more, counts))]
        for matches, node in self.kinds[at]:
            after = self._counted(counts, matches)
            if node is not NEVER and after is not None:
                row.append((self.item(node, items), (more, after)))
        return row

    def _counted(self, counts: tuple[int, ...], matches: int) -> tuple[int, ...] | None:
        """The counts after an item that matches these; None for too many."""
        counted = [count + (matches >> i & 1) for i, count in enumerate(counts)]
        for i, matching in enumerate(self.wanted):
            if matching.most is None:
                counted[i] = min(counted[i], matching.least)
            elif counted[i] > matching.most:
                return None
        return tuple(counted)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sets(_ArrayAutomaton):
    """Each value at most once: a state inside the brackets is the set of values written, as bits. spelled: the values.
    sets: those possible at each index; the last set is for all further items."""

    spelled: tuple[Node, ...]
    sets: tuple[tuple[int, ...], ...]

    @property
    def same(self) -> tuple[Hashable, ...]:
        """Equal for equal automata, at one depth."""
        return (self.spelled, self.sets, self.low, self.high)

    def edges(self, state: State) -> Edges:
        if not isinstance(state, int):
            return [(Literal("["), 0)] if state == START else []
        written = state.bit_count()
        row: list[tuple[Node, State]] = [(self.close(written), END)] if written >= self.low else []
        if self.high is None or written < self.high:
            free = [value for value in self.sets[min(written, len(self.sets) - 1)] if not state >> value & 1]
            row += [(self.item(self.spelled[value], written), state | 1 << value) for value in free]
        return row


class _PlainArray(Table):
    """States 0 and 1 are before and after the brackets; the edges of all others lead to the next one, or to 1."""

    def least(self, cost: Cost) -> Callable[[State], int]:
        rows = self.rows
        bytes_left = [ENDLESS] * len(rows)
        bytes_left[1] = 0
        for state in (*reversed(range(2, len(rows))), 0):
            for label, target in rows[state]:
                bytes_left[state] = min(bytes_left[state], cost(label) + bytes_left[target])
        return bytes_left.__getitem__  # type: ignore[return-value]  # its states are numbers
