"""How often and how many at once: the port to what counts, the arithmetic, and counters within one process.

Several workers of a host count together, in the store. This module knows no keys, no HTTP and no clock.
"""

from __future__ import annotations

import threading
from typing import Protocol

from espalier.store.rates import after, wait_for

LEASE_SECONDS = 60.0
"""How long a slot is held without being renewed: after that long a killed worker's slots are free again."""


class Counters(Protocol):
    """Counts what keys do. Every method may block, and is called from any thread. now: Unix time."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes see it. Then it blocks, and slots have to be renewed."""
        ...

    def take(self, key: str, limit: int, now: float, count: int = 1) -> float:
        """Take `count` of `limit` requests a minute. Seconds until there are as many: 0.0 where they were taken,
        otherwise nothing was. `count` is at most `limit`."""
        ...

    def enter(self, key: str, limit: int, holder: str, now: float, count: int = 1) -> bool:
        """Take `count` of `limit` slots for a holder, whose name is used once. False where there are fewer free."""
        ...

    def renew(self, holders: list[str], now: float) -> None:
        """Their slots are held for another lease."""
        ...

    def leave(self, holder: str) -> None:
        """Give a holder's slots back. Idempotent."""
        ...

    def close(self) -> None: ...


class LocalCounters:
    """Within one process, whose end frees everything."""

    is_shared = False

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._full_at: dict[str, float] = {}
        self._slots: dict[str, tuple[str, int]] = {}  # holder -> key, count

    def take(self, key: str, limit: int, now: float, count: int = 1) -> float:
        with self._lock:
            full_at = self._full_at.get(key, now)
            if wait := wait_for(full_at, limit, now, count):
                return wait
            self._full_at[key] = after(full_at, limit, now, count)
            return 0.0

    def enter(self, key: str, limit: int, holder: str, now: float, count: int = 1) -> bool:
        with self._lock:
            taken = sum(held for name, held in self._slots.values() if name == key)
            if taken + count > limit:
                return False
            self._slots[holder] = (key, count)
            return True

    def renew(self, holders: list[str], now: float) -> None:
        """They have no lease here."""

    def leave(self, holder: str) -> None:
        with self._lock:
            self._slots.pop(holder, None)

    def close(self) -> None:
        """There is nothing."""
