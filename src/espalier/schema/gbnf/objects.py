"""Writes objects as grammar rules: the declared properties in order, then all others, with commas only between members.

    properties a (required), b      "{" "\\"a\\":" a ("," "\\"b\\":" b)? "}"

What may follow depends only on how many properties are decided and how many are written, so the rules form a chain, not
one rule for each subset. It does not know values: what a property holds is another rule.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from espalier.automata.languages.algebra import both, either
from espalier.automata.languages.dfa import Dfa
from espalier.errors import LimitExceeded
from espalier.grammar.ast import EMPTY, NEVER, Literal, Node, alt
from espalier.schema.form import Case, NodeId, Object, Rest, String, Values
from espalier.schema.gbnf.layout import Layout
from espalier.schema.gbnf.linear import Linear, join, write
from espalier.schema.gbnf.rulebook import RuleBook, RuleContext, quoted
from espalier.schema.gbnf.strings import StringRules
from espalier.time_limit import check as check_time

MAX_PROPERTIES = 10_000
MAX_STATES = 20_000
"""States of a chain: properties times counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectRules:
    """Converts objects. value: the reference to the rule of a node, at a depth. cases: the cases of a node."""

    brackets: ClassVar[tuple[str, str]] = ("{", "}")
    book: RuleBook
    strings: StringRules
    layout: Layout
    value: Callable[[NodeId, int], Node]
    cases: Callable[[NodeId], tuple[Case, ...]]

    def node(self, case: Object, context: RuleContext) -> Node:
        if len(case.properties) > MAX_PROPERTIES:
            where = context.pointer or "the top"
            raise LimitExceeded(
                f"an object at {where} has {len(case.properties)} properties, {MAX_PROPERTIES} at most",
                hint="describe what they have in common with patternProperties or additionalProperties",
            )
        inside = self.layout.deeper(context.depth)
        members: list[tuple[Node, bool]] = []
        for prop in case.properties:
            value = self.value(prop.node, inside)
            if value is NEVER:
                if prop.required:
                    return NEVER
                continue
            members.append((self._member(self._key(prop.name), value), prop.required))
        others = self._others(case, context, inside)
        chain = _Chain(case, members, others, self.layout, self.book, context, self.brackets)
        node, rules = write(chain.automaton(), self.book.fresh(context.base, context.pointer))
        self.book.add_all(rules)
        return node

    def _key(self, name: str) -> Node:
        return Literal(quoted(name))

    def _member(self, name: Node, value: Node) -> Node:
        return join(name, join(self.layout.colon, value))

    def _others(self, case: Object, context: RuleContext, inside: int) -> Node:
        """One member whose name is not declared; NEVER where none may occur."""
        declared = tuple(prop.name for prop in case.properties)
        allowed = None if case.names is None else self._named(case.names, context.pointer)
        if case.names is not None and allowed is None:
            return NEVER
        options: list[Node] = []
        for group in case.rest:
            value = self.value(group.node, inside)
            if value is not NEVER:
                name = self._name(group, declared, allowed, context)
                options += [self._member(name, value)] if name is not NEVER else []
        return alt(*options)

    def _name(self, group: Rest, declared: tuple[str, ...], allowed: Dfa | None, context: RuleContext) -> Node:
        wanted = String(patterns=group.patterns, not_patterns=group.not_patterns, excluded=declared)
        if allowed is None:
            return self.strings.node(wanted, f"{context.base}-key", context.pointer, keyword="patternProperties")
        found = self.strings.language(wanted, "patternProperties", context.pointer)
        try:
            found = both(found, allowed)
        except LimitExceeded as error:
            self.book.gap(context.pointer, "propertyNames", error.message)
        return self.strings.of_dfa(found, f"{context.base}-key", context.pointer)

    def _named(self, node: NodeId, pointer: str) -> Dfa | None:
        """The names that a node allows, None where it allows none."""
        found: Dfa | None = None
        for case in self.cases(node):
            one: Dfa | None = None
            if isinstance(case, String):
                one = self.strings.language(case, "propertyNames", pointer)
            elif isinstance(case, Values) and (words := [v for v in case.values if isinstance(v, str)]):
                one = Dfa.of_words(words)
            found = either(found, one)
        return found


