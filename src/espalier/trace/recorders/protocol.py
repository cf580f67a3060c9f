"""What is told of a run while it happens: the protocol. Recorders write it down; nothing here knows how or where.

Order of calls: `begin`, then `step`*, then `end` once, whatever happens. All of one run come from one thread, those of
several runs from several at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from espalier.trace.records import StepRecord, Trace, TraceLevel


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """request_id: what its caller calls it, "" where it has no name. output: which of its outputs this is, from 0."""

    request_id: str
    model: str
    strategy: str
    output: int = 0
    seed: int | None = None


class RunRecorder(Protocol):
    """Told of one run."""

    def step(self, record: StepRecord) -> None:
        """A token was taken for good. Raises OutputError where it cannot be written."""
        ...

    def end(self, trace: Trace | None) -> None:
        """The run is over: its trace, or None where it was stopped, failed, or no trace was asked for."""
        ...


@runtime_checkable
class Recorder(Protocol):
    """Told of runs, of any number at once."""

    @property
    def level(self) -> TraceLevel:
        """How much of a step it needs at least, whatever the request's own level."""
        ...

    def begin(self, info: RunInfo) -> RunRecorder:
        """A run begins. Raises OutputError."""
        ...
