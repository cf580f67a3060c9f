"""Compiles a grammar to a network: one automaton over bytes for each rule, with edges that call other rules.

Non-recursive rules are inlined as long as the network stays small, so a regular grammar becomes one automaton without
calls, a DFA. With `plain=True` nothing is inlined or minimised: the network is slower, but every position knows its
rule and its position in the source, which explanations need. It knows no stacks and no vocabulary: token references
stay as the grammar writes them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from heapq import heappop, heappush

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.fragment import (
    Fragment,
    Targets,
    TooManyStates,
    determinise,
    free_of_epsilon,
    minimise,
    refine,
)
from espalier.automata.languages.nfa import ByteSet, Nfa, Symbol, bytes_in, utf8_edges
from espalier.errors import LimitExceeded
from espalier.grammar.analysis import components, nullable_costs, productive_costs, references
from espalier.grammar.ast import AnyChar, CharClass, Grammar, Literal, Node, Position, Repeat, RuleRef, TokenRef, fold
from espalier.grammar.check import validate
from espalier.grammar.rewrite import remove_left_recursion, remove_nullable_loops, trim
from espalier.time_limit import check as check_time

MAX_STATES = 1_000_000
"""The most states of a grammar, counted before it is made deterministic and again after that."""
MAX_IN_PLACE = 300_000
"""The most states of a grammar after inlining."""
INLINE_SIZES = (MAX_IN_PLACE, 60, -1)
"""Limits on the states that the copies of one rule may add; a rule over the limit is called, not inlined. The first
limit that keeps the whole grammar below MAX_IN_PLACE is used; the last one inlines nothing."""
MAX_CYCLE = 64
"""The largest group of mutually recursive rules for which a small set of called rules is searched that cuts every
cycle; in larger groups all rules are called."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Network:
    """A pushdown automaton as the fragments of its rules, with P positions (states) by C byte classes.

    classes: the class of each byte, `(256,) uint8`. which: `(P, C) int32`, the index into `moves[p]` by class, -1 for
    none. moves[p]: the distinct sets of positions that a byte leads to. calls[p]: (first position of the called rule,
    position to return to). tokens[p]: (index into `refs`, target positions). final[p]: the rule may end here. pure[p]:
    final and without any edge, so a call need not return here. least[p]: the least number of bytes and tokens that
    finish p's rule. rule[p], leaf[p]: rule name and source position, for explanations. refs: the token references.
    start: the first position of the start rule.
    """

    classes: NDArray[np.uint8]
    which: NDArray[np.int32]
    moves: list[tuple[Targets, ...]]
    calls: list[tuple[tuple[int, int], ...]]
    tokens: list[tuple[tuple[int, Targets], ...]]
    final: list[bool]
    pure: list[bool]
    least: list[int]
    rule: list[str]
    leaf: list[Position | None]
    refs: tuple[TokenRef, ...]
    start: int
    #: See `PositionNetwork`, as for `plain`.
    live: list[bool] = field(init=False, repr=False)
    plain: list[bool] = field(init=False, repr=False)
    #: What `edges` and `move` have answered, by position.
    _edges: dict[int, tuple[tuple[ByteSet, Targets], ...]] = field(init=False, repr=False, default_factory=dict)
    _targets: dict[int, list[Targets]] = field(init=False, repr=False, default_factory=dict)

    def __post_init__(self) -> None:
        live = [bool(moves) or bool(tokens) for moves, tokens in zip(self.moves, self.tokens, strict=True)]
        plain = [
            reads and not calls and not final for reads, calls, final in zip(live, self.calls, self.final, strict=True)
        ]
        object.__setattr__(self, "live", live)
        object.__setattr__(self, "plain", plain)

    @property
    def is_full(self) -> bool:
        """See `PositionNetwork`, as for the methods up to `forget`: every position is known from the start."""
        return False

    def edges(self, position: int) -> tuple[tuple[ByteSet, Targets], ...]:
        edges = self._edges.get(position)
        if edges is None:
            letters: list[ByteSet] = [0] * len(self.moves[position])
            for letter, index in enumerate(self.which[position].tolist()):
                if index >= 0:
                    letters[index] |= 1 << letter
            edges = self._edges[position] = tuple(zip(letters, self.moves[position], strict=True))
        return edges

    def move(self, position: int, letter: int) -> Targets:
        targets = self._targets.get(position)
        if targets is None:
            moves = self.moves[position]
            targets = [moves[index] if index >= 0 else () for index in self.which[position].tolist()]
            self._targets[position] = targets
        return targets[letter]

    def meet(self, position: int) -> None:
        pass

    def follow_calls(self, position: int) -> None:
        pass

    def forget(self, used: set[int]) -> None:
        pass

    @property
    def is_regular(self) -> bool:
        """Whether the network is one DFA: no calls, no token references, one target for each byte."""
        return not any(self.calls) and not any(self.tokens) and all(len(t) == 1 for row in self.moves for t in row)

    @property
    def letters(self) -> int:
        """The number of byte classes, C."""
        return int(self.which.shape[1])

    def read(self, position: int, data: bytes, at: int) -> list[tuple[Targets, int]]:
        """See `PositionNetwork`."""
        targets = self.move(position, int(self.classes[data[at]]))
        return [(targets, at + 1)] if targets else []

    def reads(self, position: int) -> ByteSet:
        """The bytes that can be read at a position."""
        row = self.which[position] >= 0  # (C,)
        return sum(1 << b for b in np.flatnonzero(row[self.classes]).tolist())

    def needed_bytes(self) -> bytes:
        """Every byte that some edge reads."""
        used = np.flatnonzero((self.which >= 0).any(axis=0))
        return bytes(b for b in range(256) if self.classes[b] in used)


