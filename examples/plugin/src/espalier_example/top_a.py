"""The sampler `top_a`: keeps the tokens whose probability is at least `top_a` times the square of the largest one."""

from __future__ import annotations

import numpy as np

from espalier.sampling.fields import Number
from espalier.sampling.samplers.context import TransformContext
from espalier.sampling.samplers.sampler import Sampler
from espalier.tokens.mask import Logits


def top_a(logits: Logits, value: float) -> Logits:
    """`(V,) float32` in and out; removed tokens are -inf. The most probable one stays, as `value` is at most 1."""
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))  # (V,) float64, the best is 1
    largest = 1.0 / weights.sum()
    return np.where(weights >= value * largest, logits, np.float32(-np.inf))


def transform(logits: Logits, context: TransformContext) -> Logits:
    return top_a(logits, context.config.top_a)


TOP_A = Sampler(
    name="top_a",
    transform=transform,
    fields=(Number(name="top_a", default=0.0, off=0.0, high=1.0, hint="0 is off"),),
    truncates=True,
)
