"""The kernel that truncates, divides by the temperature and draws, once the candidates are a list.

A decision that hangs on the last digits of a sum is left to the plain functions.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numba
import numpy as np

from espalier.sampling.fast.kernels.exponential import added, exp
from espalier.sampling.fast.kernels.exponential import weights as weigh
from espalier.sampling.fast.kernels.places import ranked, taken
from espalier.tokens.mask import LARGEST

# compiled with: b7d4c606

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings

FEW = 128  # so many are ranked by insertion, as they come; more are sorted


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _rank(values: Array, order: Array, left: int, k: int) -> int:
    """Put the k largest of values[order[:left]] first in order (n,) int64, largest first, ties by index; the entries
    ascend. Returns how many there are."""
    k = min(k, left)
    if k > FEW:
        ranks = ranked(taken(values, order[:left]))
        best = taken(order, ranks[:k])
        for i in range(k):
            order[i] = best[i]
        return k
    count = 0
    for i in range(left):
        index = order[i]
        value = values[index]
        if count == k and value <= values[order[k - 1]]:
            continue
        at = count if count < k else k - 1
        while at > 0 and values[order[at - 1]] < value:
            order[at] = order[at - 1]
            at -= 1
        order[at] = index
        count = min(count + 1, k)
    return k


@numba.njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")
def finish(
    values: Array,
    codes: Array,
    amounts: Array,
    least: int,
    heat: Any,
    uniform: float,
    doubt: float,
    probs: Array,
) -> tuple[int, bool]:
    """Truncate, divide by the temperature and draw. values (n,) float32, n > 0, not -inf; probs (n,) float64 is filled,
    with -1 for removed candidates. codes, amounts (m,) float64: 0 is top_k with k, 1 top_p with p, 2 min_p with ln p.
    least: `min_keep`. heat: the temperature, float32.

    Returns the token's index, and whether the result is exact: False if a sum is within the share `doubt` of a
    decision, or if the best logit, divided, leaves float32's range.
    """
    n = values.shape[0]
    order = np.empty(n, dtype=np.int64)
    best = values[0]
    for i in range(n):
        order[i] = i
        best = max(best, values[i])
    left, is_ranked = n, False  # the candidates that are left are the first of `order`
    for i in range(codes.shape[0]):
        if codes[i] == 2:
            edge = best + np.float32(amounts[i])
            cut = 0
            for k in range(left):
                cut += values[order[k]] >= edge
            if least > 1 and cut < least:
                if least < left:
                    left = left if is_ranked else _rank(values, order, left, least)
                    left, is_ranked = min(left, least), True
                continue
            if not is_ranked:
                count = 0
                for k in range(left):
                    at = order[k]
                    order[count] = at
                    count += values[at] >= edge
            left = cut
            continue
        k = min(left, np.int64(amounts[i])) if codes[i] == 0 else left
        if codes[i] == 0 and k == left:
            continue
        if not is_ranked:
            left, is_ranked = _rank(values, order, left, k), True
        if codes[i] == 0:
            left = k
            continue
        total = 0.0
        for k in range(left):
            total += exp(np.float64(values[order[k]]) - np.float64(best))
        wanted, reached, cut = amounts[i] * total, 0.0, 0
        while cut < left:
            before = reached
            reached += exp(np.float64(values[order[cut]]) - np.float64(best))
            cut += 1
            if reached >= wanted:
                if cut > 1 and wanted - before < doubt * total:
                    return 0, False
                break
        if reached - wanted < doubt * total:
            return 0, False
        left = min(left, max(cut, least))
    return _draw(values, order[:left], best, heat, uniform, doubt, probs)


@numba.njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")
def _draw(
    values: Array, order: Array, best: float, heat: Any, uniform: float, doubt: float, probs: Array
) -> tuple[int, bool]:
    """Draw from the candidates in order (k,); the rest is as in `finish`."""
    top = np.float64(best / heat)
    if not abs(top) < LARGEST:
        return 0, False
    probs[:] = -1.0
    for k in range(order.shape[0]):
        probs[order[k]] = 0.0
    heated, weights = np.empty(order.shape[0], dtype=np.float32), np.empty(order.shape[0], dtype=np.float64)
    places = np.empty(values.shape[0], dtype=np.int64)  # ascending; one more than is kept may be written
    count = 0
    for i in range(values.shape[0]):
        places[count] = i
        count += probs[i] == 0.0
    for k in range(count):
        heated[k] = values[places[k]] / heat
    weigh(heated, top, weights)
    for k in range(count):
        if weights[k] == 0.0:  # the digits of the smallest numbers show, though no draw depends on them
            weights[k] = math.exp(np.float64(heated[k]) - top)
    total, mass, drawn = added(weights), 0.0, -1
    target = uniform * total
    for k in range(count):
        if drawn < 0 and mass + weights[k] > target:
            drawn = places[k]
            if target - mass < doubt * total or mass + weights[k] - target < doubt * total:
                return 0, False
        mass += weights[k]
        probs[places[k]] = weights[k] / total
    return drawn, drawn >= 0