class _Chain:
    """The rules of one object as an automaton whose edges are expressions.

    A state is (declared properties decided, members written); the second count stops where more makes no difference.
    """

    def __init__(
        self,
        case: Object,
        members: list[tuple[Node, bool]],
        others: Node,
        layout: Layout,
        book: RuleBook,
        context: RuleContext,
        brackets: tuple[str, str],
    ) -> None:
        self._open, self._close = map(Literal, brackets)
        self._members = members
        self._others = others
        self._layout = layout
        self._book = book
        self._depth = context.depth
        self._most = case.max_properties
        required = sum(needed for _, needed in members)
        count, any_others = len(members), others is not NEVER
        if self._most is not None and not any_others and self._most >= count:
            self._most = None
        self._least = case.min_properties if case.min_properties > required else 0
        if any_others and self._least > count + 1:
            text = f"at least {self._least} names, of which {count} are declared: other names may come twice"
            book.gap(context.pointer, "minProperties", text)
            self._least = count + 1
        elif any_others and self._least > 1:
            book.note(context.pointer, "minProperties", "one undeclared name at most counts, as it may come twice")
        for keyword, is_counted in (("maxProperties", self._most is not None), ("minProperties", self._least > 0)):
            cap = self._cap()
            if is_counted and (count + 1) * (cap + 1) > MAX_STATES:
                book.gap(context.pointer, keyword, f"{count} properties and counts up to {cap} are too many")
                if keyword == "maxProperties":
                    self._most = None
                else:
                    self._least = 0

    def _cap(self) -> int:
        """Members written are counted up to this."""
        declared = len(self._members)
        return max(self._least, 1) if self._most is None else min(self._most, declared)

    def automaton(self) -> Linear:
        """From bracket to bracket: state 0 is before the first, state 1 after the last."""
        cap, count = self._cap(), len(self._members)
        needed = [0] * (count + 1)  # required properties from here on
        for i in reversed(range(count)):
            needed[i] = needed[i + 1] + self._members[i][1]
        number: dict[tuple[int, int], int] = {(0, 0): 2}
        order = [(0, 0)]
        edges: list[list[tuple[Node, int]]] = [[(self._open, 2)], []]

        def number_of(state: tuple[int, int]) -> int:
            if state not in number:
                number[state] = len(number) + 2
                order.append(state)
            return number[state]

        def possible(i: int, written: int) -> bool:
            enough = written + count - i + (self._others is not NEVER) >= self._least
            return enough and (self._most is None or written + needed[i] <= self._most)

        for i, written in order:  # grows as states are met
            check_time()
            row: list[tuple[Node, int]] = []
            if i == count:
                row += [(end, 1) for end in self._ends(written)]
            else:
                member, required = self._members[i]
                more = min(written + 1, cap) if self._most is None else written + 1
                if possible(i + 1, more):
                    row.append((join(self._before(written), member), number_of((i + 1, more))))
                if not required and possible(i + 1, written):
                    row.append((EMPTY, number_of((i + 1, written))))
            edges.append(row)
        return Linear(edges=edges, final=[state == 1 for state in range(len(edges))])

    def _before(self, written: int) -> Node:
        return self._layout.between(self._depth) if written else self._layout.first(self._depth)

    def _ends(self, written: int) -> list[Node]:
        """The options after the last declared property: other members, and the closing bracket."""
        layout, depth = self._layout, self._depth
        close, empty = join(layout.last(depth), self._close), join(layout.blank, self._close)
        least = max(0, self._least - written)
        most = None if self._most is None else self._most - written
        if self._others is NEVER or most == 0:
            if least:
                return []
            return [close if written else empty]
        if least > 1 or (most is not None and most < least):
            return []
        item = join(layout.between(depth), self._others)
        if written:
            return [join(self._book.counted(item, least, most), close)]
        more = self._book.counted(item, 0, None if most is None else most - 1)
        some = join(join(layout.first(depth), self._others), join(more, close))
        return [some] if least else [empty, some]
