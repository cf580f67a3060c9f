"""Limits on CPU time that long work checks itself: `check()` raises when it is used up or the caller has cancelled.

`with time_limit(10): compile(...)`; every loop that a hostile input can make long calls `check()`, so the work stops at
a defined point. What counts is the CPU time of the thread that works, so that nobody's limit is used up by the work of
others. Each thread and each async task has its own limit. Without a limit, a check costs one look-up. The module knows
nothing about the work and starts no threads.

What several threads share is guarded by a `WorkLock`: while a thread holds one, its checks do not wait for its turn, so
that nobody waits for a thread that waits itself.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar

from espalier.errors import Cancelled, LimitExceeded

Clock = Callable[[], float]
Flag = Callable[[], bool]
Pace = Callable[[], None]
Spent = Callable[[float], None]
WAIT_SECONDS = 0.02
"""How often who waits for a `WorkLock` looks at its limit."""
PACE_SECONDS = 0.005
"""How often `pace` is called, at most."""


class OutOfTime(LimitExceeded):
    """The work exceeded its time limit."""


HINT = "make it smaller, or raise the limit on time"


class _Limit:
    """look: the clock that says whether there can be something to do, cheap to read: since no thread gets more CPU time
    than time passes, nothing can end before `look_at`. clock, ends: the limit itself."""

    __slots__ = ("cancelled", "clock", "ends", "look", "look_at", "message", "pace", "seconds", "spent")

    def __init__(
        self,
        look: Clock,
        clock: Clock,
        seconds: float | None,
        ends: float,
        message: str,
        cancelled: Flag | None,
        pace: Pace | None,
        spent: Spent | None,
    ) -> None:
        self.look, self.clock, self.seconds, self.ends, self.message = look, clock, seconds, ends, message
        self.cancelled, self.pace, self.spent = cancelled, pace, spent
        # A clock that was given is read once for each check.
        self.look_at = ends if look is clock and pace is None else -math.inf


_LIMIT: ContextVar[_Limit | None] = ContextVar("time_limit", default=None)


def time_limit(
    seconds: float | None,
    *,
    what: str = "compiling the constraint",
    clock: Clock | None = None,
    since: float | None = None,
    cancelled: Flag | None = None,
    pace: Pace | None = None,
    spent: Spent | None = None,
) -> AbstractContextManager[None]:
    """Limit the work inside: `check` raises OutOfTime, a LimitExceeded, once it has taken `seconds` of the CPU time of
    this thread; None sets no limit. The work must stay in this thread.

    what: names the work in the message. clock: counts instead of the CPU time. since: what the clock says now, if the
    caller knows it. cancelled: called at every check, in the thread of the work; once it returns True, `check` raises
    Cancelled. pace: called at checks, every few milliseconds; it may wait, which costs no CPU time. spent: told of CPU
    seconds that `spend` reports. Inside another limit, the earlier end counts, the `cancelled` of both, and the inner
    `pace` and `spent` if there are any.
    """
    if seconds is None and cancelled is None and pace is None and spent is None:
        return nullcontext()
    return _TimeLimit(seconds, what, clock, since, cancelled, pace, spent)


class _TimeLimit:
    """A class, since a generator would cost microseconds at each step of each text."""

    __slots__ = ("_cancelled", "_clock", "_pace", "_seconds", "_since", "_spent", "_token", "_what")

    def __init__(
        self,
        seconds: float | None,
        what: str,
        clock: Clock | None,
        since: float | None,
        cancelled: Flag | None,
        pace: Pace | None,
        spent: Spent | None,
    ) -> None:
        self._seconds, self._what, self._clock, self._since = seconds, what, clock, since
        self._cancelled, self._pace, self._spent = cancelled, pace, spent

    def __enter__(self) -> None:
        seconds, outer = self._seconds, _LIMIT.get()
        flag, pace, spent = self._cancelled, self._pace, self._spent
        if outer is not None:
            flag, pace, spent = _either(flag, outer.cancelled), pace or outer.pace, spent or outer.spent
        look, clock = (time.monotonic, time.thread_time) if self._clock is None else (self._clock, self._clock)
        ends, message = math.inf, ""
        if seconds is not None:
            ends = (clock() if self._since is None else self._since) + seconds
            message = f"{self._what} takes longer than {seconds:g} s"
        made = _Limit(look, clock, seconds, ends, message, flag, pace, spent)
        if outer is not None and (seconds is None or (outer.ends <= ends and outer.clock is clock)):
            made = _Limit(outer.look, outer.clock, outer.seconds, outer.ends, outer.message, flag, pace, spent)
        elif pace is None and seconds is not None and look is not clock:
            made.look_at = look() + seconds
        self._token = _LIMIT.set(made)

    def __exit__(self, *_: object) -> None:
        _LIMIT.reset(self._token)


def check() -> None:
    """Raises OutOfTime if the time is up, Cancelled if the caller has cancelled. Cheap enough for a loop whose
    iterations take a microsecond."""
    limit = _LIMIT.get()
    if limit is None:
        return
    if limit.cancelled is not None and limit.cancelled():
        raise Cancelled
    if limit.look() > limit.look_at:
        _look(limit)


class WorkLock:
    """A reentrant lock for work that calls `check`. Who waits for it looks at its limit meanwhile, so entering raises
    what `check` raises. is_paced: whether the holder waits for its turn at checks, for long work of one request that
    its other requests alone wait for; otherwise not until it has released every such lock."""

    __slots__ = ("_acquire", "_counts", "_release")

    def __init__(self, *, is_paced: bool = False) -> None:
        lock = threading.RLock()
        self._acquire, self._release = lock.acquire, lock.release
        self._counts = 0 if is_paced else 1

    def __enter__(self) -> None:
        if not self._acquire(False):
            while not self._acquire(timeout=WAIT_SECONDS):
                check()
        _HELD.count += self._counts

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        _HELD.count -= self._counts
        self._release()
        if _HELD.missed is not None and _HELD.count == 0:
            _HELD.missed.look_at, _HELD.missed = -math.inf, None


class _HeldLocks(threading.local):
    """missed: the limit whose `pace` was due while a lock was held; the next check without one makes up for it."""

    count = 0
    missed: _Limit | None = None


_HELD = _HeldLocks()


def _look(limit: _Limit) -> None:
    """Pace the work and raise if the time is up; otherwise set when to look again."""
    if limit.pace is not None and _HELD.count:
        _HELD.missed = limit
    elif limit.pace is not None:
        limit.pace()
        if limit.cancelled is not None and limit.cancelled():
            raise Cancelled
    left = limit.ends - limit.clock()
    if left < 0:
        raise OutOfTime(limit.message, hint=HINT)
    if limit.look is not limit.clock:
        limit.look_at = limit.look() + (left if limit.pace is None else min(left, PACE_SECONDS))


def left() -> float:
    """Seconds that the calling work may still take by the clock of its limit; infinity without one."""
    limit = _LIMIT.get()
    return math.inf if limit is None else max(0.0, limit.ends - limit.clock())


def granted() -> float | None:
    """Seconds that the limit of the calling work gave it at its start, for work like it later; None without one."""
    limit = _LIMIT.get()
    return None if limit is None else limit.seconds


def spend(seconds: float) -> None:
    """Another process has worked for so many CPU seconds for the calling work: they count against its limit."""
    limit = _LIMIT.get()
    if limit is not None:
        limit.ends -= seconds
        limit.look_at = -math.inf
        if limit.spent is not None:
            limit.spent(seconds)


def is_limited() -> bool:
    """Whether the calling work has a time limit."""
    return _LIMIT.get() is not None


def _either(flag: Flag | None, other: Flag | None) -> Flag | None:
    if flag is None or other is None:
        return flag or other
    return lambda: flag() or other()