def build_network(grammar: Grammar, *, plain: bool = False, max_states: int = MAX_STATES) -> Network:
    """The network of a grammar. plain: for explanations, see above. Raises GrammarError for what `grammar.check` calls
    an error, LimitExceeded for a grammar that is too large."""
    return assemble(*build_fragments(grammar, plain=plain, max_states=max_states))


def build_fragments(
    grammar: Grammar, *, plain: bool = False, called: Collection[str] = (), max_states: int = MAX_STATES
) -> tuple[list[Fragment], list[str], tuple[TokenRef, ...]]:
    """The arguments of `assemble`. called: rules that are never inlined; with some, even a regular grammar is not made
    one fragment, so the build time stays about linear in the grammar's size. Raises as `build_network`."""
    costs = productive_costs(grammar)
    validate(grammar, costs.names())
    # Left recursion first: removing it may add rules that are unreachable or have dead ends.
    trimmed = trim(grammar, costs)
    empty = nullable_costs(trimmed)
    straight = remove_left_recursion(trimmed, empty)
    grammar = remove_nullable_loops(straight, empty if straight is trimmed else None)
    grammar = grammar if grammar is trimmed else trim(grammar)
    kept, inline = ({*grammar.rules}, set[str]()) if plain else choose_inline(grammar, max_states, called)
    # The start rule comes first, so position 0 is the start.
    names = [grammar.root, *(name for name in grammar.rules if name in kept and name != grammar.root)]
    fragments, refs = _fragments(grammar, names, inline, plain, max_states)
    return fragments, names, refs


