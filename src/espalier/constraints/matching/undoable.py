"""Rewind mode of bans and safety filters: masks like the strict matcher, and names the tokens that may be sampled and
then undone.

Masks and steps come from the automaton of the texts without a match. A `MatchReader` says which tokens would complete a
match and where that match begins. This module knows neither phrases nor patterns.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Protocol, Self

import numpy as np

from espalier.automata.masks.cache import ByteCache
from espalier.automata.masks.machine import State
from espalier.constraints.matching.automaton import AutomatonMatcher, CompiledAutomaton
from espalier.constraints.matching.base import CompiledWrapper, WrappingMatcher
from espalier.constraints.matching.rewinding import Recall
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask

CACHE_BYTES = 16 * 1024 * 1024
"""The limit on cached masks of undoable tokens, for all states of one constraint."""


class MatchReader(Protocol):
    """Knows what a match is. state: a state of the automaton of the texts without a match, after the bytes `text`,
    which must not be changed. Safe across threads."""

    def begun(self, state: State, text: bytearray) -> int:
        """How many bytes at the end of the text belong to the earliest match that has begun and can still be completed;
        0 for none."""
        ...

    def completes(self, state: State, data: bytes) -> bool:
        """Whether a token's bytes complete a match, and the first match that they complete began before them. Decided
        by the state alone. False for bytes that no text can hold there."""
        ...

    def reach(self, state: State, text: bytearray, data: bytes) -> int:
        """For bytes that complete a match: how many bytes at the end of the text belong to it, from 1 to `begun`."""
        ...


class CompiledUndoable(CompiledWrapper):
    """strict: the compiled texts without a match; its blames name the match that a token would complete."""

    def __init__(self, strict: CompiledAutomaton, reader: MatchReader) -> None:
        super().__init__(strict)
        self.strict = strict
        self.reader = reader
        self._undoable: ByteCache[State, Mask] = ByteCache(CACHE_BYTES)

    def matcher(self, *, before: str = "") -> UndoableMatcher:
        return UndoableMatcher(self, self.strict.matcher(before=before))

    def undoable(self, state: State) -> Mask:
        """See `Rewinding.undoable`; shared, read only."""
        mask = self._undoable.get(state)
        if mask is None:
            vocab, completes = self.vocab, self.reader.completes
            refused = masks.unpack(~self.strict.machine.mask(state), vocab.width)  # (V,) bool
            ids = [int(i) for i in np.flatnonzero(refused) if completes(state, vocab.bytes_of(int(i)))]
            mask = masks.from_ids(ids, vocab.width)
            mask.setflags(write=False)
            self._undoable.put(state, mask, mask.nbytes)
        return mask


class UndoableMatcher(WrappingMatcher[CompiledUndoable, AutomatonMatcher]):
    """The state of one sequence. Laws: tests/laws.py."""

    __slots__ = ("_ends", "_states", "_text")

    def __init__(self, compiled: CompiledUndoable, strict: AutomatonMatcher) -> None:
        super().__init__(compiled, strict)
        self._text = bytearray()
        self._ends: list[int] = []  # length of the text in bytes after each token but EOS
        self._states: list[State] = [compiled.strict.machine.start]  # before each token, and the current one

    def advance(self, token: int) -> None:
        super().advance(token)
        if not self.is_finished:
            state = self._compiled.strict.machine.advance(self._states[-1], token)
            self._states.append(state)
            self._text += self._vocab.bytes_of(token)
            self._ends.append(len(self._text))

    def rollback(self, count: int) -> None:
        ended = self.is_finished
        super().rollback(count)
        if count - ended > 0:
            left = len(self._ends) - (count - ended)
            del self._ends[left:], self._states[left + 1 :]
            del self._text[self._ends[-1] if self._ends else 0 :]

    def fork(self) -> Self:
        other = super().fork()
        other._text = self._text.copy()
        other._ends = self._ends.copy()
        other._states = self._states.copy()
        return other

    @property
    def unsettled(self) -> int:
        """See `Rewinding.unsettled`."""
        begun = 0 if self.is_finished else self._compiled.reader.begun(self._states[-1], self._text)
        return self._tokens_of(begun)

    def undoable(self) -> Mask:
        """See `Rewinding.undoable`."""
        if not self.unsettled:
            return masks.empty(self._compiled.vocab.width)
        return self._compiled.undoable(self._states[-1]).copy()

    def recall(self, token: int) -> Recall:
        """See `Rewinding.recall`."""
        if not self.unsettled or not masks.test(self._compiled.undoable(self._states[-1]), token):
            raise ValueError(f"token {token} is not undoable here")
        data = self._compiled.vocab.bytes_of(token)
        reach = self._compiled.reader.reach(self._states[-1], self._text, data)
        return Recall(count=self._tokens_of(reach) + 1, blame=self._inner.explain(token))

    def _tokens_of(self, size: int) -> int:
        """How many tokens hold the last `size` bytes of the text."""
        if not size:
            return 0
        return len(self._ends) - bisect_right(self._ends, len(self._text) - size)
