"""Facts about a grammar: nullable, productive, reachable and left recursive rules, and minimum costs of sentences.

It reports nothing (`check` does) and changes nothing (`rewrite` does). Every function takes time about linear in the
size of the grammar, and none recurses. Undefined rules derive nothing.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable, Iterator, Mapping
from heapq import heapify, heappop, heappush
from itertools import count

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
from espalier.time_limit import check as check_time

Terminal = Literal | CharClass | AnyChar | TokenRef
Edges = Mapping[str, tuple[str, ...]]
"""By rule name: the names of other rules."""


class Costs:
    """The minimum cost of a sentence of each rule and node; those that derive no sentence are absent.

    `terminal` prices a terminal (None: it cannot be used), each use of a rule adds `call`. A sequence costs
    the sum of its items, an alternative its cheapest option, a repetition its least count. This is Knuth's
    generalisation of Dijkstra's algorithm: every node is settled once, cheapest first.
    """

    def __init__(self, grammar: Grammar, terminal: Callable[[Terminal], int | None], *, call: int = 0) -> None:
        self._grammar = grammar  # keeps the nodes alive, so that their ids stay unique
        self._costs: dict[int, int] = {}  # by id(node)
        self._rules: dict[str, int] = {}
        missing: dict[int, int] = {}  # sequences: how many items are not settled yet
        parents: defaultdict[int, list[Node]] = defaultdict(list)
        calls: dict[str, list[RuleRef]] = {name: [] for name in grammar.rules}
        bodies: defaultdict[int, list[str]] = defaultdict(list)
        heap: list[tuple[int, int, Node]] = []  # cost, a number that breaks ties, node
        seen: set[int] = set()
        for rule in grammar.rules.values():
            bodies[id(rule.body)].append(rule.name)
            for node in postorder(rule.body):
                if id(node) in seen:
                    continue
                seen.add(id(node))
                for child in node.children():
                    parents[id(child)].append(node)
                cost: int | None = None
                match node:
                    case RuleRef(name):
                        calls.get(name, []).append(node)
                    case Sequence(items):
                        missing[id(node)] = len(items)
                        cost = None if items else 0
                    case Repeat():
                        cost = None if node.min else 0
                    case Alternative():
                        pass
                    case _:
                        cost = terminal(node)
                if cost is not None:
                    heap.append((cost, len(seen), node))
        self._settle(heap, missing, parents, calls, bodies, call)

    def rule(self, name: str) -> int | None:
        """The minimum cost of a rule's body, None if it derives nothing."""
        return self._rules.get(name)

    def node(self, node: Node) -> int | None:
        """The same for a node of this grammar (by identity, not by equality)."""
        return self._costs.get(id(node))

    def names(self) -> frozenset[str]:
        """The rules that derive something."""
        return frozenset(self._rules)

    def _settle(
        self,
        heap: list[tuple[int, int, Node]],
        missing: dict[int, int],
        parents: Mapping[int, list[Node]],
        calls: Mapping[str, list[RuleRef]],
        bodies: Mapping[int, list[str]],
        call: int,
    ) -> None:
        costs, numbers = self._costs, count(-1, -1)
        heapify(heap)
        while heap:
            check_time()
            cost, _, node = heappop(heap)
            if id(node) in costs:
                continue
            costs[id(node)] = cost
            for name in bodies.get(id(node), ()):
                self._rules[name] = cost
                for ref in calls[name]:
                    heappush(heap, (cost + call, next(numbers), ref))
            for parent in parents.get(id(node), ()):
                total = cost
                if isinstance(parent, Sequence):
                    missing[id(parent)] -= 1
                    if missing[id(parent)]:
                        continue
                    total = sum(costs[id(item)] for item in parent.items)
                elif isinstance(parent, Repeat):
                    total = parent.min * cost
                heappush(heap, (total, next(numbers), parent))


def nullable_costs(grammar: Grammar) -> Costs:
    """Costs that exist for the rules and nodes that derive the empty text."""
    return Costs(grammar, lambda _: None)


