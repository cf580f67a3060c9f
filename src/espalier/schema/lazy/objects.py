"""Objects for the matcher: keys are read byte by byte, and undeclared names are all names but the declared ones.

It shares what an object is with the GBNF export (`gbnf/objects.py`); only how keys are explored differs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import cached_property

from espalier.automata.languages.dfa import Dfa
from espalier.automata.lazy.linear import Cost, Edges, KeyChoice, Linear, State
from espalier.grammar.ast import Node
from espalier.schema.form import Object, Rest, String
from espalier.schema.gbnf.linear import join
from espalier.schema.gbnf.objects import Chain, Member, ObjectRules
from espalier.schema.gbnf.rulebook import RuleContext
from espalier.time_limit import check as check_time


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyObjects(ObjectRules):
    """Converts objects. undeclared: the reference to a rule for a string that is none of these names. of_names: the
    same for an automaton over the characters of names. rule: the same for an automaton of its own."""

    undeclared: Callable[[String, tuple[str, ...], str], Node]
    of_names: Callable[[Dfa | None, str], Node]
    rule: Callable[[Linear], Node]

    def chain(self, case: Object, members: list[Member], others: Node, context: RuleContext) -> Chain:
        return KeyedChain(case, members, others, self, context)

    def constant(self, members: list[Node], context: RuleContext) -> Node:
        return self.rule(self.every_order(members, context))

    def _name(self, group: Rest, declared: tuple[str, ...], allowed: Dfa | None, context: RuleContext) -> Node:
        if allowed is None:
            wanted = String(patterns=group.patterns, not_patterns=group.not_patterns)
            return self.undeclared(wanted, declared, context.pointer)
        return self.of_names(self._allowed(group, declared, allowed, context), context.pointer)


class KeyedChain(Chain):
    """A chain whose next key is one of those up to the next required property."""

    @cached_property
    def _order(self) -> list[int]:
        """The properties in the order of their keys."""
        return sorted(range(len(self.members)), key=lambda i: self.members[i].key.encode())

    @cached_property
    def texts(self) -> Sequence[bytes]:
        """See `Keyed`."""
        return [self.members[i].key.encode() for i in self._order]

    def explore(self, state: State) -> tuple[Edges, KeyChoice | None]:
        if not isinstance(state, tuple):
            return self.edges(state), None
        i, written = state
        count = len(self.members)
        last = i  # the properties before this one can be left out
        while last < count and not self.members[last].required:
            last += 1
        edges: Edges = self.edges((count, written)) if last == count else ()
        if i == count:
            return edges, None
        check_time()
        past = min(last + 1, count)
        if past - i == count:
            keys = tuple(range(count))
        else:
            keys = tuple([rank for rank, at in enumerate(self._order) if i <= at < past])
        return edges, KeyChoice(before=self.before(written), keys=keys, place=self.counted(written))

    def member(self, key: int, place: Hashable) -> tuple[Node, State]:
        i = self._order[key]
        return join(self.colon, self.members[i].value), (i + 1, place)

    def key_costs(self, cost: Cost) -> Callable[[int, Hashable], int]:
        costs, least, order = self.member_costs(cost), self.least(cost), self._order
        return lambda key, place: costs[order[key]] + least((order[key] + 1, place))
