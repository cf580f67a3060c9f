"""Turns an NFA into a fragment: the minimal DFA over bytes and symbols, or, if that is too large, an automaton without
epsilon edges. A fragment is the body of one rule. It knows no rules, stacks or vocabularies.

The edges of a state have disjoint sets of bytes, each with the tuple of states that it leads to (one state if the
fragment is deterministic). State 0 is the start. Every state is reachable and co-reachable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from espalier.automata.languages.nfa import ByteSet, Nfa, Symbol, closure
from espalier.automata.languages.rounds import equal_states
from espalier.errors import LimitExceeded
from espalier.grammar.ast import Position
from espalier.time_limit import check as check_time

Targets = tuple[int, ...]
T = TypeVar("T")
FEW_EDGES = 4_000
"""Up to so many edges, refining edge by edge is as fast as in rounds over whole arrays."""
MAX_CELLS = 1_000_000
"""The most states times letters of the table for such rounds. Larger tables are mostly those of counts, for which
rounds are tried in vain."""
MAX_ROUNDS = 6
"""A DFA that takes more rounds is a deep one; those of classes of characters take three to five."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fragment:
    """The automaton of one rule; each list has one entry for each state.

    edges[s]: (bytes, target states), the sets of bytes disjoint. symbols[s]: (symbol, target states). final[s]: the
    rule may end here. leaf[s]: the position in the source of what can be read next, the first of several.
    """

    edges: list[list[tuple[ByteSet, Targets]]]
    symbols: list[list[tuple[Symbol, Targets]]]
    final: list[bool]
    leaf: list[Position | None]

    def __len__(self) -> int:
        return len(self.final)


class TooManyStates(Exception):
    """Determinisation went past its limit. The caller uses another construction or raises LimitExceeded."""


def determinise(nfa: Nfa, start: int, end: int, *, max_states: int, max_work: int = 5_000_000) -> Fragment:
    """The subset construction: the DFA of the paths from `start` to `end`. Raises TooManyStates."""
    return _explore(nfa, start, end, merge=True, max_states=max_states, max_work=max_work)


def free_of_epsilon(nfa: Nfa, start: int, end: int, *, max_work: int = 20_000_000) -> Fragment:
    """The same language without epsilon edges, nondeterministic, with at most one state for each state of the NFA.
    Raises LimitExceeded."""
    try:
        return _explore(nfa, start, end, merge=False, max_states=len(nfa.edges) + 1, max_work=max_work)
    except TooManyStates:
        raise LimitExceeded(
            "the grammar is too ambiguous to be laid out", hint="nest fewer optional parts, or lower the counts"
        ) from None


def _explore(nfa: Nfa, start: int, end: int, *, merge: bool, max_states: int, max_work: int) -> Fragment:
    closures: dict[int, list[int]] = {}
    number: dict[frozenset[int], int] = {}
    order: list[frozenset[int]] = []
    work = 0

    def closed(states: Iterable[int]) -> frozenset[int]:
        nonlocal work
        states_met: set[int] = set()
        check_time()
        for state in states:
            if state not in closures:
                closures[state] = closure(nfa, state)
            work += len(closures[state])
            states_met.update(closures[state])
        if work > max_work:
            raise TooManyStates
        return frozenset(states_met)

    def place(subset: frozenset[int]) -> int:
        if subset not in number:
            if len(order) >= max_states:
                raise TooManyStates
            number[subset] = len(order)
            order.append(subset)
        return number[subset]

    def places(targets: Iterable[int]) -> Targets:
        if merge:
            return (place(closed(targets)),)
        return tuple(sorted({place(closed((target,))) for target in targets}))

    place(closed((start,)))
    out = Fragment(edges=[], symbols=[], final=[], leaf=[])
    while len(out.final) < len(order):
        check_time()
        subset = order[len(out.final)]
        by_mask: dict[ByteSet, set[int]] = {}
        by_symbol: dict[Symbol, set[int]] = {}
        for state in subset:
            for members, target in nfa.edges[state]:
                by_mask.setdefault(members, set()).add(target)
            for symbol, target in nfa.symbols[state]:
                by_symbol.setdefault(symbol, set()).add(target)
            work += 1 + len(nfa.edges[state]) + len(nfa.symbols[state])
        joined: dict[Targets, ByteSet] = {}
        for members, targets in disjoint(by_mask):
            key = places(targets)
            joined[key] = joined.get(key, 0) | members
        out.edges.append([(members, targets) for targets, members in joined.items()])
        out.symbols.append([(symbol, places(targets)) for symbol, targets in sorted(by_symbol.items())])
        out.final.append(end in subset)
        leaves = [leaf for state in subset if (leaf := nfa.leaf[state]) is not None]
        out.leaf.append(min(leaves, key=lambda leaf: leaf.offset, default=None))
    return pruned(out)