def choose_inline(grammar: Grammar, max_states: int, wanted: Collection[str] = ()) -> tuple[set[str], set[str]]:
    """The rules that are called (the root and those `wanted` among them), and the rules that are inlined."""
    edges = {
        name: tuple(dict.fromkeys(ref.name for ref in references(rule.body))) for name, rule in grammar.rules.items()
    }
    order: list[str] = []  # callees before callers
    called: set[str] = {grammar.root, *(name for name in wanted if name in grammar.rules)}
    for group in components(edges):
        if len(group) > 1 or group[0] in edges[group[0]]:
            called |= _cycle_cutters(group, edges)
        order += group
    # The other rules of a group are in no cycle any more; they need an order of their own.
    rest = {name: tuple(t for t in edges[name] if t not in called) for name in order}
    order = [name for group in components(rest) for name in group]
    forms = {name: _size(grammar.rules[name].body) for name in order}
    regular = len(called) == 1 and grammar.root not in edges[grammar.root]
    uses: dict[str, int] = {}
    for _, mentions in forms.values():
        for ref, n in mentions.items():
            uses[ref] = uses.get(ref, 0) + n
    total = 0
    for limit in INLINE_SIZES if regular else INLINE_SIZES[1:]:
        kept = set(called)
        sizes: dict[str, int] = {}
        for name in order:
            plain, mentions = forms[name]
            # A call is one state; an inlined rule has all of its states.
            sizes[name] = plain + sum(n * (1 if ref in kept else sizes[ref]) for ref, n in mentions.items())
            # A regular grammar is to be inlined as a whole; for others the number of copied states counts.
            if sizes[name] * (1 if limit == MAX_IN_PLACE else uses.get(name, 1) - 1) > limit:
                kept.add(name)
        total = sum(sizes[name] for name in kept)
        if total <= (MAX_IN_PLACE if limit > 0 else max_states):
            return kept, set(grammar.rules) - kept
    raise LimitExceeded(
        f"the grammar needs about {total} states, {max_states} at most", hint="lower the counts in {m,n}"
    )


def states_about(grammar: Grammar) -> int:
    """How many states the grammar has, about, before any is made: each rule's own, however often it is copied."""
    return sum(_size(rule.body)[0] for rule in grammar.rules.values())


def _size(body: Node) -> tuple[int, dict[str, int]]:
    """The approximate number of states of an expression: its own, and how many times it refers to each rule."""

    def visit(node: Node, parts: list[tuple[int, dict[str, int]]]) -> tuple[int, dict[str, int]]:
        check_time()
        match node:
            case Literal(text):
                return len(text.encode()), {}
            case CharClass() | AnyChar():
                return len(utf8_edges(node.scalars())), {}
            case RuleRef(name):
                return 0, {name: 1}
            case Repeat(_, low, high):
                times = max(high if high is not None else low, 1)
                return (parts[0][0] + 1) * times + 2, {name: n * times for name, n in parts[0][1].items()}
            case _:
                mentions: dict[str, int] = {}
                for _, part in parts:
                    for name, n in part.items():
                        mentions[name] = mentions.get(name, 0) + n
                return sum(plain for plain, _ in parts) + len(parts) + 1, mentions

    return fold(body, visit)


def _cycle_cutters(group: Sequence[str], edges: dict[str, tuple[str, ...]]) -> set[str]:
    """Rules of a recursive group whose removal cuts every cycle: few, not always the fewest."""
    if len(group) > MAX_CYCLE:
        return set(group)
    cut: set[str] = set()
    while True:
        inside = {name: tuple(t for t in edges[name] if t in group and t not in cut) for name in group}
        knots = [
            k
            for k in components({n: t for n, t in inside.items() if n not in cut})
            if len(k) > 1 or k[0] in inside[k[0]]
        ]
        if not knots:
            return cut
        for knot in knots:
            into = {name: sum(name in inside[other] for other in knot) for name in knot}
            cut.add(max(knot, key=lambda n: (n in inside[n], into[n] * len(inside[n]), n)))


def _fragments(
    grammar: Grammar, names: list[str], inline: set[str], plain: bool, max_states: int
) -> tuple[list[Fragment], tuple[TokenRef, ...]]:
    number = {name: i for i, name in enumerate(names)}
    refs: dict[TokenRef, int] = {}
    bodies = {name: grammar.rules[name].body for name in inline}

    def symbol(node: RuleRef | TokenRef) -> Symbol:
        if isinstance(node, RuleRef):
            return "rule", number[node.name]
        return "token", refs.setdefault(node, len(refs))

    fragments: list[Fragment] = []
    left = max_states
    for name in names:
        nfa = Nfa(limit=max_states * 4)
        start, end = nfa.new(), nfa.new()
        nfa.add(grammar.rules[name].body, start, end, symbol=symbol, inline=bodies)
        try:
            fragment = determinise(nfa, start, end, max_states=min(max(4 * len(nfa.edges), 1_000), left))
            fragment = fragment if plain else minimise(fragment)
        except TooManyStates:
            fragment = free_of_epsilon(nfa, start, end)
        left -= len(fragment)
        if left <= 0:
            raise LimitExceeded(f"the grammar needs more than {max_states} states", hint="lower the counts in {m,n}")
        fragments.append(fragment)
    return fragments, tuple(refs)


