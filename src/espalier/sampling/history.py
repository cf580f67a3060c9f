"""Token ids of a sequence with the counts that penalties need, updated token by token. It knows no logits.

Adding and undoing a token take constant time; `count_window` defines the counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from espalier.sampling.samplers.context import count_window

ROOM = 256  # initial capacity; doubled when full


class History:
    """Token ids of one sequence, prompt first, and the counts of the last `window` ids (-1: of all).

    tokens: `(n,) int64`, the distinct ids in the window, in no order. line: `(T,) int64`, all ids. Both are views that
    the next change invalidates.
    """

    __slots__ = ("_ids", "_line", "_said", "_seen", "_slots", "_tokens", "_window", "prompt_length")

    def __init__(self, window: int) -> None:
        self._window = window
        self._clear([])

    def _clear(self, ids: list[int]) -> None:
        self._ids = ids
        self.prompt_length = len(ids)
        self._line = np.empty(max(ROOM, 2 * len(ids)), dtype=np.int64)  # (room,)
        self._line[: len(ids)] = ids
        self._slots: dict[int, int] = {}  # id -> its index in the three arrays below
        self._tokens = np.empty(ROOM, dtype=np.int64)  # (room,)
        self._seen = np.zeros(ROOM, dtype=np.int64)  # (room,)
        self._said = np.zeros(ROOM, dtype=np.int64)  # (room,)

    @property
    def ids(self) -> Sequence[int]:
        """All ids. The next change invalidates this view."""
        return self._ids

    @property
    def generated(self) -> int:
        """How many ids, at the end, were generated."""
        return len(self._ids) - self.prompt_length

    @property
    def tokens(self) -> NDArray[np.int64]:
        return self._tokens[: len(self._slots)]

    def counts(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """`tokens`, and how often each was generated in the window, `(n,) int64` each: views as `tokens`."""
        size = len(self._slots)
        return self._tokens[:size], self._said[:size]

    @property
    def line(self) -> NDArray[np.int64]:
        return self._line[: len(self._ids)]

    @property
    def seen(self) -> Mapping[int, int]:
        """How often each id occurs in the window, without zeros. Built at each call."""
        return {token: int(self._seen[slot]) for token, slot in self._slots.items()}

    @property
    def produced(self) -> Mapping[int, int]:
        """How often each id was generated within the window. Built at each call."""
        return {token: int(self._said[slot]) for token, slot in self._slots.items() if self._said[slot]}

    def start(self, prompt: Sequence[int]) -> None:
        """Forget everything and start with a prompt."""
        self._clear(list(prompt))
        seen, _ = count_window(self._ids, 0, self._window)
        self._slots = {token: slot for slot, token in enumerate(seen)}
        while len(seen) > self._tokens.shape[0]:
            self._widen()
        self._tokens[: len(seen)] = list(seen)
        self._seen[: len(seen)] = list(seen.values())

    def push(self, token: int) -> None:
        """Add a generated token."""
        index = len(self._ids)
        if index == self._line.shape[0]:
            self._line = np.concatenate([self._line, self._line])
        self._line[index] = token
        self._ids.append(token)
        if self._window:
            self._count(index, 1)
            if 0 < self._window <= index:
                self._count(index - self._window, -1)

    def pop(self, count: int) -> None:
        """Undo the last `count` generated tokens. Raises ValueError if there were fewer."""
        if not 0 <= count <= self.generated:
            raise ValueError(f"cannot undo {count} of {self.generated} tokens")
        for _ in range(count):
            index = len(self._ids) - 1
            if self._window:
                if 0 < self._window <= index:
                    self._count(index - self._window, 1)
                self._count(index, -1)
            self._ids.pop()

    def fork(self) -> History:
        copy = History(self._window)
        copy._ids, copy.prompt_length = self._ids.copy(), self.prompt_length
        copy._line, copy._slots = self._line.copy(), self._slots.copy()
        copy._tokens, copy._seen, copy._said = self._tokens.copy(), self._seen.copy(), self._said.copy()
        return copy

    def _count(self, index: int, change: int) -> None:
        token = self._ids[index]
        slot = self._slots.get(token)
        if slot is None:
            slot = self._slots[token] = len(self._slots)
            if slot == self._tokens.shape[0]:
                self._widen()
            self._tokens[slot], self._seen[slot], self._said[slot] = token, 0, 0
        self._seen[slot] += change
        if index >= self.prompt_length:
            self._said[slot] += change
        if not self._seen[slot]:
            self._drop(token, slot)

    def _drop(self, token: int, slot: int) -> None:
        """Free a slot: the last entry moves into it."""
        last = len(self._slots) - 1
        moved = int(self._tokens[last])
        self._tokens[slot], self._seen[slot], self._said[slot] = moved, self._seen[last], self._said[last]
        self._slots[moved] = slot
        del self._slots[token]

    def _widen(self) -> None:
        self._tokens = np.concatenate([self._tokens, self._tokens])
        self._seen = np.concatenate([self._seen, np.zeros_like(self._seen)])
        self._said = np.concatenate([self._said, np.zeros_like(self._said)])
