"""Turns at heavy work: one thread at a time computes, in short slices, and owners take turns.

All threads of a process share one interpreter lock with the model's steps, so work of some tenths of a second must not
run in several threads at once, and pauses while the model generates. It does not know the work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

SLICE_SECONDS = 0.02
LOOK_SECONDS = 0.05


class Heavy(Protocol):
    """A piece of heavy work. turn: set when it is its turn. slice_began: CPU time of its thread at that moment."""

    owner: str
    turn: threading.Event
    slice_began: float

    @property
    def is_abandoned(self) -> bool: ...


class Turns:
    """busy: whether the model is generating; between two slices it then gets as much time as a slice takes."""

    def __init__(self, busy: Callable[[], bool] = lambda: False) -> None:
        self._busy = busy
        self._lock = threading.Lock()
        self._waiting: list[Heavy] = []
        self._holder: Heavy | None = None
        self._served: dict[str, int] = {}  # by owner: the number of its latest slice
        self._slices = 0
        self._free_from = 0.0

    def pace(self, work: Heavy) -> None:
        """Called by heavy work now and then: returns when it is its turn, or when nobody wants it any more."""
        with self._lock:
            if self._holder is work:
                if time.thread_time() - work.slice_began < SLICE_SECONDS:
                    return
                self._release()
            work.turn.clear()
            self._waiting.append(work)
            self._grant()
        while not work.turn.wait(LOOK_SECONDS):
            if work.is_abandoned:
                self.leave(work)
                return
        pause = self._free_from - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        work.slice_began = time.thread_time()

    def leave(self, work: Heavy) -> None:
        """The work has ended."""
        with self._lock:
            if work in self._waiting:
                self._waiting.remove(work)
            if self._holder is work:
                self._release()
                self._grant()

    def _release(self) -> None:
        self._holder = None
        self._free_from = time.monotonic() + (SLICE_SECONDS if self._busy() else 0.0)

    def _grant(self) -> None:
        """The owner that was served longest ago is next; its works in the order in which they began to wait."""
        if self._holder is not None or not self._waiting:
            return
        following = min(self._waiting, key=lambda one: self._served.get(one.owner, 0))
        self._waiting.remove(following)
        self._holder = following
        self._slices += 1
        self._served[following.owner] = self._slices
        if len(self._served) > 1000:
            waits = {one.owner for one in self._waiting}
            self._served = {owner: at for owner, at in self._served.items() if owner in waits}
        following.turn.set()
