"""Remembers which constraints were too slow a moment ago, so that they are refused before they slow everybody again.

It knows no constraints and no plans, and it is not thread-safe.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Hashable

COSTLY_SECONDS = 60.0  # they expire: the step may have been slow because the machine was busy
MOST_COSTLY = 256


class CostlyKeys:
    """Keys that expire after `seconds` of the caller's clock. Beyond `most` keys the oldest goes."""

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
