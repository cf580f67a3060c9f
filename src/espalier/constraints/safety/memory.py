"""What the machine of a safety filter remembers: combinations of the parts' states, and the states known last."""

from __future__ import annotations

from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

FIRST_NUMBERS, MAX_NUMBERS = 2**13, 2**17
"""How many combinations of the parts' states are remembered at first, and at most."""

ASCII = 128
Known = TypeVar("Known")


class Recent(Generic[Known]):
    """What was made last, each with a sign of what follows each byte, `(width,) int64`."""

    def __init__(self, size: int, width: int = 256) -> None:
        self._signs = np.empty((size, width), dtype=np.int64)
        self._known: list[Known] = []
        self._next = 0

    def nearest(self, sign: NDArray[np.int64], weights: NDArray[np.float64]) -> Known | None:
        """The known one after which bytes of the least total weight lead elsewhere; None if nothing is known."""
        if not self._known:
            return None
        far = (self._signs[: len(self._known)] != sign) @ weights  # (n,)
        return self._known[int(far.argmin())]

    def add(self, sign: NDArray[np.int64], known: Known) -> None:
        self._signs[self._next] = sign
        self._known[self._next : self._next + 1] = [known]
        self._next = (self._next + 1) % len(self._signs)


class CombinationNumbers:
    """The numbers that the kernels give to combinations of the parts' states; see `kernels.py`."""

    def __init__(self, parts: int, letters: int) -> None:
        self._shape = (parts, letters)
        self._size = FIRST_NUMBERS // 2
        self.forget()

    def forget(self) -> None:
        """Forget all but the start, and have twice the room up to the limit."""
        self._size = min(2 * self._size, MAX_NUMBERS)
        parts, letters = self._shape
        self.arrays = (
            np.zeros((self._size, parts), dtype=np.int32),
            np.full((self._size, letters), -1, dtype=np.int32),
            np.full(self._size, -1, dtype=np.int32),
            np.zeros(self._size, dtype=np.uint8),
            np.full(4 * self._size, -1, dtype=np.int32),
            np.zeros(1, dtype=np.int64),
        )
