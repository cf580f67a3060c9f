"""What a server tells of every run, whoever asked: its rejection log. A recorder that fails ends no generation: that is
said in the log once for each way it fails, and counted.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from espalier.engines.base import Request
from espalier.errors import EspalierError
from espalier.server.process.state import Process
from espalier.trace.recorders.protocol import Recorder, RunInfo, RunRecorder
from espalier.trace.records import LEVELS, StepRecord, Trace, TraceLevel

log = logging.getLogger(__name__)
T = TypeVar("T")
CANDIDATES = 10
"""Of each stage, as far as MAX_CANDIDATES has room for them."""


class Guarded:
    """A Recorder whose faults are its own. failed: called for each."""

    def __init__(self, recorder: Recorder, *, failed: Callable[[], None]) -> None:
        self._recorder, self._failed = recorder, failed
        self._lock = threading.Lock()
        self._said: set[str] = set()

    @property
    def level(self) -> TraceLevel:
        return self._recorder.level

    def begin(self, info: RunInfo) -> RunRecorder:
        return _GuardedRun(self, self.kept(lambda: self._recorder.begin(info), info), info)

    def kept(self, do: Callable[[], T], info: RunInfo) -> T | None:
        """What it gives, None where it fails."""
        try:
            return do()
        except EspalierError as error:
            self._failed()
            with self._lock:
                is_new = error.message not in self._said
                if len(self._said) < 100:
                    self._said.add(error.message)
            if is_new:
                log.warning("not recorded: %s", error, extra={"fields": {"request_id": info.request_id}})
            return None


class _GuardedRun:
    def __init__(self, guard: Guarded, run: RunRecorder | None, info: RunInfo) -> None:
        self._guard, self._run, self._info = guard, run, info

    def step(self, record: StepRecord) -> None:
        run = self._run
        if run is not None:
            self._guard.kept(lambda: run.step(record), self._info)

    def end(self, trace: Trace | None) -> None:
        run = self._run
        if run is not None:
            self._guard.kept(lambda: run.end(trace), self._info)


def recorded(requests: Sequence[Request], process: Process, *, request_id: str) -> tuple[Request, ...]:
    """The requests with the server's recorders, and with as many candidates as these are to be told of."""
    if not process.recorders:
        return tuple(requests)
    wants_steps = any(LEVELS.index(one.level) >= LEVELS.index("steps") for one in process.recorders)
    most = max(1, process.engine.capabilities.max_context)
    tokens = sum(min(one.sampling.max_tokens, most) * one.decoding.num_return_sequences for one in requests)
    room = min(CANDIDATES, process.settings.max_candidates // max(1, tokens)) if wants_steps else 0
    return tuple(
        replace(
            one,
            recorders=(*one.recorders, *process.recorders),
            request_id=request_id,
            trace_top_k=max(one.trace_top_k, room),
        )
        for one in requests
    )
