"""Kernels that find what the first truncation of a long row leaves, without sorting it.

A row is viewed as a matrix of `lines_of` lines; the largest of each column tells whether to look into the column.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numba
import numpy as np

from espalier.sampling.fast.kernels.exponential import exp
from espalier.sampling.fast.kernels.places import at_least, ranked, taken
from espalier.sampling.fast.kernels.sums import mass_by_bucket

# compiled with: 246c8735

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings

FEW = 128  # top_k of more is left to the plain functions
SCALE, BUCKETS = 32.0, 1024  # buckets per nat of the logit, from the largest down, and how many


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _lines_of(width: int) -> int:
    if width < 16_384:
        return 16
    return 32 if width < 65_536 else 64


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _raise(line: Array, tops: Array) -> None:
    for column in range(line.shape[0]):
        value, top = line[column], tops[column]
        tops[column] = value if value > top else top  # noqa: FURB136  # numba's `max` is no vector


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _tops(row: Array) -> Array:
    """The largest of each column of row (n,) float32 viewed as `_lines_of` lines, (columns,) float32."""
    columns = row.shape[0] // _lines_of(row.shape[0])
    tops = row[:columns].copy()
    for line in range(1, _lines_of(row.shape[0])):
        _raise(row[line * columns : (line + 1) * columns], tops)
    return tops


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _largest(row: Array, tops: Array) -> Any:
    top = np.float32(-np.inf)
    for column in range(tops.shape[0]):
        top = max(top, tops[column])
    for i in range(tops.shape[0] * _lines_of(row.shape[0]), row.shape[0]):
        top = max(top, row[i])
    return top


@numba.njit(cache=True, nogil=True, boundscheck=False)
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


@numba.njit(cache=True, nogil=True, boundscheck=False)
def first_largest(row: Array) -> int:
    """The index of the first largest of row (n,) float32; -1 if all are -inf."""
    tops = _tops(row)
    places = _from(row, tops, _largest(row, tops))
    return places[0] if places.shape[0] else -1


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _kth(values: Array, k: int) -> Any:
    """The k-th largest of values (n,) float32, k <= n. For small k."""
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


@numba.njit(cache=True, nogil=True, boundscheck=False)
def leading(row: Array, code: int, amount: float, least: int, doubt: float) -> Array:
    """The indices (n,) int64, ascending, of what a truncation of row (V,) float32 leaves: for top_k and min_p possibly
    of some others, for top_p of no other. Without entries where the plain functions have to decide.

    code, amount: as in `finish`. least: `min_keep`.
    """
    tops = _tops(row)
    if code == 0:
        k = int(amount)
        return _from(row, tops, _kth(tops, k)) if k <= min(FEW, tops.shape[0]) else np.empty(0, np.int64)
    top = _largest(row, tops)
    if top == -np.inf:
        return np.empty(0, np.int64)
    if code == 1:
        return _nucleus(row, tops, top, amount, least, doubt)
    places = _from(row, tops, top + np.float32(amount))
    return places if places.shape[0] >= least else places[:0]


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _nucleus(row: Array, tops: Array, top: float, p: float, least: int, doubt: float) -> Array:
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
        reached += exp(np.float64(row[places[crossing[ranks[cut]]]]) - best)
        cut += 1
    left = size - count + cut
    if reached - wanted < doubt * total or left < least or (left > 1 and wanted - before < doubt * total):
        return places[:0]
    for rank in range(cut, count):
        places[crossing[ranks[rank]]] = -1
    count = 0
    for k in range(size):
        index = places[k]
        places[count] = index
        count += index >= 0
    return places[:count]
