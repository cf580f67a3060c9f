"""Sets of code points as sorted inclusive ranges: digits are ((0x30, 0x39),). It does not know encodings."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from itertools import pairwise

Ranges = tuple[tuple[int, int], ...]
"""Inclusive ranges of code points: low, high."""

MAX_CODE_POINT = 0x10FFFF
SURROGATES = (0xD800, 0xDFFF)


def merge(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """The ranges sorted, with overlapping and adjacent ones joined."""
    merged: list[tuple[int, int]] = []
    for lo, hi in sorted(ranges):
        if merged and lo <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(hi, merged[-1][1]))
        else:
            merged.append((lo, hi))
    return tuple(merged)


def complement(ranges: Ranges) -> Ranges:
    """All other code points. `ranges` must be merged."""
    bounds = [-1, *(bound for pair in ranges for bound in pair), MAX_CODE_POINT + 1]
    gaps = zip(bounds[::2], bounds[1::2], strict=True)
    return tuple((before + 1, after - 1) for before, after in gaps if before + 1 <= after - 1)


def subtract(ranges: Ranges, other: Ranges) -> Ranges:
    """The code points of `ranges` that are not in `other`. Both must be merged."""
    return complement(merge((*complement(ranges), *other)))


def are_disjoint(*sets: Ranges) -> bool:
    """Whether no code point is in two of these sets, each of which is merged."""
    bounds = sorted(pair for ranges in sets for pair in ranges)
    return all(before[1] < after[0] for before, after in pairwise(bounds))


def contains(ranges: Ranges, code_point: int) -> bool:
    """Whether a code point is in one of these merged ranges."""
    place = bisect_right(ranges, (code_point, MAX_CODE_POINT)) - 1
    return place >= 0 and ranges[place][0] <= code_point <= ranges[place][1]
