"""DFAs over bytes as dense tables: built from words, expressions or networks, minimised and intersected.

Every state is reachable and co-reachable, so a DFA never leads into a dead end. The empty language has no such DFA:
building one raises GrammarError. It knows nothing of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.fragment import Fragment, minimise, refine
from espalier.automata.languages.network import MAX_STATES, Network, build_network
from espalier.automata.languages.nfa import ByteSet, bytes_in, class_masks
from espalier.automata.languages.words import word_table
from espalier.errors import GrammarError, LimitExceeded
from espalier.grammar.ast import Grammar
from espalier.time_limit import check as check_time

MAX_PRODUCT = 600_000
"""The most states of an intersection."""
MAX_CELLS = 40_000_000
"""The most states times byte classes of a DFA that is built state by state: some hundred megabytes while it is
built."""
MAX_WORK = 20_000_000
"""The most positions looked at by the subset construction."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dfa:
    """S states by C byte classes. classes: the class of each byte, `(256,) uint8`. table: the next state, `(S, C)
    int32`, -1 for none. accepting: `(S,) bool`."""

    classes: NDArray[np.uint8]
    table: NDArray[np.int32]
    accepting: NDArray[np.bool_]
    start: int = 0

    def __len__(self) -> int:
        return int(self.table.shape[0])

    def step(self, state: int, byte: int) -> int:
        """The state after one byte, -1 if there is none."""
        return int(self.table[state, self.classes[byte]])

    def accepts(self, data: bytes) -> bool:
        """Whether the automaton accepts the whole of `data`."""
        state = self.start
        for byte in data:
            state = self.step(state, byte)
            if state < 0:
                return False
        return bool(self.accepting[state])

    @staticmethod
    def of_words(words: Iterable[str | bytes]) -> Dfa:
        """The DFA of exactly these texts. Raises GrammarError if there are none."""
        words_table = word_table([word.encode() if isinstance(word, str) else word for word in words])
        return trimmed(words_table.classes, words_table.table, words_table.ends, words_table.start)

    @staticmethod
    def of_grammar(grammar: Grammar, *, max_states: int = MAX_STATES) -> Dfa:
        """The DFA of a regular grammar. Raises GrammarError if the grammar is not regular, LimitExceeded."""
        network = build_network(grammar, max_states=max_states)
        if not network.is_regular:
            raise GrammarError("the grammar is not regular, or too large to be made one automaton")
        return Dfa.of_network(network)

    @staticmethod
    def of_network(network: Network, *, max_states: int = MAX_STATES) -> Dfa:
        """The DFA of a network without calls and token references, by the subset construction if the network is not
        deterministic. Raises GrammarError for the empty language, LimitExceeded."""
        if not network.is_regular:
            return _determinise(network, max_states)
        table = np.full(network.which.shape, -1, dtype=np.int32)  # (S, C)
        for state, moves in enumerate(network.moves):
            if moves:
                targets = np.array([target for (target,) in moves] + [-1], dtype=np.int32)
                table[state] = targets[network.which[state]]
        return trimmed(network.classes, table, np.array(network.final), network.start)

    def minimised(self) -> Dfa:
        """The minimal DFA of the same language."""
        small = minimise(fragment_of_dfa(self))
        parts = refine(members for edges in small.edges for members, _ in edges)
        classes = np.zeros(256, dtype=np.uint8)
        for number, part in enumerate(parts):
            classes[bytes_in(part)] = number
        table = np.full((len(small), len(parts)), -1, dtype=np.int32)
        for state, edges in enumerate(small.edges):
            check_time()
            for members, (target,) in edges:
                table[state, [c for c, part in enumerate(parts) if part & members]] = target
        return Dfa(classes=classes, table=table, accepting=np.array(small.final))


def fragment_of_dfa(dfa: Dfa) -> Fragment:
    """The DFA as a fragment, with the start as state 0."""
    masks = class_masks(dfa.classes.tolist(), dfa.table.shape[1])
    order = [dfa.start, *(state for state in range(len(dfa)) if state != dfa.start)]
    place = {state: i for i, state in enumerate(order)}
    fragment = Fragment(edges=[], symbols=[], final=[], leaf=[None] * len(dfa))
    for state in order:
        joined: dict[int, ByteSet] = {}
        for letter, target in enumerate(dfa.table[state].tolist()):
            if target >= 0 and masks[letter]:
                joined[target] = joined.get(target, 0) | masks[letter]
        fragment.edges.append([(members, (place[target],)) for target, members in joined.items()])
        fragment.symbols.append([])
        fragment.final.append(bool(dfa.accepting[state]))
    return fragment


def _determinise(network: Network, max_states: int) -> Dfa:
    letters = network.which.shape[1]
    number: dict[frozenset[int], int] = {frozenset((network.start,)): 0}
    order = [frozenset((network.start,))]
    rows: list[list[int]] = []
    which = network.which.tolist()
    work = 0
    for subset in order:  # grows as subsets are met
        check_time()
        row: list[int] = []
        known: dict[tuple[int, ...], int] = {}
        for key in zip(*(which[position] for position in subset), strict=True):  # one for each byte class
            target = known.get(key)
            if target is None:
                targets: set[int] = set()
                for position, index in zip(subset, key, strict=True):
                    if index >= 0:
                        targets.update(network.moves[position][index])
                work += len(subset) + len(targets)
                after = frozenset(targets)
                target = number.setdefault(after, len(order)) if after else -1
                if target == len(order):
                    order.append(after)
                known[key] = target
            row.append(target)
        rows.append(row)
        if len(order) > max_states or len(order) * letters > MAX_CELLS or work > MAX_WORK:
            raise LimitExceeded(
                f"as one deterministic automaton this needs {len(order)} states or more",
                hint="a counted repetition {m,n} after an unbounded one needs many states: lower its count",
            )
    accepting = np.array([any(network.final[position] for position in subset) for subset in order])
    return trimmed(network.classes, np.array(rows, dtype=np.int32), accepting, 0)


