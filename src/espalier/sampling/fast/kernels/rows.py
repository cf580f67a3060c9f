"""Kernels from a row of logits to a token: mask, biases, all samplers in any order, and draw.

They know numbers only: no config and no samplers. A decision that hangs on the last digits of a sum is left to the
plain functions. Few allowed tokens become a list of candidates at once; a long row or list is changed and truncated as
it is, and what is left becomes one (`finishing.py`), or drawn from as it is.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from espalier.kernels.compiled import F32, F64, F64_ROWS, FLOAT, I32, I64, INT, kernel
from espalier.sampling.fast.codes import (
    BIASES,
    DOUBT,
    FIRST,
    GREEDY,
    LARGE,
    LEAST,
    PENALTIES,
    SAMPLERS,
    SIZE,
    SMALL,
    TEMPERATURE,
    TOP_N_SIGMA,
    TOP_P,
    XTC,
)
from espalier.sampling.fast.kernels.changes import bias, change, stays_best
from espalier.sampling.fast.kernels.finishing import finish
from espalier.sampling.fast.kernels.leading import first_largest, leading, likely
from espalier.sampling.fast.kernels.masked import copy_row, gather, is_set, mask_row, ones, words_of
from espalier.sampling.fast.kernels.places import taken
from espalier.sampling.fast.kernels.sums import find_mass
from espalier.tokens.mask import LARGEST

# compiled with: 0603133c

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings

DRAWING = (F32, I32, I64, I64, F64_ROWS, F64, F32, INT, FLOAT, FLOAT)
LAST = 96  # so many are truncated and drawn from as they are
SHORT = 1024  # so many, if the first truncation is not top_p, which has to rank them
THIN = 16  # a mask that allows one token of so many is listed
TINY = 1e-250  # a smaller sum of weights has lost digits


@kernel()
def _keeps_all(settings: Array, number: int, chance: float) -> bool:
    """Whether a sampler removes no token at this step."""
    code = settings[FIRST + SIZE * number]
    return bool(code >= PENALTIES or (code == XTC and chance > settings[FIRST + SIZE * number + 1]))


@kernel((*DRAWING, INT))
def show_row(
    row: Array,
    bits: Array,
    tokens: Array,
    said: Array,
    losses: Array,
    settings: Array,
    room: Array,
    favourite: int,
    chance: float,
    uniform: float,
    show: int,
) -> tuple[int, float, float, Array, Array, Array]:
    """Mask, biases, samplers and draw over row (V,) float32. Returns the token, its probability, its logit after the
    samplers; and the candidates that are left: ids (n,) int64, ascending, logits (n,) float32, and probabilities (n,)
    float64, -1 for those that were removed. The token is -1 where nothing is allowed, and where the plain functions
    have to decide: a sum is in doubt, or a logit leaves float32's range. Of a long row without truncation at least the
    `show` most probable candidates are listed, all that tie with them, and the token; none for 0.

    bits (W,) int32: a mask; ids beyond it are forbidden, (0,) allows everything. settings (n,) float64: as
    `codes.py` says. tokens, said, losses: as in `change`. favourite: the first of the largest of the row. room (V,)
    float32 is overwritten. chance: xtc's number.
    """
    width = row.shape[0]
    no_ids, no_values, no_probs = np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float64)
    nothing = -1, 0.0, 0.0, no_ids, no_values, no_probs
    words = words_of(width, bits)
    samplers, is_greedy, has_biases = int(settings[SAMPLERS]), settings[GREEDY] != 0.0, settings[BIASES] != 0.0
    if is_greedy and not has_biases and samplers < 2 and is_set(words, favourite):
        is_best = samplers == 0
        if samplers and settings[FIRST] == PENALTIES:
            is_best = stays_best(row, favourite, tokens, said, settings)
        if is_best:
            logits = row[favourite : favourite + 1].copy()
            return favourite, 1.0, np.float64(logits[0]), np.full(1, favourite), logits, np.ones(1)
    changes = 0  # so many samplers come before the first that removes tokens
    while changes < samplers and _keeps_all(settings, changes, chance):
        changes += 1
    is_last = changes == samplers
    heat = np.float32(1.0)  # a last temperature over a long row divides as it is summed
    if changes and is_last and not is_greedy and settings[FIRST + SIZE * (changes - 1)] == TEMPERATURE:
        value = settings[FIRST + SIZE * (changes - 1) + 1]
        if SMALL <= value <= LARGE:
            heat = np.float32(value)
            changes -= 1
    ids, values, top = no_ids, row, row[favourite]
    allowed = ones(words) if words.shape[0] else width
    has_ids = words.shape[0] > 0 and allowed <= max(LAST, width // THIN)
    if has_ids:
        ids, values = np.empty(allowed, np.int64), np.empty(allowed, np.float32)
        count = gather(row, words, ids, values)
        ids, values = ids[:count], values[:count]
        if not count:
            return nothing
    elif words.shape[0]:
        mask_row(row, words, room)
        values = room
    elif changes or has_biases:
        copy_row(row, room)
        values = room
    if has_biases:
        top = bias(values, ids, settings, top)
    for number in range(changes):
        if settings[FIRST + SIZE * number] == XTC:
            continue
        top, is_sure = change(values, ids, settings, FIRST + SIZE * number, tokens, said, losses, top)
        if not is_sure:
            return nothing
    if is_greedy:
        index = first_largest(values)
        if index < 0:
            return nothing
        token = ids[index] if has_ids else index
        return token, 1.0, np.float64(values[index]), np.full(1, token), values[index : index + 1].copy(), np.ones(1)
    if values.shape[0] > LAST and is_last:
        return _draw_long(values, ids, top, heat, uniform, show)
    code = int(settings[FIRST + SIZE * changes]) if changes < samplers else -1
    if values.shape[0] > (LAST if code == TOP_P or is_last else SHORT):
        places = leading(values, code, settings[FIRST + SIZE * changes + 1], int(settings[LEAST]))
        values = taken(values, places)
        ids = taken(ids, places) if has_ids else places
        if code in (TOP_P, TOP_N_SIGMA):
            changes += 1
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
    index, is_sure = finish(values, ids, settings, changes, tokens, said, losses, chance, uniform, probs)
    if not is_sure:
        return nothing
    return ids[index], probs[index], np.float64(values[index]), ids, values, probs


@kernel()
def _draw_long(
    values: Array, ids: Array, top: Any, heat: Any, uniform: float, show: int
) -> tuple[int, float, float, Array, Array, Array]:
    """Draw from values (n,) float32, divided by heat, float32; the rest is as in `show_row`."""
    no_ids, no_values, no_probs = np.empty(0, np.int64), np.empty(0, np.float32), np.empty(0, np.float64)
    nothing = -1, 0.0, 0.0, no_ids, no_values, no_probs
    hot = np.float64(top / heat)
    if not abs(hot) < LARGEST:
        return nothing
    index, weight, total, before, after = find_mass(values, heat, hot, uniform)
    target = uniform * total
    if total < TINY or target - before < DOUBT * total or after - target < DOUBT * total:
        return nothing
    token, logit = ids[index] if ids.shape[0] else index, max(np.float64(values[index] / heat), -LARGEST)
    if not show:
        return token, weight / total, logit, no_ids, no_values, no_probs
    listed = likely(values, show)
    if not listed.shape[0]:
        return nothing
    places, count, is_listed = np.empty(listed.shape[0] + 1, np.int64), 0, False  # with the token's
    for place in listed:
        if place >= index and not is_listed:
            places[count] = index
            count += 1
            is_listed = True
        if place != index:
            places[count] = place
            count += 1
    if not is_listed:
        places[count] = index
        count += 1
    places = places[:count]
    logits, probs = np.empty(places.shape[0], np.float32), np.empty(places.shape[0], np.float64)
    for k in range(places.shape[0]):
        logits[k] = np.float32(max(np.float64(values[places[k]] / heat), -LARGEST))
        probs[k] = math.exp(np.float64(logits[k]) - hot) / total
        if probs[k] == 0.0:  # a candidate whose weight underflowed ties with all others that did
            return nothing
    return token, weight / total, logit, taken(ids, places) if ids.shape[0] else places, logits, probs


@kernel(DRAWING)
def draw_row(
    row: Array,
    bits: Array,
    tokens: Array,
    said: Array,
    losses: Array,
    settings: Array,
    room: Array,
    favourite: int,
    chance: float,
    uniform: float,
) -> tuple[int, float, float]:
    """`show_row` without the candidates: the token, or -1, its probability and its logit after the samplers."""
    show: Any = np.int64(0)  # a literal would be compiled for itself
    drawn = show_row(row, bits, tokens, said, losses, settings, room, favourite, chance, uniform, show)
    return drawn[0], drawn[1], drawn[2]
