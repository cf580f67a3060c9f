"""What an in-process engine is built from: the tokenizer, the native sampler, and whoever drives its runs."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Protocol

from espalier.decoding.native import NativeSampler
from espalier.decoding.plan import Outcome, Taken
from espalier.engines.local.prepared import Prepared
from espalier.sampling.config import SamplingConfig
from espalier.sampling.fit import Fitted


class Encode(Protocol):
    """Prompt text to ids. add_special: add what the tokenizer adds by default (BOS); special tokens that the text
    spells become their ids."""

    def __call__(self, text: str, *, add_special: bool) -> list[int]: ...


class MakeNative(Protocol):
    """Makes the engine's own sampler for one sequence. grammar: GBNF with the start rule `root`. Raises
    CapabilityError."""

    def __call__(self, config: SamplingConfig, fitted: Fitted, *, seed: int, grammar: str | None) -> NativeSampler: ...


class RunDriver(Protocol):
    """Has an engine's model to itself, and drives the runs that the engine starts by itself too."""

    def drive(self, runs: Sequence[Prepared]) -> Generator[tuple[int, Taken | Outcome], None, None]:
        """As `decoding.drive`: yields (index of the run, what happened). Closing the generator stops all runs."""
        ...

    def close(self) -> None:
        """Stop every run and release the engine. Idempotent."""
        ...
