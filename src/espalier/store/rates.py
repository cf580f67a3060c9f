"""The arithmetic of a token bucket that fills evenly and holds one minute's worth. No state, no clock.

A bucket is one number: when it will be full again, in Unix seconds. That time, taken from now, is what is missing.
"""

from __future__ import annotations

MINUTE = 60.0
_ROUNDING = 1e-6  # seconds; sums of floats must not make a caller wait for nothing


def after(full_at: float, limit: int, now: float, count: int) -> float:
    """The bucket once `count` were taken from it. limit: how many a minute.

    More than a minute's worth cannot be missing, unless the clock was set back: then the bucket is empty, not worse.
    """
    return min(max(full_at, now), now + MINUTE) + count * MINUTE / limit


def wait_for(full_at: float, limit: int, now: float, count: int) -> float:
    """Seconds until `count` are in it, 0.0 where they are now. `count` is at most `limit`."""
    short = after(full_at, limit, now, count) - (now + MINUTE)
    return short if short > _ROUNDING else 0.0
