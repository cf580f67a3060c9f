"""The characters that a set of patterns tells apart, as a few classes: those of one lead every pattern the same way.

It knows sets of code points and which of them are folded, no patterns and no bytes.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.constraints.safety.folding import folded_points
from espalier.grammar.ranges import MAX_CODE_POINT, SURROGATES, Ranges


class Label(NamedTuple):
    """A set of characters. folded: it holds a character if it holds the one that stands for it."""

    ranges: Ranges
    folded: bool


class Alphabet:
    """K classes. Made from every set of characters that is asked about later."""

    def __init__(self, labels: Iterable[Label]) -> None:
        distinct = list(dict.fromkeys(labels))
        points, heads = folded_points()  # (n,)
        # Half of a pair is no character: a class of it would be one that no text ever has.
        edges = [0, SURROGATES[0], SURROGATES[1] + 1, MAX_CODE_POINT + 1]
        edges += [bound for label in distinct for low, high in label.ranges for bound in (low, high + 1)]
        bounds = np.unique(np.concatenate([np.array(edges, dtype=np.int64), points, points + 1]))  # (G + 1,)
        self._first = bounds[:-1]  # (G,), the first character of each segment: all of it fare alike
        at = np.searchsorted(points, self._first)
        at[at == len(points)] = 0
        head = np.where(points[at] == self._first, heads[at], self._first)  # (G,)
        rows = [_holds(label.ranges, head if label.folded else self._first) for label in distinct]
        member = np.array(rows, dtype=np.bool_).reshape(len(distinct), len(self._first))  # (L, G)
        half = self._first == SURROGATES[0]
        member[:, half] = member[:, :1]
        packed = np.packbits(member, axis=0)  # (ceil(L / 8), G)
        _, first, which = np.unique(packed, axis=1, return_index=True, return_inverse=True)
        self.count = len(first)
        self._which: NDArray[np.int64] = which.reshape(-1)  # (G,)
        self._sets: dict[Label, NDArray[np.bool_]] = dict(zip(distinct, member[:, first], strict=True))

    def of(self, label: Label) -> NDArray[np.bool_]:
        """The classes of a set that the alphabet was made from, `(K,)`."""
        return self._sets[label]

    @cached_property
    def points(self) -> NDArray[np.int16]:
        """The class of each code point, `(0x110000,)`; -1 for half of a pair."""
        lengths = np.diff(np.append(self._first, MAX_CODE_POINT + 1))
        found = np.repeat(self._which, lengths).astype(np.int16)
        found[SURROGATES[0] : SURROGATES[1] + 1] = -1
        return found

    def class_of(self, character: str) -> int:
        return int(self._which[np.searchsorted(self._first, ord(character), side="right") - 1])


def _holds(ranges: Ranges, points: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Which of the points are in the ranges."""
    edges = np.array([bound for low, high in ranges for bound in (low, high + 1)], dtype=np.int64)
    found: NDArray[np.bool_] = np.searchsorted(edges, points, side="right") % 2 == 1
    return found
