"""Kernel for the record of a step: all sums over one row of logits, from the packed mask."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from espalier.kernels.compiled import BOOL, F32, F64, F64_ROWS, I32, I64, INT, kernel
from espalier.sampling.fast.codes import BIASES, FIRST, LARGE, SAMPLERS, SIZE, SMALL, TEMPERATURE
from espalier.sampling.fast.kernels.changes import heat_row
from espalier.sampling.fast.kernels.masked import is_set, ones, words_of
from espalier.sampling.fast.kernels.sums import share_of, sum_row
from espalier.tokens.mask import LARGEST

# compiled with: 5be5bcb9

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings


@kernel((F32, I32, I64, I64, F64_ROWS, F64, F32, INT, BOOL), error_model="numpy")
def sum_step(
    row: Array,
    bits: Array,
    tokens: Array,
    said: Array,
    losses: Array,
    settings: Array,
    room: Array,
    favourite: int,
    wants_share: bool,
) -> tuple[float, float, float, float, float, int, bool]:
    """All sums of a step. row (V,) float32, finite or -inf, whose first maximum is at `favourite`; settings: of the
    biases and the samplers that remove no token; room (V,) float32, overwritten; the rest is as in `show_row`.

    With w = exp(row - maximum): the sums of w and of w * (row - maximum); both over the allowed tokens alone; the share
    of the allowed tokens after biases and samplers, -1 without `wants_share` and where it has to be computed otherwise;
    how many are allowed; and whether `favourite` is.
    """
    words = words_of(row.shape[0], bits)
    total, spread, inside, inside_spread = sum_row(row, words, np.float64(row[favourite]))
    share = -1.0
    if not words.shape[0]:
        return total, spread, inside, inside_spread, 1.0 if wants_share else -1.0, row.shape[0], True
    if wants_share:
        samplers, heat, top, is_sure, heated = int(settings[SAMPLERS]), np.float32(1.0), row[favourite], True, row
        last = FIRST + SIZE * (samplers - 1)
        if samplers and settings[last] == TEMPERATURE and SMALL <= settings[last + 1] <= LARGE:
            samplers, heat = samplers - 1, np.float32(settings[last + 1])
        if samplers or settings[BIASES]:
            top, is_sure = heat_row(row, settings, tokens, said, losses, samplers, top, room)
            heated = room
        if not (samplers or settings[BIASES]) and heat == np.float32(1.0):
            share = inside / total if inside > 1e-200 else -1.0  # what was summed above is the same
        elif is_sure and abs(top / heat) < LARGEST:
            share = share_of(heated, words, heat, np.float64(top / heat))
    return total, spread, inside, inside_spread, share, ones(words), is_set(words, favourite)
