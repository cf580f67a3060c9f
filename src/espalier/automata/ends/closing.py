"""Which tokens leave so many more to the end, and the ways there: what a limit on tokens asks of a machine.

Exact where a search of bounded size settles it; past that a way that is not known to be short enough is taken for too
long. It knows a machine and a vocabulary, and nothing of EOS.
"""

from __future__ import annotations

import numpy as np

from espalier.automata.ends.complete import MAX_LENGTH
from espalier.automata.ends.nearest import Nearest
from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.machine import Landings, Machine, State
from espalier.time_limit import check as check_time
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

MAX_WALKS = 64
"""States whose successors one search looks at."""
DEEP = 8
"""Tokens of a way that is searched for; of a longer one only the fewest bytes are tried. A search that deep looks at
few of the ways that there are, and a text whose end takes longer has seldom one that is longer in bytes alone."""
MAX_KNOWN = 50_000
"""States of which something is remembered; past that all is forgotten."""
LANDINGS_BYTES = 32 * 2**20
NEXT_BYTES = 16 * 2**20


class _Known:
    """What a search has found of a state. refused: no way of so many tokens or fewer. way: the shortest one."""

    __slots__ = ("refused", "way")

    def __init__(self) -> None:
        self.refused = -1
        self.way: tuple[int, ...] | None = None


class Ends:
    """The ends of a machine's texts. Remembers within bounds; safe across threads, as what is remembered is only ever
    made more exact."""

    def __init__(
        self, machine: Machine, trie: TokenTrie, vocab: Vocab, *, max_walks: int = MAX_WALKS, deep: int = DEEP
    ) -> None:
        self._machine = machine
        self._width = vocab.width
        self._nearest = Nearest(machine, trie, vocab)
        self._max_walks = max_walks
        self._deep = deep
        self._longest = max(trie.max_depth, 1)
        self._known: dict[State, _Known] = {}
        self._landings: ByteCache[State, Landings] = ByteCache(LANDINGS_BYTES)
        self._next: ByteCache[State, list[tuple[int, State]]] = ByteCache(NEXT_BYTES)

    def stays_near(self, state: State, most: int) -> bool:
        """Whether every allowed token leaves at most `most` to come. May be False where it is not known; cheap."""
        return self._machine.stays_near(state, min(most, MAX_LENGTH))

    def closing(self, state: State, most: int) -> Mask:
        """The allowed tokens after which at most `most` more complete the text, `(W,) int32`."""
        found = self._landings.get(state)
        if found is None:
            found = self._machine.landings(state)
            self._landings.put(state, found, found.ids.nbytes + found.which.nbytes + 8 * len(found.states))
        near = np.array([self.fits(after, most) for after in found.states], dtype=np.bool_)  # (n,)
        flags = np.zeros(self._width, dtype=np.bool_)  # (V,)
        if near.size:
            flags[found.ids[near[found.which]]] = True
        return masks.from_bool(flags)

    def fits(self, state: State, most: int) -> bool:
        """Whether at most `most` tokens are known to complete the text."""
        if most < 0:
            return False
        machine = self._machine
        if machine.accepts(state):
            return True
        fewest = machine.fewest(state)
        if fewest is not None:
            return fewest <= most
        if self._at_least(state) > most:
            return False
        # Each byte that is needed has a token of its own, or `fewest` would be known.
        least = machine.least(state)
        if least <= min(most, MAX_LENGTH) or self._is_near(state, most):
            return True
        return most <= self._deep and self.within(state, most) is not None

    def within(self, state: State, most: int) -> tuple[int, ...] | None:
        """At most `most` tokens that complete the text, None where none are known. Not always the fewest."""
        machine = self._machine
        if most < 0:
            return None
        if machine.accepts(state):
            return ()
        fewest = machine.fewest(state)
        if fewest is not None:
            return self._descend(state, fewest) if fewest <= most else None
        if self._at_least(state) > most:
            return None
        if self._is_near(state, most):
            return self._nearest.way(state)
        known = self._of(state)
        if known.way is not None and len(known.way) <= most:
            return known.way
        if known.refused >= most or most > self._deep:
            return None
        found = self._search(state, most)
        if found is None:
            known.refused = max(known.refused, most)
        elif known.way is None or len(found) < len(known.way):
            known.way = found
        return found

    def _is_near(self, state: State, most: int) -> bool:
        """Whether the way of fewest bytes is short enough."""
        return self._machine.least(state) <= MAX_LENGTH and self._nearest.count(state) <= most

    def _at_least(self, state: State) -> int:
        """No fewer tokens complete a text that is not complete yet."""
        return max(1, -(-self._machine.least(state) // self._longest))

    def _of(self, state: State) -> _Known:
        found = self._known.get(state)
        if found is None:
            if len(self._known) >= MAX_KNOWN:
                self._known = {}
            found = self._known[state] = _Known()
        return found

    def _search(self, state: State, most: int) -> tuple[int, ...] | None:
        """Level by level, what is nearest to the end in bytes first."""
        machine = self._machine
        level: list[tuple[State, tuple[int, ...]]] = [(state, ())]
        seen = {state}
        walks = 0
        for left in range(most - 1, -1, -1):  # how many tokens may follow the next one
            following: list[tuple[State, tuple[int, ...]]] = []
            for current, taken in level:
                if walks == self._max_walks:
                    return None
                walks += 1
                check_time()
                for token, after in self._successors(current):
                    if after in seen:
                        continue
                    seen.add(after)
                    if machine.accepts(after):
                        return (*taken, token)
                    if self._at_least(after) > left:
                        continue
                    known = self._known.get(after)
                    if known is not None and known.way is not None and len(known.way) <= left:
                        return (*taken, token, *known.way)
                    if machine.least(after) <= min(left, MAX_LENGTH):
                        return (*taken, token, *self._nearest.way(after))
                    following.append((after, (*taken, token)))
            level = sorted(following, key=lambda one: machine.least(one[0]))
        return None

    def _successors(self, state: State) -> list[tuple[int, State]]:
        found = self._next.get(state)
        if found is None:
            found = self._machine.successors(state)
            self._next.put(state, found, 100 * len(found))
        return found

    def _descend(self, state: State, fewest: int) -> tuple[int, ...]:
        """A shortest way where the machine counts tokens."""
        found: list[int] = []
        while fewest:
            fewest -= 1
            token, state = next(one for one in self._successors(state) if self._machine.fewest(one[1]) == fewest)
            found.append(token)
        return tuple(found)
