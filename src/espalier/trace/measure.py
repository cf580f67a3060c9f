"""The numbers of one step: removed mass, tax, entropies. Sums in float64, by log-sum-exp (design, section 4).

`p` is the softmax of the model's raw logits; `A` the allowed set; `Z = sum of p over A`.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.tokens.mask import Logits


class Measures(NamedTuple):
    """removed_mass = 1 - Z. tax_nats = -ln Z = KL(q || p) for q = p renormalised over A. Entropies in nats.

    log_total: ln of the sum of exp(logit), so that `ln p(v) = logit(v) - log_total`; log_allowed the same over A.
    """

    removed_mass: float
    tax_nats: float
    entropy_before: float
    entropy_after: float
    log_total: float
    log_allowed: float


def measure(raw: Logits, allowed: NDArray[np.bool_] | None) -> Measures:
    """`raw` is `(V,) float32`, finite or -inf; `allowed` is `(V,) bool` with at least one finite logit under it."""
    before, log_total = _entropy(raw)
    if allowed is None or bool(allowed.all()):
        return Measures(0.0, 0.0, before, before, log_total, log_total)
    after, log_allowed = _entropy(raw[allowed])
    # Both sums are rounded apart, so that a mask which removes nothing could cost -1e-17.
    tax = max(0.0, log_total - log_allowed)
    return Measures(-math.expm1(-tax), tax, before, after, log_total, log_allowed)


def log_sum_exp(logits: NDArray[np.float32]) -> float:
    """ln of the sum of exp, float64; -inf for an empty or wholly forbidden row."""
    if logits.size == 0:
        return -math.inf
    top = float(logits.max())
    if top == -math.inf:
        return -math.inf
    return top + math.log(float(np.exp(logits.astype(np.float64) - top).sum()))


def _entropy(logits: NDArray[np.float32]) -> tuple[float, float]:
    values = logits.astype(np.float64)  # (n,)
    top = float(values.max())
    shifted = values - top
    weights = np.exp(shifted)
    total = float(weights.sum())
    # 0 * -inf is 0 here: a forbidden token adds nothing to the entropy.
    weighted = float(np.dot(weights, np.where(weights > 0.0, shifted, 0.0)))
    return max(0.0, math.log(total) - weighted / total), top + math.log(total)
