"""`Recorder`: the protocol of objects that receive a run's steps while it happens.

Order of calls: `begin`, then any number of `step`, then `end` exactly once, whatever happens. All calls of one run come
from one thread; several runs may call from several threads at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from espalier.trace.records import StepRecord, Trace, TraceLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """request_id: the caller's name for the request, "" without one. output: the index of the output, from 0."""

    request_id: str
    model: str
    strategy: str
    output: int = 0
    seed: int | None = None


class RunRecorder(Protocol):
    """Receives one run."""

    def step(self, record: StepRecord) -> None:
        """A token was taken for good. Raises OutputError if it cannot be written."""
        ...

    def end(self, trace: Trace | None) -> None:
        """The run is over. trace: None if it was stopped, failed, or no trace was requested."""
        ...


@runtime_checkable
class Recorder(Protocol):
    """Receives runs, any number at once."""

    @property
    def level(self) -> TraceLevel:
        """How much of a step the recorder requires at least, whatever the request's own level."""
        ...

    def begin(self, info: RunInfo) -> RunRecorder:
        """A run begins. Raises OutputError."""
        ...
