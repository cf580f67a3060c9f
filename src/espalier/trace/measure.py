"""The numbers of one step: removed mass, tax, entropies. Sums in float64, by log-sum-exp (design, section 4).

`p` is the softmax of the model's raw logits; `A` the allowed set; `Z = sum of p over A`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
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
    shifted, weights, top = _weights(raw)
    before, log_total = _entropy(shifted, weights, top)
    if allowed is None or bool(allowed.all()):
        return Measures(0.0, 0.0, before, before, log_total, log_total)
    inside = weights[allowed]  # (n,) float64
    if float(inside.max()) < TINY:
        # The allowed logits are so far below the best that their weights have lost digits: shift by their own best.
        after, log_allowed = _entropy(*_weights(raw[allowed]))
    else:
        after, log_allowed = _entropy(shifted[allowed], inside, top)
    # Both sums are rounded apart, so that a mask which removes nothing could cost -1e-17.
    tax = max(0.0, log_total - log_allowed)
    return Measures(-math.expm1(-tax), tax, before, after, log_total, log_allowed)


def allowed_mass(logits: Logits, allowed: NDArray[np.bool_] | None) -> float:
    """The softmax mass of `allowed` under `(V,) float32` logits, float64."""
    if allowed is None:
        return 1.0
    _, weights, _ = _weights(logits)
    return float(weights[allowed].sum() / weights.sum())


def removed_by(
    raw: Logits, allowed: NDArray[np.bool_], members: Sequence[tuple[str, NDArray[np.bool_]]]
) -> tuple[tuple[str, float], ...]:
    """For each member the mass that it is the first to refuse: together 1 - Z. members: in order of blame, `(V,) bool`
    each. What only `allowed` lacks, a filter's bans, is `OTHERS`."""
    _, weights, _ = _weights(raw)
    total = float(weights.sum())
    left = np.ones(raw.shape[0], dtype=np.bool_)  # (V,), what nobody has refused so far
    found: list[tuple[str, float]] = []
    for name, allows in members:
        found.append((name, float(weights[left & ~allows].sum()) / total))
        left &= allows
    others = left & ~allowed
    if bool(others.any()):
        found.append((OTHERS, float(weights[others].sum()) / total))
    return tuple(found)


OTHERS = "filters"
TINY = 1e-200  # weights below this are recomputed, far above where float64 loses digits


def _weights(logits: NDArray[np.float32]) -> tuple[NDArray[np.float64], NDArray[np.float64], float]:
    """`logit - best`, its exp, and the best."""
    top = float(logits.max())
    shifted = logits.astype(np.float64)  # (n,)
    shifted -= top
    return shifted, np.exp(shifted), top


def _entropy(shifted: NDArray[np.float64], weights: NDArray[np.float64], top: float) -> tuple[float, float]:
    """Entropy in nats, and ln of the sum of exp."""
    total = float(weights.sum())
    # 0 * -inf is 0 here: a forbidden token adds nothing to the entropy. Anything below -745 has weight 0 already.
    # Not np.dot: BLAS would start threads of its own, whose waiting takes the cores from the model's next pass.
    weighted = float(np.multiply(weights, np.maximum(shifted, -746.0)).sum())
    return max(0.0, math.log(total) - weighted / total), top + math.log(total)
