"""Arithmetic of a token bucket that refills evenly and holds the requests of one minute. It has no state and no clock.

A bucket is one number: when it will be full again, in Unix seconds.
"""

from __future__ import annotations

MINUTE = 60.0
_ROUNDING = 1e-6  # seconds; rounding of floats must not make a caller wait


def after(full_at: float, limit: int, now: float, count: int) -> float:
    """When the bucket is full again after `count` were taken. limit: requests per minute.

    A bucket never lacks more than a minute's requests; if the clock was set back, it counts as empty.
    """
    return min(max(full_at, now), now + MINUTE) + count * MINUTE / limit


def wait_for(full_at: float, limit: int, now: float, count: int) -> float:
    """Seconds until the bucket holds `count`, 0.0 if it does now. `count` is at most `limit`."""
    short = after(full_at, limit, now, count) - (now + MINUTE)
    return short if short > _ROUNDING else 0.0
