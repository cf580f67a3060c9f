"""Time limits that long work checks itself: `check()` raises when the time is up or the caller has cancelled.

`with time_limit(10): compile(...)`; every loop that a hostile input can make long calls `check()`, so the work stops at
a defined point. Each thread and each async task has its own limit. Without a limit, a check costs one look-up. The
module knows nothing about the work and starts no threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from espalier.errors import Cancelled, LimitExceeded

Clock = Callable[[], float]
Flag = Callable[[], bool]


class OutOfTime(LimitExceeded):
    """The work exceeded its time limit."""


class _Limit:
    __slots__ = ("cancelled", "clock", "ends", "message")

    def __init__(self, clock: Clock, ends: float, message: str, cancelled: Flag | None) -> None:
        self.clock, self.ends, self.message, self.cancelled = clock, ends, message, cancelled


_LIMIT: ContextVar[_Limit | None] = ContextVar("time_limit", default=None)


@contextmanager
def time_limit(
    seconds: float | None,
    *,
    what: str = "compiling the constraint",
    clock: Clock = time.monotonic,
    cancelled: Flag | None = None,
) -> Iterator[None]:
    """Limit the work inside: `check` raises OutOfTime, a LimitExceeded, once it has taken `seconds`; None sets no
    limit.

    what: names the work in the message. cancelled: called at every check, in the thread of the work; once it returns
    True, `check` raises Cancelled. Inside another limit, the earlier end counts, and the `cancelled` of both.
    """
    if seconds is None and cancelled is None:
        yield
        return
    outer = _LIMIT.get()
    flag = _either(cancelled, None if outer is None else outer.cancelled)
    ends, message = (
        (math.inf, "") if seconds is None else (clock() + seconds, f"{what} takes longer than {seconds:g} s")
    )
    made = _Limit(clock, ends, message, flag)
    if outer is not None and (seconds is None or (outer.ends <= ends and outer.clock is clock)):
        made.clock, made.ends, made.message = outer.clock, outer.ends, outer.message
    token = _LIMIT.set(made)
    try:
        yield
    finally:
        _LIMIT.reset(token)


def check() -> None:
    """Raises OutOfTime if the time is up, Cancelled if the caller has cancelled. Cheap enough for a loop whose
    iterations take a microsecond."""
    limit = _LIMIT.get()
    if limit is None:
        return
    if limit.cancelled is not None and limit.cancelled():
        raise Cancelled
    if limit.clock() > limit.ends:
        raise OutOfTime(limit.message, hint="make it smaller, or raise the limit on time")


def is_limited() -> bool:
    """Whether the calling work has a time limit."""
    return _LIMIT.get() is not None


def _either(one: Flag | None, other: Flag | None) -> Flag | None:
    if one is None or other is None:
        return one or other
    return lambda: one() or other()
