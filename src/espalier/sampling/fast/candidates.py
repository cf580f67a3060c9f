"""The kernels, imported when the first token is drawn; and the largest logits of a row, found without sorting V.

This module knows packed masks and logits: no config, no samplers, no draws.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.kernels.group import KernelGroup
from espalier.sampling.fast.codes import TOP_K
from espalier.tokens import mask as masks
from espalier.tokens.mask import Logits, Mask

FEW = 8192
"""Up to so many allowed ids are looked up one by one."""
Places = NDArray[np.intp]


FOLDER = "espalier.sampling.fast.kernels"
ROWS = KernelGroup("rows of logits", [f"{FOLDER}.{name}" for name in ("masked", "places")], seconds=2)
DRAWS = KernelGroup(
    "drawing", [f"{FOLDER}.{name}" for name in ("sums", "rows", "steps", "listing", "changes", "leading")], seconds=26
)
"""What the plain functions do too, which are used until these kernels are compiled."""


@cache
def kernels(name: Literal["changes", "leading", "listing", "masked", "places", "rows", "steps", "sums"]) -> Any:
    """A module of numba kernels. What is in DRAWS must be ready."""
    ROWS.load()
    return import_module(f"{FOLDER}.{name}")


class CandidateRow(NamedTuple):
    """The allowed tokens of a row."""

    #: `(n,) float32`; -inf is no candidate
    values: NDArray[np.float32]
    #: `(n,)`, ascending; None if the index is the id
    ids: NDArray[np.intp] | None

    def ids_of(self, places: Places) -> Places:
        return places if self.ids is None else self.ids[places]

    def places_of(self, tokens: NDArray[np.intp]) -> Places:
        """The indices of these tokens `(n,)`, all of which are candidates."""
        return tokens if self.ids is None else np.searchsorted(self.ids, tokens)


def allowed(row: Logits, bits: Mask | None, room: Logits) -> CandidateRow:
    """The allowed candidates of a row. row: `(V,) float32`. bits: `(W,) int32` with no bit set from V on, or None for
    everything. room: `(V,) float32`, overwritten if many are allowed."""
    if bits is None:
        return CandidateRow(row, None)
    count = masks.count(bits)
    if count <= FEW:
        ids = np.empty(count, dtype=np.int64)  # (n,)
        values = np.empty(count, dtype=np.float32)  # (n,)
        left = kernels("masked").gather(row, bits.view(np.uint32), ids, values)
        return CandidateRow(values[:left], ids[:left])
    kernels("masked").mask_row(row, bits.view(np.uint32), room)
    return CandidateRow(room, None)


def leaders(values: NDArray[np.floating], k: int) -> Places:
    """Indices, ascending, of the k largest of `(n,)` and of all that tie with the last of them; possibly of some
    others. -inf may be left out."""
    n = values.shape[0]
    if k >= n:
        return np.arange(n)
    if values.dtype == np.float32 and DRAWS.is_loaded:
        row = values if values.flags.carray else np.require(values, requirements=("C", "W", "A"))
        places: Places = kernels("leading").leading(row, TOP_K, float(k), 0)
        return places
    return np.flatnonzero(values >= np.partition(values, n - k)[n - k])
