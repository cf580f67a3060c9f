"""Hidden states of requests on their way to the server's store: a queue with a limit, a quota, an age."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from espalier.activations.store.base import ActivationStore
from espalier.activations.store.care import prune
from espalier.activations.store.record import CapturedVectors
from espalier.activations.store.writer import QueuedWriter, WriterCounts
from espalier.engines.base import Result
from espalier.server.settings import ServerSettings

log = logging.getLogger(__name__)
PRUNE_EVERY = 64
"""Requests between two looks at the quota and the age."""
DAY = 86_400.0


class HiddenStates:
    """Opens the store of the settings, or at `path`, and writes to it from a thread. Raises InputError and OutputError
    where that is not possible."""

    def __init__(
        self, settings: ServerSettings, *, path: Path | None = None, now: Callable[[], float] = time.time
    ) -> None:
        self._settings, self._now = settings, now
        self._store = ActivationStore(path or settings.activations_store or "", write=True)
        self._count = 0
        self._prune()
        self._writer = QueuedWriter(
            self._store,
            max_bytes=settings.activations_queue_bytes,
            when_full=settings.activations_when_full,
            done=self._finish_request,
        )

    @property
    def counts(self) -> WriterCounts:
        """Requests written, dropped, failed and waiting."""
        return self._writer.counts

    def put(self, result: Result, *, request_id: str, trace_id: str | None) -> None:
        """Queue the hidden states of a result and its further texts. Waits for room, or drops them, as the settings
        say. From any thread."""
        for output in (result, *result.others):
            if output.activations is None:
                continue
            record = replace(output.activations.record, request_id=request_id, trace_id=trace_id)
            if not self._writer.put(replace(output.activations, record=record)):
                log.warning("hidden states dropped: the queue is full", extra={"fields": {"request_id": request_id}})

    def flush(self) -> None:
        """Wait until everything is written."""
        self._writer.flush()

    def close(self) -> None:
        """Write what waits, then close the store."""
        self._writer.close()
        counts = self._writer.counts
        if counts.failed:
            log.error("hidden states of %d requests could not be stored: %s", counts.failed, counts.error)
        self._store.close()

    def _finish_request(self, key: str, captured: CapturedVectors) -> None:
        self._count += 1
        if self._count % PRUNE_EVERY == 0:
            self._prune()

    def _prune(self) -> None:
        settings = self._settings
        before = None if settings.activations_days is None else self._now() - settings.activations_days * DAY
        if before is not None or settings.activations_max_bytes is not None:
            prune(self._store, before=before, max_bytes=settings.activations_max_bytes)
