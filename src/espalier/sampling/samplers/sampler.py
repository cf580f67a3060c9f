"""`Sampler`: the declaration of one sampler, namely its config fields, its transform and its name in llama.cpp.

Each value stands beside its function; `registry.py` puts them in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from espalier.sampling.fields import SamplingField
from espalier.sampling.samplers.context import TransformContext
from espalier.tokens.mask import Logits

Transform: TypeAlias = Callable[[Logits, TransformContext], Logits]
"""Pure, `(V,) float32` in and out; a removed token is -inf, and an input of -inf stays -inf."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """name: as in `SamplingConfig.sampler_order`. fields: the config fields that belong to this sampler alone.
    truncates: whether it removes tokens; mirostat and faithful sampling require such samplers to be off. draws: whether
    it reads `TransformContext.chance`. on_if: given the config, whether the sampler runs; by default it runs if a field
    differs from its `off` value. llama: its name in llama.cpp's `samplers`; None if llama.cpp has no such sampler."""

    name: str
    transform: Transform
    fields: tuple[SamplingField, ...]
    truncates: bool = False
    draws: bool = False
    on_if: Callable[[Any], bool] | None = None
    llama: str | None = None
    #: Its letter in llama.cpp's `--sampler-seq`.
    letter: str = ""

    def is_on(self, config: Any) -> bool:
        """config: a SamplingConfig."""
        if self.on_if is not None:
            return self.on_if(config)
        return any(field.off is not None and getattr(config, field.name) != field.off for field in self.fields)

    @property
    def switch(self) -> SamplingField:
        """The field that switches the sampler on, and that errors name: the first one with an `off` value."""
        return next(field for field in self.fields if field.off is not None)
