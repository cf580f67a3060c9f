"""Numba kernels: passes over one row of logits. Imported when the first token is drawn.

They know numbers only: no config and no samplers. Sums are float64, but added in another order than NumPy's and with an
own `exp`; a decision that hangs on the last digits is detected by the caller and left to the plain functions.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numba
import numpy as np

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings

RUN = 256  # logits whose weights are summed together
LARGEST = float(np.finfo(np.float32).max)
LOWEST = -708.0  # below it `exp` counts as 0: no probability comes near

_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = (
    6.93147180369123816490e-01,
    1.90821492927058770002e-10,
)  # from fdlibm: the high part has trailing zeros
_ROUNDER = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to a whole number, held in the lowest bits
_C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10, _C11, _C12, _C13 = (1.0 / math.factorial(n) for n in range(2, 14))


@numba.njit(inline="always", error_model="numpy")
def _exp(x: float) -> float:
    """`exp` of x <= 0, to 2 units in the last place. LLVM vectorises it, unlike the library's."""
    kept = x if x > LOWEST else LOWEST  # noqa: FURB136  # numba's `max` is no vector
    rounder = kept * _LOG2E + _ROUNDER
    k = rounder - _ROUNDER
    r = (kept - k * _LN2_HIGH) - k * _LN2_LOW
    p = _C13
    p = p * r + _C12
    p = p * r + _C11
    p = p * r + _C10
    p = p * r + _C9
    p = p * r + _C8
    p = p * r + _C7
    p = p * r + _C6
    p = p * r + _C5
    p = p * r + _C4
    p = p * r + _C3
    p = p * r + _C2
    p = p * r * r + r + 1.0
    power = np.int64((np.float64(rounder).view(np.int64) + np.int64(1023)) << np.int64(52))
    return p * power.view(np.float64) if x > LOWEST else 0.0


@numba.njit(cache=True, nogil=True, boundscheck=False, error_model="numpy", fastmath={"contract"})
def weights(row: Array, top: float, out: Array) -> None:
    """Write `exp(row - top)` of row (n,) float32 into the beginning of out (m,) float64."""
    for i in range(row.shape[0]):
        out[i] = _exp(np.float64(row[i]) - top)


@numba.njit(cache=True, nogil=True, boundscheck=False, fastmath={"reassoc", "nsz"})
def _sum(values: Array) -> float:
    total = 0.0
    for i in range(values.shape[0]):
        total += values[i]
    return total


