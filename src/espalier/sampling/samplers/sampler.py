"""`Sampler`: everything about one sampler in one value, namely its fields, its transform and its names elsewhere.

The values are in the module of their function; `registry.py` puts them in order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from espalier.sampling.fields import Field
from espalier.sampling.samplers.context import TransformContext
from espalier.tokens.mask import Logits

Transform: TypeAlias = Callable[[Logits, TransformContext], Logits]
"""Pure, `(V,) float32` in and out; a removed token is -inf, and an input of -inf stays -inf."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampler:
    """name: in `SamplingConfig.sampler_order`. fields: those of `SamplingConfig` that belong to this sampler alone; the
    first one that has an `off` value is the one that errors name (`switch`). truncates: whether it removes tokens;
    mirostat and faithful sampling then want it off. draws: whether it looks at `TransformContext.chance`. on_if: given
    the config, whether the sampler runs, where this is not "a field is away from its `off` value". llama: its name in
    llama.cpp's `samplers`; None if llama.cpp has no such sampler.
    """

    name: str
    transform: Transform
    fields: tuple[Field, ...]
    truncates: bool = False
    draws: bool = False
    on_if: Callable[[Any], bool] | None = None
    llama: str | None = None

    def is_on(self, config: Any) -> bool:
        """config: a SamplingConfig."""
        if self.on_if is not None:
            return self.on_if(config)
        return any(one.off is not None and getattr(config, one.name) != one.off for one in self.fields)

    @property
    def switch(self) -> Field:
        """The field that switches the sampler on."""
        return next(one for one in self.fields if one.off is not None)
