"""Kernels that find places in a row: the largest, those above an edge, the repeats of a text."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from espalier.kernels.compiled import BOOL, BOOLS, F32, F64, I64, INT, kernel

# compiled with: 8c7aafc1

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings


@kernel()
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


@kernel((F32, BOOLS, BOOL, I64), (F64, BOOLS, BOOL, I64))
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


@kernel((I64, INT, INT, I64))
def repeats(history: Array, limit: int, least: int, same: Array) -> None:
    """Write to same (n,) int64, by distance from the end: how many tokens before that index equal the last tokens of
    history (n,) int64, at most `limit`; -1 if less than `least`, and at distance 0. Linear time: the Z function of the
    reversed history."""
    n = history.shape[0]
    left, right = 0, 0
    same[0] = -1
    for back in range(1, n):
        length = min(right - back, same[back - left]) if back < right else 0
        while back + length < n and history[n - 1 - length] == history[n - 1 - back - length]:
            length += 1
        same[back] = length
        if back + length > right:
            left, right = back, back + length
    for back in range(1, n):
        same[back] = min(same[back], limit) if min(same[back], limit) >= least else -1


@kernel()
def ranked(values: Array) -> Array:
    """The indices of values (n,) float32, largest first, ties by index: `np.argsort` of numba takes seconds to compile.
    A merge sort."""
    n = values.shape[0]
    order, other = np.empty(n, dtype=np.int64), np.empty(n, dtype=np.int64)
    for i in range(n):
        order[i] = i
    width = 1
    while width < n:
        for start in range(0, n, 2 * width):
            middle, stop = min(start + width, n), min(start + 2 * width, n)
            left, right = start, middle
            for i in range(start, stop):
                if left < middle and (right == stop or values[order[left]] >= values[order[right]]):
                    other[i] = order[left]
                    left += 1
                else:
                    other[i] = order[right]
                    right += 1
        order, other = other, order
        width *= 2
    return order


@kernel()
def taken(values: Array, places: Array) -> Array:
    """`values[places]`, which takes numba longer to compile. places (n,) int64."""
    out = np.empty(places.shape[0], dtype=values.dtype)
    for k in range(places.shape[0]):
        out[k] = values[places[k]]
    return out
