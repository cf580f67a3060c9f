"""A Recorder whose failures end no generation: each is counted, and each kind is logged once."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from espalier.errors import EspalierError
from espalier.trace.recorders.protocol import Recorder, RunInfo, RunRecorder
from espalier.trace.records import StepRecord, Trace, TraceLevel

log = logging.getLogger(__name__)
T = TypeVar("T")
MOST_KINDS = 100
"""How many kinds of failure are remembered as logged."""


class GuardedRecorder:
    """Wraps a Recorder. failed: called for each failure."""

    def __init__(self, recorder: Recorder, *, failed: Callable[[], None]) -> None:
        self._recorder, self._failed = recorder, failed
        self._lock = threading.Lock()
        self._logged: set[str] = set()

    @property
    def level(self) -> TraceLevel:
        return self._recorder.level

    def begin(self, info: RunInfo) -> RunRecorder:
        return _GuardedRun(self, self.kept(lambda: self._recorder.begin(info), info), info)

    def kept(self, do: Callable[[], T], info: RunInfo) -> T | None:
        """The result of `do`, None if it fails."""
        try:
            return do()
        except EspalierError as error:
            self._failed()
            with self._lock:
                is_new = error.message not in self._logged
                if len(self._logged) < MOST_KINDS:
                    self._logged.add(error.message)
            if is_new:
                log.warning("not recorded: %s", error, extra={"fields": {"request_id": info.request_id}})
            return None


class _GuardedRun:
    def __init__(self, guard: GuardedRecorder, run: RunRecorder | None, info: RunInfo) -> None:
        self._guard, self._run, self._info = guard, run, info

    def step(self, record: StepRecord) -> None:
        run = self._run
        if run is not None:
            self._guard.kept(lambda: run.step(record), self._info)

    def end(self, trace: Trace | None) -> None:
        run = self._run
        if run is not None:
            self._guard.kept(lambda: run.end(trace), self._info)
