"""Aho-Corasick automata over UTF-8 bytes: DFAs of the texts without given phrases, and of the texts up to the first
one.

A state stands for the longest suffix of the text that is a prefix of a phrase, and for how much of a character has been
read: the trie of the phrases is laid over the automaton of UTF-8, so that all texts stay valid. Phrases are whole
texts, so an occurrence starts and ends between characters. It knows nothing of tokens.

Safety filters have an Aho-Corasick automaton of their own (`constraints/safety/phrases.py`), over classes of characters
that are equal after folding, and with word borders. Phrases without either build several hundred times faster here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.nfa import DONE, bytes_in, utf8_edges
from espalier.computed import computed
from espalier.errors import LimitExceeded
from espalier.time_limit import check as check_time
from espalier.tokens.trie import build_trie

MAX_STATES = 1_000_000
MAX_CELLS = 100_000_000
"""The most states times byte classes: four bytes each, and as much again while the table is built."""
MAX_PHRASE = 65_535
"""The longest phrase, in bytes."""
CHARACTER = ((0, 0xD7FF), (0xE000, 0x10FFFF))


@dataclass(frozen=True, kw_only=True, eq=False)
class PhraseSearch:
    """The Aho-Corasick automaton of a set of phrases, S states by C byte classes. `avoiding` and `until` are the DFAs
    made from it.

    classes: the class of each byte, `(256,) uint8`. table: the next state, `(S, C) int32`, -1 for invalid UTF-8. hit:
    `(S,) bool`, a phrase ends here; the row of such a state is meaningless. whole: `(S,) bool`, the state lies between
    two characters. parent, byte: `(S,)`, the trie node that the state stands for, as its parent (-1 for none) and last
    byte.
    """

    classes: NDArray[np.uint8]
    table: NDArray[np.int32]
    hit: NDArray[np.bool_]
    whole: NDArray[np.bool_]
    parent: NDArray[np.int32]
    byte: NDArray[np.uint8]

    @computed
    def kept(self) -> NDArray[np.intp]:
        """The states of `avoiding`, by number: reachable without an occurrence, and not inside a character that can
        only complete one."""
        return self._kept(self.whole & ~self.hit)

    @computed
    def avoiding(self) -> Dfa:
        """See `avoiding` below."""
        return Dfa(classes=self.classes, table=self._renumbered(self.kept, -1), accepting=self.whole[self.kept])

    @computed
    def until(self) -> Dfa:
        """See `until` below. The last state is the only accept state; the last byte of a phrase leads to it."""
        kept = self._kept(self.whole)
        end = np.full((1, self.table.shape[1]), -1, dtype=np.int32)
        accepting = np.zeros(len(kept) + 1, dtype=np.bool_)
        accepting[-1] = True
        table = np.concatenate([self._renumbered(kept, len(kept)), end])  # (S + 1, C)
        return Dfa(classes=self.classes, table=table, accepting=accepting)

    def begun(self, state: int) -> bytes:
        """The longest suffix of the text that is a prefix of a phrase, in a state of `avoiding`."""
        return self.prefix(int(self.kept[state]))

    def first(self, state: int, data: bytes) -> int | None:
        """Whether reading `data` from a state of `avoiding` completes a phrase: how many bytes before `data` the first
        completed phrase starts, 0 or negative if it starts within `data`. None if no phrase is completed, or if `data`
        is not UTF-8.

        Correct only if no phrase contains another: then the state at an occurrence stands for the phrase itself.
        """
        at = int(self.kept[state])
        for count, byte in enumerate(data, 1):
            at = int(self.table[at, self.classes[byte]])
            if at < 0:
                return None
            if self.hit[at]:
                return len(self.prefix(at)) - count
        return None

    def prefix(self, at: int) -> bytes:
        """The prefix of a phrase that a state of `table` stands for."""
        prefix = bytearray()
        while self.parent[at] >= 0:
            check_time()
            prefix.append(int(self.byte[at]))
            at = int(self.parent[at])
        return bytes(reversed(prefix))

    def _kept(self, goal: NDArray[np.bool_]) -> NDArray[np.intp]:
        """The states that are reachable without an occurrence and reach a goal state within the same character,
        ascending. goal: `(S,) bool`."""
        table, size = self.table, len(self.table)
        good = np.append(goal, False)  # (S + 1,), the last stands for -1
        parts = np.flatnonzero(~self.whole)
        for _ in range(3):  # a character has at most three bytes after its first
            good[parts] = good[table[parts]].any(axis=1)
        good[:-1] &= ~self.hit
        reached = np.zeros(size + 1, dtype=np.bool_)
        reached[0] = True
        fresh = np.zeros(1, dtype=np.intp)
        while fresh.size:
            check_time()
            met = np.zeros(size + 1, dtype=np.bool_)
            met[table[fresh].ravel()] = True
            fresh = np.flatnonzero(met & good & ~reached)
            reached[fresh] = True
        return np.flatnonzero(reached)

    def _renumbered(self, kept: NDArray[np.intp], of_hit: int) -> NDArray[np.int32]:
        number = np.full(len(self.table) + 1, -1, dtype=np.int32)  # (S + 1,), the last stands for -1
        number[kept] = np.arange(len(kept))
        number[:-1][self.hit] = of_hit
        return number[self.table[kept]]


def search(phrases: Sequence[bytes], *, max_states: int = MAX_STATES) -> PhraseSearch:
    """The automaton of these phrases. Raises ValueError for no phrases, an empty phrase, or one that is not UTF-8;
    LimitExceeded."""
    if not phrases or not all(phrases):
        raise ValueError("no phrases, or an empty one: each needs at least one byte")
    for phrase in phrases:
        phrase.decode()  # UnicodeDecodeError is a ValueError
        if len(phrase) > MAX_PHRASE:
            raise LimitExceeded(f"a phrase has more than {MAX_PHRASE} bytes")
    trie = build_trie(phrases)
    base = _utf8_table()  # (U, 256)
    count = len(base) + len(trie)
    used = np.unique(trie.byte)
    apart = np.full((1, 256), -1, dtype=np.int32)
    apart[0, used] = used
    _, first, inverse = np.unique(np.concatenate([base, apart]), axis=1, return_index=True, return_inverse=True)
    # (C,), (256,): bytes of one class lead to the same state from every state.
    classes: NDArray[np.uint8] = inverse.reshape(256).astype(np.uint8)
    if count > max_states or count * len(first) > MAX_CELLS:
        raise LimitExceeded(
            f"the phrases need {count} states of {len(first)} byte classes",
            hint=f"at most {max_states} states, and {MAX_CELLS} states times classes: give fewer or shorter phrases",
        )
    table = np.empty((count, len(first)), dtype=np.int32)  # (S, C)
    table[: len(base)] = base[:, first]
    hit = np.zeros(count, dtype=np.bool_)
    parent = np.full(count, -1, dtype=np.int32)
    byte = np.zeros(count, dtype=np.uint8)
    byte[len(base) :] = trie.byte
    character = np.arange(count)  # (S,), the state of the UTF-8 automaton
    fail = np.zeros(count, dtype=np.int32)  # (S,), the failure link: the longest proper suffix that is a prefix
    by_level = np.argsort(trie.depth, kind="stable")
    bounds = np.searchsorted(trie.depth[by_level], np.arange(1, trie.max_depth + 2))
    above = np.zeros(0, dtype=np.intp)
    for low, high in pairwise(bounds):
        level = by_level[low:high]  # nodes of the trie, in pre-order
        states = level + len(base)
        letters = classes[trie.byte[level]]
        # In pre-order a node's parent is the last node of the previous level that comes before it.
        up = above[np.searchsorted(above, level) - 1] + len(base) if len(above) else np.zeros_like(level)
        fail[states] = table[fail[up], letters]
        table[up, letters] = states
        table[states] = table[fail[states]]  # its children are added with the next level
        hit[states] = (trie.token[level] >= 0) | hit[fail[states]]
        character[states] = character[fail[states]]
        parent[states] = up
        above = level
    return PhraseSearch(classes=classes, table=table, hit=hit, whole=character == 0, parent=parent, byte=byte)


def avoiding(phrases: Sequence[bytes], *, max_states: int = MAX_STATES) -> Dfa:
    """The DFA of the UTF-8 texts in which none of the phrases occurs. Raises as `search` does."""
    return search(phrases, max_states=max_states).avoiding


def until(phrases: Sequence[bytes], *, max_states: int = MAX_STATES) -> Dfa:
    """The DFA of the UTF-8 texts that end with the first occurrence of any of the phrases. Raises as `search` does."""
    return search(phrases, max_states=max_states).until


def _utf8_table() -> NDArray[np.int32]:
    """The automaton of UTF-8 text, `(U, 256) int32`; state 0 lies between two characters."""
    nodes = utf8_edges(CHARACTER)
    table = np.full((len(nodes), 256), -1, dtype=np.int32)
    for state, edges in enumerate(nodes):
        for members, child in edges:
            table[state, bytes_in(members)] = 0 if child == DONE else child
    return table
