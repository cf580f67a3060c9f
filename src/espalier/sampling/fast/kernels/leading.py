"""Kernels that find what the first truncation of a long row leaves, without sorting it.

A row is viewed as a matrix of `lines_of` lines; the largest of each column tells whether to look into the column.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from espalier.kernels.compiled import F32, FLOAT, INT, kernel
from espalier.sampling.fast.codes import DOUBT, MIN_P, SLACK, TOP_K, TOP_N_SIGMA, TOP_P
from espalier.sampling.fast.kernels.exponential import weight
from espalier.sampling.fast.kernels.places import at_least, ranked, taken
from espalier.sampling.fast.kernels.sums import mass_by_bucket
from espalier.tokens.mask import LARGEST

# compiled with: 5a8d8638

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings

FEW = 128  # the k-th largest for so many is found by insertion
CLOSE = 1e-15  # logits that differ by no more may have the same `exp`
SCALE, BUCKETS = 32.0, 1024  # buckets per nat of the logit, from the largest down, and how many


@kernel()
def _lines_of(width: int) -> int:
    if width < 16_384:
        return 16
    return 32 if width < 65_536 else 64


@kernel()
def _raise(line: Array, tops: Array) -> None:
    for column in range(line.shape[0]):
        value, top = line[column], tops[column]
        tops[column] = value if value > top else top  # noqa: FURB136  # numba's `max` is no vector


@kernel()
def _tops(row: Array) -> Array:
    """The largest of each column of row (n,) float32 viewed as `_lines_of` lines, (columns,) float32."""
    columns = row.shape[0] // _lines_of(row.shape[0])
    tops = row[:columns].copy()
    for line in range(1, _lines_of(row.shape[0])):
        _raise(row[line * columns : (line + 1) * columns], tops)
    return tops


@kernel()
def _largest(row: Array, tops: Array) -> Any:
    top = np.float32(-np.inf)
    for column in range(tops.shape[0]):
        top = max(top, tops[column])
    for i in range(tops.shape[0] * _lines_of(row.shape[0]), row.shape[0]):
        top = max(top, row[i])
    return top


@kernel()
def _from(row: Array, tops: Array, edge: Any) -> Array:
    """The indices, ascending, of the values that are at least edge (float32), and not -inf."""
    lines = _lines_of(row.shape[0])
    columns = np.empty(tops.shape[0], dtype=np.int64)
    count = 0
    for column in range(tops.shape[0]):
        columns[count] = column
        count += tops[column] >= edge
    places = np.empty(count * lines + row.shape[0] - lines * tops.shape[0], dtype=np.int64)
    return places[: at_least(row, columns[:count], tops.shape[0], lines, edge, places)]


@kernel()
def first_largest(row: Array) -> int:
    """The index of the first largest of row (n,) float32; -1 if all are -inf."""
    tops = _tops(row)
    places = _from(row, tops, _largest(row, tops))
    return places[0] if places.shape[0] else -1


@kernel()
def _kth(values: Array, k: int) -> Any:
    """The k-th largest of values (n,) float32, 1 <= k <= n."""
    if k > FEW:
        return _select(values.copy(), k)
    best = np.empty(k, dtype=np.float32)
    count = 0
    for i in range(values.shape[0]):
        value = values[i]
        if count == k and value <= best[k - 1]:
            continue
        at = count if count < k else k - 1
        while at > 0 and best[at - 1] < value:
            best[at] = best[at - 1]
            at -= 1
        best[at] = value
        count = min(count + 1, k)
    return best[k - 1]


@kernel()
def _select(values: Array, k: int) -> Any:
    """As `_kth`, by Hoare's partitions; overwrites values."""
    low, high = 0, values.shape[0] - 1
    while low < high:
        pivot = values[(low + high) >> 1]
        left, right = low, high
        while left <= right:
            while values[left] > pivot:
                left += 1
            while values[right] < pivot:
                right -= 1
            if left <= right:
                values[left], values[right] = values[right], values[left]
                left += 1
                right -= 1
        if k - 1 <= right:
            high = right
        elif k - 1 >= left:
            low = left
        else:
            break
    return values[k - 1]


