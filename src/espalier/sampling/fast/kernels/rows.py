"""Kernels from a row of logits to a token: mask, penalties, truncation, temperature and draw.

They know numbers only: no config and no samplers. A decision that hangs on the last digits of a sum is left to the
plain functions. Few allowed tokens become a list of candidates at once; a long row or list is truncated first, or drawn
from as it is.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numba
import numpy as np

from espalier.sampling.fast.kernels.finishing import finish
from espalier.sampling.fast.kernels.leading import first_largest, leading
from espalier.sampling.fast.kernels.masked import (
    copy_row,
    divide,
    gather,
    is_set,
    mask_row,
    ones,
    penalise,
    stays_best,
    words_of,
)
from espalier.sampling.fast.kernels.places import taken
from espalier.sampling.fast.kernels.sums import find_mass
from espalier.tokens.mask import LARGEST

# compiled with: 80eaa0f1

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings

LAST = 96  # so many are truncated and drawn from as they are
SHORT = 1024  # so many, if the first truncation is not top_p, which has to rank them
THIN = 16  # a mask that allows one token of so many is listed
TINY = 1e-250  # a smaller sum of weights has lost digits
GREEDY, LISTING = 1, 2  # modes: the most probable token is taken; candidates have to be listed
LEAST, EARLY, HEAT, MODE, DOUBT, PENALTIES, REST = range(7)  # places in `settings`


@numba.njit(cache=True, nogil=True, boundscheck=False)
def show_row(
    row: Array,
    bits: Array,
    permitted: Array,
    tokens: Array,
    produced: Array,
    settings: Array,
    room: Array,
    favourite: int,
    uniform: float,
) -> tuple[int, float, int, Array, Array, Array]:
    """Mask, penalties, truncation, temperature and draw over row (V,) float32. Returns the token, its probability, its
    index among the candidates, and the candidates: ids (n,) int64, logits before the last temperature (n,) float32, and
    probabilities (n,) float64, -1 for those that were removed. The token is -1 where nothing is allowed, and where the
    plain functions have to decide: a sum is in doubt, too many candidates are left to rank, or a logit leaves float32's
    range. The index is -1 where
    the token was drawn from a long row without truncation: nothing is listed.

    bits, permitted (W,) int32: masks; ids beyond them are forbidden, (0,) allows everything. tokens, produced (m,)
    int64: as in `penalise`. favourite: the first of the largest of the row. room (V,) float32 is overwritten.
    settings: (6 + p + 2 n,) float64: `min_keep`, the temperature before and the one after the truncation, the mode,
    the share of a sum that is in doubt, p, the p = 0 or 4 factors of the penalties, and the codes and the amounts of n
    samplers as in `finish`.
    """
    width, heat, doubt = row.shape[0], np.float32(settings[HEAT]), settings[DOUBT]
    early = np.float32(settings[EARLY])
    least, mode, is_penalised = int(settings[LEAST]), int(settings[MODE]), settings[PENALTIES] != 0.0
    first = REST + int(settings[PENALTIES])
    samplers = (settings.shape[0] - first) // 2
    codes, amounts = settings[first : first + samplers], settings[first + samplers :]
    ids, no_values, probs = np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float64)
    nothing = -1, 0.0, 0, ids, no_values, probs
    words = words_of(width, bits, permitted)
    factors = settings[REST:first].astype(np.float32)
    is_best = mode == GREEDY and is_set(words, favourite)
    if is_best and (not is_penalised or stays_best(row, favourite, tokens, produced, factors)):
        return favourite, 1.0, 0, np.full(1, favourite), row[favourite : favourite + 1].copy(), np.ones(1)
    allowed = ones(words) if words.shape[0] else width
    has_ids, values, top = words.shape[0] > 0 and allowed <= max(LAST, width // THIN), row, row[favourite]
    if has_ids:
        ids, values = np.empty(allowed, np.int64), np.empty(allowed, np.float32)
        count = gather(row, words, ids, values)
        ids, values = ids[:count], values[:count]
    elif words.shape[0]:
        mask_row(row, words, room)
        values = room
    elif is_penalised or early != np.float32(1.0):
        copy_row(row, room)
        values = room
    if is_penalised:
        top = max(
            top,
            penalise(values, ids, has_ids, tokens, produced, factors[0], factors[1], factors[2], factors[3]),
        )
    if not values.shape[0]:
        return nothing
    if mode == GREEDY:
        index = first_largest(values)
        if index < 0:
            return nothing
        token = ids[index] if has_ids else index
        return token, 1.0, 0, np.full(1, token), values[index : index + 1].copy(), np.ones(1)
    if early != np.float32(1.0) and not divide(values, early):
        return nothing
    if values.shape[0] > LAST and not samplers:
        hot = np.float64(top / heat)
        if mode == LISTING or not abs(hot) < LARGEST:
            return nothing
        index, weight, total, before, after = find_mass(values, heat, hot, uniform)
        target = uniform * total
        if total < TINY or target - before < doubt * total or after - target < doubt * total:
            return nothing
        return (ids[index] if has_ids else index), weight / total, -1, ids, no_values, probs
    if values.shape[0] > (SHORT if samplers and codes[0] != 1 else LAST):
        places = leading(values, int(codes[0]), amounts[0], least, doubt)
        values = taken(values, places)
        ids = taken(ids, places) if has_ids else places
        if codes[0] == 1:
            codes, amounts = codes[1:], amounts[1:]
    elif not has_ids:
        count = 0
        ids = np.empty(values.shape[0], np.int64)
        for i in range(values.shape[0]):
            ids[count] = i
            count += values[i] > -np.inf
        ids = ids[:count]
        values = taken(values, ids)
    if not values.shape[0]:
        return nothing
    probs = np.empty(values.shape[0], np.float64)
    index, is_sure = finish(values, codes, amounts, least, heat, uniform, doubt, probs)
    if not is_sure:
        return nothing
    return ids[index], probs[index], index, ids, values, probs


@numba.njit(cache=True, nogil=True, boundscheck=False)
def draw_row(
    row: Array,
    bits: Array,
    permitted: Array,
    tokens: Array,
    produced: Array,
    settings: Array,
    room: Array,
    favourite: int,
    uniform: float,
) -> tuple[int, float]:
    """`show_row` without the candidates: the token, or -1, and its probability."""
    drawn = show_row(row, bits, permitted, tokens, produced, settings, room, favourite, uniform)
    return drawn[0], drawn[1]