def intersect(*automata: Dfa, max_states: int = MAX_PRODUCT) -> Dfa:
    """The DFA of the texts that all automata accept. Raises GrammarError if there are none, LimitExceeded."""
    return reduce(lambda left, right: _product(left, right, max_states), automata)


def _product(first: Dfa, other: Dfa, max_states: int) -> Dfa:
    pairs, classes = np.unique(
        first.classes.astype(np.int64) * 256 + other.classes, return_inverse=True
    )  # (C,), (256,): a byte class of the product is a pair of classes
    left, right = first.table[:, pairs // 256], other.table[:, pairs % 256]  # (S1, C), (S2, C)
    width = len(other)
    codes = np.array([first.start * width + other.start], dtype=np.int64)  # (S,), in order of discovery
    number = {int(codes[0]): 0}
    fresh = codes
    rows: list[NDArray[np.int32]] = []
    while fresh.size:
        check_time()
        a, b = left[fresh // width], right[fresh % width]  # (F, C)
        targets = np.where((a >= 0) & (b >= 0), a.astype(np.int64) * width + b, -1)
        distinct, place = np.unique(targets, return_inverse=True)
        before = len(number)
        places = [number.setdefault(code, len(number)) if code >= 0 else -1 for code in distinct.tolist()]
        rows.append(np.array(places, dtype=np.int32)[place].reshape(targets.shape))
        if len(number) > max_states or len(number) * len(pairs) > MAX_CELLS:
            raise LimitExceeded(
                f"the intersection needs {len(number)} states or more", hint="bound the length with max_tokens instead"
            )
        fresh = np.array(list(islice(reversed(number), len(number) - before))[::-1], dtype=np.int64)
    table = np.concatenate(rows)  # (S, C)
    rows.clear()
    known = np.array(list(number), dtype=np.int64)  # (S,)
    accepting = first.accepting[known // width] & other.accepting[known % width]
    return trimmed(classes.astype(np.uint8), table, accepting, 0)


def trimmed(classes: NDArray[np.uint8], table: NDArray[np.int32], accepting: NDArray[np.bool_], start: int) -> Dfa:
    """The DFA without unreachable states and without states that reach no accept state. Raises GrammarError if the
    start is one of these."""
    live = distances(table, accepting) >= 0
    if not live[start]:
        raise GrammarError("no text satisfies this at all", hint="the parts contradict one another")
    pruned = table if live.all() else np.where((table >= 0) & live[table], table, np.int32(-1))
    reached = np.zeros(len(table), dtype=np.bool_)
    reached[start] = True
    fresh = np.array([start])
    while fresh.size:
        check_time()
        targets = np.unique(pruned[fresh])
        fresh = targets[targets >= 0]
        fresh = fresh[~reached[fresh]]
        reached[fresh] = True
    kept = np.flatnonzero(reached)
    number = np.full(len(table) + 1, -1, dtype=np.int32)  # the last stands for -1
    number[kept] = np.arange(len(kept))
    return Dfa(
        classes=np.ascontiguousarray(classes),
        table=np.ascontiguousarray(number[pruned[kept]]),
        accepting=accepting[kept],
        start=int(number[start]),
    )


def distances(table: NDArray[np.int32], accepting: NDArray[np.bool_]) -> NDArray[np.int64]:
    """The least number of bytes from each state to an accept state, -1 if none is reached, `(S,) int64`."""
    steps_to_end = np.where(accepting, 0, -1)
    rest = np.flatnonzero(~accepting)  # an accept state needs no way to another
    steps = 0
    while rest.size:
        # Where most states are near the end, looking at all edges is faster than sorting them.
        check_time()
        last = np.append(steps_to_end == steps, False)  # (S + 1,): the last stands for none
        hit = last[table[rest]].any(axis=1)
        steps += 1
        steps_to_end[rest[hit]] = steps
        count, rest = rest.size, rest[~hit]
        if 2 * rest.size > count:
            break
    if not rest.size:
        return steps_to_end
    tails, letters = np.nonzero(table[rest] >= 0)
    tails = rest[tails]
    heads = table[tails, letters]
    order = np.argsort(heads, kind="stable")
    tails, heads = tails[order], heads[order]  # edges sorted by their target
    first = np.searchsorted(heads, np.arange(len(table) + 1))
    fresh = np.flatnonzero(steps_to_end == steps)
    while fresh.size:
        check_time()
        steps += 1
        counts = first[fresh + 1] - first[fresh]
        offsets = np.repeat(first[fresh] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        before = np.unique(tails[offsets])
        fresh = before[steps_to_end[before] < 0]
        steps_to_end[fresh] = steps
    return steps_to_end
