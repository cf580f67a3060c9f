"""Counts the CPU time that is spent for each key, in a bucket that empties evenly; it says how long a key must wait.

CPU time is known only once it is spent, so a key that has used up its share is refused with its next request, and what
runs goes on within its own limits. It knows no HTTP and no work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

MINUTE = 60.0


class CpuAccounts:
    """limit_of: CPU seconds a minute that may be spent for a name; None for no limit. now: seconds, of any clock.
    Thread-safe."""

    def __init__(self, limit_of: Callable[[str], float | None], *, now: Callable[[], float] = time.monotonic) -> None:
        self._limit_of, self._now = limit_of, now
        self._lock = threading.Lock()
        self._owed: dict[str, tuple[float, float]] = {}  # by name: CPU seconds owed, and when that was

    def charge(self, name: str, seconds: float) -> None:
        """CPU seconds were spent for a name."""
        limit = self._limit_of(name)
        if limit is None or seconds <= 0:
            return
        with self._lock:
            now = self._now()
            self._owed[name] = (self._at(name, limit, now) + seconds, now)

    def wait(self, name: str) -> float:
        """Seconds until the name owes less than a minute's share, 0.0 if it does now."""
        limit = self._limit_of(name)
        if limit is None:
            return 0.0
        with self._lock:
            over = self._at(name, limit, self._now()) - limit
        return over * MINUTE / limit if over > 0 else 0.0

    def _at(self, name: str, limit: float, now: float) -> float:
        owed, since = self._owed.get(name, (0.0, now))
        return max(0.0, owed - (now - since) * limit / MINUTE)
