"""Writes automata whose edges are expressions as right-linear rules: a rule refers to another one only at its end.

    0 -"["-> 2, 2 -item-> 3, 3 -("," item)-> 3, 3 -"]"-> 1      "[" item ("," item)* "]"

States that are reached once are written in place, and repetitions are folded, so the rules look much like handwritten
ones. It does not know schemas or characters.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from espalier.automata.lazy.linear import Edges, Linear, State
from espalier.grammar.ast import EMPTY, CharClass, Literal, Node, Repeat, Rule, RuleRef, alt, seq
from espalier.grammar.ast import Sequence as InOrder
from espalier.time_limit import check as check_time

MAX_NESTED = 12
"""Depth of nested groups that are written in place; grammar parsers recurse over them."""
_LAST = object()


def write(automaton: Linear, fresh: Callable[[], str]) -> tuple[Node, list[Rule]]:
    """The expression of the start state, and the rules that it needs, named by `fresh`."""
    return _LinearWriter(automaton, fresh).write()


class _LinearWriter:
    def __init__(self, automaton: Linear, fresh: Callable[[], str]) -> None:
        self._automaton = automaton
        self._edges: dict[State, Edges] = {}
        self._fresh = fresh
        self._names: dict[State, str] = {}
        self._nodes: dict[State, Node] = {}
        self._depth: dict[State, int] = {}
        self._rules: dict[str, Node] = {}

    def write(self) -> tuple[Node, list[Rule]]:
        order, shared, looped = self._survey()
        for state in looped:
            self._names[state] = self._fresh()
        for state in order:
            node, depth = self._body(state)
            if state in looped:
                self._rules[self._names[state]] = node
            elif (state in shared and not _is_leaf(node)) or depth > MAX_NESTED:
                self._names[state] = self._fresh()
                self._rules[self._names[state]] = node
            else:
                self._nodes[state], self._depth[state] = node, depth
        rules = [Rule(name, node) for name, node in reversed(self._rules.items())]
        return self._target(self._automaton.start), rules

    def _target(self, state: State) -> Node:
        return RuleRef(self._names[state]) if state in self._names else self._nodes[state]

    def _body(self, state: State) -> tuple[Node, int]:
        by_target: dict[State, list[Node]] = {}
        for label, target in self._edges[state]:
            by_target.setdefault(target, []).append(label)
        loop = by_target.pop(state, None)
        options = [join(choice(labels), self._target(target)) for target, labels in by_target.items()]
        depth = max((self._depth.get(target, 0) for target in by_target), default=0)
        if self._automaton.final(state):
            options.append(EMPTY)
        node = choice(options)
        if len(options) > 1:
            depth = 0 if isinstance(node, Repeat) and _is_leaf(node.item) else depth + 1
        if loop is not None:
            node = join(Repeat(choice(loop)), node)
        return node, depth

    def _survey(self) -> tuple[list[State], set[State], list[State]]:
        """The reachable states, each after its targets (except along back edges); the states with several edges into
        them; the states with a back edge into them."""
        start = self._automaton.start
        met = {start}
        order: list[State] = []
        shared: set[State] = set()
        looped: dict[State, None] = {}
        open_: set[State] = {start}
        stack = [(start, iter(self._targets(start)))]
        while stack:
            check_time()
            state, rest = stack[-1]
            target = next(rest, _LAST)
            if target is _LAST:
                stack.pop()
                open_.discard(state)
                order.append(state)
            elif target not in met:
                met.add(target)
                open_.add(target)
                stack.append((target, iter(self._targets(target))))
            else:
                shared.add(target)
                if target in open_:
                    looped[target] = None
        return order, shared, list(looped)

    def _targets(self, state: State) -> list[State]:
        edges = self._edges[state] = self._automaton.edges(state)
        return [t for t in dict.fromkeys(target for _, target in edges) if t != state]


def _is_leaf(node: Node) -> bool:
    return isinstance(node, Literal | CharClass | RuleRef) or node == EMPTY


def choice(options: Sequence[Node]) -> Node:
    """One of these; an empty option makes the others optional."""
    rest = list(dict.fromkeys(option for option in options if option != EMPTY))
    if not rest:
        return EMPTY if options else alt()
    return optional(alt(*rest)) if len(rest) < len(options) and EMPTY in options else alt(*rest)


def optional(node: Node) -> Node:
    """The node or nothing."""
    if node == EMPTY:
        return EMPTY
    if isinstance(node, Repeat) and node.min <= 1:
        return Repeat(node.item, 0, node.max)
    return Repeat(node, 0, 1)


def join(first: Node, rest: Node) -> Node:
    """One after the other; equal neighbours become a repetition, adjacent literals one literal."""
    if first == EMPTY:
        return rest
    if rest == EMPTY:
        return first
    head, tail = (rest.items[0], rest.items[1:]) if isinstance(rest, InOrder) else (rest, ())
    folded = _folded(first, head)
    if folded is not None:
        return seq(folded, *tail)
    return seq(*(first.items if isinstance(first, InOrder) else (first,)), head, *tail)


def join_all(nodes: Iterable[Node]) -> Node:
    """What `join` makes of these, from the last to the first, in a time that grows with their number: a constant of a
    schema may have many thousands."""
    items: list[Node] = []  # the last one first, as are the texts of the literals before them
    texts: list[str] = []
    for node in reversed([*nodes]):
        check_time()
        if isinstance(node, Literal):
            if not texts and items and isinstance(head := items[-1], Literal):
                items.pop()
                texts.append(head.text)
            texts.append(node.text)
            continue
        if node == EMPTY:
            continue
        if texts:
            items.append(Literal("".join(reversed(texts))))
            texts.clear()
        folded = _folded(node, items[-1]) if items else None
        if folded is not None:
            items[-1] = folded
        else:
            items += reversed(node.items) if isinstance(node, InOrder) else (node,)
    if texts:
        items.append(Literal("".join(reversed(texts))))
    return seq(*reversed(items)) if items else EMPTY


def _folded(first: Node, second: Node) -> Node | None:
    if isinstance(first, Literal):
        return Literal(first.text + second.text) if isinstance(second, Literal) else None
    if isinstance(second, Repeat) and second.item == first:
        return Repeat(first, second.min + 1, None if second.max is None else second.max + 1)
    if first == second and not isinstance(first, Repeat):
        return Repeat(first, 2, 2)
    return None
