"""Kernels for the record of a step: all sums over one row of logits, from the packed mask, and the draw in one call."""

from __future__ import annotations

from typing import Any, TypeAlias

import numba
import numpy as np

from espalier.sampling.fast.kernels.exponential import RUN, added, divide, spread_of, weights
from espalier.sampling.fast.kernels.masked import is_set, ones, penalise, penalised, words_of
from espalier.sampling.fast.kernels.rows import EARLY, GREEDY, HEAT, MODE, PENALTIES, REST, draw_row
from espalier.tokens.mask import LARGEST

# compiled with: 272c5edc

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings

NOTHING = np.zeros(0, dtype=np.int32)  # (0,)


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _keep(words: Array, out: Array) -> bool:
    """Set the weights in out (RUN,) float64 of tokens that words (n,) uint32 forbid to 0; returns whether any is
    allowed."""
    some = False
    for word in range(words.shape[0]):
        bits = words[word]
        some |= bits != 0
        for j in range(32):
            i = word * 32 + j
            out[i] = out[i] if (bits >> np.uint32(j)) & np.uint32(1) else 0.0
    return some


@numba.njit(cache=True, nogil=True, boundscheck=False)
def _shares(row: Array, words: Array, heat: Any, top: float) -> tuple[float, float]:
    """The sum of exp(row / heat - top) over row (V,) float32, and that over the tokens of words (W,) uint32."""
    out, heated = np.empty(RUN, dtype=np.float64), np.empty(RUN, dtype=np.float32)
    total, inside = 0.0, 0.0
    for start in range(0, row.shape[0], RUN):
        part = row[start : start + RUN]
        count = part.shape[0]
        weights(divide(part, heat, heated), top, out)
        total += added(out[:count])
        if _keep(words[start >> 5 : (start + count + 31) >> 5], out):
            inside += added(out[:count])
    return total, inside


@numba.njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")
def heated_logit(row: Array, token: int, tokens: Array, produced: Array, penalties: Array, heat: Any) -> float:
    """The logit of one token after penalties and temperature. row (V,) float32; heat: float32; the rest as in
    `penalise`, penalties (4,) or (0,) float32."""
    value = row[token]
    if penalties.shape[0] and value > -np.inf:
        for k in range(tokens.shape[0]):
            if tokens[k] == token:
                value = penalised(value, produced[k], penalties[0], penalties[1], penalties[2], penalties[3])
    return max(np.float64(np.float32(value / heat)), -LARGEST)


@numba.njit(cache=True, nogil=True, boundscheck=False, error_model="numpy")
def sum_step(
    row: Array,
    words: Array,
    tokens: Array,
    produced: Array,
    penalties: Array,
    heat: Any,
    wants_mass: bool,
    best: int,
    room: Array,
) -> tuple[float, float, float, float, float, int, bool]:
    """All sums of a step. row (V,) float32, finite or -inf, whose first maximum is at `best`; words (W,) uint32, the
    allowed tokens, (0,) for all; room (V,) float32, overwritten; the rest as in `heated_logit`.

    With w = exp(row - maximum): the sums of w and of w * (row - maximum); both over the allowed tokens alone; the share
    of the allowed tokens after penalties and temperature, -1 without `wants_mass` and where float64 cannot hold it; how
    many are allowed; and whether `best` is.
    """
    top = np.float64(row[best])
    out = np.empty(RUN, dtype=np.float64)
    total, spread, inside, inside_spread, mass = 0.0, 0.0, 0.0, 0.0, -1.0
    for start in range(0, row.shape[0], RUN):
        part = row[start : start + RUN]
        count = part.shape[0]
        weights(part, top, out)
        total += added(out[:count])
        spread += spread_of(part, top, out)
        if words.shape[0] and _keep(words[start >> 5 : (start + count + 31) >> 5], out):
            inside += added(out[:count])
            inside_spread += spread_of(part, top, out)
    if words.shape[0] and wants_mass:
        highest = row[best]
        heated = row
        if penalties.shape[0]:
            for i in range(row.shape[0]):
                room[i] = row[i]
            heated = room[: row.shape[0]]
            raised = penalise(
                heated, tokens, False, tokens, produced, penalties[0], penalties[1], penalties[2], penalties[3]
            )
            highest = max(highest, raised)
        if abs(highest / heat) < LARGEST:
            whole, part_inside = total, inside  # what was summed above is the same
            if penalties.shape[0] or heat != np.float32(1.0):
                whole, part_inside = _shares(heated, words, heat, np.float64(highest / heat))
            if part_inside > 1e-200:
                mass = part_inside / whole
    allowed = ones(words) if words.shape[0] else row.shape[0]
    return total, spread, inside, inside_spread, mass, allowed, is_set(words, best)


@numba.njit(cache=True, nogil=True, boundscheck=False)
def draw_and_sum(
    row: Array,
    bits: Array,
    permitted: Array,
    tokens: Array,
    produced: Array,
    settings: Array,
    room: Array,
    favourite: int,
    uniform: float,
    allowed: Array,
) -> tuple[int, float, bool, float, float, float, float, float, float, float, float, int, bool]:
    """`draw_row`, and `sum_step` over what allowed (W,) int32 leaves, (0,) for all.

    Returns the token, or -1 as `draw_row`; its probability; whether it is allowed: if not, nothing is summed; its
    logit, and that after penalties and temperature; the largest logit; then as `sum_step`.
    """
    nothing = 0.0, 0.0, 0.0, 0.0, 0.0, -1.0, 0, False
    token, prob = draw_row(row, bits, permitted, tokens, produced, settings, room, favourite, uniform)
    if token < 0:
        return -1, 0.0, False, 0.0, 0.0, *nothing
    heat = np.float32(settings[EARLY]) * np.float32(settings[HEAT])  # one of the two is 1
    penalties = settings[REST : REST + int(settings[PENALTIES])].astype(np.float32)
    logit = np.float64(row[token])
    words = words_of(row.shape[0], allowed, NOTHING)
    hot = heated_logit(row, token, tokens, produced, penalties, heat)
    if not is_set(words, token):
        return token, prob, False, logit, hot, *nothing
    wants_mass = settings[MODE] != GREEDY
    total, spread, inside, inside_spread, mass, count, is_best = sum_step(
        row, words, tokens, produced, penalties, heat, wants_mass, favourite, room
    )
    top = np.float64(row[favourite])
    return token, prob, True, logit, hot, top, total, spread, inside, inside_spread, mass, count, is_best