@kernel()
def sigma_edge(values: Array, best: float, amount: float) -> tuple[Any, Any]:
    """The edge of top_n_sigma over values (n,) float32 without those at -inf: float32, by rounding down and up; -inf
    twice for a single value."""
    count, total, squares = 0, 0.0, 0.0
    for i in range(values.shape[0]):
        if values[i] > -np.inf:
            count += 1
            total += np.float64(values[i])
    if count <= 1:
        return np.float32(-np.inf), np.float32(-np.inf)
    mean = total / count
    for i in range(values.shape[0]):
        if values[i] > -np.inf:
            squares += (np.float64(values[i]) - mean) ** 2
    reach = amount * np.sqrt(squares / count)
    edge, slack = max(best - reach, -LARGEST), SLACK * (abs(best) + reach)
    return np.float32(edge - slack), np.float32(edge + slack)


@kernel((F32, INT, FLOAT, INT))
def leading(row: Array, code: int, amount: float, least: int) -> Array:
    """The indices (n,) int64, ascending, of what a truncation of row (V,) float32 leaves: for top_k and min_p possibly
    of some others, for top_p and top_n_sigma of no other; for a truncation that has to see them all, of all that are
    not -inf. Without entries where the plain functions have to decide.

    code, amount: as in `codes.py`. least: `min_keep`.
    """
    tops = _tops(row)
    if code == TOP_K:
        k = int(amount)
        if k <= tops.shape[0]:
            return _from(row, tops, _kth(tops, k))
        return _from(row, tops, _kth(row, k) if k < row.shape[0] else np.float32(-np.inf))
    top = _largest(row, tops)
    if top == -np.inf:
        return np.empty(0, np.int64)
    if code == TOP_P:
        return _nucleus(row, tops, top, amount, least)
    if code == MIN_P:
        places = _from(row, tops, top + np.float32(amount))
        return places if places.shape[0] >= least else places[:0]
    if code == TOP_N_SIGMA:
        low, high = sigma_edge(row, np.float64(top), amount)
        places = _from(row, tops, low)
        for k in range(places.shape[0]):
            if row[places[k]] < high:
                return places[:0]
        return places
    return _from(row, tops, np.float32(-np.inf))


@kernel()
def likely(row: Array, k: int) -> Array:
    """The indices (n,) int64, ascending, of the k largest of row (V,) float32, of all whose weight may tie with the
    last of them, and possibly of some others; without entries if k is too large for it."""
    tops = _tops(row)
    if not 0 < k <= tops.shape[0]:
        return np.empty(0, np.int64)
    return _from(row, tops, np.float32(np.float64(_kth(tops, k)) - CLOSE))


@kernel()
def _nucleus(row: Array, tops: Array, top: float, p: float, least: int) -> Array:
    """What top_p leaves, by mass in buckets of the logit: only the bucket in which p is reached is ranked."""
    masses = np.zeros(BUCKETS, dtype=np.float64)
    best = np.float64(top)
    total = mass_by_bucket(row, best, SCALE, masses)
    wanted, reached, bucket = p * total, 0.0, 0
    while bucket < BUCKETS - 1 and reached + masses[bucket] < wanted:
        reached += masses[bucket]
        bucket += 1
    # Rounding errors included, all logits of the bucket are at or above this.
    places = _from(row, tops, np.float32(best - (bucket + 1.001) / SCALE))
    crossing = np.empty(places.shape[0], dtype=np.int64)  # indices in `places`
    size, count = 0, 0
    for k in range(places.shape[0]):
        index = places[k]
        down = (best - np.float64(row[index])) * SCALE
        if down >= bucket + 1:
            continue
        if down >= bucket:
            crossing[count] = size
            count += 1
        places[size] = index
        size += 1
    if bucket == BUCKETS - 1 or not count:
        return places[:0]
    ranks = ranked(taken(row, taken(places, crossing[:count])))
    cut, before = 0, reached
    while cut < count and reached < wanted:
        before = reached
        reached += weight(row[places[crossing[ranks[cut]]]], best)
        cut += 1
    left = size - count + cut
    if reached - wanted < DOUBT * total or left < least or (left > 1 and wanted - before < DOUBT * total):
        return places[:0]
    for rank in range(cut, count):
        places[crossing[ranks[rank]]] = -1
    count = 0
    for k in range(size):
        index = places[k]
        places[count] = index
        count += index >= 0
    return places[:count]
