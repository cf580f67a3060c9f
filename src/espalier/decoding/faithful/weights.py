"""Arithmetic of importance weights as natural logarithms: sums, effective sample size, resampling.

A weight of 0 is `-inf`. All functions are pure and take lists of floats. The module knows no texts, and not where
weights and random numbers come from.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from itertools import accumulate

NOTHING = -math.inf
"""The logarithm of a weight of 0."""


def log_sum(values: Sequence[float]) -> float:
    """ln of the sum of exp of the values; -inf of nothing."""
    top = max(values, default=NOTHING)
    if top == NOTHING:
        return NOTHING
    return top + math.log(math.fsum(math.exp(value - top) for value in values))


def log_mean(values: Sequence[float]) -> float:
    """ln of the mean of exp of the values. For the particles' final weights it estimates ln of the target's mass on the
    language; the mean itself is unbiased."""
    return log_sum(values) - math.log(len(values)) if values else NOTHING


def effective_size(log_weights: Sequence[float]) -> float:
    """`(sum of w)**2 / sum of w**2`, in particles (Kong 1992; Liu and Chen 1995); 0 where all weights are 0."""
    top = max(log_weights, default=NOTHING)
    if top == NOTHING:
        return 0.0
    scaled = [math.exp(value - top) for value in log_weights]  # exactly n for n equal ones
    return math.fsum(scaled) ** 2 / math.fsum(weight * weight for weight in scaled)


def drawn(log_weights: Sequence[float], uniform: float) -> int:
    """The index that a number in [0, 1) selects, in proportion to the weights. Raises ValueError where all are 0."""
    return _places(log_weights, [uniform])[0]


def systematic(log_weights: Sequence[float], uniform: float) -> list[int]:
    """For each of the n places, the index of its parent: systematic resampling (Kitagawa 1996). A weight w gets floor
    or ceil of n w / (sum of w) copies, and n w / (sum of w) in the mean over `uniform`, a number in [0, 1): unbiased. A
    parent with a copy keeps one at its own place. Raises ValueError where all weights are 0."""
    count = len(log_weights)
    copies = [0] * count
    for place in _places(log_weights, [(k + uniform) / count for k in range(count)]):
        copies[place] += 1
    more = iter([place for place, number in enumerate(copies) for _ in range(number - 1)])
    return [place if number else next(more) for place, number in enumerate(copies)]


def _places(log_weights: Sequence[float], uniforms: Sequence[float]) -> list[int]:
    top = max(log_weights, default=NOTHING)
    if top == NOTHING:
        raise ValueError("all weights are 0")
    sums = list(accumulate(math.exp(value - top) for value in log_weights))
    last = max(place for place, value in enumerate(log_weights) if math.exp(value - top) > 0.0)
    # `bisect_right` passes over weights of 0; rounding must not lead past the last positive weight.
    return [min(bisect_right(sums, uniform * sums[-1]), last) for uniform in uniforms]
