"""Writes rows in a thread of its own, so that no answer waits for the database or fails with it.

Rows are made in that thread too. The queue is bounded: what finds it full is dropped. What could not be written is
told, each kind of failure once. It knows neither engines nor settings.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import queue
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from typing import Any, Generic, NamedTuple, TypeVar

from espalier.errors import EspalierError, Overloaded

MOST_WAITING = 1_000
CLOSE_SECONDS = 15.0
"""How long the end of a program waits for rows that are not written yet."""
SLOW_SECONDS = 1.0
"""A row that takes longer to write makes the writer slow: nobody should wait for it."""

log = logging.getLogger(__name__)
S = TypeVar("S", bound=Any)
"""A store."""


class RowTask(NamedTuple):
    make: Callable[[], Mapping[str, Any]]
    written: Future[str]


class RowWriter(Generic[S]):
    """Takes functions that make rows, and stores the rows in order. No method raises.

    open_store: opens the store at the first row. save: writes a row to it and returns its id. what: the rows, in words.
    tell: gets what could not be written, in words. tells_all: every time, for a process that runs long. closes: whether
    the store is closed at the end. dropped: called for each row that is not written. charge: gets the caller of each
    row and the CPU seconds that it took.
    """

    def __init__(
        self,
        open_store: Callable[[], S],
        save: Callable[[S, Mapping[str, Any]], str],
        *,
        what: str,
        tell: Callable[[str], object] = log.warning,
        most_waiting: int = MOST_WAITING,
        tells_all: bool = False,
        closes: bool = True,
        dropped: Callable[[], object] = lambda: None,
        charge: Callable[[str, float], object] = lambda caller, seconds: None,
    ) -> None:
        self.tell = tell
        self._open, self._save, self._what = open_store, save, what
        self._waiting: queue.Queue[RowTask | None] = queue.Queue(most_waiting)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._tells_all, self._closes = tells_all, closes
        self._told: set[str] = set()
        self._lost = 0
        self._is_closed = False
        self._dropped, self._charge = dropped, charge
        self._began: float | None = None

    @property
    def is_slow(self) -> bool:
        """Whether a row is being written for more than SLOW_SECONDS, as to a locked database."""
        began = self._began
        return began is not None and time.monotonic() - began > SLOW_SECONDS

    @property
    def waiting(self) -> int:
        """How many rows wait to be written."""
        return self._waiting.qsize()

    def put(self, make: Callable[[], Mapping[str, Any]]) -> Future[str]:
        """Have a row made and stored: the id, once the database has it. The row is dropped, and that is told, if too
        many wait already."""
        written: Future[str] = Future()
        with self._lock:
            if self._is_closed:
                self._fail("the log is closed", written)
                return written
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name=f"espalier-{self._what}", daemon=True)
                self._thread.start()
                atexit.register(self.close)
            try:  # before the lock is free: after the end that `close` puts, nobody reads it
                self._waiting.put_nowait(RowTask(make, written))
            except queue.Full:
                self._fail(f"{self._waiting.maxsize} rows wait to be written", written)
        return written

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
            self.tell(f"{self._lost} {self._what} were not logged")

    def _run(self) -> None:
        store: S | None = None
        while (task := self._waiting.get()) is not None:
            self._began = time.monotonic()
            try:
                if store is None:
                    store = self._open()
                task.written.set_result(self._write(store, task.make))
            except EspalierError as error:
                self._fail(error.message, task.written)
            except Exception as error:  # noqa: BLE001  # whatever it is, it must not end the thread unsaid
                self._fail(f"{type(error).__name__}: {error}", task.written)
            finally:
                self._began = None
            del task  # what it holds may be large, and the next one may be long in coming
        if store is not None and self._closes:
            store.close()

    def _write(self, store: S, make: Callable[[], Mapping[str, Any]]) -> str:
        began, row = time.thread_time(), make()
        try:
            return self._save(store, row)
        finally:
            self._charge(row.get("caller", ""), time.thread_time() - began)

    def _fail(self, why: str, written: Future[str] | None = None) -> None:
        self._lost += 1
        self._dropped()
        if self._tells_all or why not in self._told:
            self._told.add(why)
            self.tell(f"not logged: {why}")
        if written is not None:
            written.set_exception(Overloaded(why))


class LogWriter(RowWriter[Any]):
    """Writes generation logs. with_content: whether rows have prompts and texts."""

    def __init__(self, open_store: Callable[[], Any], *, with_content: bool, **options: Any) -> None:
        super().__init__(open_store, lambda store, row: store.save_generation(row), what="generations", **options)
        self.with_content = with_content


class TraceWriter(RowWriter[Any]):
    """Writes traces: a row has the arguments of `save_trace`."""

    def __init__(self, open_store: Callable[[], Any], **options: Any) -> None:
        super().__init__(open_store, lambda store, row: store.save_trace(**row), what="traces", **options)
