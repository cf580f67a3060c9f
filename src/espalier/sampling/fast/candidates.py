"""The remaining candidates of one row of logits, as a small array, found without sorting V.

This module knows packed masks and logits: no config, no samplers, no draws.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask

NEG_INF = np.float32(-np.inf)
FEW = 8192
"""Up to so many allowed ids are looked up one by one."""
DEEP = 64
"""A row is viewed as a matrix with so many lines; the maximum of each column tells whether to look into the column."""
LEAST = 1e-15
"""Logits that differ by no more may have the same `exp`."""
Places = NDArray[np.intp]


@cache
def kernels(name: Literal["changes", "masked", "places", "rows", "steps", "sums"]) -> Any:
    """A module of numba kernels, imported when the first token is drawn."""
    return import_module(f"espalier.sampling.fast.kernels.{name}")


class Candidates(NamedTuple):
    """values: `(n,) float32`; -inf is no candidate. ids: `(n,)`, ascending; None if the index is the id. is_own:
    whether the values may be overwritten."""

    values: NDArray[np.float32]
    ids: NDArray[np.intp] | None
    is_own: bool

    def take(self, places: Places) -> Candidates:
        """The candidates at these indices, ascending."""
        return Candidates(self.values[places], places if self.ids is None else self.ids[places], True)

    def alive(self) -> Candidates:
        """Without the candidates at -inf."""
        return self.take(np.flatnonzero(self.values > NEG_INF))

    def mine(self, room: Logits | None = None) -> Candidates:
        """The candidates with values that may be overwritten, copied if necessary. room: `(V,) float32`, where to copy
        a whole row."""
        if self.is_own:
            return self
        if room is None or room.shape != self.values.shape:
            return Candidates(self.values.copy(), self.ids, True)
        np.copyto(room, self.values)
        return Candidates(room, self.ids, True)

    def id_of(self, place: int) -> int:
        return place if self.ids is None else int(self.ids[place])

    def ids_of(self, places: Places) -> Places:
        return places if self.ids is None else self.ids[places]

    def find(self, tokens: NDArray[np.intp]) -> tuple[Places, NDArray[np.bool_]]:
        """The indices of these tokens `(n,)`, and `(n,) bool`, which of them are candidates."""
        if self.ids is None:
            there = tokens < self.values.shape[0]
            return tokens[there], there
        if not self.ids.size:
            return self.ids, np.zeros(tokens.shape, dtype=np.bool_)
        places = np.searchsorted(self.ids, tokens)
        there = self.ids[np.minimum(places, self.ids.size - 1)] == tokens
        return places[there], there


def allowed(row: Logits, bits: Mask | None, room: Logits) -> Candidates:
    """The allowed candidates of a row. row: `(V,) float32`. bits: `(W,) int32` with no bit set from V on, or None for
    everything. room: `(V,) float32`, overwritten if many are allowed."""
    if bits is None:
        return Candidates(row, None, False)
    count = masks.count(bits)
    if count <= FEW:
        ids = np.empty(count, dtype=np.int64)  # (n,)
        values = np.empty(count, dtype=np.float32)  # (n,)
        left = kernels("masked").gather(row, bits.view(np.uint32), ids, values)
        return Candidates(values[:left], ids[:left], True)
    kernels("masked").mask_row(row, bits.view(np.uint32), room)
    return Candidates(room, None, True)


def leaders(values: NDArray[np.floating], k: int) -> Places:
    """Indices, ascending, of the k largest of `(n,)` and of all that tie with the last of them; possibly of some
    others. -inf is left out if n is large and k is small."""
    n = values.shape[0]
    columns = n // DEEP
    if k >= n:
        return np.arange(n)
    if k > columns or values.dtype != np.float32:
        edge = np.partition(values, n - k)[n - k]
        return np.flatnonzero(values >= edge)
    tops = peaks(values)
    return at_least(values, tops, np.partition(tops, columns - k)[columns - k])


def likely_leaders(values: Logits, k: int) -> Places:
    """`leaders`, and the values so close to them that their probability may be equal."""
    places = leaders(values, k)
    edge = values[places].min()
    wider = np.float32(float(edge) - LEAST)
    return places if wider == edge else np.flatnonzero(values >= wider)


def peaks(values: NDArray[np.floating]) -> NDArray[np.float32]:
    """`(n // DEEP,) float32`, the maximum of each column of a row viewed as DEEP lines."""
    columns = values.shape[0] // DEEP
    return np.asarray(values[: DEEP * columns].reshape(DEEP, columns).max(axis=0))


def at_least(values: NDArray[np.floating], tops: NDArray[np.float32], edge: np.floating) -> Places:
    """Indices, ascending, of values that are at least `edge` and not -inf. tops: from `peaks`."""
    columns = np.flatnonzero(tops >= edge)
    places = np.empty(columns.size * DEEP + values.shape[0] - tops.shape[0] * DEEP, dtype=np.int64)
    count = kernels("places").at_least(values, columns, tops.shape[0], DEEP, edge, places)
    return places[:count]
