"""Counts requests per minute and concurrent requests: the protocol `Counters`, and counters within one process.

Several workers of a host count in the store instead (`store/counters.py`). It knows no keys, no HTTP and no clock.
"""

from __future__ import annotations

import threading
from typing import Protocol

from espalier.store.rates import after, wait_for

LEASE_SECONDS = 60.0
"""How long a slot is held without being renewed: the slots of a killed worker are free after that."""


class Counters(Protocol):
    """Rate and slot counters by key. Every method may block, and may be called from any thread. now: Unix seconds."""

    @property
    def is_shared(self) -> bool:
        """Whether other processes count along. Then methods block, and slots must be renewed."""
        ...

    def take(self, key: str, limit: int, now: float, count: int = 1) -> float:
        """Take `count` of `limit` requests a minute. Returns 0.0 if they were taken; otherwise takes nothing and
        returns the seconds until they are available. `count` is at most `limit`."""
        ...

    def enter(self, key: str, limit: int, holder: str, now: float, count: int = 1) -> bool:
        """Take `count` of `limit` slots for a holder, whose name is unique. Returns False if fewer are free."""
        ...

    def renew(self, holders: list[str], now: float) -> None:
        """Hold the slots of these holders for another lease."""
        ...

    def leave(self, holder: str) -> None:
        """Give a holder's slots back. Idempotent."""
        ...

    def close(self) -> None: ...


class LocalCounters:
    """Counters within one process."""

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
        """Nothing to do: slots have no lease here."""

    def leave(self, holder: str) -> None:
        with self._lock:
            self._slots.pop(holder, None)

    def close(self) -> None:
        """Nothing to close."""
