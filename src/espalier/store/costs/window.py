"""A window of time that sums are read of. It knows no database."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

HOUR, DAY = 3_600, 86_400
"""Seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostWindow:
    """A window of time, and whose answers of which model. since, until: Unix seconds; both are taken as beginnings of
    hours. caller, model: None for all."""

    since: float
    until: float
    caller: str | None = None
    model: str | None = None

    @property
    def before(self) -> CostWindow:
        """The window of the same length before it."""
        return replace(self, since=self.since - (self.until - self.since), until=self.since)

    def hours(self) -> tuple[int, int]:
        """The first hour, and the one after the last."""
        return int(self.since) // HOUR * HOUR, math.ceil(self.until / HOUR) * HOUR
