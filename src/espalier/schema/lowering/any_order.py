"""An object whose members come in any order, as an automaton whose edges are expressions.

    properties a (required), b      "{" (a ("," b)? | b "," a) "}"

A state is the set of declared names written, so there are as many states as sets: what explores them pays for those
that it meets. Undeclared names stand anywhere. It does not know values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import NamedTuple

from espalier.automata.lazy.linear import ENDLESS, Cost, Edges, State
from espalier.grammar.ast import EMPTY, NEVER, Literal, Node
from espalier.schema.lowering.layout import Layout
from espalier.schema.lowering.linear import join
from espalier.schema.lowering.others import Others

START, END = "before the bracket", "after the bracket"
"""The states of an object outside its brackets."""


class WrittenMembers(NamedTuple):
    """The members so far. names: the declared ones, a bit for each. others: how many more, as far as it matters. met:
    the demands that these meet, see `others.py`."""

    names: int = 0
    others: int = 0
    met: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOrder:
    """members: the declared members. required: those that must come, a bit for each. others: the other members. low,
    high: bounds on the number of members. counts_others: for `low` every other member counts; else one at most, since
    they may come twice."""

    members: tuple[Node, ...]
    required: int
    others: Others
    low: int
    high: int | None
    counts_others: bool
    layout: Layout
    depth: int
    brackets: tuple[str, str]

    @property
    def start(self) -> State:
        return START

    def final(self, state: State) -> bool:
        return state == END

    def edges(self, state: State) -> Edges:
        if not isinstance(state, WrittenMembers):
            return (
                [(_bracket(self.brackets[0]), WrittenMembers())]
                if state == START and self.can_end(WrittenMembers())
                else []
            )
        row: list[tuple[Node, State]] = []
        before = self.before(state)
        for i, member in enumerate(self.members):
            if not state.names >> i & 1:
                after = self.with_name(state, i)
                if self.can_end(after):
                    row.append((join(before, member), after))
        return [*row, *self.rest(state)]

    def rest(self, state: WrittenMembers) -> Edges:
        """The edges but those of declared names: another member, and the end."""
        row: list[tuple[Node, State]] = []
        others, is_met = self.others, self.others.is_met(state.met)
        options: list[tuple[Node, int | None]] = [(others.any(state.met), state.met)]
        if not is_met:
            options = [(kind.member, others.after(state.met, kind)) for kind in others.kinds]
        for member, met in options:
            if met is not None and member is not NEVER:
                after = self._bound_counts(state.names, state.others + 1, met)
                if self.can_end(after):
                    row.append((join(self.before(state), member), after))
        if is_met and not self.required & ~state.names and self._count_members(state) >= self.low:
            row.append((self._close(is_empty=state == WrittenMembers()), END))
        return row

    def before(self, state: WrittenMembers) -> Node:
        """What comes before the next member."""
        return self.layout.first(self.depth) if state == WrittenMembers() else self.layout.between(self.depth)

    def with_name(self, state: WrittenMembers, member: int) -> WrittenMembers:
        """The state after one more declared member."""
        return self._bound_counts(state.names | 1 << member, state.others, state.met)

    def least(self, cost: Cost) -> Callable[[State], int]:
        costs = self.member_costs(cost)
        needed = [(price, 1 << i) for i, price in enumerate(costs) if self.required >> i & 1]
        spare = sorted((price, 1 << i) for i, price in enumerate(costs) if not self.required >> i & 1)
        other, prices = cost(self.others.any()), self.others.prices(cost)
        first, between = cost(self.layout.first(self.depth)), cost(self.layout.between(self.depth))
        empty, close = cost(self._close(is_empty=True)), cost(self._close(is_empty=False))

        def from_here(state: State) -> int:
            if not isinstance(state, WrittenMembers):
                return cost(Literal(self.brackets[0])) + from_here(WrittenMembers()) if state == START else 0
            if not self.can_end(state):
                return ENDLESS
            required = [price for price, bit in needed if not state.names & bit]
            best = ENDLESS
            for members, demanded in prices(state.met).items():
                more = list(required)
                new = members if self.counts_others else min(members, int(not state.others))
                lacking = self.low - self._count_members(state) - len(more) - new
                if lacking > 0:
                    free = [price for price, bit in spare if not state.names & bit]
                    if self.others.every and (self.counts_others or not (state.others or members)):
                        free += [other] * (lacking if self.counts_others else 1)
                    if len(free) < lacking:
                        continue
                    more += sorted(free)[:lacking]
                count = len(more) + members
                if self.high is not None and state.names.bit_count() + state.others + count > self.high:
                    continue
                if not count:
                    return empty if state == WrittenMembers() else close
                apart = between * (count - 1) + (first if state == WrittenMembers() else between)
                best = min(best, demanded + sum(more) + apart + close)
            return best

        return from_here

    def member_costs(self, cost: Cost) -> list[int]:
        """The least number of bytes of each member, without the separator before it."""
        return [cost(member) for member in self.members]

    def with_rules(self, rule: Callable[[Node], Node]) -> AnyOrder:
        """The same automaton with a rule for each member."""
        return replace(self, members=tuple(map(rule, self.members)), others=self.others.with_rules(rule))

    def _close(self, *, is_empty: bool) -> Node:
        return join(self.layout.blank if is_empty else self.layout.last(self.depth), _bracket(self.brackets[1]))

    def _bound_counts(self, names: int, others: int, met: int) -> WrittenMembers:
        """The state with others counted as far as it matters."""
        if self.high is None:
            lacking = max(0, self.low - names.bit_count())
            others = min(others, max(lacking if self.counts_others else min(lacking, 1), int(not names)))
        return WrittenMembers(names, others, met)

    def _count_members(self, state: WrittenMembers) -> int:
        return state.names.bit_count() + (state.others if self.counts_others else min(state.others, 1))

    def can_end(self, state: WrittenMembers) -> bool:
        """Whether the counts can still be kept."""
        more = len(self.members) - state.names.bit_count()
        if self.others.every:
            more += self.low if self.counts_others else int(not state.others)
        if self.high is not None:
            room = self.high - state.names.bit_count() - state.others
            if room < (self.required & ~state.names).bit_count() + (self.others.fewest(state.met) or 0):
                return False
            more = min(more, room)
        return self._count_members(state) + more >= self.low


def _bracket(text: str) -> Node:
    return Literal(text) if text else EMPTY
