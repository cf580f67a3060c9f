"""Facts about a grammar: what is nullable, productive, reachable, left recursive; what a sentence costs.

It knows nothing of findings or wording (`check`), and changes nothing (`rewrite`). Every function takes time
about linear in the size of the grammar, and none recurses. Undefined rules derive nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from heapq import heappop, heappush

from espalier.grammar.ast import (
    Alternative,
    AnyChar,
    CharClass,
    Grammar,
    Literal,
    Node,
    Repeat,
    RuleRef,
    Sequence,
    TokenRef,
    postorder,
)

Terminal = Literal | CharClass | AnyChar | TokenRef


class Costs:
    """The least cost of deriving something from each rule and node; what is absent derives nothing.

    `terminal` prices a terminal (None: it cannot be used), each use of a rule adds `call`. A sequence costs
    the sum of its items, an alternative its cheapest option, a repetition its least count. This is Knuth's
    generalisation of Dijkstra's algorithm: every node is settled once, cheapest first.
    """

    def __init__(self, grammar: Grammar, terminal: Callable[[Terminal], int | None], *, call: int = 0) -> None:
        self._costs: dict[int, int] = {}  # by id(node): the grammar keeps its nodes alive
        self._rules: dict[str, int] = {}
        self._grammar = grammar
        self._call = call
        self._missing: dict[int, int] = {}  # how many children must still be settled
        self._parents: dict[int, list[Node]] = {}
        self._calls: dict[str, list[Node]] = {name: [] for name in grammar.rules}
        self._bodies: dict[int, list[str]] = {}
        self._heap: list[tuple[int, int, Node]] = []
        self._count = 0
        for rule in grammar.rules.values():
            self._bodies.setdefault(id(rule.body), []).append(rule.name)
            for node in postorder(rule.body):
                if id(node) not in self._missing:
                    self._enter(node, terminal)
        self._settle()
        del self._missing, self._parents, self._calls, self._bodies, self._heap

    def rule(self, name: str) -> int | None:
        """The least cost of the rule's body, or None if it derives nothing."""
        return self._rules.get(name)

    def node(self, node: Node) -> int | None:
        """The same for a node of this very grammar (by identity, not by equality)."""
        return self._costs.get(id(node))

    def names(self) -> frozenset[str]:
        """The rules that derive something."""
        return frozenset(self._rules)

    def _enter(self, node: Node, terminal: Callable[[Terminal], int | None]) -> None:
        self._missing[id(node)] = 1
        match node:
            case Sequence(items):
                self._missing[id(node)] = len(items)
                self._wait(node)
                if not items:
                    self._offer(node, 0)
            case Alternative():
                self._wait(node)
            case Repeat(_, low):
                self._wait(node)
                if low == 0:
                    self._offer(node, 0)
            case RuleRef(name):
                if name in self._calls:
                    self._calls[name].append(node)
            case _:
                if (cost := terminal(node)) is not None:
                    self._offer(node, cost)

    def _wait(self, node: Node) -> None:
        for child in node.children():
            self._parents.setdefault(id(child), []).append(node)

    def _offer(self, node: Node, cost: int) -> None:
        self._count += 1
        heappush(self._heap, (cost, self._count, node))

    def _settle(self) -> None:
        while self._heap:
            cost, _, node = heappop(self._heap)
            if id(node) in self._costs:
                continue
            self._costs[id(node)] = cost
            for name in self._bodies.get(id(node), ()):
                self._rules[name] = cost
                for call in self._calls[name]:
                    self._offer(call, cost + self._call)
            for parent in self._parents.get(id(node), ()):
                self._tell(parent, cost)

    def _tell(self, parent: Node, cost: int) -> None:
        match parent:
            case Sequence(items):
                self._missing[id(parent)] -= 1
                if not self._missing[id(parent)]:
                    self._offer(parent, sum(self._costs[id(item)] for item in items))
            case Repeat(_, low):
                self._offer(parent, low * cost)
            case _:
                self._offer(parent, cost)


def nullable_costs(grammar: Grammar) -> Costs:
    """Present for each rule and node that derives the empty text."""
    return Costs(grammar, lambda _: None)


def productive_costs(grammar: Grammar) -> Costs:
    """Present for each rule and node that derives some finite sentence."""
    return Costs(grammar, lambda node: None if is_void(node) else 1)


