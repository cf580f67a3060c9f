"""What took too long a moment ago, so that it is refused before it makes everybody wait once more.

It knows neither constraints nor plans, and it is not thread-safe.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

COSTLY_SECONDS = 60.0  # not for ever: a step may also have been slow because the machine was
MOST_COSTLY = 256


class Costly:
    """Keys, each for so many seconds of the caller's clock; of more than `most` the oldest goes."""

    def __init__(self, *, seconds: float = COSTLY_SECONDS, most: int = MOST_COSTLY) -> None:
        self._seconds, self._most = seconds, most
        self._ends: OrderedDict[Hashable, float] = OrderedDict()

    def add(self, key: Hashable, now: float) -> None:
        self._ends[key] = now + self._seconds
        self._ends.move_to_end(key)
        while len(self._ends) > self._most:
            self._ends.popitem(last=False)

    def has(self, key: Hashable, now: float) -> bool:
        ends = self._ends.get(key)
        if ends is not None and now >= ends:
            del self._ends[key]
            return False
        return ends is not None
