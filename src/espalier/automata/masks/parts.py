"""Parts of masks and the masks joined from them, kept once each. Bounded by bytes; thread-safe.

Equal words and equal sets of trie nodes are one object, so a mask is found by the identity of its parts. A store may
serve all schemas of one vocabulary. It does not know automata.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from espalier.automata.lazy.explored import LazyState
from espalier.automata.masks.walker import WHOLE, WalkerPool
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask

PARTS_BYTES = 64 * 2**20
NO_NODES = np.empty(0, dtype=np.int32)
FEW = 8
"""So many words, each below so many nodes, are looked up one by one; more of them at once."""
MANY = 4_096
"""Nodes that are sorted; of more, flags are several times faster."""
SPARSE = 8
"""A part of a mask is stored sparsely (nonzero words and their indices) if fewer than one word in so many is
nonzero."""


class TrieNodes:
    """Trie nodes at which a walk continues, `(n,) int32`, ascending. Interned: equal ones are one object."""

    __slots__ = ("nodes",)

    def __init__(self, nodes: NDArray[np.int32]) -> None:
        self.nodes = nodes


def nodes_of_any(many: Sequence[NDArray[np.int32]]) -> NDArray[np.int32]:
    """The trie nodes that are in any of these, `(n,) int32`, ascending, each once."""
    if sum(some.size for some in many) <= MANY:
        return np.unique(np.concatenate(many))
    there = np.zeros(1 + max(int(some.max()) for some in many if some.size), dtype=np.bool_)
    for some in many:
        there[some] = True
    return there.nonzero()[0].astype(np.int32)


@dataclass(frozen=True, slots=True, eq=False)
class MaskWords:
    """Words of a mask: all of them if `at` is None, otherwise those at the indices `at`. Interned."""

    bits: NDArray[np.int32]
    at: NDArray[np.intp] | None

    def without(self, ids: Iterable[int], width: int) -> MaskWords:
        """The words without some tokens; equal ones are not one object. width: V."""
        bits = masks.empty(width)
        self.put(bits)
        words = bits.view(np.uint32).data
        for token in ids:
            words[token >> 5] &= ~(1 << (token & 31)) & 0xFFFFFFFF
        return MaskWords(bits, None)

    def put(self, out: Mask) -> None:
        if self.at is None:
            np.bitwise_or(out, self.bits, out=out)
        else:
            out[self.at] |= self.bits


@dataclass(frozen=True, slots=True, eq=False)
class Hand:
    """Nodes at which a walk stopped, since what follows is found without it. position: where the text goes on. pushed:
    the positions between it and what lies below the walk, lowest first. is_frame: the calls of the position are yet to
    be followed, see `stacks.py`."""

    nodes: TrieNodes
    position: int
    pushed: tuple[int, ...] = ()
    is_frame: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class MaskPart:
    """The result of one walk. words: the tokens allowed, None for none. exits: the nodes inside tokens at which the
    rule may have returned, None for none. hands: what the walk left to others."""

    words: MaskWords | None
    exits: TrieNodes | None
    hands: tuple[Hand, ...] = ()


class Sharing(Protocol):
    """What the machines of one vocabulary share."""

    @property
    def store(self) -> PartStore: ...

    @property
    def walkers(self) -> WalkerPool: ...

    def is_apart(self, place: LazyState) -> bool:
        """Whether what a position allows is found without rows: it is one of a shared automaton, or it reads only keys
        and texts, or names that are none of some others."""
        ...

    def part(self, place: LazyState, nodes: TrieNodes) -> MaskPart | None:
        """What such a position allows below these nodes before its rule returns; None for one of keys and
        texts."""
        ...


class PartStore:
    """The parts and masks of one vocabulary. At most about `limit` bytes; past that all are forgotten, and what is in
    use stays valid."""

    def __init__(self, width: int, limit: int = PARTS_BYTES) -> None:
        self.whole = TrieNodes(WHOLE)
        self._width = width
        self._limit = limit
        self._size = 0
        self._places: dict[bytes, TrieNodes] = {}
        self._words: dict[tuple[bytes, bytes], MaskWords] = {}
        self._few: dict[frozenset[tuple[int, int]], MaskWords] = {}
        self._joined: dict[frozenset[MaskWords], Mask] = {}
        self._lock = threading.Lock()

    def part(self, bits: Mask, exits: NDArray[np.int32], hands: tuple[Hand, ...] = ()) -> MaskPart:
        """The part with these words, these nodes at which the rule may have returned, and what is left to others."""
        at = (bits != 0).nonzero()[0]  # several times faster than `bits.nonzero()`
        with self._lock:
            if self._size > self._limit:
                self._forget()
            below = self._same_nodes(exits) if exits.size else None
            return MaskPart(self._same_words(bits, at) if at.size else None, below, hands)

    def nodes(self, nodes: NDArray[np.int32]) -> TrieNodes:
        """The interned nodes. nodes: `(n,)`, ascending."""
        with self._lock:
            return self._same_nodes(nodes)

    def _same_nodes(self, nodes: NDArray[np.int32]) -> TrieNodes:
        key = nodes.tobytes()
        same = self._places.get(key)
        if same is None:
            same = self._places[key] = TrieNodes(nodes)
            self._size += 500 + 2 * nodes.nbytes
        return same

    def joined(self, parts: frozenset[MaskWords]) -> Mask:
        """The mask of these words together, `(W,) int32`, read-only."""
        out = self._joined.get(parts)
        if out is None:
            out = masks.empty(self._width)
            for words in parts:
                words.put(out)
            out.setflags(write=False)
            with self._lock:
                if self._size > self._limit:
                    self._forget()
                self._joined[parts] = out
                self._size += 500 + out.nbytes
        return out

    def tokens(self, ids: Iterable[int]) -> MaskWords | None:
        """The words of a few tokens, which a look at a whole mask would cost more than; None for no tokens."""
        by_word: dict[int, int] = {}
        for token in ids:
            by_word[token >> 5] = by_word.get(token >> 5, 0) | 1 << (token & 31)
        if not by_word:
            return None
        key = frozenset(by_word.items())
        with self._lock:
            same = self._few.get(key)
            if same is None:
                bits = np.fromiter(by_word.values(), dtype=np.uint32, count=len(by_word)).view(np.int32)
                same = self._few[key] = MaskWords(bits, np.fromiter(by_word, dtype=np.intp, count=len(by_word)))
                self._size += 500 + 200 * len(by_word)
        return same

    def words(self, bits: Mask) -> MaskWords | None:
        """The interned words of a whole mask, None for an empty one."""
        return self.part(bits, NO_NODES).words

    def _same_words(self, bits: Mask, at: NDArray[np.intp]) -> MaskWords:
        """The interned words with these bits, which are nonzero at `at`."""
        if at.size * SPARSE < bits.size:
            some = bits[at]
            key = (some.tobytes(), at.tobytes())
            same = self._words.get(key)
            if same is None:
                same = self._words[key] = MaskWords(some, at)
                self._size += 500 + 2 * (some.nbytes + at.nbytes)
            return same
        key = (bits.tobytes(), b"")
        same = self._words.get(key)
        if same is None:
            same = self._words[key] = MaskWords(bits, None)
            self._size += 500 + 2 * bits.nbytes
        return same

    def _forget(self) -> None:
        self._places.clear()
        self._words.clear()
        self._few.clear()
        self._joined.clear()
        self._size = 0