def disjoint(by_mask: Mapping[ByteSet, set[T]]) -> list[tuple[ByteSet, frozenset[T]]]:
    """The same edges with disjoint sets of bytes, each with all targets of its bytes."""
    seen: ByteSet = 0
    clash = False
    for members in by_mask:
        clash = clash or bool(seen & members)
        seen |= members
    if not clash:
        return [(members, frozenset(targets)) for members, targets in by_mask.items()]
    groups: list[tuple[ByteSet, frozenset[T]]] = []
    for members, targets in by_mask.items():
        rest = members
        split: list[tuple[ByteSet, frozenset[T]]] = []
        for group, known in groups:
            common = group & rest
            if not common:
                split.append((group, known))
                continue
            if group != common:
                split.append((group & ~common, known))
            split.append((common, known | targets))
            rest &= ~common
        if rest:
            split.append((rest, frozenset(targets)))
        groups = split
    return groups


def refine(masks: Iterable[ByteSet]) -> list[ByteSet]:
    """The coarsest partition of the bytes 0-255 in which each of the sets is a union of parts: the byte classes."""
    parts = [(1 << 256) - 1]
    for members in dict.fromkeys(masks):
        split: list[ByteSet] = []
        for part in parts:
            common = part & members
            if common and common != part:
                split += [common, part & ~common]
            else:
                split.append(part)
        parts = split
    return parts


def pruned(fragment: Fragment) -> Fragment:
    """The fragment without states from which no final state is reached. State 0 stays."""
    before: list[list[int]] = [[] for _ in fragment.final]
    for state in range(len(fragment)):
        for _, targets in (*fragment.edges[state], *fragment.symbols[state]):
            for target in targets:
                before[target].append(state)
    live = {state for state, final in enumerate(fragment.final) if final}
    todo = list(live)
    while todo:
        check_time()
        for state in before[todo.pop()]:
            if state not in live:
                live.add(state)
                todo.append(state)
    if len(live) == len(fragment):
        return fragment
    kept = sorted(live | {0})
    new = {state: i for i, state in enumerate(kept)}

    def rest(targets: Targets) -> Targets:
        return tuple(new[t] for t in targets if t in live)

    return Fragment(
        edges=[[(m, rest(t)) for m, t in fragment.edges[s] if rest(t)] for s in kept],
        symbols=[[(x, rest(t)) for x, t in fragment.symbols[s] if rest(t)] for s in kept],
        final=[fragment.final[s] for s in kept],
        leaf=[fragment.leaf[s] for s in kept],
    )


def minimise(fragment: Fragment, *, max_edges: int = 2_000_000) -> Fragment:
    """The minimal deterministic fragment of the same language. Returned unchanged if it is nondeterministic, or has
    more than `max_edges` edges.

    Valmari and Lehtinen's algorithm, which refines states and edges in turn and needs no dead state: O(m log m) for m
    edges, also for deep automata such as counted repetitions. Many edges are first tried in whole-array rounds
    (`rounds.py`), which are ten times as fast where few rounds do.
    """
    parts = refine(members for edges in fragment.edges for members, _ in edges)
    letters: dict[ByteSet, list[int]] = {}
    symbols = sorted({symbol for row in fragment.symbols for symbol, _ in row})
    symbol_letter = {symbol: len(parts) + i for i, symbol in enumerate(symbols)}
    tails: list[int] = []
    heads: list[int] = []
    labels: list[int] = []
    for state, (edges, row) in enumerate(zip(fragment.edges, fragment.symbols, strict=True)):
        check_time()
        for members, targets in edges:
            if len(targets) != 1 or len(tails) > max_edges:
                return fragment
            if members not in letters:
                letters[members] = [i for i, part in enumerate(parts) if part & members]
            some = letters[members]
            labels += some
            tails += [state] * len(some)
            heads += [targets[0]] * len(some)
        for symbol, targets in row:
            if len(targets) != 1:
                return fragment
            tails.append(state)
            heads.append(targets[0])
            labels.append(symbol_letter[symbol])
    of = _blocks(fragment.final, tails, heads, labels, len(parts) + len(symbols))
    first: dict[int, int] = {}  # block -> its first state
    for state, block in enumerate(of):
        first.setdefault(block, state)
    if len(first) == len(fragment):
        return fragment
    out = Fragment(edges=[], symbols=[], final=[], leaf=[])
    for state in first.values():
        check_time()
        joined: dict[Targets, ByteSet] = {}
        for members, (target,) in fragment.edges[state]:
            joined[(of[target],)] = joined.get((of[target],), 0) | members
        out.edges.append([(members, targets) for targets, members in joined.items()])
        out.symbols.append([(symbol, (of[targets[0]],)) for symbol, targets in fragment.symbols[state]])
        out.final.append(fragment.final[state])
        out.leaf.append(fragment.leaf[state])
    return out


