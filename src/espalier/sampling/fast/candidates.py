"""What is left of one row of logits, kept small, and looked through without ever sorting V.

It knows masks as bits and logits as numbers: no config, no transforms, no draws.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask

NEG_INF = np.float32(-np.inf)
FEW = 8192
"""So many allowed ids, or fewer, are looked up one by one."""
DEEP = 64
"""A row is read as so many lines; the largest of each column says whether to look into the column."""
LEAST = 1e-15
"""Logits that differ by no more may have the same `exp`."""
Places = NDArray[np.intp]


@cache
def kernels() -> Any:
    """The module of the kernels: numba is loaded when the first token is drawn."""
    return import_module("espalier.sampling.fast.kernels")


class Candidates(NamedTuple):
    """values: `(n,) float32`; -inf is no candidate. ids: `(n,)`, ascending; None: the place is the id. is_own: whether
    the values may be written over."""

    values: NDArray[np.float32]
    ids: NDArray[np.intp] | None
    is_own: bool

    def take(self, places: Places) -> Candidates:
        """places: ascending."""
        return Candidates(self.values[places], places if self.ids is None else self.ids[places], True)

    def alive(self) -> Candidates:
        """Without what is -inf."""
        return self.take(np.flatnonzero(self.values > NEG_INF))

    def mine(self, room: Logits | None = None) -> Candidates:
        """With values that may be written over: these, or a copy. room: where to copy a row to, `(V,) float32`."""
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
        """Where these tokens `(n,)` are, and `(n,) bool`, which of them are there at all."""
        if self.ids is None:
            there = tokens < self.values.shape[0]
            return tokens[there], there
        if not self.ids.size:
            return self.ids, np.zeros(tokens.shape, dtype=np.bool_)
        places = np.searchsorted(self.ids, tokens)
        there = self.ids[np.minimum(places, self.ids.size - 1)] == tokens
        return places[there], there


def allowed(row: Logits, bits: Mask | None, room: Logits) -> Candidates:
    """row: `(V,) float32`. bits: `(W,) int32` with nothing set from V on, or None: everything. room: `(V,) float32`,
    written over where many are allowed."""
    if bits is None:
        return Candidates(row, None, False)
    count = masks.count(bits)
    if count <= FEW:
        ids = np.empty(count, dtype=np.int64)  # (n,)
        values = np.empty(count, dtype=np.float32)  # (n,)
        left = kernels().gather(row, bits.view(np.uint32), ids, values)
        return Candidates(values[:left], ids[:left], True)
    kernels().mask_row(row, bits.view(np.uint32), room)
    return Candidates(room, None, True)


def leaders(values: NDArray[np.floating], k: int) -> Places:
    """Places of `(n,)` that hold the k largest, and all that tie with the last of them, ascending; of others, some.
    -inf is left out where n is large and k is not."""
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
    """`leaders`, and what differs so little from them that its probability may be the same."""
    places = leaders(values, k)
    edge = values[places].min()
    wider = np.float32(float(edge) - LEAST)
    return places if wider == edge else np.flatnonzero(values >= wider)


def peaks(values: NDArray[np.floating]) -> NDArray[np.float32]:
    """`(n // DEEP,) float32`, the largest of each column of a row that is read as DEEP lines."""
    columns = values.shape[0] // DEEP
    return np.asarray(values[: DEEP * columns].reshape(DEEP, columns).max(axis=0))


def at_least(values: NDArray[np.floating], tops: NDArray[np.float32], edge: np.floating) -> Places:
    """The places, ascending, of what is at least `edge`, and not -inf. tops: the `peaks`."""
    columns = np.flatnonzero(tops >= edge)
    places = np.empty(columns.size * DEEP + values.shape[0] - tops.shape[0] * DEEP, dtype=np.int64)
    count = kernels().at_least(values, columns, tops.shape[0], DEEP, edge, places)
    return places[:count]
