"""Walks an automaton against the token trie: packed token masks, and the state after each token.

The automaton is a transition table (`Rows`) whose rows may be filled lazily, when the walk meets them. The walker does
not know what a state means. Numba is loaded with the first walker, not with the package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from espalier.automata.masks.layout import KIND, TextSlice, lay_out, load_kernels
from espalier.errors import LimitExceeded
from espalier.time_limit import check as check_time
from espalier.tokens.mask import Mask, words
from espalier.tokens.trie import TokenTrie

WHOLE = np.array([-1], dtype=np.int32)
"""Start nodes that stand for the whole trie."""
_NOWHERE = np.empty(0, dtype=np.int32)
_NOUGHT = np.zeros(1, dtype=np.int32)
_MAX_OPEN = 16_000_000
_QUEUE = 4096  # states, each with what is left of a character, that are looked at for what one state reads
_MANY = 32  # nodes below which it is worth a look what a state reads
_MAX_FILLED = 16  # rows that are filled for it


class Rows(Protocol):
    """The transition table of an automaton, S states by C byte classes. `fill` may replace the arrays by larger
    ones."""

    classes: NDArray[np.uint8]  # (256,)
    table: NDArray[np.int32]  # (S, C), -1 where there is no transition
    known: NDArray[np.uint8]  # (S,), the row is filled
    leaves: NDArray[np.uint8]  # (S,), the rule may return here, in the middle of a token
    ends: NDArray[np.uint8]  # (S,), a token may end here
    readings: NDArray[np.int32]  # (S, 5), see `kernels.UNIFORM`

    def fill(self, state: int) -> None:
        """Fill the row of a state that is not `known`."""
        ...


class RowReceiver(Protocol):
    """Takes states whose rows a walk does not need: the caller knows another way to what they allow."""

    def takes(self, state: int) -> bool: ...

    def take(self, state: int, nodes: NDArray[np.int32]) -> None:
        """The walk leaves out what is below these nodes. It may come more than once for a state."""
        ...


@dataclass(frozen=True, slots=True)
class Words:
    """Words one after the other. data: their bytes, `(B,) uint8`. begins, stops: where each one is read from and where
    it ends, `(K,) int32`."""

    data: NDArray[np.uint8]
    begins: NDArray[np.int32]
    stops: NDArray[np.int32]

    @classmethod
    def of(cls, words: Sequence[bytes]) -> Words:
        stops = np.array([len(word) for word in words], dtype=np.int32).cumsum(dtype=np.int32)
        begins = np.concatenate([_NOUGHT, stops[:-1]])
        return cls(np.frombuffer(b"".join(words), dtype=np.uint8), begins, stops)

    def some(self, which: Sequence[int], at: int) -> Words:
        """Some of the words, from their byte `at` on."""
        chosen = np.array(which, dtype=np.intp)
        return Words(self.data, self.begins[chosen] + np.int32(at), self.stops[chosen])


class Walker:
    """Walks one trie; holds the buffers for the results. Not thread-safe."""

    def __init__(self, trie: TokenTrie, width: int) -> None:
        self._kernels, self._word_kernels = load_kernels(), load_kernels("word_kernels")
        self._trie = lay_out(trie)
        self._words = words(width)
        total = len(trie)
        self._stack = np.zeros(trie.max_depth + 2, dtype=np.int32)
        self._left_at = np.empty(total, dtype=np.int32)  # (N,)
        self._was_left = np.zeros(total, dtype=np.uint8)  # (N,)
        self._open_nodes = np.empty(total + 1, dtype=np.int32)
        self._open_states = np.empty(total + 1, dtype=np.int32)
        self._queue = np.empty((_QUEUE, 2), dtype=np.int32)
        self._marks = np.zeros(8 * 256, dtype=np.uint8)

    def walk(
        self,
        rows: Rows,
        state: int,
        nodes: NDArray[np.int32],
        *,
        first: NDArray[np.bool_] | None = None,
        handed: RowReceiver | None = None,
    ) -> tuple[Mask, NDArray[np.int32]]:
        """The packed mask of the tokens below `nodes` that `state` reads, `(W,) int32`, and the nodes, ascending, at
        which the rule may return in the middle of a token. first: with WHOLE, only tokens whose first byte is set,
        `(256,) bool`. handed: takes the states below whose nodes the caller walks."""
        trie, origin = self._trie, None
        plain = self.slice(rows, state) if nodes is WHOLE and first is None else None
        if plain is None:
            bits = np.zeros(self._words, dtype=np.uint32)
        else:
            trie, origin, bits = plain.rest, plain.origin, plain.bits.copy()
        heads = trie.heads if first is None else trie.heads[first[trie.heads[:, 1]]]  # (R, 2)
        left = 0

        def run(nodes: NDArray[np.int32], states: NDArray[np.int32]) -> int:
            nonlocal left
            left, opened = self._kernels.walk(
                trie.nodes,
                trie.contents,
                heads,
                KIND,
                trie.ids,
                rows.classes,
                rows.table,
                rows.known,
                rows.leaves,
                rows.ends,
                rows.readings,
                self._queue,
                self._marks_of(rows),
                _MANY if origin is None else len(self._trie.nodes),  # little of what is left is plain text
                nodes,
                states,
                self._stack,
                bits,
                self._left_at,
                left,
                self._was_left,
                self._open_nodes,
                self._open_states,
            )
            return int(opened)

        try:
            self._until_closed(rows, state, nodes, run, handed, origin)
        except BaseException:
            # After an error between two passes (a limit, an interrupt) no mark may be left for the next walk.
            self._was_left.fill(0)
            raise
        exits = self._left_at[:left].copy() if left else _NOWHERE
        self._was_left[exits] = 0
        if left and not bool(np.all(exits[1:] > exits[:-1])):  # sorted already if nothing was resumed
            exits.sort()
        return bits.view(np.int32), exits if origin is None else origin[exits]

    def slice(self, rows: Rows, state: int) -> TextSlice | None:
        """The tokens of plain text that a state reads, None where these are not most of them."""
        self._settle(rows, state)
        kinds, reach, *_ = rows.readings[state].tolist()
        return self._trie.slice(kinds, reach, self._words)

    def _settle(self, rows: Rows, state: int) -> None:
        """Find out which texts a state reads whatever they are, and fill the rows that are needed for it."""
        if rows.readings[state, self._kernels.REACH]:
            return
        base = int(rows.readings[state, self._kernels.SIMPLER])
        if not rows.known[base]:
            rows.fill(base)
        filled = 0
        while True:
            opened = self._kernels.settle(
                state,
                KIND,
                rows.classes,
                rows.table,
                rows.known,
                rows.leaves,
                rows.ends,
                rows.readings,
                self._queue,
                self._marks_of(rows),
                self._open_states,
            )
            filled += opened
            if not opened or filled > _MAX_FILLED:
                return
            check_time()
            for row in self._open_states[:opened].tolist():
                if not rows.known[row]:
                    rows.fill(row)

    def _marks_of(self, rows: Rows) -> NDArray[np.uint8]:
        size = 8 * rows.table.shape[0]
        if self._marks.shape[0] < size:
            self._marks = np.zeros(size, dtype=np.uint8)
        return self._marks

    def spell(
        self, words: Words, nodes: NDArray[np.int32], *, last: int = -1
    ) -> tuple[Mask, NDArray[np.int32], NDArray[np.int32]]:
        """The packed mask of the tokens below `nodes` that are the beginning of a word, `(W,) int32`; and the nodes at
        which words end, with their numbers, both `(n,) int32`. last: only nodes below which a token goes on with this
        byte; ANY_BYTE for any, -1 for all nodes."""
        bits = np.zeros(self._words, dtype=np.uint32)
        while True:
            count = self._word_kernels.spell(
                self._trie.nodes,
                self._trie.heads,
                self._trie.ids,
                words.data,
                words.begins,
                words.stops,
                nodes,
                last,
                self._stack,
                bits,
                self._open_nodes,
                self._open_states,
            )
            if count >= 0:
                return bits.view(np.int32), self._open_nodes[:count].copy(), self._open_states[:count].copy()
            self._grow()

    def follow(self, word: bytes, node: int = -1, *, last: int = -1) -> tuple[list[int], int, int]:
        """As `spell` for one word below one node, -1 for the root: the tokens that are its beginnings, how many of
        these are all of it (the last ones), and the node at which it ends, -1 for none. For a few words this is several
        times faster."""
        trie = self._trie
        count, whole, end = self._word_kernels.follow(
            trie.nodes, trie.heads, trie.ids, np.frombuffer(word, dtype=np.uint8), node, last, self._open_nodes
        )
        return self._open_nodes[:count].tolist(), whole, end

    def reach(self, rows: Rows, state: int, nodes: NDArray[np.int32] = WHOLE) -> NDArray[np.int32]:
        """For each state the lowest id of a token below `nodes` that leads there, -1 for none, `(S,) int32`."""
        first = np.full(rows.table.shape[0], -1, dtype=np.int32)

        def run(nodes: NDArray[np.int32], states: NDArray[np.int32]) -> int:
            nonlocal first
            if first.shape[0] < rows.table.shape[0]:
                grown = np.full(rows.table.shape[0], -1, dtype=np.int32)
                grown[: first.shape[0]] = first
                first = grown
            return self._run_land(rows, nodes, states, first, _NOWHERE)

        self._until_closed(rows, state, nodes, run)
        return first

    def land(self, rows: Rows, state: int) -> NDArray[np.int32]:
        """For each token the state after it, -1 if it is refused, `(V,) int32` rounded up to whole mask words."""
        landed = np.full(32 * self._words, -1, dtype=np.int32)

        def run(nodes: NDArray[np.int32], states: NDArray[np.int32]) -> int:
            return self._run_land(rows, nodes, states, _NOWHERE, landed)

        self._until_closed(rows, state, WHOLE, run)
        return landed

    def _run_land(
        self,
        rows: Rows,
        nodes: NDArray[np.int32],
        states: NDArray[np.int32],
        first: NDArray[np.int32],
        landed: NDArray[np.int32],
    ) -> int:
        opened = self._kernels.land(
            self._trie.nodes,
            self._trie.ids,
            rows.classes,
            rows.table,
            rows.known,
            rows.ends,
            nodes,
            states,
            self._stack,
            first,
            landed,
            self._open_nodes,
            self._open_states,
        )
        return int(opened)

    def _until_closed(
        self,
        rows: Rows,
        state: int,
        nodes: NDArray[np.int32],
        run: Callable[[NDArray[np.int32], NDArray[np.int32]], int],
        handed: RowReceiver | None = None,
        origin: NDArray[np.int32] | None = None,
    ) -> None:
        """Run a kernel, fill the rows that it met, and resume below them, until no subtree is open. origin: the nodes
        of the whole trie, where the kernel walks a part of it."""
        if not rows.known[state]:
            rows.fill(state)
        states = np.full(nodes.shape[0], state, dtype=np.int32)
        while True:
            check_time()
            opened = run(nodes, states)
            if opened == 0:
                return
            if opened < 0:
                # Repeating this round is safe: it finds the same tokens again.
                self._grow()
                continue
            nodes = self._open_nodes[:opened].copy()
            states = self._open_states[:opened].copy()
            unknown = list(dict.fromkeys(states.tolist()))
            if handed is not None and (accepted := [row for row in unknown if handed.takes(row)]):
                for row in accepted:
                    below = nodes[states == row]
                    handed.take(row, below if origin is None else origin[below])
                if len(accepted) == len(unknown):
                    return
                kept = ~np.isin(states, accepted)
                nodes, states = nodes[kept], states[kept]
                unknown = [row for row in unknown if row not in accepted]
            for row in unknown:
                rows.fill(row)

    def _grow(self) -> None:
        """More room for what is open."""
        size = 4 * self._open_nodes.shape[0]
        if size > _MAX_OPEN:
            raise LimitExceeded("the grammar is too ambiguous for this vocabulary: too much is open at once")
        self._open_nodes = np.empty(size, dtype=np.int32)
        self._open_states = np.empty(size, dtype=np.int32)


class WalkerPool:
    """Walkers of one vocabulary: each walk takes one that is free. Thread-safe."""

    def __init__(self, trie: TokenTrie, width: int) -> None:
        self._trie = trie
        self._width = width
        self._free: list[Walker] = []

    def _take(self) -> Walker:
        try:
            return self._free.pop()
        except IndexError:
            return Walker(self._trie, self._width)

    def walk(
        self, rows: Rows, state: int, nodes: NDArray[np.int32], *, handed: RowReceiver | None = None
    ) -> tuple[Mask, NDArray[np.int32]]:
        """See `Walker.walk`."""
        walker = self._take()
        try:
            return walker.walk(rows, state, nodes, handed=handed)
        finally:
            self._free.append(walker)

    def spell(
        self, words: Words, nodes: NDArray[np.int32], *, last: int = -1
    ) -> tuple[Mask, NDArray[np.int32], NDArray[np.int32]]:
        """See `Walker.spell`."""
        walker = self._take()
        try:
            return walker.spell(words, nodes, last=last)
        finally:
            self._free.append(walker)

    def follow(self, word: bytes, node: int = -1, *, last: int = -1) -> tuple[list[int], int, int]:
        """See `Walker.follow`."""
        walker = self._take()
        try:
            return walker.follow(word, node, last=last)
        finally:
            self._free.append(walker)

    def reach(self, rows: Rows, state: int, nodes: NDArray[np.int32] = WHOLE) -> NDArray[np.int32]:
        """See `Walker.reach`."""
        walker = self._take()
        try:
            return walker.reach(rows, state, nodes)
        finally:
            self._free.append(walker)

    def land(self, rows: Rows, state: int) -> NDArray[np.int32]:
        """See `Walker.land`."""
        walker = self._take()
        try:
            return walker.land(rows, state)
        finally:
            self._free.append(walker)
