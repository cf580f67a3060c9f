"""Turns at heavy work: one thread at a time computes, in short slices, and owners take turns.

All threads of a process share one interpreter lock with the model's steps and the event loop, so work of some tenths
of a second must not run in several threads at once, and after each slice it waits until the loop has done what waited
there and the model has gone on by a few steps, however busy the machine is. It does not know the work.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Protocol

SLICE_SECONDS = 0.02
STEPS = 2
"""Steps of the model between two slices."""
PAUSE_SECONDS = 0.3
"""The longest pause: a step that takes longer is not waited for."""
GIVE_WAY_SECONDS = 0.1
"""The longest that light work waits for one step of the model."""
ROUND_EVERY = 0.005
"""CPU time after which heavy work waits for a round of the event loop, also within its slice."""
ROUND_SECONDS = 0.1
"""The longest that work waits for the event loop. Among five threads that compute, the loop has a fifth of the time:
whoever sends a request then waits five times as long until it is read, while the model does nothing."""
POLL_SECONDS = 0.003
LOOK_SECONDS = 0.05
STUCK_SECONDS = 0.5
"""A worker gives up its turn after so long by the clock if another is waiting, even if it used little CPU: it waits for
something itself, or runs code that does not check whose turn it is."""


class Heavy(Protocol):
    """A piece of heavy work. turn: set when it is its turn. slice_began, round_began: CPU time of its thread at that
    moment, and after the latest round of the event loop. has_round: set by the event loop after `ask_round`."""

    owner: str
    turn: threading.Event
    slice_began: float
    round_began: float
    has_round: threading.Event

    @property
    def is_abandoned(self) -> bool: ...

    def ask_round(self) -> None:
        """Have `has_round` set once the event loop has done all that waits there now."""
        ...


class Turns:
    """steps: how many steps the model has made, None while it does nothing."""

    def __init__(self, steps: Callable[[], int | None] = lambda: None) -> None:
        self._steps = steps
        self._lock = threading.Lock()
        self._waiting: list[Heavy] = []
        self._holder: Heavy | None = None
        self._served: dict[str, int] = {}  # by owner: the number of its latest slice
        self._slices = 0
        self._steps_before: int | None = None
        self._looked = self._began = 0.0  # when the holder last called, and when its slice began, by the clock

    def pace(self, work: Heavy) -> None:
        """Called by heavy work now and then: returns when it is its turn, or when nobody wants it any more."""
        used = time.thread_time()
        with self._lock:
            goes_on = self._holder is work and self._goes_on(used - work.slice_began)
            if not goes_on:
                if self._holder is work:
                    self._release()
                work.turn.clear()
                self._waiting.append(work)
                self._grant()
        if goes_on:
            if used - work.round_began >= ROUND_EVERY:
                wait_for_round(work)
                work.round_began = used
            return
        while not work.turn.wait(LOOK_SECONDS):
            if work.is_abandoned:
                self.leave(work)
                return
            self._take_over()
        self._pause(work)
        self._began = time.monotonic()
        work.slice_began = work.round_began = time.thread_time()

    def _goes_on(self, used: float) -> bool:
        """Whether the holder's slice is not over. used: its CPU time. The caller holds the lock."""
        now = self._looked = time.monotonic()
        return used < SLICE_SECONDS and not (self._waiting and now - self._began > STUCK_SECONDS)

    def leave(self, work: Heavy) -> None:
        """The work has ended."""
        with self._lock:
            if work in self._waiting:
                self._waiting.remove(work)
            if self._holder is work:
                self._release()
                self._grant()

    def _take_over(self) -> None:
        with self._lock:
            if self._holder is not None and time.monotonic() - self._looked > STUCK_SECONDS:
                self._release()
                self._grant()

    def _release(self) -> None:
        self._holder, self._steps_before = None, self._steps()

    def give_way(self, work: Heavy) -> None:
        """Called by light work now and then: returns when the event loop has made a round, and the model a step if it
        does something."""
        wait_for_round(work)
        self._wait_for_step(self._steps(), 1, GIVE_WAY_SECONDS, work, lambda: None)

    def _pause(self, work: Heavy) -> None:
        """Until the event loop has made a round, and the model STEPS steps since the last slice, or does nothing."""
        wait_for_round(work)

        def look() -> None:
            self._looked = time.monotonic()

        self._wait_for_step(self._steps_before, STEPS, PAUSE_SECONDS, work, look)

    def _wait_for_step(
        self, before: int | None, count: int, seconds: float, work: Heavy, look: Callable[[], None]
    ) -> None:
        ends = time.monotonic() + seconds
        while before is not None and time.monotonic() < ends and not work.is_abandoned:
            steps = self._steps()
            if steps is None or steps >= before + count:
                return
            look()
            time.sleep(POLL_SECONDS)

    def _grant(self) -> None:
        """The owner that was served longest ago is next; its works in the order in which they began to wait."""
        if self._holder is not None or not self._waiting:
            return
        following = min(self._waiting, key=lambda task: self._served.get(task.owner, 0))
        self._waiting.remove(following)
        self._holder, self._looked = following, time.monotonic()
        self._slices += 1
        self._served[following.owner] = self._slices
        if len(self._served) > 1000:
            waits = {task.owner for task in self._waiting}
            self._served = {owner: at for owner, at in self._served.items() if owner in waits}
        following.turn.set()


def wait_for_round(work: Heavy) -> None:
    """Until the event loop has done all that waits there now."""
    work.has_round.clear()
    work.ask_round()
    work.has_round.wait(ROUND_SECONDS)
