"""Writes generation logs in a thread of its own, so that no answer waits for the database or fails with it.

Rows are made in that thread too. What could not be written is told, each kind of failure once. It knows neither
engines nor settings.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from espalier.errors import EspalierError

if TYPE_CHECKING:
    from espalier.store.open import Store

MOST_WAITING = 1_000
CLOSE_SECONDS = 15.0
"""How long the end of a program waits for rows that are not written yet."""

log = logging.getLogger(__name__)


class LogWriter:
    """Takes functions that make rows, and stores the rows in order. No method raises.

    open_store: opens the store at the first row. with_content: whether rows have prompts and texts. tell: gets what
    could not be written, in words. tells_all: every time, for a process that runs long. closes: whether the store is
    closed at the end.
    """

    def __init__(
        self,
        open_store: Callable[[], Store],
        *,
        with_content: bool,
        tell: Callable[[str], object] = log.warning,
        most_waiting: int = MOST_WAITING,
        tells_all: bool = False,
        closes: bool = True,
    ) -> None:
        self.with_content = with_content
        self.tell = tell
        self._open = open_store
        self._waiting: queue.Queue[Callable[[], Mapping[str, Any]] | None] = queue.Queue(most_waiting)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._tells_all, self._closes = tells_all, closes
        self._told: set[str] = set()
        self._lost = 0
        self._is_closed = False

    def put(self, make: Callable[[], Mapping[str, Any]]) -> None:
        """Have a row made and stored. It is dropped, and that is told, if too many wait already."""
        with self._lock:
            if self._is_closed:
                self._fail("the log is closed")
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="espalier-log", daemon=True)
                self._thread.start()
                atexit.register(self.close)
        try:
            self._waiting.put_nowait(make)
        except queue.Full:
            self._fail(f"{self._waiting.maxsize} rows wait to be written")

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Wait for the rows that were put, for so long at most, and tell how many were not written. Idempotent."""
        with self._lock:
            if self._is_closed or self._thread is None:
                self._is_closed = True
                return
            self._is_closed = True
        atexit.unregister(self.close)
        until = time.monotonic() + seconds
        with contextlib.suppress(queue.Full):  # told below: the thread is still there
            self._waiting.put(None, timeout=seconds)
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._thread.is_alive():
            self._fail(f"the database took longer than {seconds:g} s")
        if self._lost > 1:
            self.tell(f"{self._lost} generations were not logged")

    def _run(self) -> None:
        store: Store | None = None
        while (make := self._waiting.get()) is not None:
            try:
                if store is None:
                    store = self._open()
                store.save_generation(make())
            except EspalierError as error:
                self._fail(error.message)
            except Exception as error:  # noqa: BLE001  # whatever it is, it must not end the thread unsaid
                self._fail(f"{type(error).__name__}: {error}")
        if store is not None and self._closes:
            store.close()

    def _fail(self, why: str) -> None:
        self._lost += 1
        if self._tells_all or why not in self._told:
            self._told.add(why)
            self.tell(f"not logged: {why}")
