"""The protocol of in-process engines, for code that drives the model itself: the scheduler, replays."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol, runtime_checkable

from espalier.decoding.plan import Outcome, SampledToken
from espalier.decoding.ports import StepModel
from espalier.engines.base import Request
from espalier.engines.local.prepared_run import PreparedRun
from espalier.engines.local.run_maker import RunMaker
from espalier.engines.protocols import Engine
from espalier.tokens.vocab import Vocab


class RunDriver(Protocol):
    """Has an engine's model to itself, and also drives the runs that the engine starts."""

    def drive(self, runs: Sequence[PreparedRun]) -> Generator[tuple[int, SampledToken | Outcome], None, None]:
        """Like `scheduling.drive`: yields (index of the run, what happened). Closing the generator stops all runs."""
        ...

    def close(self) -> None:
        """Stop every run and release the engine. Idempotent."""
        ...


@runtime_checkable
class StepEngine(Engine, Protocol):
    """An Engine whose model runs in this process, so that a scheduler or a replay can drive it pass by pass."""

    @property
    def vocab(self) -> Vocab: ...

    @property
    def model(self) -> StepModel:
        """The StepModel. Raises InputError once the engine is closed."""
        ...

    @property
    def runs(self) -> RunMaker:
        """Prepares runs from turns and prompt ids, for callers that have no Request to render."""
        ...

    def prepare(self, request: Request) -> PreparedRun:
        """Check, render, encode and compile: everything that can fail before the model is needed. From any thread.
        Raises InputError and its subclasses."""
        ...

    def serve_with(self, driver: RunDriver | None) -> None:
        """Give the model to `driver` alone: `run` goes through it from now on. None ends that. Raises InputError if
        there is a driver already, or a run has begun."""
        ...