def is_void(node: Terminal) -> bool:
    """A class that holds no code point that can stand in a text."""
    return isinstance(node, CharClass) and not node.scalars()


def nullable(grammar: Grammar) -> frozenset[str]:
    """The rules that derive the empty text."""
    return nullable_costs(grammar).names()


def productive(grammar: Grammar) -> frozenset[str]:
    """The rules that derive at least one finite sentence."""
    return productive_costs(grammar).names()


def reachable(grammar: Grammar) -> frozenset[str]:
    """The rules that the root mentions, directly or through others; the root itself; no undefined ones."""
    found = {grammar.root} & grammar.rules.keys()
    todo = list(found)
    while todo:
        for ref in references(grammar.rules[todo.pop()].body):
            if ref.name not in found and ref.name in grammar.rules:
                found.add(ref.name)
                todo.append(ref.name)
    return frozenset(found)


def references(node: Node) -> Iterator[RuleRef]:
    """Every mention of a rule in an expression, left to right."""
    return (inner for inner in postorder(node) if isinstance(inner, RuleRef))


def left_references(grammar: Grammar) -> dict[str, tuple[str, ...]]:
    """For each rule, the rules that can stand first in it, where everything before them can be empty."""
    empty = nullable_costs(grammar)
    found: dict[str, tuple[str, ...]] = {}
    for rule in grammar.rules.values():
        names: dict[str, None] = {}
        todo: list[Node] = [rule.body]
        while todo:
            match todo.pop():
                case RuleRef(name):
                    if name in grammar.rules:
                        names[name] = None
                case Sequence(items):
                    first = next((i for i, item in enumerate(items) if empty.node(item) is None), len(items))
                    todo.extend(reversed(items[: first + 1]))
                case Alternative(options):
                    todo.extend(reversed(options))
                case Repeat(item, _, high):
                    todo.extend([] if high == 0 else [item])
        found[rule.name] = tuple(names)
    return found


def left_recursive_groups(grammar: Grammar) -> list[tuple[str, ...]]:
    """Sets of rules that reach one another by first places, each in the grammar's order."""
    edges = left_references(grammar)
    order = {name: i for i, name in enumerate(grammar.rules)}
    groups = [
        tuple(sorted(group, key=order.__getitem__))
        for group in components(edges)
        if len(group) > 1 or group[0] in edges[group[0]]
    ]
    return sorted(groups, key=lambda group: order[group[0]])


def left_recursive_cycles(grammar: Grammar) -> list[tuple[str, ...]]:
    """One shortest cycle for each group of left recursive rules: `("expr", "sum")` is expr → sum → expr."""
    edges = left_references(grammar)
    return [_shortest_cycle(edges, group) for group in left_recursive_groups(grammar)]


def _shortest_cycle(edges: dict[str, tuple[str, ...]], group: tuple[str, ...]) -> tuple[str, ...]:
    """From the group's first rule back to it."""
    start, inside = group[0], set(group)
    came_from: dict[str, str] = {}
    todo = deque([start])
    while todo:
        name = todo.popleft()
        for target in edges[name]:
            if target == start:
                path = [name]
                while path[-1] != start:
                    path.append(came_from[path[-1]])
                return tuple(reversed(path))
            if target in inside and target not in came_from:
                came_from[target] = name
                todo.append(target)
    raise AssertionError(f"{start!r} is in no cycle")  # a strongly connected component has one


def components(edges: dict[str, tuple[str, ...]]) -> list[list[str]]:
    """Strongly connected components (Tarjan), without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: dict[str, None] = {}
    found: list[list[str]] = []
    for start in edges:
        todo = [] if start in index else [(start, iter(edges[start]))]
        while todo:
            name, targets = todo[-1]
            if name not in index:
                index[name] = low[name] = len(index)
                open_[name] = None
            for target in targets:
                if target not in index:
                    todo.append((target, iter(edges[target])))
                    break
                if target in open_:
                    low[name] = min(low[name], index[target])
            else:
                todo.pop()
                if todo:
                    low[todo[-1][0]] = min(low[todo[-1][0]], low[name])
                if low[name] == index[name]:
                    group: list[str] = []
                    while not group or group[-1] != name:
                        group.append(open_.popitem()[0])
                    found.append(group)
    return found
