"""Writes objects as grammar rules: the declared properties in order, then all others, with commas only between members.

    properties a (required), b      "{" "\\"a\\":" a ("," "\\"b\\":" b)? "}"

What may follow depends only on how many properties are decided and how many are written, so the rules form a chain, not
one rule for each subset. It does not know values: what a property holds is another rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar, NamedTuple

from espalier.automata.languages.algebra import both, either
from espalier.automata.languages.dfa import Dfa
from espalier.automata.lazy.linear import ENDLESS, Cost, Edges, Linear, State
from espalier.errors import LimitExceeded
from espalier.grammar.ast import EMPTY, NEVER, Literal, Node
from espalier.schema.form import Case, NodeId, Object, Property, Rest, String, Values, fewest
from espalier.schema.lowering.any_order import AnyOrder
from espalier.schema.lowering.layout import Layout
from espalier.schema.lowering.linear import join, join_all, write
from espalier.schema.lowering.others import OtherMembers, Others, undone
from espalier.schema.lowering.rulebook import RuleBook, RuleContext, quoted
from espalier.schema.lowering.strings import StringRules
from espalier.time_limit import check as check_time

NAMES = "undeclared names must differ to count, which a matcher watches"
"""A gap that a matcher closes, see `constraints/unique/`."""
LAST = (
    "where a grammar enforces it, the undeclared name that satisfies it comes after all others that match the same "
    "patterns, and satisfies all negations of these at once"
)
MAX_ANY = 8
"""Declared names that may come in any order in a grammar, which has a rule for every set of them."""
MAX_PROPERTIES = 10_000
MAX_STATES = 20_000
"""States of a chain: properties times counts."""
START, END = "before the bracket", "after the bracket"
"""The states of an object outside its brackets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRules:
    """Converts objects. value: the reference to the rule of a node, at a depth. cases: the cases of a node."""

    brackets: ClassVar[tuple[str, str]] = ("{", "}")
    counts_others: ClassVar[bool] = False
    """Whether all undeclared names count for `minProperties` and demands, because a matcher lets none come twice."""
    book: RuleBook
    strings: StringRules
    layout: Layout
    value: Callable[[NodeId, int], Node]
    cases: Callable[[NodeId], tuple[Case, ...]]

    def node(self, case: Object, context: RuleContext) -> Node:
        """The expression of an object; its rules go into the book."""
        if case.any_order and (count := len(case.properties)) > MAX_ANY:
            text = f"as in the schema at {context.pointer or '/'}: its {count} names are more than {MAX_ANY}"
            self.book.note("", "order", text)
            case = replace(case, any_order=False)
        automaton = self.automaton(case, context)
        if automaton is None:
            return NEVER
        fresh = self.book.fresh(context.base, context.pointer)
        if isinstance(automaton, AnyOrder):  # its members are mentioned in many rules
            automaton = automaton.with_rules(lambda member: self.book.add(fresh(), member))
        node, rules = write(automaton, fresh)
        self.book.add_all(rules)
        return node

    def constant(self, members: list[Node], context: RuleContext) -> Node:
        """The expression of an object with all these members, in every order if they are few."""
        if len(members) > MAX_ANY:
            text = f"as in the schema at {context.pointer or '/'}: {len(members)} names are more than {MAX_ANY}"
            self.book.note("", "order", text)
            return self._in_order(members, context)
        whole = self.every_order(members, context)
        fresh = self.book.fresh(context.base, context.pointer)
        node, rules = write(whole, fresh)
        self.book.add_all(rules)
        return node

    def every_order(self, members: list[Node], context: RuleContext) -> AnyOrder:
        """An object of exactly these members, in every order."""
        return AnyOrder(
            members=tuple(members),
            required=(1 << len(members)) - 1,
            others=Others(),
            low=0,
            high=None,
            counts_others=False,
            layout=self.layout,
            depth=context.depth,
            brackets=self.brackets,
        )

    def _in_order(self, members: list[Node], context: RuleContext) -> Node:
        layout, depth = self.layout, context.depth
        pieces: list[Node] = [Literal(self.brackets[0])]
        for i, member in enumerate(members):
            pieces += (layout.between(depth) if i else layout.first(depth), member)
        return join_all([*pieces, layout.last(depth) if members else layout.blank, Literal(self.brackets[1])])

    def automaton(self, case: Object, context: RuleContext) -> Linear | None:
        """The automaton of an object, explored on demand; None where no object fits. What it does not enforce becomes a
        gap here."""
        if len(case.properties) > MAX_PROPERTIES:
            where = context.pointer or "the top"
            raise LimitExceeded(
                f"an object at {where} has {len(case.properties)} properties, {MAX_PROPERTIES} at most",
                hint="describe what they have in common with patternProperties or additionalProperties",
            )
        inside = self.layout.deeper(context.depth)
        members: list[DeclaredMember] = []
        for prop in case.properties:
            value = self.declared(prop, inside)
            if value is NEVER:
                if prop.required:
                    return None
                continue
            members.append(DeclaredMember(self.key(prop.name), value, prop.required))
        others = self._others(case, context, inside)
        if others is None:
            return None
        if not case.any_order:
            return self.chain(case, members, others, context)
        return self.any_order(case, members, others, context)

    def chain(self, case: Object, members: list[DeclaredMember], others: Others, context: RuleContext) -> MemberChain:
        """The automaton of these members."""
        return MemberChain(case, members, others, self, context)

    def any_order(self, case: Object, members: list[DeclaredMember], others: Others, context: RuleContext) -> AnyOrder:
        """The automaton of these members in every order."""
        return AnyOrder(
            members=tuple(self.member(Literal(member.key), member.value) for member in members),
            required=sum(1 << i for i, member in enumerate(members) if member.required),
            others=others,
            low=self.low(case, members, others, context),
            high=case.max_properties,
            counts_others=self.counts_others,
            layout=self.layout,
            depth=context.depth,
            brackets=self.brackets,
        )

    def low(self, case: Object, members: list[DeclaredMember], others: Others, context: RuleContext) -> int:
        """The least number of members that must be counted. What that leaves open becomes a note or a gap."""
        low, required = case.min_properties, sum(member.required for member in members)
        if low <= required:
            return 0
        if not others.every or low - required == 1:  # of others that are all the same, one counts
            return low
        if self.counts_others:
            self.book.gap(context.pointer, "minProperties", NAMES)
            return low
        if low > len(members) + 1:
            text = f"at least {low} names, of which {len(members)} are declared: other names may come twice"
            self.book.gap(context.pointer, "minProperties", text)
            return len(members) + 1
        self.book.note(context.pointer, "minProperties", "one undeclared name at most counts, as it may come twice")
        return low

    def declared(self, prop: Property, inside: int) -> Node:
        """The reference to the rule of a declared property's value."""
        return self.value(prop.node, inside)

    def key(self, name: str) -> str:
        """A declared name as it is written."""
        return quoted(name)

    def member(self, name: Node, value: Node) -> Node:
        """A name and its value."""
        return join(name, join(self.colon(), value))

    def colon(self) -> Node:
        """What comes between a name and its value."""
        return self.layout.colon

    def _others(self, case: Object, context: RuleContext, inside: int) -> Others | None:
        """The members whose names are not declared; None where they cannot meet the demands."""
        declared = tuple(prop.name for prop in case.properties)
        every: dict[tuple[tuple[str, ...], tuple[str, ...]], Node] = {}
        kinds: list[OtherMembers] = []
        fitting: dict[NodeId, Dfa | None] = {}
        could_be_undone = undone(case) if case.demands else [0] * len(case.rest)
        for group, lost in zip(case.rest, could_be_undone, strict=True):
            if group.names is not None and group.names not in fitting:
                fitting[group.names] = self._names_of(group.names, context.pointer)
            allowed = None if group.names is None else fitting[group.names]
            value = self.value(group.node, inside)
            if value is NEVER or (group.names is not None and allowed is None):
                continue
            name = self._name(group, declared, allowed, context)
            if name is not NEVER:
                member = self.member(name, value)
                every.setdefault((group.patterns, group.not_patterns), member)
                number = list(every).index((group.patterns, group.not_patterns))
                closes = 1 << number if lost and not self.counts_others else 0
                kinds.append(OtherMembers(member, group.meets, closes, number))
        plain = Others(every=tuple(every.values()))
        if not case.demands:
            return plain
        demanding = replace(plain, kinds=tuple(kinds), demands=len(case.demands))
        if fewest([kind.meets for kind in kinds], (1 << len(case.demands)) - 1) is None:
            return None
        is_possible = demanding.fewest(0) is not None
        for i, demand in enumerate(case.demands):
            pointer, _, keyword = demand.at.rpartition("/")
            if not is_possible:
                text = "names that satisfy several negations could be one name, whose last value counts"
                self.book.gap(pointer, keyword, text)
            elif any(lost >> i & 1 for lost in could_be_undone):
                if self.counts_others:
                    self.book.gap(pointer, keyword, NAMES)
                else:
                    self.book.note(pointer, keyword, LAST)
        return demanding if is_possible else plain

    def _name(self, group: Rest, declared: tuple[str, ...], allowed: Dfa | None, context: RuleContext) -> Node:
        if allowed is None:
            wanted = String(patterns=group.patterns, not_patterns=group.not_patterns, excluded=declared)
            return self.strings.node(wanted, f"{context.base}-key", context.pointer, keyword="patternProperties")
        names = self._allowed(group, declared, allowed, context)
        return self.strings.of_dfa(names, f"{context.base}-key", context.pointer)

    def _allowed(self, group: Rest, declared: tuple[str, ...], allowed: Dfa, context: RuleContext) -> Dfa | None:
        """The undeclared names of a group that `propertyNames` allows."""
        wanted = String(patterns=group.patterns, not_patterns=group.not_patterns, excluded=declared)
        names = self.strings.language(wanted, "patternProperties", context.pointer)
        try:
            return both(names, allowed)
        except LimitExceeded as error:
            self.book.gap(context.pointer, "propertyNames", error.message)
            return names

    def _names_of(self, node: NodeId, pointer: str) -> Dfa | None:
        """The names that a node allows, None where it allows none."""
        names: Dfa | None = None
        for case in self.cases(node):
            some: Dfa | None = None
            if isinstance(case, String):
                self.strings.remarks(case, f"{pointer}/propertyNames")
                some = self.strings.language(case, "propertyNames", pointer)
            elif isinstance(case, Values) and (words := [v for v in case.values if isinstance(v, str)]):
                some = Dfa.of_words(words)
            names = either(names, some)
        return names


