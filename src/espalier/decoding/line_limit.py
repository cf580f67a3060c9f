"""Ends a text at the first new line after so much time, as editors ask for: what they show is whole lines.

It knows no tokens and no model.
"""

from __future__ import annotations

import time
from collections.abc import Callable

NEW_LINE = b"\n"


class LineLimit:
    """The limit of one generation, whose time begins with its first token. seconds: above 0. clock: returns seconds."""

    __slots__ = ("_began", "_clock", "_seconds")

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._seconds = seconds
        self._clock = clock
        self._began: float | None = None

    def is_over(self, data: bytes) -> bool:
        """Whether the text ends with these bytes of a token that was just taken: they hold a new line, and more time
        has passed than `seconds`."""
        now = self._clock()
        if self._began is None:
            self._began = now
        return NEW_LINE in data and now - self._began > self._seconds
