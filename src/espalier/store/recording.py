"""A recorder that keeps finished traces in a store. It knows nothing of what runs."""

from __future__ import annotations

import threading
from collections import deque

from espalier.errors import EspalierError, InputError, OutputError
from espalier.store.open import Store
from espalier.trace.recorders.protocol import RunInfo, RunRecorder
from espalier.trace.records import LEVELS, StepRecord, Trace, TraceLevel

IDS = 1000


class StoreRecorder:
    """A Recorder: every run that ends with a trace is kept, whose level the request says. One that asks for none, or is
    stopped, is not.

    caller, route: under which they are found again. level: how much of a step is asked for at least. ids: of the last
    traces, the newest at the end. Raises OutputError where a trace cannot be kept.
    """

    def __init__(
        self, store: Store, *, caller: str = "local", route: str | None = None, level: TraceLevel = "summary"
    ) -> None:
        if level not in LEVELS:
            raise InputError(f"unknown trace level {level!r}", hint=", ".join(LEVELS), field="level")
        self._store, self._caller, self._route, self._level = store, caller, route, level
        self._lock = threading.Lock()
        self._ids: deque[str] = deque(maxlen=IDS)

    @property
    def level(self) -> TraceLevel:
        return self._level

    @property
    def ids(self) -> tuple[str, ...]:
        with self._lock:
            return tuple(self._ids)

    def begin(self, info: RunInfo) -> RunRecorder:
        return _StoredRun(self, info)

    def keep(self, trace: Trace, info: RunInfo) -> None:
        """Raises OutputError."""
        try:
            found = self._store.save_trace(
                trace.to_json(), request_id=info.request_id, caller=self._caller, index=info.output, route=self._route
            )
        except OutputError:
            raise
        except EspalierError as error:  # a database that is away
            raise OutputError(f"the trace is not kept: {error.message}", hint=error.hint) from error
        with self._lock:
            self._ids.append(found)


class _StoredRun:
    def __init__(self, recorder: StoreRecorder, info: RunInfo) -> None:
        self._recorder, self._info = recorder, info

    def step(self, record: StepRecord) -> None:
        """The trace has it at the end."""

    def end(self, trace: Trace | None) -> None:
        if trace is not None:
            self._recorder.keep(trace, self._info)
