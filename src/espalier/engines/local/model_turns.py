"""Who may step the model now: one thread at a time, and within a thread one run.

The garbage collector may end a stream that nobody reads in the middle of another one's step, in the thread that has the
model: then the stream's end waits until that step is over. It knows no runs.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

logger = logging.getLogger(__name__)


class ModelTurns:
    """A lock, as a context manager. Not to be entered by a thread that holds it."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # reentrant: see `end`
        self._is_held = False
        self._ends: list[Callable[[], None]] = []

    def __enter__(self) -> None:
        self._lock.acquire()
        self._is_held = True

    def __exit__(self, *_: object) -> None:
        try:
            while self._ends:
                try:
                    self._ends.pop()()
                except Exception:  # whose turn this is has nothing to do with it
                    logger.exception("a stream that nobody read could not be closed")
        finally:
            self._is_held = False
            self._lock.release()

    def end(self, close: Callable[[], None]) -> None:
        """Call `close` in a turn of its own; after the present one, if this thread is in it. Raises what `close`
        raises."""
        with self._lock:
            if self._is_held:
                self._ends.append(close)
                return
        with self:
            close()