@numba.njit(cache=True, nogil=True, boundscheck=False)
def mask_row(raw: Array, bits: Array, out: Array) -> None:
    """Write to out (V,) float32: raw (V,) float32 where the bit of bits (W,) uint32 is set, -inf elsewhere."""
    width = raw.shape[0]
    nothing = np.float32(-np.inf)
    for word in range(width // 32):
        found = bits[word]
        base = word * 32
        for j in range(32):
            out[base + j] = raw[base + j] if found & np.uint32(1 << j) else nothing
    for i in range(width // 32 * 32, width):
        out[i] = raw[i] if bits[i >> 5] & np.uint32(1 << (i & 31)) else nothing


@numba.njit(cache=True, nogil=True, boundscheck=False)
def gather(raw: Array, bits: Array, ids: Array, values: Array) -> int:
    """Write the ids whose bit is set and whose logit is not -inf to ids (n,) int64 and values (n,) float32; returns how
    many."""
    count = 0
    for word in range(bits.shape[0]):
        found = bits[word]
        if found == 0:
            continue
        for j in range(32):
            i = word * 32 + j
            if found & np.uint32(1 << j) and raw[i] > -np.inf:
                ids[count] = i
                values[count] = raw[i]
                count += 1
    return count


@numba.njit(cache=True, nogil=True, boundscheck=False)
def at_least(row: Array, columns: Array, width: int, lines: int, edge: float, places: Array) -> int:
    """Write the indices, ascending, of values in row (n,) float32 that are >= edge (float32) and not -inf to places
    (m,) int64.

    Returns how many. The row is viewed as `lines` lines of `width` and a rest; of the lines only columns (c,) int64,
    ascending, are read.
    """
    count = 0
    rest = lines * width
    for line in range(lines):
        start = line * width
        for column in columns:
            value = row[start + column]
            if value >= edge and value > -np.inf:
                places[count] = start + column
                count += 1
    for i in range(rest, row.shape[0]):
        if row[i] >= edge and row[i] > -np.inf:
            places[count] = i
            count += 1
    return count


@numba.njit(cache=True, nogil=True, boundscheck=False)
def best(row: Array, allowed: Array, has_allowed: bool, places: Array) -> int:
    """Write the indices of the largest of row (n,) to places (k,), largest first, ties by index; without -inf and, if
    has_allowed, only those with allowed (n,) bool. Returns how many there are. For small k."""
    k = places.shape[0]
    count = 0
    low = -np.inf
    for i in range(row.shape[0]):
        value = row[i]
        if value > low and (not has_allowed or allowed[i]):
            at = count if count < k else k - 1
            while at > 0 and row[places[at - 1]] < value:
                places[at] = places[at - 1]
                at -= 1
            places[at] = i
            if count < k:
                count += 1
            if count == k:
                low = row[places[k - 1]]
    return count


@numba.njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")
def _divide(row: Array, heat: float, out: Array) -> Array:
    for i in range(row.shape[0]):
        out[i] = row[i] / heat
    return out[: row.shape[0]]


@numba.njit(cache=True, nogil=True, boundscheck=False)
def find_mass(row: Array, heat: float, top: float, uniform: float) -> tuple[int, float, float, float, float]:
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
            part = _divide(part, heat, heated)
        weights(part, top, out)
        sums[run] = _sum(out[: part.shape[0]])
        total += sums[run]
    target = uniform * total
    run, before = 0, 0.0
    while run < runs - 1 and before + sums[run] <= target:
        before += sums[run]
        run += 1
    part = row[run * RUN : (run + 1) * RUN]
    if heat != np.float32(1.0):
        part = _divide(part, heat, heated)
    weights(part, top, out)
    i = 0
    while i < part.shape[0] - 1 and before + out[i] <= target:
        before += out[i]
        i += 1
    return run * RUN + i, out[i], total, before, before + out[i]


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _ranked(values: Array, order: Array) -> None:
    """Write to order (n,) int64: indices of values (n,) float32, largest first, ties by index. For small n."""
    for i in range(values.shape[0]):
        k = i
        while k > 0 and values[order[k - 1]] < values[i]:
            order[k] = order[k - 1]
            k -= 1
        order[k] = i


@numba.njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")
def finish(
    values: Array, codes: Array, amounts: Array, least: int, heat: float, uniform: float, doubt: float, probs: Array
) -> tuple[int, bool]:
    """Truncate, divide by the temperature and draw, for few candidates. values (n,) float32, not -inf; probs (n,)
    float64 is filled, with -1 for removed candidates. codes (m,) int64, amounts (m,) float64: 0 is top_k with k, 1
    top_p with p, 2 min_p with ln p. least: `min_keep`. heat: the temperature, float32.

    Returns the token's index, and whether the result is exact: False if a sum is within the share `doubt` of a
    decision, or if the best logit, divided, leaves float32's range.
    """
    n = values.shape[0]
    order = np.empty(n, dtype=np.int64)
    _ranked(values, order)
    best = values[order[0]]
    kept = n  # the candidates that are left are the first of `order`
    for i in range(codes.shape[0]):
        if codes[i] == 0:
            kept = min(kept, np.int64(amounts[i]))
        elif codes[i] == 1:
            total = 0.0
            for k in range(kept):
                total += math.exp(np.float64(values[order[k]]) - np.float64(best))
            wanted, mass, cut = amounts[i] * total, 0.0, 0
            while cut < kept:
                before = mass
                mass += math.exp(np.float64(values[order[cut]]) - np.float64(best))
                cut += 1
                if mass >= wanted:
                    if cut > 1 and wanted - before < doubt * total:
                        return 0, False
                    break
            if mass - wanted < doubt * total:
                return 0, False
            kept = min(kept, max(cut, least))
        else:
            edge = best + np.float32(amounts[i])
            cut = 0
            while cut < kept and values[order[cut]] >= edge:
                cut += 1
            kept = min(kept, least) if least > 1 and cut < least else cut
    for i in range(n):
        probs[i] = -1.0
    total, top = 0.0, np.float64(best / heat)
    if not abs(top) < LARGEST:
        return 0, False
    for k in range(kept):
        probs[order[k]] = math.exp(np.float64(values[order[k]] / heat) - top)
        total += probs[order[k]]
    target, mass, place = uniform * total, 0.0, -1
    for i in range(n):
        if probs[i] < 0.0:
            continue
        if place < 0 and mass + probs[i] > target:
            place = i
            if target - mass < doubt * total or mass + probs[i] - target < doubt * total:
                return 0, False
        mass += probs[i]
        probs[i] /= total
    return place, place >= 0


@numba.njit(cache=True, nogil=True, boundscheck=False)
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
        total += _sum(out[:count])
        for i in range(count):
            down = (top - np.float64(part[i])) * scale
            buckets[i] = np.int64(down if down < last else last)  # noqa: FURB136
        for i in range(count):
            masses[buckets[i]] += out[i]
    return total


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _find(ids: Array, token: int) -> int:
    """The index of token in ids (n,) int64, ascending; -1 if it is missing."""
    low, high = 0, ids.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if ids[middle] < token:
            low = middle + 1
        else:
            high = middle
    return low if low < ids.shape[0] and ids[low] == token else -1


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _finite(value: Any, largest: Any) -> Any:
    """Clip to [-largest, largest]; float32 like the arguments."""
    if value > largest:
        return largest
    return -largest if value < -largest else value  # noqa: FURB136  # as the plain function does with NaN


@numba.njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")
def penalise(
    values: Array,
    ids: Array,
    has_ids: bool,
    tokens: Array,
    produced: Array,
    repetition: float,
    frequency: float,
    presence: float,
    largest: float,
) -> None:
    """`penalties` in place: values (n,) float32 of ids (n,) int64 ascending, or of all ids from 0 on.

    tokens, produced (m,) int64: distinct tokens and how often each was generated. The other arguments are float32.
    """
    for k in range(tokens.shape[0]):
        place = tokens[k]
        if has_ids:
            place = _find(ids, tokens[k])
            if place < 0:
                continue
        if place >= values.shape[0] or values[place] == -np.inf:
            continue
        value = values[place]
        if repetition != np.float32(1.0):
            value = value * repetition if value <= 0 else value / repetition
            value = _finite(value, largest)
        if produced[k]:
            value = _finite(value - _finite(np.float32(produced[k]) * frequency + presence, largest), largest)
        values[place] = value


@numba.njit(cache=True, nogil=True, boundscheck=False)
def repeats(history: Array, limit: int, least: int, same: Array) -> None:
    """Write to same (n,) int64, by distance from the end: how many tokens before that index equal the last tokens of
    history (n,) int64, at most `limit`; -1 if less than `least`, and at distance 0. Linear time: the Z function of the
    reversed history."""
    n = history.shape[0]
    left, right = 0, 0
    same[0] = -1
    for back in range(1, n):
        found = min(right - back, same[back - left]) if back < right else 0
        while back + found < n and history[n - 1 - found] == history[n - 1 - back - found]:
            found += 1
        same[back] = found
        if back + found > right:
            left, right = back, back + found
    for back in range(1, n):
        same[back] = min(same[back], limit) if min(same[back], limit) >= least else -1


@numba.njit(cache=True, nogil=True, boundscheck=False, fastmath={"contract", "reassoc", "nsz"})
def _spread(row: Array, top: float, out: Array) -> float:
    """The sum of weight times distance from the top; a weight of 0 adds nothing."""
    total = 0.0
    for i in range(row.shape[0]):
        down = np.float64(row[i]) - top
        total += out[i] * (down if down > LOWEST else LOWEST)  # noqa: FURB136
    return total


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _only(allowed: Array, out: Array) -> None:
    for i in range(allowed.shape[0]):
        out[i] = out[i] if allowed[i] else 0.0


@numba.njit(cache=True, nogil=True, boundscheck=False)
def measure_row(row: Array, allowed: Array, has_allowed: bool, top: float) -> tuple[float, float, float, float]:
    """With w = exp(row - top): the sums of w and of w * (row - top), and both over the allowed tokens alone.

    row (n,) float32, allowed (n,) bool.
    """
    out = np.empty(RUN, dtype=np.float64)
    total, spread, inside, inside_spread = 0.0, 0.0, 0.0, 0.0
    for start in range(0, row.shape[0], RUN):
        part = row[start : start + RUN]
        count = part.shape[0]
        weights(part, top, out)
        total += _sum(out[:count])
        spread += _spread(part, top, out)
        if has_allowed:
            _only(allowed[start : start + RUN], out)
            inside += _sum(out[:count])
            inside_spread += _spread(part, top, out)
    return total, spread, inside, inside_spread
