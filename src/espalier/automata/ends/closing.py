"""Completions in tokens: a shortest one, one within a token limit, and the token mask that keeps one within reach.

The answers are exact if a search of bounded size settles them. Past that bound, a completion that is not known to be
short enough counts as too long. It knows a machine and a vocabulary, and nothing of EOS.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from espalier.automata.ends.nearest import MAX_LENGTH, Nearest
from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.machine import Landings, Machine, State
from espalier.automata.masks.states import Stacks
from espalier.time_limit import check as check_time
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

MAX_WALKS = 64
"""States that one search under a token limit expands."""
SHORTEST_WALKS = 300
"""States that the search for a shortest completion expands. Past that the shortest one found so far stands."""
MAX_WORK = 3_000
"""Stacks beyond FEW in each of the states that one question meets while it searches. States of ambiguous grammars have
dozens of stacks, and expanding one takes time for each of them."""
FEW = 2
DEEP = 8
"""Searches look for completions of at most so many tokens; for a higher limit only the completion of fewest bytes
counts. A bounded search sees few of the longer completions, and the one of fewest bytes is seldom much longer."""
MAX_KNOWN = 50_000
"""States about which something is remembered; past that all is forgotten."""
LANDINGS_BYTES = 32 * 2**20
NEXT_BYTES = 16 * 2**20


class Completions(Protocol):
    """Knows one completion of each state."""

    def count(self, state: State) -> int:
        """How many tokens the completion has. Raises LimitExceeded as `completion` does."""
        ...

    def completion(self, state: State) -> tuple[int, ...]:
        """The tokens of the completion. Raises LimitExceeded for one that is too long, or is not known."""
        ...


class _KnownEnds:
    """The results of earlier searches from one state. refused: no completion of at most so many tokens was found.
    completion: the shortest completion found."""

    __slots__ = ("completion", "refused")

    def __init__(self) -> None:
        self.refused = -1
        self.completion: tuple[int, ...] | None = None


class _Work:
    """What the searches of one question may still look at."""

    __slots__ = ("left",)

    def __init__(self, left: int) -> None:
        self.left = left

    def met(self, state: State) -> None:
        self.left -= max(0, len(state.items) - FEW) if isinstance(state, Stacks) else 0


class Ends:
    """The completions of one machine's texts. Its memory is bounded. Safe across threads: what is remembered is only
    ever replaced by something more exact."""

    def __init__(
        self,
        machine: Machine,
        trie: TokenTrie,
        vocab: Vocab,
        *,
        max_walks: int = MAX_WALKS,
        deep: int = DEEP,
        nearest: Completions | None = None,
        max_work: int = MAX_WORK,
    ) -> None:
        """nearest: the completion that is known of each state; by default that of fewest bytes."""
        self._machine = machine
        self._width = vocab.width
        self._nearest: Completions = Nearest(machine, trie, vocab) if nearest is None else nearest
        self._max_walks = max_walks
        self._deep = deep
        self._max_work = max_work
        self._longest = max(trie.max_depth, 1)
        self._known: dict[State, _KnownEnds] = {}
        self._landings: ByteCache[State, Landings] = ByteCache(LANDINGS_BYTES)
        self._next: ByteCache[State, list[tuple[int, State]]] = ByteCache(NEXT_BYTES)

    def stays_near(self, state: State, most: int) -> bool:
        """Whether at most `most` tokens complete the text after every allowed token. Cheap; False if unknown."""
        return self._machine.stays_near(state, min(most, MAX_LENGTH))

    def closing(self, state: State, most: int) -> Mask:
        """The allowed tokens after which at most `most` more complete the text, `(W,) int32`."""
        landings = self._landings.get(state)
        if landings is None:
            landings = self._machine.landings(state)
            self._landings.put(state, landings, landings.ids.nbytes + landings.which.nbytes + 8 * len(landings.states))
        work = _Work(self._max_work)
        near = np.array([self._fits(after, most, work) for after in landings.states], dtype=np.bool_)  # (n,)
        flags = np.zeros(self._width, dtype=np.bool_)  # (V,)
        if near.size:
            flags[landings.ids[near[landings.which]]] = True
        return masks.from_bool(flags)

    def fits(self, state: State, most: int) -> bool:
        """Whether at most `most` tokens are known to complete the text."""
        return self._fits(state, most, _Work(self._max_work))

    def _fits(self, state: State, most: int, work: _Work) -> bool:
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
        # Every byte that is needed has a token of its own, otherwise `fewest` would be known.
        if self._at_most(state) <= min(most, MAX_LENGTH) or self._is_near(state, most):
            return True
        return most <= self._deep and self._within(state, most, work) is not None

    def within(self, state: State, most: int) -> tuple[int, ...] | None:
        """A completion of at most `most` tokens, not always the shortest; None if none is known."""
        return self._within(state, most, _Work(self._max_work))

    def _within(self, state: State, most: int, work: _Work) -> tuple[int, ...] | None:
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
            return self._nearest.completion(state)
        known = self._of(state)
        if known.completion is not None and len(known.completion) <= most:
            return known.completion
        if known.refused >= most or most > self._deep:
            return None
        completion = self._search(state, most, self._max_walks, work)
        if completion is None:
            known.refused = max(known.refused, most)
        elif known.completion is None or len(completion) < len(known.completion):
            known.completion = completion
        return completion

    def shortest(self, state: State, *, max_walks: int = SHORTEST_WALKS) -> tuple[int, ...]:
        """A completion of the fewest tokens, `()` if the text is complete.

        Exact unless a search would expand more than `max_walks` states, or look at more than MAX_WORK stacks; then the
        shortest one found, which is at most as long as the one of fewest bytes. Raises LimitExceeded for completions of
        more than MAX_LENGTH bytes.
        """
        fewest = self._machine.fewest(state)
        if fewest is not None:
            return self._descend(state, fewest)
        best = self._nearest.completion(state)
        work = _Work(self._max_work)
        while len(best) > 1 and (shorter := self._search(state, len(best) - 1, max_walks, work)) is not None:
            best = shorter
        return best

    def plainest(self, state: State) -> tuple[int, ...]:
        """The completion of fewest bytes, in tokens; one of the fewest tokens where bytes have no token of their own.
        Raises LimitExceeded as `shortest` does."""
        fewest = self._machine.fewest(state)
        return self._nearest.completion(state) if fewest is None else self._descend(state, fewest)

    def _is_near(self, state: State, most: int) -> bool:
        """Whether the completion of fewest bytes has at most `most` tokens."""
        return self._machine.least(state) <= MAX_LENGTH and self._nearest.count(state) <= most

    def _at_least(self, state: State) -> int:
        """A lower bound on the tokens that complete a text, which is not complete yet."""
        return max(1, -(-self._machine.least(state) // self._longest))

    def _at_most(self, state: State) -> int:
        """The bytes and named tokens of the completion that `_nearest` knows."""
        return self._machine.least(state)

    def _of(self, state: State) -> _KnownEnds:
        known = self._known.get(state)
        if known is None:
            if len(self._known) >= MAX_KNOWN:
                self._known = {}
            known = self._known[state] = _KnownEnds()
        return known

    def _search(self, state: State, most: int, max_walks: int, work: _Work) -> tuple[int, ...] | None:
        """A completion of at most `most` tokens: breadth first, in each level the states nearest to the end in bytes
        first. None if there is none, or if none is found before `max_walks` states are expanded or the work is
        done."""
        machine = self._machine
        level: list[tuple[State, tuple[int, ...]]] = [(state, ())]
        seen = {state}
        walks = 0
        for left in range(most - 1, -1, -1):  # how many tokens may follow the next one
            following: list[tuple[State, tuple[int, ...]]] = []
            for current, taken in level:
                if walks == max_walks or work.left < 0:
                    return None
                walks += 1
                check_time()
                for token, after in self._successors(current):
                    if after in seen:
                        continue
                    seen.add(after)
                    work.met(after)
                    if machine.accepts(after):
                        return (*taken, token)
                    if self._at_least(after) > left:
                        continue
                    known = self._known.get(after)
                    if known is not None and known.completion is not None and len(known.completion) <= left:
                        return (*taken, token, *known.completion)
                    if self._at_most(after) <= min(left, MAX_LENGTH):
                        return (*taken, token, *self._nearest.completion(after))
                    following.append((after, (*taken, token)))
            level = sorted(following, key=lambda successor: machine.least(successor[0]))
        return None

    def _successors(self, state: State) -> list[tuple[int, State]]:
        successors = self._next.get(state)
        if successors is None:
            successors = self._machine.successors(state)
            self._next.put(state, successors, 100 * len(successors))
        return successors

    def _descend(self, state: State, fewest: int) -> tuple[int, ...]:
        """A shortest completion, for a machine that knows how many tokens it has."""
        tokens: list[int] = []
        while fewest:
            fewest -= 1
            token, state = next(
                successor for successor in self._successors(state) if self._machine.fewest(successor[1]) == fewest
            )
            tokens.append(token)
        return tuple(tokens)
