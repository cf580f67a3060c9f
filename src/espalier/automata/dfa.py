"""Deterministic automata over bytes, as dense tables: made from words, expressions or networks, and intersected.

Every state is reached from the start and reaches acceptance, so an automaton never leads into a dead end. The
empty language has no such automaton: making one raises GrammarError. It knows nothing of tokens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from espalier.automata.fragment import Fragment, minimise, refine
from espalier.automata.network import MAX_STATES, Network, build_network
from espalier.automata.nfa import bytes_in, word_graph
from espalier.errors import GrammarError, LimitExceeded
from espalier.grammar.ast import Grammar, Node, Rule


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Dfa:
    """S states by C byte classes. classes: `(256,) uint8`. table: `(S, C) int32`, -1 for none. accepting: `(S,)`."""

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
        """Exactly these texts."""
        nodes = word_graph(word.encode() if isinstance(word, str) else word for word in words)
        used = sorted({byte for _, edges in nodes for byte, _ in edges})
        classes = np.full(256, min(len(used), 255), dtype=np.uint8)  # (256,), one class for all bytes that no word has
        classes[used] = np.arange(len(used))
        table = np.full((len(nodes), len(used) + 1), -1, dtype=np.int32)  # (S, C)
        for state, (_, edges) in enumerate(nodes):
            for byte, child in edges:
                table[state, classes[byte]] = child
        accepting = np.array([ends for ends, _ in nodes])
        return _trimmed(classes, table, accepting, len(nodes) - 1)

    @staticmethod
    def of_node(node: Node, *, max_states: int = MAX_STATES) -> Dfa:
        """An expression that mentions no rules and no tokens. Raises LimitExceeded."""
        return Dfa.of_grammar(Grammar.of([Rule("root", node)]), max_states=max_states)

    @staticmethod
    def of_grammar(grammar: Grammar, *, max_states: int = MAX_STATES) -> Dfa:
        """A grammar that is wholly regular. Raises GrammarError if it is not, LimitExceeded."""
        network = build_network(grammar, max_states=max_states)
        if not network.is_regular:
            raise GrammarError("the grammar is not regular, or too large to be made one automaton")
        return Dfa.of_network(network)

    @staticmethod
    def of_network(network: Network) -> Dfa:
        """A network with `is_regular`."""
        table = np.full(network.which.shape, -1, dtype=np.int32)  # (S, C)
        for state, moves in enumerate(network.moves):
            if moves:
                targets = np.array([target for (target,) in moves] + [-1], dtype=np.int32)
                table[state] = targets[network.which[state]]
        return _trimmed(network.classes, table, np.array(network.final), network.start)

    def minimised(self) -> Dfa:
        """The smallest automaton of the same language."""
        masks = [sum(1 << b for b in np.flatnonzero(self.classes == c).tolist()) for c in range(self.table.shape[1])]
        order = [self.start, *(s for s in range(len(self)) if s != self.start)]
        place = {state: i for i, state in enumerate(order)}
        found = Fragment(edges=[], symbols=[], final=[], leaf=[])
        for state in order:
            joined: dict[int, int] = {}
            for letter, target in enumerate(self.table[state].tolist()):
                if target >= 0:
                    joined[target] = joined.get(target, 0) | masks[letter]
            found.edges.append([(members, (place[target],)) for target, members in joined.items()])
            found.symbols.append([])
            found.final.append(bool(self.accepting[state]))
            found.leaf.append(None)
        small = minimise(found)
        parts = refine(members for edges in small.edges for members, _ in edges)
        classes = np.zeros(256, dtype=np.uint8)
        for number, part in enumerate(parts):
            classes[bytes_in(part)] = number
        table = np.full((len(small), len(parts)), -1, dtype=np.int32)
        for state, edges in enumerate(small.edges):
            for members, (target,) in edges:
                table[state, [c for c, part in enumerate(parts) if part & members]] = target
        return Dfa(classes=classes, table=table, accepting=np.array(small.final))


def intersect(*automata: Dfa, max_states: int = 1_000_000) -> Dfa:
    """The texts that every one of the automata accepts. Raises GrammarError if there are none, LimitExceeded."""
    return reduce(lambda one, other: _product(one, other, max_states), automata)


def _product(one: Dfa, other: Dfa, max_states: int) -> Dfa:
    pairs, classes = np.unique(
        one.classes.astype(np.int64) * 256 + other.classes, return_inverse=True
    )  # (C,), (256,): a class of the product is a pair of classes
    left, right = one.table[:, pairs // 256], other.table[:, pairs % 256]  # (S1, C), (S2, C)
    width = len(other)
    codes = np.array([one.start * width + other.start], dtype=np.int64)  # (S,), in order of discovery
    number = {int(codes[0]): 0}
    fresh = codes
    rows: list[NDArray[np.int64]] = []
    while fresh.size:
        a, b = left[fresh // width], right[fresh % width]  # (F, C)
        targets = np.where((a >= 0) & (b >= 0), a.astype(np.int64) * width + b, -1)
        rows.append(targets)
        new = [code for code in np.unique(targets).tolist() if code >= 0 and code not in number]
        for code in new:
            number[code] = len(number)
        if len(number) > max_states:
            raise LimitExceeded(f"the intersection needs more than {max_states} states")
        fresh = np.array(new, dtype=np.int64)
    found = np.concatenate(rows)  # (S, C), codes
    known = np.array(list(number), dtype=np.int64)  # (S,)
    order = np.argsort(known)
    place = np.searchsorted(known[order], found)
    table = np.where(found >= 0, order[np.minimum(place, len(known) - 1)], -1).astype(np.int32)
    accepting = one.accepting[known // width] & other.accepting[known % width]
    return _trimmed(classes.astype(np.uint8), table, accepting, 0)


def _trimmed(classes: NDArray[np.uint8], table: NDArray[np.int32], accepting: NDArray[np.bool_], start: int) -> Dfa:
    """Without states that are not reached or lead to no acceptance."""
    live = coreachable(table, accepting)
    if not live[start]:
        raise GrammarError("no text satisfies this at all", hint="the parts contradict one another")
    pruned = np.where((table >= 0) & live[table], table, -1).astype(np.int32)
    reached = np.zeros(len(table), dtype=np.bool_)
    reached[start] = True
    fresh = np.array([start])
    while fresh.size:
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


def coreachable(table: NDArray[np.int32], accepting: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """The states from which an accepting one is reached, `(S,)`."""
    tails, letters = np.nonzero(table >= 0)
    heads = table[tails, letters]
    order = np.argsort(heads, kind="stable")
    tails, heads = tails[order], heads[order]  # edges by where they lead
    first = np.searchsorted(heads, np.arange(len(table) + 1))
    live = accepting.copy()
    fresh = np.flatnonzero(live)
    while fresh.size:
        counts = first[fresh + 1] - first[fresh]
        offsets = np.repeat(first[fresh] - (np.cumsum(counts) - counts), counts) + np.arange(counts.sum())
        before = np.unique(tails[offsets])
        fresh = before[~live[before]]
        live[fresh] = True
    return live
