"""A queue and a thread before a store, so that who captures never waits for the disk."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType

from espalier.activations.store.base import ActivationStore
from espalier.activations.store.record import CapturedVectors
from espalier.errors import EspalierError, InputError, Unavailable

WHEN_FULL = ("wait", "drop")


@dataclass(frozen=True, slots=True)
class WriterCounts:
    """Counts since the writer began. failed: requests that the store refused; error: the last reason."""

    written: int
    dropped: int
    failed: int
    waiting: int
    error: str | None


class QueuedWriter:
    """Writes requests in the order in which they come. A context manager; `put` may be called from any thread.

    max_bytes: of vectors that wait; one request is taken whatever its size. when_full: `wait` holds the caller back
    until there is room, `drop` counts the request as dropped. done: called in the writer's thread with each key. The
    store is closed by its owner. Raises InputError.
    """

    def __init__(
        self,
        store: ActivationStore,
        *,
        max_bytes: int = 1 << 28,
        when_full: str = "wait",
        done: Callable[[str, CapturedVectors], None] = lambda _, __: None,
    ) -> None:
        if when_full not in WHEN_FULL:
            raise InputError(f"when_full is {when_full!r}", hint=f"one of {', '.join(WHEN_FULL)}", field="when_full")
        self._store, self._max_bytes, self._when_full, self._done = store, max_bytes, when_full, done
        self._changed = threading.Condition()
        self._queue: deque[tuple[CapturedVectors, int]] = deque()
        self._bytes = self._written = self._dropped = self._failed = 0
        self._busy = self._closed = False
        self._error: str | None = None
        self._thread = threading.Thread(target=self._run, name="espalier-activations", daemon=True)
        self._thread.start()

    def __enter__(self) -> QueuedWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def put(self, captured: CapturedVectors) -> bool:
        """Queue a request. Returns whether it was taken. Raises Unavailable once closed."""
        size = sum(vector.nbytes for vector in captured.vectors.values()) + len(captured.record.prompt)
        with self._changed:
            while not self._closed and self._queue and self._bytes + size > self._max_bytes:
                if self._when_full == "drop":
                    self._dropped += 1
                    return False
                self._changed.wait()
            if self._closed:
                raise Unavailable("the writer of activations is closed")
            self._queue.append((captured, size))
            self._bytes += size
            self._changed.notify_all()
        return True

    def flush(self) -> None:
        """Wait until everything that was put is stored or has failed."""
        with self._changed:
            while self._queue or self._busy:
                self._changed.wait()

    def close(self) -> None:
        """Store what waits, then end the thread. Idempotent."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.join()

    @property
    def counts(self) -> WriterCounts:
        with self._changed:
            waiting = len(self._queue) + self._busy
            return WriterCounts(self._written, self._dropped, self._failed, waiting, self._error)

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._queue and not self._closed:
                    self._changed.wait()
                if not self._queue:
                    return
                captured, size = self._queue.popleft()
                self._busy = True
            reason = None
            try:
                self._done(self._store.put(captured), captured)
            except (EspalierError, ValueError) as error:
                reason = str(error)
            finally:
                with self._changed:
                    self._busy = False
                    self._bytes -= size
                    self._written += reason is None
                    self._failed += reason is not None
                    self._error = reason or self._error
                    self._changed.notify_all()
