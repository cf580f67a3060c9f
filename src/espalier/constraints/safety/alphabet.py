"""Splits all characters into the few classes that a set of patterns can tell apart.

It knows sets of code points and whether they are folded, but no patterns and no bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.computed import computed
from espalier.constraints.safety.folding import folded_points
from espalier.grammar.ranges import MAX_CODE_POINT, SURROGATES, Ranges
from espalier.time_limit import check as check_time


class CharSet(NamedTuple):
    """A set of characters. folded: case and width are ignored, so a character belongs to it if its representative does
    (`folding.py`)."""

    ranges: Ranges
    folded: bool


class Alphabet:
    """K classes of characters, made from all the sets that will be asked for."""

    def __init__(self, char_sets: Iterable[CharSet]) -> None:
        distinct = list(dict.fromkeys(char_sets))
        points, heads = folded_points()  # (n,)
        # Surrogates are no characters: a class of their own would be one that no text ever has.
        edges = [0, SURROGATES[0], SURROGATES[1] + 1, MAX_CODE_POINT + 1]
        edges += [bound for char_set in distinct for low, high in char_set.ranges for bound in (low, high + 1)]
        bounds = np.unique(np.concatenate([np.array(edges, dtype=np.int64), points, points + 1]))  # (G + 1,)
        self._first = bounds[:-1]  # (G,), the first character of each segment of equivalent characters
        at = np.searchsorted(points, self._first)
        at[at == len(points)] = 0
        head = np.where(points[at] == self._first, heads[at], self._first)  # (G,)
        rows = []
        for char_set in distinct:
            check_time()
            rows.append(_holds(char_set.ranges, head if char_set.folded else self._first))
        member = np.array(rows, dtype=np.bool_).reshape(len(distinct), len(self._first))  # (L, G)
        half = self._first == SURROGATES[0]
        member[:, half] = member[:, :1]
        packed = np.packbits(member, axis=0)  # (ceil(L / 8), G)
        _, first, which = np.unique(packed, axis=1, return_index=True, return_inverse=True)
        self.count = len(first)
        self._which: NDArray[np.int64] = which.reshape(-1)  # (G,)
        self._sets: dict[CharSet, NDArray[np.bool_]] = dict(zip(distinct, member[:, first], strict=True))

    def of(self, char_set: CharSet) -> NDArray[np.bool_]:
        """The classes that make up one of the sets, `(K,) bool`."""
        return self._sets[char_set]

    @property
    def segments(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """The first character of each segment of equivalent characters, ascending, and its class, `(G,) int64` each."""
        return self._first, self._which

    @computed
    def points(self) -> NDArray[np.int16]:
        """The class of each code point, `(0x110000,) int16`; -1 for surrogates."""
        lengths = np.diff(np.append(self._first, MAX_CODE_POINT + 1))
        classes = np.repeat(self._which, lengths).astype(np.int16)
        classes[SURROGATES[0] : SURROGATES[1] + 1] = -1
        return classes

    def class_of(self, character: str) -> int:
        """The class of one character."""
        return int(self._which[np.searchsorted(self._first, ord(character), side="right") - 1])


def _holds(ranges: Ranges, points: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the code points are in the ranges, `(n,) bool`."""
    edges = np.array([bound for low, high in ranges for bound in (low, high + 1)], dtype=np.int64)
    inside: NDArray[np.bool_] = np.searchsorted(edges, points, side="right") % 2 == 1
    return inside
