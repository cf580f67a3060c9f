"""Objects for the matcher: keys are read byte by byte, and undeclared names are all names but the declared ones.

It shares what an object is with the GBNF export (`lowering/objects.py`); only how keys are explored differs.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, fields
from typing import ClassVar

from espalier.automata.languages.dfa import Dfa
from espalier.automata.lazy.linear import Cost, Edges, KeyChoice, State
from espalier.computed import computed
from espalier.grammar.ast import Node
from espalier.schema.form import Object, Rest, String
from espalier.schema.lowering.any_order import AnyOrder, WrittenMembers
from espalier.schema.lowering.objects import DeclaredMember, MemberChain, ObjectRules
from espalier.schema.lowering.others import Others
from espalier.schema.lowering.rulebook import RuleContext
from espalier.time_limit import check as check_time


@dataclass(frozen=True, slots=True, kw_only=True)
class LazyObjects(ObjectRules):
    """Converts objects. undeclared: the reference to a rule for a string that is none of these names. of_names: the
    same for an automaton over the characters of names. rule: the same for an automaton of its own. member_of: what
    follows the text of a name, from its closing quotation mark on, given what comes between a name and its value, and
    the value."""

    counts_others: ClassVar[bool] = True
    undeclared: Callable[[String, tuple[str, ...], str], Node]
    of_names: Callable[[Dfa | None, str], Node]
    rule: Callable[[AnyOrder], Node]
    member_of: Callable[[Node, Node], Node]

    def chain(self, case: Object, members: list[DeclaredMember], others: Others, context: RuleContext) -> MemberChain:
        return KeyedChain(case, members, others, self, context)

    def any_order(self, case: Object, members: list[DeclaredMember], others: Others, context: RuleContext) -> AnyOrder:
        plain = ObjectRules.any_order(self, case, members, others, context)
        values = {known.name: getattr(plain, known.name) for known in fields(plain)}
        return KeyedAnyOrder(**values, declared=tuple(members), colon=self.colon(), member_of=self.member_of)

    def constant(self, members: list[Node], context: RuleContext) -> Node:
        return self.rule(self.every_order(members, context))

    def _name(self, group: Rest, declared: tuple[str, ...], allowed: Dfa | None, context: RuleContext) -> Node:
        if allowed is None:
            wanted = String(patterns=group.patterns, not_patterns=group.not_patterns)
            return self.undeclared(wanted, declared, context.pointer)
        return self.of_names(self._allowed(group, declared, allowed, context), context.pointer)


def text_of(member: DeclaredMember) -> bytes:
    """The name of a member as it is written, without the closing quotation mark."""
    return member.key.encode()[:-1]


class KeyedChain(MemberChain):
    """A chain whose next key is one of those up to the next required property."""

    last = ord('"')

    def __init__(
        self, case: Object, members: list[DeclaredMember], others: Others, rules: LazyObjects, context: RuleContext
    ) -> None:
        super().__init__(case, members, others, rules, context)
        self._member_of = rules.member_of

    @computed
    def _order(self) -> list[int]:
        """The properties in the order of their names."""
        return sorted(range(len(self.members)), key=lambda i: text_of(self.members[i]))

    @computed
    def texts(self) -> Sequence[bytes]:
        """See `KeyedLinear`."""
        return [text_of(self.members[i]) for i in self._order]

    def explore(self, state: State) -> tuple[Edges, KeyChoice | None]:
        if not isinstance(state, tuple):
            return self.edges(state), None
        if len(state) == 3:
            return self.edges(state), None
        i, written = state
        check_time()
        choice = self.next_members(i, written)
        count = len(self.members)
        edges: Edges = () if self.is_needed(i) else self.edges((count, written))
        if not choice:
            return edges, None
        if len(choice) == count:
            keys = tuple(range(count))
        else:
            keys = tuple([rank for rank, at in enumerate(self._order) if at in choice])
        return edges, KeyChoice(before=self.before(written), keys=keys, place=self.counted(written))

    def member(self, key: int, place: Hashable) -> tuple[Node, State]:
        i = self._order[key]
        return self._member_of(self.colon, self.members[i].value), (i + 1, place)

    def key_costs(self, cost: Cost) -> Callable[[int, Hashable], int]:
        costs, least, order = self.member_costs(cost), self.least(cost), self._order
        return lambda key, place: costs[order[key]] + least((order[key] + 1, place))


@dataclass(frozen=True, kw_only=True)
class KeyedAnyOrder(AnyOrder):
    """Members in every order, whose next key is any that is not written. declared: the members in their parts. colon:
    what comes between a name and its value. member_of: see `LazyObjects`."""

    last: ClassVar[int] = ord('"')
    declared: tuple[DeclaredMember, ...]
    colon: Node
    member_of: Callable[[Node, Node], Node]

    @computed
    def _order(self) -> list[int]:
        """The members in the order of their names."""
        return sorted(range(len(self.declared)), key=lambda i: text_of(self.declared[i]))

    @computed
    def texts(self) -> Sequence[bytes]:
        """See `KeyedLinear`."""
        return [text_of(self.declared[i]) for i in self._order]

    def explore(self, state: State) -> tuple[Edges, KeyChoice | None]:
        check_time()
        if not isinstance(state, WrittenMembers):
            return self.edges(state), None
        absent = [rank for rank, i in enumerate(self._order) if not state.names >> i & 1]
        fits: dict[bool, bool] = {}  # whether the counts can be kept depends only on whether a name is required

        def fit(i: int) -> bool:
            is_required = bool(self.required >> i & 1)
            if is_required not in fits:
                fits[is_required] = self.can_end(self.with_name(state, i))
            return fits[is_required]

        keys = tuple([rank for rank in absent if fit(self._order[rank])])
        return self.rest(state), KeyChoice(before=self.before(state), keys=keys, place=state) if keys else None

    def member(self, key: int, place: Hashable) -> tuple[Node, State]:
        if not isinstance(place, WrittenMembers):
            raise TypeError(f"{place!r} is no state of an object")
        i = self._order[key]
        return self.member_of(self.colon, self.declared[i].value), self.with_name(place, i)

    def member_costs(self, cost: Cost) -> list[int]:
        colon = cost(self.colon)
        return [len(member.key.encode()) + colon + cost(member.value) for member in self.declared]

    def key_costs(self, cost: Cost) -> Callable[[int, Hashable], int]:
        costs, least, order = self.member_costs(cost), self.least(cost), self._order
        between = cost(self.layout.between(self.depth))
        ends: dict[WrittenMembers, int] = {}

        def end_of(place: WrittenMembers) -> int:
            """What is left after a member that neither is required nor counts."""
            if place not in ends:
                ends.clear()
                bytes_left = least(place._replace(others=1) if place == WrittenMembers() else place)
                ends[place] = bytes_left
            return ends[place]

        def of_key(key: int, place: Hashable) -> int:
            if not isinstance(place, WrittenMembers):
                raise TypeError(f"{place!r} is no state of an object")
            i = order[key]
            if self.low or self.high is not None:
                return costs[i] + least(self.with_name(place, i))
            rest = end_of(place)
            return rest - between if self.required >> i & 1 else rest + costs[i]

        return of_key
