"""Temperature, fixed and dynamic: pure functions from `(V,) float32` logits to `(V,) float32` logits.

An input of -inf stays -inf. Semantics are llama.cpp's (`llama_sampler_init_temp_ext` in `src/llama-sampler.cpp`).
"""

from __future__ import annotations

import math
import sys

import numpy as np

from espalier.sampling.fields import Number
from espalier.sampling.samplers.context import TransformContext
from espalier.sampling.samplers.sampler import Sampler
from espalier.sampling.samplers.truncations import NEG_INF
from espalier.tokens.mask import LARGEST, Logits

LOWEST = -LARGEST
SMALL, LARGE = 1e-3, 1e30  # outside this range the division is done in float64


def temperature(logits: Logits, value: float) -> Logits:
    """Divide by `value`; 0 keeps only the most probable token (ties: lowest id). Finite logits stay finite."""
    if value == 0.0:
        out = np.full_like(logits, NEG_INF)
        best = int(np.argmax(logits))  # the first of equals
        out[best] = logits[best]
        return out
    if value == 1.0:
        return logits
    if SMALL <= value <= LARGE:
        try:
            with np.errstate(over="raise"):
                return logits / np.float32(value)
        except FloatingPointError:
            if is_dividable(logits.max(), np.float32(value)):
                return np.where(logits > NEG_INF, divided(logits, np.float32(value)), NEG_INF)
            value = float(np.float32(value))  # as if the caller had given a float32
    # A tiny divisor would overflow float32, a huge one is infinite there. Shift the best logit to 0 first, which
    # changes no probability. Values below float32's range stay finite: such tokens are improbable, not banned.
    with np.errstate(over="ignore"):
        scaled = (logits.astype(np.float64) - float(logits.max())) / value  # (V,) float64
    return np.where(logits > NEG_INF, np.maximum(scaled, LOWEST), NEG_INF).astype(np.float32)


def is_dividable(best: np.float32, value: np.float32) -> bool:
    """Whether the best logit stays within float32's range when divided, so that no shift is needed."""
    with np.errstate(over="ignore"):
        return bool(abs(best / value) < LARGEST)


def divided(logits: Logits, value: np.float32) -> Logits:
    """Divide `(n,) float32` without -inf; values below float32's range are clipped."""
    with np.errstate(over="ignore"):
        return np.asarray(np.maximum(logits / value, np.float32(LOWEST)))


def dynamic_temperature(logits: Logits, value: float, spread: float, exponent: float) -> Logits:
    """`temperature` with a value from `value - spread` (at least 0) to `value + spread`: the lower the entropy, the
    lower the temperature.

    The position in that range is (entropy / largest possible entropy) ** exponent, over the candidates. A single
    candidate is left as it is. A spread of 0 is plain `temperature`. (llama.cpp's temp_ext.)
    """
    if spread <= 0.0:
        return temperature(logits, value)
    values = logits[logits > NEG_INF].astype(np.float64)  # (n,) float64
    if values.size <= 1:
        return logits
    values -= values.max()
    weights = np.exp(values)
    total = float(weights.sum())
    entropy = max(0.0, math.log(total) - float((weights * np.maximum(values, -746.0)).sum()) / total)
    position = min(1.0, entropy / math.log(values.size)) ** exponent
    low, high = max(0.0, value - spread), min(value + spread, sys.float_info.max)
    return temperature(logits, low + (high - low) * position)


def _transform(logits: Logits, context: TransformContext) -> Logits:
    config = context.config
    if config.dynatemp_range:
        return dynamic_temperature(logits, config.temperature, config.dynatemp_range, config.dynatemp_exponent)
    return temperature(logits, config.temperature)


TEMPERATURE = Sampler(
    name="temperature",
    llama="temperature",
    letter="t",
    transform=_transform,
    fields=(
        Number(
            name="temperature",
            default=0.7,
            off=1.0,
            hint="0 is greedy",
            llama="temperature",
            openai="temperature",
            help="0 takes the most probable token (ties: the lowest id); larger values draw more evenly.",
            common=1,
        ),
        Number(
            name="dynatemp_range",
            default=0.0,
            off=0.0,
            hint="0 is off",
            llama="dynatemp_range",
            help="The temperature varies by up to this with the entropy; 0 is off.",
        ),
        Number(
            name="dynatemp_exponent",
            default=1.0,
            llama="dynatemp_exponent",
            help="How the entropy moves the temperature within `dynatemp_range`.",
        ),
    ),
)