def productive_costs(grammar: Grammar) -> Costs:
    """Costs that exist for the rules and nodes that derive a finite sentence."""
    return Costs(grammar, lambda node: None if is_void(node) else 1)


def is_void(node: Terminal) -> bool:
    """Whether a terminal is a class without any code point of text."""
    return isinstance(node, CharClass) and not node.scalars()


def nullable(grammar: Grammar) -> frozenset[str]:
    """The rules that derive the empty text."""
    return nullable_costs(grammar).names()


def productive(grammar: Grammar) -> frozenset[str]:
    """The rules that derive at least one finite sentence."""
    return productive_costs(grammar).names()


def reachable(grammar: Grammar) -> frozenset[str]:
    """The root and the defined rules that it mentions, directly or through others."""
    reachable = {grammar.root} & grammar.rules.keys()
    todo = list(reachable)
    while todo:
        check_time()
        for ref in references(grammar.rules[todo.pop()].body):
            if ref.name not in reachable and ref.name in grammar.rules:
                reachable.add(ref.name)
                todo.append(ref.name)
    return frozenset(reachable)


def references(node: Node) -> Iterator[RuleRef]:
    """Every rule reference in an expression, left to right."""
    return (inner for inner in postorder(node) if isinstance(inner, RuleRef))


def left_references(grammar: Grammar, empty: Costs | None = None) -> Edges:
    """For each rule, the rules that it can start with: everything before them can be empty."""
    empty = empty or nullable_costs(grammar)
    references: dict[str, tuple[str, ...]] = {}
    for rule in grammar.rules.values():
        names: dict[str, None] = {}
        todo: list[Node] = [rule.body]
        while todo:
            check_time()
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
        references[rule.name] = tuple(names)
    return references


def left_recursive_groups(grammar: Grammar, edges: Edges | None = None) -> list[tuple[str, ...]]:
    """Sets of rules that can start with one another, each in the grammar's order."""
    edges = left_references(grammar) if edges is None else edges
    order = {name: i for i, name in enumerate(grammar.rules)}
    groups = [
        tuple(sorted(group, key=order.__getitem__))
        for group in components(edges)
        if len(group) > 1 or group[0] in edges[group[0]]
    ]
    return sorted(groups, key=lambda group: order[group[0]])


def left_recursive_cycles(grammar: Grammar, edges: Edges | None = None) -> list[tuple[str, ...]]:
    """One shortest cycle for each group of left recursive rules: `("expr", "sum")` is expr → sum → expr."""
    edges = left_references(grammar) if edges is None else edges
    return [_shortest_cycle(edges, group) for group in left_recursive_groups(grammar, edges)]


def arrows(cycle: tuple[str, ...]) -> str:
    """A cycle as text: `expr → sum → expr`; a long one without its middle."""
    return " → ".join((*cycle[:5], *(["…"] if len(cycle) > 5 else []), cycle[0]))


def _shortest_cycle(edges: Edges, group: tuple[str, ...]) -> tuple[str, ...]:
    """A shortest path from the group's first rule back to it."""
    start, inside = group[0], set(group)
    came_from: dict[str, str] = {}
    todo = deque([start])
    while todo:
        check_time()
        name = todo.popleft()
        for target in edges[name]:
            if target == start:
                path = [name]
                while path[-1] != start:
                    check_time()
                    path.append(came_from[path[-1]])
                return tuple(reversed(path))
            if target in inside and target not in came_from:
                came_from[target] = name
                todo.append(target)
    raise AssertionError(f"{start!r} is in no cycle")  # a strongly connected component has one


def components(edges: Edges) -> list[list[str]]:
    """Strongly connected components (Tarjan), without recursion."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    open_: dict[str, None] = {}
    components: list[list[str]] = []
    for start in edges:
        todo = [] if start in index else [(start, iter(edges[start]))]
        while todo:
            check_time()
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
                        check_time()
                        group.append(open_.popitem()[0])
                    components.append(group)
    return components
