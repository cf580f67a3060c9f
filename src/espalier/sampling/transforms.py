"""The truncations and temperature: pure functions from `(V,) float32` logits to `(V,) float32` logits.

A removed token is -inf; an input of -inf stays -inf. Semantics are llama.cpp's (`src/llama-sampler.cpp`), except that
ties at the edge of top-k go to the lowest id. They know nothing about constraints or about who calls them.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from espalier.sampling.config import SamplingConfig
from espalier.tokens.mask import Logits

NEG_INF = np.float32(-np.inf)
LOWEST = float(np.finfo(np.float32).min)
SMALL, LARGE = 1e-3, 1e30  # temperatures outside are divided in float64


def temperature(logits: Logits, value: float) -> Logits:
    """Divide by `value`; 0 keeps only the most probable token (ties: lowest id)."""
    if value == 0.0:
        out = np.full_like(logits, NEG_INF)
        best = int(np.argmax(logits))  # the first of equals
        out[best] = logits[best]
        return out
    if value == 1.0:
        return logits
    if SMALL <= value <= LARGE:
        return logits / np.float32(value)
    # A tiny divisor would overflow float32, a huge one is infinite there. The best goes to 0 first, which changes no
    # probability, and what falls below float32's range stays finite: it is improbable, not banned.
    with np.errstate(over="ignore"):
        scaled = (logits.astype(np.float64) - float(logits.max())) / value  # (V,) float64
    return np.where(logits > NEG_INF, np.maximum(scaled, LOWEST), NEG_INF).astype(np.float32)


def top_k(logits: Logits, k: int) -> Logits:
    """Keep exactly the k most probable (ties: lowest ids). 0 keeps all."""
    kept = int(np.count_nonzero(logits > NEG_INF))
    if k == 0 or k >= kept:
        return logits
    edge = np.partition(logits, logits.shape[0] - k)[logits.shape[0] - k]  # the k-th largest
    keep = logits > edge  # (V,) bool, fewer than k
    ties = np.flatnonzero(logits == edge)[: k - int(np.count_nonzero(keep))]
    keep[ties] = True
    return np.where(keep, logits, NEG_INF)


def top_p(logits: Logits, p: float) -> Logits:
    """Keep the most probable tokens until their mass reaches p, the crossing one included. 1 keeps all."""
    if p >= 1.0:
        return logits
    ids = np.flatnonzero(logits > NEG_INF)  # (n,)
    order = ids[np.argsort(-logits[ids], kind="stable")]  # (n,) most probable first, ties by id
    mass = np.cumsum(_softmax(logits[order]))  # (n,) float64
    cut = int(np.searchsorted(mass, p, side="left")) + 1  # the first index at which mass >= p, included
    out = np.full_like(logits, NEG_INF)
    out[order[:cut]] = logits[order[:cut]]
    return out


def min_p(logits: Logits, p: float) -> Logits:
    """Keep the tokens at least p times as probable as the best one. 0 keeps all."""
    if p <= 0.0:
        return logits
    edge = np.float32(logits.max() + np.float32(math.log(p)))
    return np.where(logits >= edge, logits, NEG_INF)


def _softmax(logits: NDArray[np.float32]) -> NDArray[np.float64]:
    weights = np.exp(logits.astype(np.float64) - float(logits.max()))  # (n,) float64
    return np.asarray(weights / weights.sum())


TRANSFORMS: dict[str, Callable[[Logits, SamplingConfig], Logits]] = {
    "top_k": lambda logits, config: top_k(logits, config.top_k),
    "top_p": lambda logits, config: top_p(logits, config.top_p),
    "min_p": lambda logits, config: min_p(logits, config.min_p),
    "temperature": lambda logits, config: temperature(logits, config.temperature),
}
"""Name in `SamplingConfig.order` -> transform. To add a sampler: a pure function, a field, a line here."""
