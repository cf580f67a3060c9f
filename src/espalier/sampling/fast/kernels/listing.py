"""Kernels that write a step into two rows of numbers: its sums, and the best tokens before the mask, after it, and of
what was drawn from. `codes.py` says what stands where.
"""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from espalier.kernels.compiled import BOOL, F32, F64, F64_ROWS, I32, I64, I64_ROWS, INT, kernel
from espalier.sampling.fast.codes import (
    AFTER,
    ALLOWED,
    BEFORE,
    CHAIN,
    COUNT,
    FIGURES,
    IS_BEST,
    LOG_ALLOWED,
    LOG_TOTAL,
    LOGIT,
    LOGPROB,
    NUMBERS,
    PROB,
    REMOVED,
    TAX,
    TOKEN,
    WANTED,
    Z,
)
from espalier.sampling.fast.kernels.masked import gather, mask_row, ones, words_of
from espalier.sampling.fast.kernels.places import best
from espalier.sampling.fast.kernels.rows import DRAWING, THIN, show_row
from espalier.sampling.fast.kernels.steps import sum_step

# compiled with: d7895750

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings

NONE = np.empty(0, dtype=np.bool_)  # (0,)
LEAST = 1e-200  # smaller sums of weights have lost digits


@kernel((*DRAWING, INT, I64_ROWS, F64_ROWS, INT))
def draw_listed(
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
    numbers: Array,
    figures: Array,
    at: int,
) -> tuple[int, float, float]:
    """Draw as `draw_row` does, and write the token, the `show` best candidates that it was drawn from, and itself, to
    row `at` of numbers (n, N) int64 and figures (n, F) float64. Returns what `draw_row` does."""
    token, prob, logit, ids, logits, probs = show_row(
        row, bits, tokens, said, losses, settings, room, favourite, chance, uniform, max(1, show)
    )
    if token < 0:
        return -1, 0.0, 0.0
    places = np.empty(min(show, ids.shape[0]), np.int64)
    count = best(probs, probs >= 0.0, True, places) if places.shape[0] else 0
    line, sums = numbers[at], figures[at]
    width = (line.shape[0] - NUMBERS) // 4
    first, first_logit = NUMBERS + 3 * width, FIGURES + 2 * width
    is_listed = False
    for k in range(count):
        place = places[k]
        line[first + k] = ids[place]
        sums[first_logit + k] = logits[place]
        sums[first_logit + width + k] = probs[place]
        is_listed |= ids[place] == token
    if not is_listed:
        place = np.searchsorted(ids, token)
        line[first + count] = token
        sums[first_logit + count] = logits[place]
        sums[first_logit + width + count] = probs[place]
        count += 1
    line[TOKEN] = token
    line[CHAIN] = count
    sums[PROB] = prob
    sums[LOGIT] = logit
    return token, prob, logit


@kernel()
def _list(row: Array, ids: Array, values: Array, show: int, token: int, line: Array, sums: Array) -> int:
    """Write the `show` best of values (n,) float32, which are at ids (n,) int64 (or at their index) of row (V,)
    float32, and the token to the beginnings of line and sums. Returns how many."""
    places = np.empty(min(show, values.shape[0]), np.int64)
    count = best(values, NONE, False, places) if places.shape[0] else 0
    is_listed = False
    for k in range(count):
        place = places[k]
        listed = ids[place] if ids.shape[0] else place
        line[k] = listed
        sums[k] = values[place]
        is_listed |= listed == token
    if not is_listed:
        line[count] = token
        sums[count] = row[token]
        count += 1
    return count


@kernel((F32, I32, I64, I64, F64_ROWS, F64, F32, INT, BOOL, INT, I64_ROWS, F64_ROWS, INT), error_model="numpy")
def list_step(
    row: Array,
    bits: Array,
    tokens: Array,
    said: Array,
    losses: Array,
    settings: Array,
    room: Array,
    favourite: int,
    wants_share: bool,
    show: int,
    numbers: Array,
    figures: Array,
    at: int,
) -> int:
    """Write the sums of a step that was drawn by `draw_listed`, and its `show` best tokens before the mask and after
    it. Arguments as there and in `sum_step`. Returns 1 if `favourite` is allowed, else 0; -1 where float64 cannot hold
    a sum."""
    line, sums = numbers[at], figures[at]
    token, width = line[TOKEN], (line.shape[0] - NUMBERS) // 4
    total, spread, inside, inside_spread, share, count, is_best = sum_step(
        row, bits, tokens, said, losses, settings, room, favourite, wants_share
    )
    top = np.float64(row[favourite])
    log_total = top + math.log(total)
    before = max(0.0, math.log(total) - spread / total)
    sums[LOG_TOTAL] = log_total
    sums[BEFORE] = before
    sums[LOGPROB] = np.float64(row[token]) - log_total
    sums[Z] = share if wants_share else np.nan
    line[COUNT] = count
    line[IS_BEST] = is_best
    words = words_of(row.shape[0], bits)
    no_ids = np.empty(0, np.int64)
    wanted = _list(row, no_ids, row, show, token, line[NUMBERS:], sums[FIGURES:])
    line[WANTED] = wanted
    for k in range(wanted):
        listed = line[NUMBERS + k]
        is_allowed = not words.shape[0] or bool((words[listed >> 5] >> np.uint32(listed & 31)) & np.uint32(1))
        line[NUMBERS + width + k] = is_allowed
    if not words.shape[0]:
        sums[TAX], sums[REMOVED], sums[AFTER], sums[LOG_ALLOWED] = 0.0, 0.0, before, log_total
        for k in range(wanted):
            line[NUMBERS + 2 * width + k] = line[NUMBERS + k]
            sums[FIGURES + width + k] = sums[FIGURES + k]
        line[ALLOWED] = wanted
        return 1
    if inside < LEAST or (wants_share and share < 0.0):
        return -1
    log_allowed = top + math.log(inside)
    tax = max(0.0, log_total - log_allowed)
    sums[LOG_ALLOWED] = log_allowed
    sums[TAX] = tax
    sums[REMOVED] = -math.expm1(-tax)
    sums[AFTER] = max(0.0, math.log(inside) - inside_spread / inside)
    after, after_sums = line[NUMBERS + 2 * width :], sums[FIGURES + width :]
    if ones(words) <= row.shape[0] // THIN:
        ids, values = np.empty(ones(words), np.int64), np.empty(ones(words), np.float32)
        left = gather(row, words, ids, values)
        line[ALLOWED] = _list(row, ids[:left], values[:left], show, token, after, after_sums)
    else:
        masked = np.empty(row.shape[0], np.float32)
        mask_row(row, words, masked)
        line[ALLOWED] = _list(row, no_ids, masked, show, token, after, after_sums)
    return 1 if is_best else 0