def assemble(fragments: list[Fragment], names: list[str], refs: tuple[TokenRef, ...]) -> Network:
    """One network of the fragments. The symbol `("rule", i)` calls the i-th; the first one is the start rule."""
    parts = refine(members for fragment in fragments for edges in fragment.edges for members, _ in edges)
    classes = np.zeros(256, dtype=np.uint8)  # (256,)
    for number, part in enumerate(parts):
        classes[bytes_in(part)] = number
    base = np.cumsum([0, *(len(fragment) for fragment in fragments)]).tolist()
    which = np.full((base[-1], len(parts)), -1, dtype=np.int32)  # (P, C)
    of_mask: dict[ByteSet, list[int]] = {}
    moves: list[tuple[Targets, ...]] = []
    calls: list[tuple[tuple[int, int], ...]] = []
    tokens: list[tuple[tuple[int, Targets], ...]] = []
    for fragment, offset in zip(fragments, base, strict=False):
        check_time()
        for edges, symbols in zip(fragment.edges, fragment.symbols, strict=True):
            row = which[len(moves)]
            for i, (members, _) in enumerate(edges):
                if members not in of_mask:
                    of_mask[members] = [c for c, part in enumerate(parts) if part & members]
                row[of_mask[members]] = i
            moves.append(tuple(tuple(t + offset for t in targets) for _, targets in edges))
            calls.append(tuple((base[x[1]], t + offset) for x, targets in symbols if x[0] == "rule" for t in targets))
            tokens.append(tuple((x[1], tuple(t + offset for t in ts)) for x, ts in symbols if x[0] == "token"))
    final = [accepts for fragment in fragments for accepts in fragment.final]
    return Network(
        classes=classes,
        which=which,
        moves=moves,
        calls=calls,
        tokens=tokens,
        final=final,
        pure=[f and not m and not c and not t for f, m, c, t in zip(final, moves, calls, tokens, strict=True)],
        least=_least(moves, calls, tokens, final),
        rule=[name for fragment, name in zip(fragments, names, strict=True) for _ in range(len(fragment))],
        leaf=[leaf for fragment in fragments for leaf in fragment.leaf],
        refs=refs,
        start=0,
    )


def _least(
    moves: list[tuple[Targets, ...]],
    calls: list[tuple[tuple[int, int], ...]],
    tokens: list[tuple[tuple[int, Targets], ...]],
    final: list[bool],
) -> list[int]:
    """The least number of bytes and tokens that finish each position's rule (Knuth's algorithm, cheapest first)."""
    before: list[list[int]] = [[] for _ in final]  # by position: the positions whose edges lead to it
    waiting: list[list[tuple[int, int]]] = [[] for _ in final]  # by position: (caller, the other half of the call)
    for place in range(len(final)):
        for targets in (*moves[place], *(ts for _, ts in tokens[place])):
            for target in targets:
                before[target].append(place)
        for start, after in calls[place]:
            waiting[start].append((place, after))
            waiting[after].append((place, start))
    least = [-1] * len(final)
    heap = [(0, place) for place, accepts in enumerate(final) if accepts]
    while heap:
        check_time()
        cost, place = heappop(heap)
        if least[place] >= 0:
            continue
        least[place] = cost
        for other in before[place]:
            if least[other] < 0:
                heappush(heap, (cost + 1, other))
        for caller, half in waiting[place]:
            if least[caller] < 0 and least[half] >= 0:
                heappush(heap, (cost + least[half], caller))
    return least
