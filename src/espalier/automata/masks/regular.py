"""Token masks of a DFA over one vocabulary. It knows no grammars, no stacks and no EOS.

If the DFA reads bytes that have no token of their own, a state may be co-reachable over bytes but not over tokens. Then
the states that are co-reachable over tokens are computed once, and a token may end only in one of them.
"""

from __future__ import annotations

from collections import deque

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.dfa import Dfa, distances
from espalier.automata.languages.nfa import ByteSet
from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.machine import Landings, missing_bytes, missing_error
from espalier.automata.masks.walker import WHOLE, Walker
from espalier.errors import LimitExceeded
from espalier.time_limit import WorkLock
from espalier.time_limit import check as check_time
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

CACHE_BYTES = 64 * 2**20
SHARED_BYTES = 16 * 2**20
COMMON = 8
"""An edge that at least so many states share (same byte class, same target) is walked once for all of them. An example
is what may follow a whole word."""
WIDE = 32
"""Only if that edge allows tokens in at least so many words of the mask; a smaller part is walked again as fast as it
is looked up."""
MAX_WALKS = 20_000
"""The most states of a DFA that needs bytes without a token of their own."""


class _Rows:
    """The DFA as `walker.Rows`: every row is filled."""

    def __init__(self, dfa: Dfa) -> None:
        self.classes = dfa.classes
        self.table = dfa.table
        self.known = np.ones(len(dfa), dtype=np.uint8)
        self.leaves = np.zeros(len(dfa), dtype=np.uint8)
        self.ends = np.ones(len(dfa), dtype=np.uint8)
        self.readings = np.zeros((len(dfa), 5), dtype=np.int32)
        self.readings[:, 2] = np.arange(len(dfa))

    def fill(self, state: int) -> None:
        raise AssertionError("every row is filled")


