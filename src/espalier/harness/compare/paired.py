"""The difference of two runs in one figure, pair by pair, with its bootstrap interval; a sign only where it is shown.

A pair is one iteration of one case in both runs: the same prompt, seed and random stream. The interval speaks of these
cases: pairs are drawn with replacement. A percentile bootstrap of few pairs is too narrow (three equal differences give
an interval of no width), so a sign also needs a sign-flip test, whose level is exact for any number of pairs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from espalier.errors import InputError
from espalier.harness.qa.intervals import LEVEL, bootstrap
from espalier.json_record import JsonRecord

EXACT_PAIRS = 14
"""Up to so many pairs that differ, every way to flip their signs is counted."""
FLIPS = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference(JsonRecord):
    """metric: what is compared. first, second: the means of the runs over the pairs. mean: second - first. low, high:
    the 95 % interval of the mean. chance: how often flipped signs give a mean as far from 0. sign: 1 or -1 where the
    interval and the test both exclude 0, else 0: not decided. pairs: their number; without any, the figures are None.
    tested: whether pairs are independent enough for a sign.
    """

    metric: str
    pairs: int
    first: float | None = None
    second: float | None = None
    mean: float | None = None
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    sign: int = 0
    tested: bool = True


def paired(
    metric: str, first: Sequence[float], second: Sequence[float], *, seed: int = 0, tested: bool = True
) -> Difference:
    """The difference of two figures that belong together place by place. tested: False states no
    sign. Raises InputError if they do not."""
    if len(first) != len(second):
        raise InputError(f"{metric}: {len(first)} and {len(second)} figures are no pairs", field=metric)
    if not first:
        return Difference(metric=metric, pairs=0)
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    interval = bootstrap((b - a).tolist(), seed=seed)
    assert interval.mean is not None
    assert interval.low is not None
    assert interval.high is not None
    chance = sign_flip(b - a, seed=seed)
    shown = tested and chance <= 1 - LEVEL + 1e-12 and (interval.low > 0 or interval.high < 0)
    return Difference(
        metric=metric,
        pairs=len(a),
        first=float(a.mean()),
        second=float(b.mean()),
        mean=interval.mean,
        low=interval.low,
        high=interval.high,
        chance=chance,
        sign=(1 if interval.mean > 0 else -1) if shown else 0,
        tested=tested,
    )


def sign_flip(differences: np.ndarray, *, seed: int = 0) -> float:
    """differences: (N,) float64. How often the sum is as far from 0 when each sign is flipped by a coin: Fisher's
    permutation test for pairs, two-sided."""
    nonzero = differences[differences != 0]
    if not len(nonzero):
        return 1.0
    least = abs(nonzero.sum()) * (1 - 1e-9)
    if len(nonzero) <= EXACT_PAIRS:
        ways = np.arange(1 << len(nonzero))[:, None] >> np.arange(len(nonzero)) & 1  # (2^N, N)
        return float((np.abs((2 * ways - 1) @ nonzero) >= least).mean())
    signs = np.random.default_rng(seed).integers(0, 2, size=(FLIPS, len(nonzero)), dtype=np.int8) * 2 - 1
    return float(((np.abs(signs @ nonzero) >= least).sum() + 1) / (FLIPS + 1))
