"""Importance weights as natural logarithms: sums, effective sample size, resampling. Pure, over lists of floats.

A weight of 0 is `-inf`. It knows neither texts nor where the weights and the random numbers come from.
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
    """ln of the mean of exp of the values. Of the particles' final weights it estimates ln of the target's mass of the
    language; the mean itself is unbiased."""
    return log_sum(values) - math.log(len(values)) if values else NOTHING


def effective_size(log_weights: Sequence[float]) -> float:
    """`(sum of w)**2 / sum of w**2`, in particles (Kong 1992; Liu and Chen 1995); 0 where all weights are 0."""
    top = max(log_weights, default=NOTHING)
    if top == NOTHING:
        return 0.0
    found = [math.exp(value - top) for value in log_weights]  # exactly n for n equal ones
    return math.fsum(found) ** 2 / math.fsum(weight * weight for weight in found)


def drawn(log_weights: Sequence[float], uniform: float) -> int:
    """The place that a number in [0, 1) falls to, in proportion to the weights. Raises ValueError where all are 0."""
    return _places(log_weights, [uniform])[0]


def systematic(log_weights: Sequence[float], uniform: float) -> list[int]:
    """For each of the n places the place it goes on from. A weight w gets floor or ceil of n w / (sum of w) copies, and
    n w / (sum of w) of them in the mean over `uniform`, a number in [0, 1): systematic resampling (Kitagawa 1996),
    which is unbiased. What is kept at all stays at its own place. Raises ValueError where all weights are 0."""
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
    # To the right of equal sums, so that what weighs nothing is never met; rounding must not lead past the last.
    return [min(bisect_right(sums, uniform * sums[-1]), last) for uniform in uniforms]
