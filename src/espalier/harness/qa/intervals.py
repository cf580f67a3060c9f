"""The mean of a metric with its bootstrap interval."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

LEVEL = 0.95
MOST_KINDS = 64


@dataclass(frozen=True, slots=True)
class Mean:
    """mean: over `count` rows. low, high: the interval in which 95 % of the resampled means lie; None without rows."""

    mean: float | None
    low: float | None
    high: float | None
    count: int


def bootstrap(values: Sequence[float], *, resamples: int = 2000, seed: int = 0) -> Mean:
    """The percentile bootstrap (Efron and Tibshirani 1993, chapter 13): rows are drawn with replacement."""
    rows = np.asarray(values, dtype=np.float64)
    if not len(rows):
        return Mean(None, None, None, 0)
    kinds, counts = np.unique(rows, return_counts=True)
    if len(kinds) <= MOST_KINDS:  # metrics of 0 and 1: counts of each value are drawn at once
        drawn = np.random.default_rng(seed).multinomial(len(rows), counts / len(rows), size=resamples)
        means = drawn @ kinds / len(rows)
    else:
        chance = np.random.default_rng(seed)
        means = np.array([rows[chance.integers(len(rows), size=len(rows))].mean() for _ in range(resamples)])
    low, high = np.quantile(means, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Mean(float(rows.mean()), float(low), float(high), len(rows))