def _blocks(final: list[bool], tails: list[int], heads: list[int], labels: list[int], letters: int) -> list[int]:
    """The block of each state: equal states share one. Blocks are numbered in the order of their first state."""
    if len(tails) > FEW_EDGES and len(final) * letters <= MAX_CELLS:
        table = np.full((len(final), letters), -1, dtype=np.int32)  # (S, C)
        table[tails, labels] = heads
        blocks = equal_states(table, np.array(final), most=MAX_ROUNDS)
        if blocks is not None:
            numbers: list[int] = blocks.tolist()
            return numbers
    number: dict[int, int] = {}
    return [number.setdefault(block, len(number)) for block in _refine_states(final, tails, heads, labels).block_of]


class _Partition:
    """A partition of 0..n-1, refined by marking elements and then splitting the marked ones off their blocks."""

    def __init__(self, count: int) -> None:
        self.order = list(range(count))
        self.place = list(range(count))
        self.block_of = [0] * count
        self.first = [0] if count else []
        self.past = [count] if count else []
        self.marked = [0] * (count + 1)
        self.touched: list[int] = []

    def members(self, block: int) -> list[int]:
        return self.order[self.first[block] : self.past[block]]

    def mark(self, element: int) -> None:
        block = self.block_of[element]
        at, to = self.place[element], self.first[block] + self.marked[block]
        if at < to:
            return  # already marked
        other = self.order[to]
        self.order[at], self.place[other] = other, at
        self.order[to], self.place[element] = element, to
        if not self.marked[block]:
            self.touched.append(block)
        self.marked[block] += 1

    def split(self) -> None:
        """Split every block that is partly marked. The smaller half gets the new number."""
        while self.touched:
            check_time()
            block = self.touched.pop()
            low, high, count = self.first[block], self.past[block], self.marked[block]
            self.marked[block] = 0
            middle = low + count
            if middle == high:
                continue
            new = len(self.first)
            if count <= high - middle:
                self.first.append(low)
                self.past.append(middle)
                self.first[block] = middle
            else:
                self.first.append(middle)
                self.past.append(high)
                self.past[block] = middle
            for element in self.order[self.first[new] : self.past[new]]:
                self.block_of[element] = new


def _refine_states(final: list[bool], tails: list[int], heads: list[int], labels: list[int]) -> _Partition:
    blocks = _Partition(len(final))
    for state, accepts in enumerate(final):
        if accepts:
            blocks.mark(state)
    blocks.split()
    cords = _Partition(len(tails))
    if not tails:
        return blocks
    by_label = sorted(range(len(tails)), key=labels.__getitem__)
    cords.order, cords.first, cords.past = by_label, [], []
    for i, edge in enumerate(by_label):
        check_time()
        cords.place[edge] = i
        if i == 0 or labels[edge] != labels[by_label[i - 1]]:
            if cords.first:
                cords.past.append(i)
            cords.first.append(i)
        cords.block_of[edge] = len(cords.first) - 1
    cords.past.append(len(tails))
    into: list[list[int]] = [[] for _ in final]
    for edge, head in enumerate(heads):
        into[head].append(edge)
    block, cord = 1, 0
    while cord < len(cords.first):
        check_time()
        for edge in cords.members(cord):
            check_time()
            blocks.mark(tails[edge])
        blocks.split()
        cord += 1
        while block < len(blocks.first):
            check_time()
            for state in blocks.members(block):
                check_time()
                for edge in into[state]:
                    cords.mark(edge)
            cords.split()
            block += 1
    return blocks