class DeclaredMember(NamedTuple):
    """A declared property. key: its name as it is written. value: the expression of its value."""

    key: str
    value: Node
    required: bool


@lru_cache(maxsize=16)
def bracket(text: str) -> Node:
    return Literal(text) if text else EMPTY


class MemberChain:
    """The rules of one object as an automaton whose edges are expressions.

    A state inside the brackets is (declared properties decided, members written); the second count stops where more
    makes no difference. After the declared properties, demands that are met make a third part (see `others.py`).
    """

    def __init__(
        self, case: Object, members: list[DeclaredMember], others: Others, rules: ObjectRules, context: RuleContext
    ) -> None:
        self._open, self._close = map(bracket, rules.brackets)
        self.members = members
        self._others = others
        self._layout = rules.layout
        self.colon = rules.colon()
        self._book = book = rules.book
        self._depth = context.depth
        self._written_ends: dict[tuple[int, int], list[Node]] = {}
        self._most = case.max_properties
        count, any_others = len(members), bool(others.every)
        if self._most is not None and not any_others and self._most >= count:
            self._most = None
        self._least = rules.low(case, members, others, context)
        self._counts_others = rules.counts_others
        self._needed = [0] * (count + 1)  # required properties from here on
        for i in reversed(range(count)):
            self._needed[i] = self._needed[i + 1] + members[i].required
        if self._most is None and not self._least:
            return
        for keyword, is_counted in (("maxProperties", self._most is not None), ("minProperties", self._least > 0)):
            cap = self._most if self._most is not None and others.demands else self._cap()
            if is_counted and (count + 1) * (cap + 1) > MAX_STATES:
                book.gap(context.pointer, keyword, f"{count} properties and counts up to {cap} are too many")
                if keyword == "maxProperties":
                    self._most = None
                else:
                    self._least = 0

    def _cap(self) -> int:
        """Members written are counted up to this."""
        declared = len(self.members)
        return max(self._least, 1) if self._most is None else min(self._most, declared)

    @property
    def start(self) -> State:
        return START

    def final(self, state: State) -> bool:
        return state == END

    def edges(self, state: State) -> Edges:
        if state == START:
            return [(self._open, (0, 0))]
        if state == END:
            return []
        i, written, met = _place(state)
        if i == len(self.members):
            return self._after_declared(written, met)
        row: list[tuple[Node, State]] = []
        key, value, required = self.members[i]
        more = self.counted(written)
        if self._is_possible(i + 1, more):
            member = join(Literal(key), join(self.colon, value))
            row.append((join(self.before(written), member), (i + 1, more)))
        if not required and self._is_possible(i + 1, written):
            row.append((EMPTY, (i + 1, written)))
        return row

    def _after_declared(self, written: int, met: int) -> Edges:
        """Members that meet demands, and what follows them."""
        others, count = self._others, len(self.members)
        if others.is_met(met):
            return [(end, END) for end in self._ends(written, met)]
        if self._least - written > 1 and not self._counts_others:
            return []
        row: list[tuple[Node, State]] = []
        for kind in others.kinds:
            after, more = others.after(met, kind), self.counted(written)
            if after is not None and self._has_room(more, after):
                row.append((join(self.before(written), kind.member), (count, more, after)))
        return row

    def counted(self, written: int) -> int:
        """The count after one more member."""
        return min(written + 1, self._cap()) if self._most is None else written + 1

    def _is_possible(self, i: int, written: int) -> bool:
        """Whether the counts can still be kept, with `written` members before property `i`."""
        others = 0 if not self._others.every else self._least if self._counts_others else 1
        enough = written + len(self.members) - i + others >= self._least
        return enough and self._has_room(written + self._needed[i], 0)

    def _has_room(self, written: int, met: int) -> bool:
        """Whether `maxProperties` leaves room for the members that meet the demands left."""
        return self._most is None or written + (self._others.fewest(met) or 0) <= self._most

    def is_needed(self, i: int) -> bool:
        """Whether a required property is still to come, from property `i` on."""
        return self._needed[i] > 0

    def next_members(self, i: int, written: int) -> range:
        """The properties from `i` on of which any may be the next member: none after a required one, and none with
        which the counts could not be kept."""
        past, more = i, self.counted(written)
        while past < len(self.members) and self._needed[past] == self._needed[i]:
            past += 1
        # A later property leaves fewer for `minProperties`; a required one takes no more of `maxProperties` than is
        # set aside for it. So those that are possible are neighbours.
        while past > i and not self._is_possible(past, more):
            past -= 1
        while i < past and not self._is_possible(i + 1, more):
            i += 1
        return range(i, past)

    def member_costs(self, cost: Cost, *, optional: bool = True) -> list[int]:
        """The least number of bytes of each member, without the separator before it. optional: whether those of members
        that are not required are wanted; else they are 0."""
        colon = cost(self.colon)
        return [
            len(member.key.encode()) + colon + cost(member.value) if optional or member.required else 0
            for member in self.members
        ]

    def least(self, cost: Cost) -> Callable[[State], int]:
        count, layout, depth = len(self.members), self._layout, self._depth
        first, between = cost(layout.first(depth)), cost(layout.between(depth))
        if self._most is None and not self._least and not self._others.demands:
            costs = self.member_costs(cost, optional=False)
            close, empty = cost(layout.last(depth)) + 1, cost(layout.blank) + 1
            needed = [0] * (count + 1)  # bytes of the required properties from here on, each with a separator
            for i in reversed(range(count)):
                needed[i] = needed[i + 1] + (between + costs[i] if self.members[i].required else 0)

            def plain(state: State) -> int:
                if state == END:
                    return 0
                i, written, _ = (0, 0, 0) if state == START else _place(state)
                if written:
                    return needed[i] + close
                # Whatever is written costs more than nothing, and one member after the first costs no less than one.
                left = needed[i] - between + first + close if self._needed[i] else empty
                return left + (state == START)

            return plain
        costs = self.member_costs(cost)
        prices = self._others.prices(cost)

        def ending(written: int, met: int) -> int:
            """What is left after the declared properties. Which groups are closed does not matter: then no more is
            needed."""
            best = ENDLESS
            for members, price in prices(met).items():
                if members and self._least - written > 1 and not self._counts_others:
                    continue
                after = written
                for _ in range(members):
                    after = self.counted(after)
                apart = between * members - (0 if written or not members else between - first)
                ends = min((cost(end) for end in self._ends(after)), default=ENDLESS)
                best = min(best, price + apart + ends)
            return best

        ends = [ending(written, 0) for written in range(self._cap() + 1)]
        rows = [ends]
        for i in reversed(range(count)):
            check_time()
            after, required = rows[-1], self.members[i].required
            row = []
            for written in range(len(ends)):
                more = self.counted(written)
                use = after[more] + costs[i] + (between if written else first) if more < len(ends) else ENDLESS
                row.append(use if required else min(use, after[written]))
            rows.append(row)
        rows.reverse()

        def counting(state: State) -> int:
            if state in (START, END):
                return 1 + rows[0][0] if state == START else 0
            i, written, met = _place(state)
            return ending(written, met) if i == count else rows[i][written]

        return counting

    def before(self, written: int) -> Node:
        return self._layout.between(self._depth) if written else self._layout.first(self._depth)

    def _ends(self, written: int, met: int = 0) -> list[Node]:
        """The options after the last declared property and what demands ask for: other members, and the closing
        bracket."""
        ends = self._written_ends.get((written, met))
        if ends is None:
            ends = self._written_ends[written, met] = self._new_ends(written, self._others.any(met))
        return ends

    def _new_ends(self, written: int, other: Node) -> list[Node]:
        layout, depth = self._layout, self._depth
        close, empty = join(layout.last(depth), self._close), join(layout.blank, self._close)
        least = max(0, self._least - written)
        most = None if self._most is None else self._most - written
        if other is NEVER or most == 0:
            if least:
                return []
            return [close if written else empty]
        if (least > 1 and not self._counts_others) or (most is not None and most < least):
            return []
        item = join(layout.between(depth), other)
        if written:
            return [join(self._book.counted(item, least, most), close)]
        more = self._book.counted(item, max(0, least - 1), None if most is None else most - 1)
        some = join(join(layout.first(depth), other), join(more, close))
        return [some] if least else [empty, some]


def _place(state: State) -> tuple[int, int, int]:
    if not isinstance(state, tuple):
        raise TypeError(f"{state!r} is no state of an object")
    return state if len(state) == 3 else (*state, 0)
