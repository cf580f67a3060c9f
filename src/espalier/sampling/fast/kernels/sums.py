"""Kernels that add up weights, `exp` of logits: over a row, up to a share of it, by bucket, and over allowed tokens.

Sums are float64, but added in another order than NumPy's and with an own `exp`; a decision that hangs on the last
digits is detected by the caller and left to the plain functions.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from espalier.kernels.compiled import F32, FLOAT, U32, kernel
from espalier.sampling.fast.kernels.exponential import RUN, added, divide, spread_of, weights

# compiled with: 59e7950e

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings


@kernel()
def find_mass(row: Array, heat: Any, top: float, uniform: float) -> tuple[int, float, float, float, float]:
    """Find the index at which the share `uniform` of the mass of exp(row / heat - top) is reached. row (n,), heat:
    float32.

    Returns the index, its weight, the sum of all weights, the sum before it and the sum up to it.
    """
    heated = np.empty(RUN, dtype=np.float32)
    out = np.empty(RUN, dtype=np.float64)
    runs = (row.shape[0] + RUN - 1) // RUN
    sums = np.empty(runs, dtype=np.float64)
    total = 0.0
    for run in range(runs):
        part = row[run * RUN : (run + 1) * RUN]
        if heat != np.float32(1.0):
            part = divide(part, heat, heated)
        weights(part, top, out)
        sums[run] = added(out[: part.shape[0]])
        total += sums[run]
    target = uniform * total
    run, before = 0, 0.0
    while run < runs - 1 and before + sums[run] <= target:
        before += sums[run]
        run += 1
    part = row[run * RUN : (run + 1) * RUN]
    if heat != np.float32(1.0):
        part = divide(part, heat, heated)
    weights(part, top, out)
    i = 0
    while i < part.shape[0] - 1 and before + out[i] <= target:
        before += out[i]
        i += 1
    return run * RUN + i, out[i], total, before, before + out[i]


@kernel()
def mass_by_bucket(row: Array, top: float, scale: float, masses: Array) -> float:
    """Add the weights exp(row - top) of row (n,) float32 to masses (m,) float64, at index `(top - logit) * scale`
    rounded down; the last bucket takes all that is lower. Returns the sum."""
    last = np.float64(masses.shape[0] - 1)
    out = np.empty(RUN, dtype=np.float64)
    buckets = np.empty(RUN, dtype=np.int64)
    total = 0.0
    for start in range(0, row.shape[0], RUN):
        part = row[start : start + RUN]
        count = part.shape[0]
        weights(part, top, out)
        total += added(out[:count])
        for i in range(count):
            down = (top - np.float64(part[i])) * scale
            buckets[i] = np.int64(down if down < last else last)  # noqa: FURB136
        for i in range(count):
            masses[buckets[i]] += out[i]
    return total


@kernel()
def keep(words: Array, out: Array) -> bool:
    """Set the weights in out (RUN,) float64 of tokens that words (n,) uint32 forbid to 0; returns whether any is
    allowed."""
    some = False
    for word in range(words.shape[0]):
        bits = words[word]
        some |= bits != 0
        for j in range(32):
            i = word * 32 + j
            out[i] = out[i] if (bits >> np.uint32(j)) & np.uint32(1) else 0.0
    return some


@kernel((F32, U32, FLOAT))
def sum_row(row: Array, words: Array, top: float) -> tuple[float, float, float, float]:
    """With w = exp(row - top): the sums of w and of w * (row - top), and both over the allowed tokens alone; a token
    at infinite distance from the top has no weight. row (V,) float32; words (W,) uint32, a mask, (0,) for none."""
    out = np.empty(RUN, dtype=np.float64)
    total, spread, inside, inside_spread = 0.0, 0.0, 0.0, 0.0
    for start in range(0, row.shape[0], RUN):
        part = row[start : start + RUN]
        count = part.shape[0]
        weights(part, top, out)
        total += added(out[:count])
        spread += spread_of(part, top, out)
        if words.shape[0] and keep(words[start >> 5 : (start + count + 31) >> 5], out):
            inside += added(out[:count])
            inside_spread += spread_of(part, top, out)
    return total, spread, inside, inside_spread


@kernel()
def share_of(row: Array, words: Array, heat: Any, top: float) -> float:
    """The share of the tokens of words (W,) uint32 in the sum of exp(row / heat - top) over row (V,) float32; -1 where
    float64 cannot hold it."""
    out, heated = np.empty(RUN, dtype=np.float64), np.empty(RUN, dtype=np.float32)
    total, inside = 0.0, 0.0
    for start in range(0, row.shape[0], RUN):
        part = row[start : start + RUN]
        count = part.shape[0]
        weights(divide(part, heat, heated), top, out)
        total += added(out[:count])
        if keep(words[start >> 5 : (start + count + 31) >> 5], out):
            inside += added(out[:count])
    return inside / total if inside > 1e-200 else -1.0