class RegularMachine:
    """A `Machine` whose states are ints. Raises VocabError if no text of the language can be spelled in tokens."""

    def __init__(self, dfa: Dfa, vocab: Vocab, trie: TokenTrie, *, cache_bytes: int = CACHE_BYTES) -> None:
        self.dfa = dfa
        self.start = dfa.start
        self._vocab = vocab
        self._rows = _Rows(dfa)
        self._walker: Walker | None = None
        self._trie = trie
        self._lock = WorkLock()
        self._masks: ByteCache[int, Mask] = ByteCache(cache_bytes)
        self._shared: ByteCache[bytes, Mask] = ByteCache(min(SHARED_BYTES, cache_bytes))
        self._uses: NDArray[np.int32] | None = None
        self._wide: dict[tuple[int, int], bool] = {}
        self._least: NDArray[np.int64] | None = None
        self._fewest: NDArray[np.int32] | None = None  # (S,), in tokens, where bytes are missing
        self._widest: dict[int, int] = {}  # by state, the longest completion needed after a token
        self._overall = -1  # the maximum over all states
        self._tokens = vocab.tokens
        # A memoryview gives plain ints, several times faster than NumPy scalars.
        self._table = dfa.table.data
        self._letter = dfa.classes.tolist()
        used = np.flatnonzero((dfa.table >= 0).any(axis=0))
        needed = bytes(b for b in range(256) if dfa.classes[b] in used)
        if missing := missing_bytes(needed, vocab):
            self._keep_coreachable(missing)

    def accepts(self, state: int) -> bool:
        return bool(self.dfa.accepting[state])

    def mask(self, state: int) -> Mask:
        mask = self._masks.get(state)
        if mask is None:
            with self._lock:
                mask = self._new_mask(state)
            mask.setflags(write=False)
            self._masks.put(state, mask, mask.nbytes)
        return mask

    def _new_mask(self, state: int) -> Mask:
        if len(self.dfa) < 2 * COMMON:
            return self._walk().walk(self._rows, state, WHOLE)[0]
        if self._uses is None:
            self._uses = _uses(self.dfa)
        row, classes = self.dfa.table[state], self.dfa.classes  # (C,), (256,)
        common = self._uses[np.arange(len(row)), row] >= COMMON  # (C,); -1 is the last, for none
        wide = common.copy()  # (C,)
        for letter in np.flatnonzero(common).tolist():
            wide[letter] = self._is_wide(state, letter)
        own = (row >= 0) & ~wide
        if not wide.any():
            return self._walk().walk(self._rows, state, WHOLE)[0]
        key = np.where(wide, row, -1).tobytes()
        shared = self._shared.get(key)
        if shared is None:
            shared, _ = self._walk().walk(self._rows, state, WHOLE, first=wide[classes])
            self._shared.put(key, shared, shared.nbytes + len(key))
        if not own.any():
            return shared.copy()
        mask, _ = self._walk().walk(self._rows, state, WHOLE, first=own[classes])
        np.bitwise_or(mask, shared, out=mask)
        return mask

    def _is_wide(self, state: int, letter: int) -> bool:
        """Whether the edge of a state for one byte class allows so many tokens that its walk is worth caching."""
        way = (letter, int(self.dfa.table[state, letter]))
        known = self._wide.get(way)
        if known is None:
            mask, _ = self._walk().walk(self._rows, state, WHOLE, first=self.dfa.classes == letter)
            known = self._wide[way] = int(np.count_nonzero(mask)) >= WIDE
        return known

    def advance(self, state: int, token: int) -> int | None:
        data = self._tokens[token] if 0 <= token < len(self._tokens) else b""
        if not data:
            return None
        table, letter = self._table, self._letter
        for byte in data:
            state = table[state, letter[byte]]
            if state < 0:
                return None
        return state if self._rows.ends[state] else None

    def step(self, state: int, byte: int) -> int | None:
        target = self._table[state, self._letter[byte]]
        return target if target >= 0 else None

    def options(self, state: int) -> tuple[ByteSet, tuple[int, ...]]:
        row = self.dfa.table[state] >= 0  # (C,)
        return sum(1 << b for b in np.flatnonzero(row[self.dfa.classes]).tolist()), ()

    def reference(self, number: int) -> tuple[str, NDArray[np.intp]]:
        raise IndexError(number)

    def least(self, state: int) -> int:
        return int(self._far()[state])

    def successors(self, state: int) -> list[tuple[int, int]]:
        with self._lock:
            first = self._walk().reach(self._rows, state)
        ends = np.flatnonzero(first >= 0)
        return list(zip(first[ends].tolist(), ends.tolist(), strict=True))

    def fewest(self, state: int) -> int | None:
        return None if self._fewest is None else int(self._fewest[state])

    def stays_near(self, state: int, most: int) -> bool:
        # In bytes if each byte has a token of its own, which bounds the tokens; otherwise in tokens.
        far = self._fewest if self._fewest is not None else self._far()  # (S,)
        if self._overall < 0:
            self._overall = int(far.max())
        if self._overall <= most:
            return True
        widest = self._widest.get(state)
        if widest is None:
            with self._lock:
                first = self._walk().reach(self._rows, state)
            widest = self._widest[state] = int(far[first >= 0].max(initial=0))
        return widest <= most

    def landings(self, state: int) -> Landings:
        with self._lock:
            landed = self._walk().land(self._rows, state)
        ids = np.flatnonzero(landed >= 0).astype(np.int32)
        met = np.zeros(len(self.dfa), dtype=np.bool_)  # (S,): marking is several times faster than sorting
        met[landed[ids]] = True
        states = np.flatnonzero(met)
        place = np.zeros(len(self.dfa), dtype=np.int32)
        place[states] = np.arange(len(states))
        return Landings(ids=ids, which=place[landed[ids]], states=tuple(states.tolist()))

    def _far(self) -> NDArray[np.int64]:
        if self._least is None:
            self._least = distances(self.dfa.table, self.dfa.accepting)
        return self._least

    def _walk(self) -> Walker:
        if self._walker is None:
            self._walker = Walker(self._trie, self._vocab.width)
        return self._walker

    def _keep_coreachable(self, missing: bytes) -> None:
        """Let tokens end only in states from which tokens reach an accept state."""
        if len(self.dfa) > MAX_WALKS:
            raise LimitExceeded(
                f"the vocabulary lacks bytes and the automaton has more than {MAX_WALKS} states",
                hint="use a tokenizer with byte fallback",
            )
        before: list[list[int]] = [[] for _ in range(len(self.dfa))]
        todo, seen = [self.start], {self.start}
        while todo:
            check_time()
            state = todo.pop()
            for _, target in self.successors(state):
                before[target].append(state)
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        fewest = {state: 0 for state in seen if self.dfa.accepting[state]}
        waiting = deque(fewest)
        while waiting:
            target = waiting.popleft()
            for state in before[target]:
                if state not in fewest:
                    fewest[state] = fewest[target] + 1
                    waiting.append(state)
        if self.start not in fewest:
            raise missing_error(missing, "no sequence of tokens spells any of its texts")
        live = list(fewest)
        self._rows.ends[:] = 0
        self._rows.ends[live] = 1
        self._rows.readings[:, :2] = 0
        self._fewest = np.zeros(len(self.dfa), dtype=np.int32)
        self._fewest[live] = list(fewest.values())


def _uses(dfa: Dfa) -> NDArray[np.int32]:
    """For each byte class and target, how many states have that edge, `(C, S + 1) int32`; the last column, for no
    target, is 0."""
    uses = np.empty((dfa.table.shape[1], len(dfa) + 1), dtype=np.int32)
    for letter, column in enumerate(dfa.table.T):
        uses[letter] = np.roll(np.bincount(column + 1, minlength=len(dfa) + 1), -1)
    uses[:, -1] = 0
    return uses
