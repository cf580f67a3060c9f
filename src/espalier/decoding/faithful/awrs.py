"""Adaptive weighted rejection sampling of one token: the matcher is asked about drawn tokens only, and builds no mask.

Lipkin et al. 2025, "Fast Controlled Generation from Language Models with Adaptive Weighted Rejection Sampling"
(arXiv:2504.05410). Tokens are drawn from p without replacement until one is allowed: that one has the law p(x) / Z on
the allowed set A, as in plain rejection, where a refused token drawn again is refused again.

The estimate of Z. Let y_1, y_2, ... be the draws, x = y_m the first allowed one, M_i = 1 - (p(y_1) + ... + p(y_(i-1)))
the mass that is left before draw i. For every i, given all draws before it,

    t_i = sum of p(y_j) over j < i with y_j in A  +  M_i * 1[y_i in A]

has the mean Z: the second term's is the mass of A that is left (Des Raj 1956, "Some estimators in sampling with varying
probabilities without replacement", for the total of 1[A]). So, as m is known at draw m, the mean over the draws
m+1 .. m+CHECKS is unbiased for Z whatever x is, and E[w 1[x]] = Z p(x) / Z = p(x): a proper weight. It is at least p(x)
and at most the mass that was not refused. With one such draw it is the recursive estimator of Lipkin et al.

It knows neither models nor constraints: it gets weights, a function that says whether a token is allowed, and random
numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

CHECKS = 4
"""Draws after the first allowed one. More draws make the weight less noisy and ask the matcher more often."""
PATIENCE = 32
"""After so many refused tokens the caller builds a mask, which costs about as much as so many questions."""


class AcceptedToken(NamedTuple):
    """token: the first allowed one; None where `most` were refused or none is left. mass: the estimate of Z, in the
    unit of the weights. refused: the tokens that were refused before it, in order."""

    token: int | None
    mass: float
    refused: tuple[int, ...]


class Urn:
    """Draws without replacement from `(V,) float64` weights, none negative. The urn changes the array."""

    def __init__(self, weights: NDArray[np.float64], uniform: Callable[[], float]) -> None:
        self._weights, self._uniform = weights, uniform
        self._drawn: set[int] = set()
        self._count = int(np.count_nonzero(weights))
        self._sum_up()

    @property
    def is_empty(self) -> bool:
        return self._count == 0

    @property
    def left(self) -> float:
        """The mass that is not drawn yet."""
        return 0.0 if self._count == 0 else self._total - self._gone

    def draw(self) -> tuple[int, float]:
        """Draw a token; returns it with its weight. The urn must not be empty. Takes one or more random numbers."""
        while True:
            # The first place whose sum is above the number: never one that weighs nothing.
            place = int(np.searchsorted(self._sums, self._uniform() * self._total, side="right"))
            if place < self._sums.shape[0] and place not in self._drawn:
                break
        weight = float(self._weights[place])
        self._drawn.add(place)
        self._gone += weight
        self._count -= 1
        if 2 * self._gone > self._total:  # else little is drawn in vain, and `left` keeps its digits
            self._weights[list(self._drawn)] = 0.0
            self._sum_up()
        return place, weight

    def _sum_up(self) -> None:
        self._sums = np.cumsum(self._weights)  # (V,) float64
        self._total = float(self._sums[-1])
        self._gone = 0.0
        self._drawn.clear()


def sample(urn: Urn, allows: Callable[[int], bool], *, most: int = PATIENCE, checks: int = CHECKS) -> AcceptedToken:
    """Draw until a token is allowed, and estimate Z. allows: called once for each drawn token, in order. checks: at
    least 1."""
    refused: list[int] = []
    while True:
        if urn.is_empty or len(refused) >= most:
            return AcceptedToken(None, 0.0, tuple(refused))
        token, mass = urn.draw()
        if allows(token):
            break
        refused.append(token)
    estimate = 0.0
    for done in range(checks):
        if urn.is_empty:  # then `mass` is all of A: the rest of the mean is that
            estimate += mass * (checks - done)
            break
        left = urn.left
        other, weight = urn.draw()
        is_allowed = allows(other)
        estimate += mass + (left if is_allowed else 0.0)
        mass += weight if is_allowed else 0.0
    return AcceptedToken(token, estimate / checks, tuple(refused))
