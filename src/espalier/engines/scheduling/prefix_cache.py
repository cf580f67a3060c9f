"""Prefix cache: keeps ended sequences of a StepModel so that a later prompt with the same start is not computed again.

It knows no requests: the scheduler asks it for room and hands over ended sequences. For one thread.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from espalier.decoding.ports import SequenceId, StepModel, Watch, WatchedModel, opened
from espalier.errors import CapabilityError

KEPT_SEQUENCES = 16
KEPT_TOKENS = 1 << 14


@dataclass(slots=True, eq=False)
class HeldSequence:
    """A sequence of the model, and the tokens that it holds."""

    sequence: SequenceId
    tokens: list[int]


class SequencePool:
    """The open sequences of a model. count: how many; tokens: what they hold, shared tokens counted every time; whoever
    appends to a sequence counts it."""

    def __init__(self, model: StepModel) -> None:
        self.model = model
        self._watched = model if isinstance(model, WatchedModel) else None  # a look at all of its methods
        self.count = 0
        self.tokens = 0

    def new(self, watch: Watch | None = None) -> HeldSequence:
        """watch: gets its hidden states. Raises LimitExceeded."""
        held = HeldSequence(opened(self.model, watch), [])
        self.count += 1
        return held

    def fork(self, held: HeldSequence) -> HeldSequence:
        """Raises LimitExceeded."""
        fork = HeldSequence(self.model.fork(held.sequence), held.tokens.copy())
        self.count += 1
        self.tokens += len(fork.tokens)
        return fork

    def unwatch(self, held: HeldSequence) -> None:
        """From now on nobody gets its hidden states."""
        if self._watched is not None:
            self._watched.watch(held.sequence, None)

    def truncate(self, held: HeldSequence, length: int) -> None:
        """Raises ValueError, CapabilityError."""
        self.model.truncate(held.sequence, length)
        self.tokens -= len(held.tokens) - length
        del held.tokens[length:]

    def free(self, held: HeldSequence) -> None:
        self.count -= 1
        self.tokens -= len(held.tokens)
        self.model.free(held.sequence)


@dataclass(slots=True, eq=False)
class _KeptSequence:
    held: HeldSequence
    ids: NDArray[np.int64]  # (T,): the same tokens, for comparing
    owner: str


class PrefixCache:
    """Ended sequences, least recently used first: at most `max_tokens` in `max_sequences`; 0 of either turns it off.

    Kept sequences never block others: whoever needs room calls `drop` until there is enough. A sequence serves only its
    own owner, since cached token counts and saved time would tell others what that owner wrote.
    """

    def __init__(self, sequences: SequencePool, *, max_tokens: int, max_sequences: int = KEPT_SEQUENCES) -> None:
        self._sequences = sequences
        self._max_tokens, self._max_sequences = max_tokens, max_sequences
        self._kept: list[_KeptSequence] = []
        self.tokens = 0

    @property
    def count(self) -> int:
        return len(self._kept)

    @property
    def is_on(self) -> bool:
        return self._max_tokens > 0 and self._max_sequences > 0

    def keep(self, held: HeldSequence, *, owner: str = "") -> None:
        """Take over an ended sequence: it is kept, or freed."""
        self._sequences.unwatch(held)
        fits = 0 < len(held.tokens) <= self._max_tokens and self._max_sequences > 0
        if not fits:
            self._sequences.free(held)
            return
        new = _KeptSequence(held, as_ids(held.tokens), owner)
        for old in [cached for cached in self._kept if cached.owner == owner]:
            shared = common(old.ids, new.ids)
            if shared == len(new.ids):  # a kept sequence holds all of it, and was just used
                self._kept.remove(old)
                self._kept.append(old)
                self._sequences.free(held)
                return
            if shared == len(old.ids):
                self._remove(old)
                self._sequences.free(old.held)
        while self._kept and (self.count >= self._max_sequences or self.tokens + len(held.tokens) > self._max_tokens):
            self.drop()
        self._kept.append(new)
        self.tokens += len(held.tokens)

    def find(self, ids: NDArray[np.int64], *, owner: str = "") -> tuple[HeldSequence, int] | None:
        """The owner's kept sequence that shares the longest prefix with a prompt's `(T,)` ids, and how many tokens a
        new sequence can take from it: never all, since the last token's logits are needed."""
        best = self._best(ids, owner)
        return None if best is None else (best[0].held, best[1])

    def fork(self, held: HeldSequence, length: int) -> HeldSequence:
        """A new sequence with the first `length` tokens of another. Raises LimitExceeded, CapabilityError."""
        for cached in self._kept:
            if cached.held is held:
                self._kept.remove(cached)
                self._kept.append(cached)
                break
        fork = self._sequences.fork(held)
        self._sequences.unwatch(fork)
        return self._cut(fork, length)

    def take(self, held: HeldSequence, length: int) -> HeldSequence | None:
        """The first `length` tokens of a kept sequence, which leaves the cache. None if it cannot be cut there."""
        cached = next(cached for cached in self._kept if cached.held is held)
        self._remove(cached)
        try:
            return self._cut(held, length)
        except CapabilityError:
            return None

    def drop(self, *, but: HeldSequence | None = None) -> bool:
        """Free the least recently used sequence other than `but`. False if there is none."""
        for cached in self._kept:
            if cached.held is not but:
                self._remove(cached)
                self._sequences.free(cached.held)
                return True
        return False

    def clear(self) -> None:
        while self.drop():
            pass

    def _best(self, ids: NDArray[np.int64], owner: str) -> tuple[_KeptSequence, int] | None:
        best: tuple[_KeptSequence, int] | None = None
        can_cut = self._sequences.model.can_truncate if self._kept else True
        for cached in reversed(self._kept):
            if cached.owner != owner:
                continue
            shared = min(common(cached.ids, ids), len(ids) - 1)
            if shared > (0 if best is None else best[1]) and (can_cut or shared == len(cached.ids)):
                best = cached, shared
        return best

    def _cut(self, held: HeldSequence, length: int) -> HeldSequence:
        try:
            if len(held.tokens) != length:
                self._sequences.truncate(held, length)
        except CapabilityError:  # a cache that cannot be cut at this position
            self._sequences.free(held)
            raise
        return held

    def _remove(self, cached: _KeptSequence) -> None:
        self._kept.remove(cached)
        self.tokens -= len(cached.held.tokens)


def as_ids(tokens: Sequence[int]) -> NDArray[np.int64]:
    """Tokens as an array `(T,)`."""
    return np.asarray(tokens, dtype=np.int64)


def common(ids: NDArray[np.int64], other: NDArray[np.int64]) -> int:
    """The length of the shared prefix of two sequences `(T,)` and `(T',)`, in tokens."""
    length = min(len(ids), len(other))
    if not length or ids[0] != other[0]:
        return 0
    differ = ids[:length] != other[:length]  # (length,) bool
    first = int(differ.argmax())
    return first if differ[first] else length
