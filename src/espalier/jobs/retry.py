"""When an item that failed is tried again. It knows no worker and no clock."""

from __future__ import annotations

import random
from dataclasses import dataclass

from espalier.errors import InputError

PASSING = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses that may be others the next time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    """tries: how often an item is run at most. first, most: seconds before the second try, and at most before any; the
    pause doubles each time, and is drawn from its upper half, so that items that failed together come back apart."""

    tries: int = 3
    first: float = 1.0
    most: float = 60.0

    def __post_init__(self) -> None:
        if self.tries < 1:
            raise InputError("an item is tried once at least", field="tries")
        if not 0 <= self.first <= self.most:
            raise InputError("the first pause is from 0 up to the longest", field="first")

    def after(self, status: int, attempts: int, rng: random.Random, passes: float | None = None) -> float | None:
        """Seconds until the next try, None if there is none. attempts: tries before the one that has failed now.
        passes: the least pause after an error that is known to pass, whatever its status."""
        if (status not in PASSING and passes is None) or attempts + 1 >= self.tries:
            return None
        pause = min(self.most, self.first * 2.0 ** min(attempts, 60)) * (0.5 + 0.5 * rng.random())
        return pause if passes is None else max(pause, passes * (1.0 + 0.2 * rng.random()))
