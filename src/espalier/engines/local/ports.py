"""What an engine passes to LocalEngine beside its model: the tokenizer, and its own sampler if it has one."""

from __future__ import annotations

from typing import Protocol

from espalier.decoding.native import NativeSampler
from espalier.sampling.config import SamplingConfig
from espalier.sampling.fit import FittedConfig


class EncodePrompt(Protocol):
    """Prompt text to token ids. add_special: add what the tokenizer adds by default (BOS). Special tokens spelled in
    the text become their ids."""

    def __call__(self, text: str, *, add_special: bool) -> list[int]: ...


class MakeNative(Protocol):
    """Makes the engine's own sampler for one sequence. grammar: GBNF with the start rule `root`. Raises
    CapabilityError."""

    def __call__(
        self, config: SamplingConfig, fitted: FittedConfig, *, seed: int, grammar: str | None
    ) -> NativeSampler: ...
