"""The kernel that runs the samplers and draws, once the candidates are a list.

A decision that hangs on the last digits of a sum is left to the plain functions.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from espalier.kernels.compiled import kernel
from espalier.sampling.fast.codes import (
    DOUBT,
    FIRST,
    LARGE,
    LEAST,
    MIN_P,
    PENALTIES,
    SAMPLERS,
    SIZE,
    SMALL,
    TEMPERATURE,
    TOP_K,
    TOP_N_SIGMA,
    TYPICAL_P,
    XTC,
)
from espalier.sampling.fast.kernels.changes import change
from espalier.sampling.fast.kernels.exponential import added, weight
from espalier.sampling.fast.kernels.exponential import weights as weigh
from espalier.sampling.fast.kernels.leading import sigma_edge
from espalier.sampling.fast.kernels.places import ranked, taken
from espalier.tokens.mask import LARGEST

# compiled with: 973c738f

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings

FEW = 128  # so many are ranked by insertion, as they come; more are sorted


@kernel()
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


@kernel()
def _without(order: Array, left: int, places: Array) -> int:
    """Remove places (n,) int64 from order[:left], whose other entries keep their order. Returns how many are left."""
    count = 0
    for k in range(left):
        is_lost = False
        for lost in places:
            is_lost |= order[k] == lost
        if not is_lost:
            order[count] = order[k]
            count += 1
    return count


@kernel()
def _sort(order: Array, left: int, width: int) -> None:
    """Sort order[:left], distinct indices below width, ascending."""
    flags = np.zeros(width, dtype=np.bool_)
    for k in range(left):
        flags[order[k]] = True
    count = 0
    for i in range(width):
        if flags[i]:
            order[count] = i
            count += 1


@kernel(error_model="numpy")
def _typical(values: Array, order: Array, left: int, p: float, least: int) -> int:
    """Put what typical_p leaves first in order (n,), which is ranked. Returns how many that is; 0 where the last digits
    would decide."""
    best = np.float64(values[order[0]])
    total, entropy = 0.0, 0.0
    for k in range(left):
        total += weight(values[order[k]], best)
    log_total = math.log(total)
    probs, scores = np.empty(left, dtype=np.float64), np.empty(left, dtype=np.float64)
    for k in range(left):
        scores[k] = np.float64(values[order[k]]) - best - log_total
        probs[k] = weight(scores[k], 0.0)
        entropy -= probs[k] * scores[k]
    for k in range(left):
        scores[k] = -abs(-scores[k] - entropy)
    nearest = ranked(scores)
    mass, cut = 0.0, 0
    while cut < left:
        mass += probs[nearest[cut]]
        cut += 1
        if abs(mass - p) < DOUBT:
            return 0
        if mass > p:
            break
    keep = min(max(cut, least), left)
    for k in range(max(cut - 1, 1), min(keep + 1, left)):
        one, other = nearest[k - 1], nearest[k]
        if scores[one] - scores[other] < DOUBT and values[order[one]] != values[order[other]]:
            return 0
    best_places = taken(order, nearest[:keep])
    for k in range(keep):
        order[k] = best_places[k]
    return keep


@kernel(error_model="numpy")
def finish(
    values: Array,
    ids: Array,
    settings: Array,
    sampler: int,
    tokens: Array,
    said: Array,
    losses: Array,
    chance: float,
    uniform: float,
    probs: Array,
) -> tuple[int, bool]:
    """Run the samplers of the settings from number `sampler` on, and draw. values (n,) float32 of ids (n,) int64,
    ascending, n > 0, not -inf: changed in place. probs (n,) float64 is filled, with -1 for removed candidates. chance:
    xtc's number; the rest is as in `change`.

    Returns the token's index, and whether the result is exact: False if a sum is within the share DOUBT of a decision,
    or if the best logit, divided, leaves float32's range.
    """
    n, least = values.shape[0], int(settings[LEAST])
    order = np.empty(n, dtype=np.int64)
    best = values[0]
    for i in range(n):
        order[i] = i
        best = max(best, values[i])
    left, is_ranked = n, False  # the candidates that are left are the first of `order`
    for number in range(sampler, int(settings[SAMPLERS])):
        place = FIRST + SIZE * number
        code, amount, top = int(settings[place]), settings[place + 1], np.float64(best)
        if code == TEMPERATURE and SMALL <= amount <= LARGE:
            heat = np.float32(amount)
            best = np.float32(best / heat)
            lost = not abs(best) < LARGEST
            for k in range(left):
                values[order[k]] = values[order[k]] / heat
                lost |= abs(values[order[k]]) == np.inf
            if lost:
                return 0, False
            if is_ranked and number + 1 < int(settings[SAMPLERS]):
                _sort(order, left, n)  # what was divided may tie
                is_ranked = False
            continue
        if code >= PENALTIES:
            if is_ranked:
                _sort(order, left, n)
                is_ranked = False
            part = taken(values, order[:left])
            best, is_sure = change(part, taken(ids, order[:left]), settings, place, tokens, said, losses, best)
            if not is_sure:
                return 0, False
            best = part[0]
            for k in range(left):
                values[order[k]] = part[k]
                best = max(best, part[k])
            continue
        if code in (MIN_P, TOP_N_SIGMA):
            if code == MIN_P:
                edge = best + np.float32(amount)
            else:
                low, edge = sigma_edge(taken(values, order[:left]), top, amount)
                for k in range(left):
                    if low <= values[order[k]] < edge:
                        return 0, False
            cut = 0
            for k in range(left):
                cut += values[order[k]] >= edge
            if code == MIN_P and least > 1 and cut < least:
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
        if code == XTC:
            if chance > amount or left < 2:
                continue
            total, above = 0.0, 0
            for k in range(left):
                total += weight(values[order[k]], top)
            for k in range(left):
                share = weight(values[order[k]], top)
                above += share >= settings[place + 2] * total
                if abs(share - settings[place + 2] * total) < DOUBT * total:
                    return 0, False
            if above > 1 and left - above + 1 >= least:
                removed = order[:left].copy()
                _rank(values, removed, left, above - 1)
                left = _without(order, left, removed[: above - 1])
                best = values[order[0]]
                for k in range(left):
                    best = max(best, values[order[k]])
            continue
        k = min(left, np.int64(amount)) if code == TOP_K else left
        if code == TOP_K and k == left:
            continue
        if not is_ranked:
            left, is_ranked = _rank(values, order, left, k), True
        if code == TOP_K:
            left = k
            continue
        if code == TYPICAL_P:
            left = _typical(values, order, left, amount, least)
            if not left:
                return 0, False
            _sort(order, left, n)
            is_ranked, best = False, values[order[0]]
            for k in range(left):
                best = max(best, values[order[k]])
            continue
        total = 0.0
        for k in range(left):
            total += weight(values[order[k]], top)
        wanted, reached, cut = amount * total, 0.0, 0
        while cut < left:
            before = reached
            reached += weight(values[order[cut]], top)
            cut += 1
            if reached >= wanted:
                if cut > 1 and wanted - before < DOUBT * total:
                    return 0, False
                break
        if reached - wanted < DOUBT * total:
            return 0, False
        left = min(left, max(cut, least))
    return _draw(values, order[:left], best, uniform, probs)


@kernel(error_model="numpy")
def _draw(values: Array, order: Array, best: Any, uniform: float, probs: Array) -> tuple[int, bool]:
    """Draw from the candidates in order (k,); the rest is as in `finish`."""
    top = np.float64(best)
    probs[:] = -1.0
    for k in range(order.shape[0]):
        probs[order[k]] = 0.0
    chosen, weights = np.empty(order.shape[0], dtype=np.float32), np.empty(order.shape[0], dtype=np.float64)
    places = np.empty(values.shape[0], dtype=np.int64)  # ascending; one more than is left may be written
    count = 0
    for i in range(values.shape[0]):
        places[count] = i
        count += probs[i] == 0.0
    for k in range(count):
        chosen[k] = values[places[k]]
    weigh(chosen, top, weights)
    for k in range(count):
        if weights[k] == 0.0:  # the digits of the smallest numbers show, though no draw depends on them
            weights[k] = math.exp(np.float64(chosen[k]) - top)
    total, mass, drawn = added(weights), 0.0, -1
    target = uniform * total
    for k in range(count):
        if drawn < 0 and mass + weights[k] > target:
            drawn = places[k]
            if target - mass < DOUBT * total or mass + weights[k] - target < DOUBT * total:
                return 0, False
        mass += weights[k]
        probs[places[k]] = weights[k] / total
    return drawn, drawn >= 0
