"""Kernels of what changes logits and removes none: biases, penalties, DRY, temperatures."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from espalier.kernels.compiled import F32, F64, F64_ROWS, FLOAT32, I64, INT, kernel
from espalier.sampling.fast.codes import BIASES, DRY, DYNAMIC, FIRST, LARGE, PENALTIES, SAMPLERS, SIZE, SLACK, SMALL
from espalier.sampling.fast.kernels.exponential import weight
from espalier.tokens.mask import LARGEST

# compiled with: 810e4960

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings

HIGHEST = np.float32(LARGEST)


@kernel()
def _find(ids: Array, token: int) -> int:
    """The index of token in ids (n,) int64, ascending; -1 if it is missing."""
    low, high = 0, ids.shape[0]
    while low < high:
        middle = (low + high) >> 1
        if ids[middle] < token:
            low = middle + 1
        else:
            high = middle
    return low if low < ids.shape[0] and ids[low] == token else -1


@kernel()
def _finite(value: Any) -> Any:
    """Clip a float32 to its finite range."""
    if value > HIGHEST:
        return HIGHEST
    return -HIGHEST if value < -HIGHEST else value  # noqa: FURB136  # as the plain function does with NaN


@kernel(error_model="numpy")
def penalised(value: Any, times: int, repetition: Any, frequency: Any, presence: Any) -> Any:
    """The new value of a logit, float32 as the amounts, not -inf, of a token that was generated `times` times."""
    if repetition != np.float32(1.0):
        value = _finite(value * repetition if value <= 0 else value / repetition)
    if times:
        value = _finite(value - _finite(np.float32(times) * frequency + presence))
    return value


@kernel(error_model="numpy")
def stays_best(row: Array, best: int, tokens: Array, said: Array, settings: Array) -> bool:
    """Whether penalties leave the logit of `best` in row (V,) float32 as it is, and raise none to it."""
    amounts = settings[FIRST + 1 : FIRST + SIZE].astype(np.float32)
    for k in range(tokens.shape[0]):
        if tokens[k] == best:
            return False
        if tokens[k] < row.shape[0] and row[tokens[k]] > -np.inf:
            value = penalised(row[tokens[k]], said[k], amounts[0], amounts[1], amounts[2])
            if value >= row[best]:
                return False
    return True


@kernel()
def bias(values: Array, ids: Array, settings: Array, top: Any) -> Any:
    """Add the biases to values (n,) float32 of ids (n,) int64, ascending, (0,) for all ids from 0 on. Returns the
    largest of the new values and top."""
    count = int(settings[BIASES])
    start = FIRST + SIZE * int(settings[SAMPLERS])
    for k in range(count):
        index = int(settings[start + k])
        if ids.shape[0]:
            index = _find(ids, index)
        if 0 <= index < values.shape[0] and values[index] > -np.inf:
            value = np.float64(values[index]) + settings[start + count + k]
            values[index] = np.float32(min(max(value, -LARGEST), LARGEST))
            top = max(top, values[index])
    return top


@kernel(error_model="numpy")
def _divide(values: Array, heat: Any) -> bool:
    """Divide values (n,) float32 by heat, float32, in place. False where one that is finite leaves float32's range."""
    lost = 0
    for i in range(values.shape[0]):
        value = values[i] / heat
        lost += (abs(value) == np.inf) & (values[i] > -np.inf)
        values[i] = value
    return lost == 0


@kernel(error_model="numpy")
def _dynamic(values: Array, best: float, low: float, spread: float, exponent: float) -> float:
    """The temperature that the entropy of values (n,) float32 gives; 1 for a single one, -1 where the last digits of
    the entropy would decide."""
    count, total, distances = 0, 0.0, 0.0
    for i in range(values.shape[0]):
        if values[i] > -np.inf:
            down = np.float64(values[i]) - best
            share = weight(values[i], best)
            count += 1
            total += share
            distances += share * max(down, -746.0)
    if count <= 1:
        return 1.0
    entropy = max(0.0, math.log(total) - distances / total)
    below = low + spread * min(1.0, max(0.0, entropy - SLACK) / math.log(count)) ** exponent
    above = low + spread * min(1.0, (entropy + SLACK) / math.log(count)) ** exponent
    if np.float32(below) != np.float32(above) or not SMALL <= below <= LARGE:
        return -1.0
    return float(above)


@kernel(error_model="numpy")
def change(
    values: Array, ids: Array, settings: Array, place: int, tokens: Array, said: Array, losses: Array, top: Any
) -> tuple[Any, bool]:
    """Run the sampler at `place` of the settings over values (n,) float32 of ids (n,) int64, as in `bias`, in place.
    tokens, said (m,) int64: distinct tokens and how often each was generated. losses (l, 2) float64: DRY's tokens and
    what each loses. top: no value is larger, float32.

    Returns the new top; and False where the plain function has to decide."""
    code, has_ids = int(settings[place]), ids.shape[0] > 0
    if code == PENALTIES:
        amounts = settings[place + 1 : place + SIZE].astype(np.float32)
        for k in range(tokens.shape[0]):
            index = _find(ids, tokens[k]) if has_ids else tokens[k]
            if 0 <= index < values.shape[0] and values[index] > -np.inf:
                value = penalised(values[index], said[k], amounts[0], amounts[1], amounts[2])
                values[index] = value
                top = max(top, value)
        return top, True
    if code == DRY:
        for k in range(losses.shape[0]):
            index = _find(ids, int(losses[k, 0])) if has_ids else int(losses[k, 0])
            if 0 <= index < values.shape[0] and values[index] > -np.inf:
                values[index] = np.float32(max(np.float64(values[index]) - losses[k, 1], -LARGEST))
        return top, True
    heat = settings[place + 1]
    if code == DYNAMIC or not SMALL <= heat <= LARGE:
        top = np.float32(-np.inf)
        for i in range(values.shape[0]):
            top = max(top, values[i])
    if code == DYNAMIC:
        heat = _dynamic(values, np.float64(top), heat, settings[place + 2], settings[place + 3])
        if heat < 0.0:
            return top, False
    if SMALL <= heat <= LARGE:
        top = np.float32(top / np.float32(heat))
        return top, abs(top) < HIGHEST and _divide(values, np.float32(heat))
    for i in range(values.shape[0]):
        if values[i] > -np.inf:
            values[i] = np.float32(max((np.float64(values[i]) - np.float64(top)) / heat, -LARGEST))
    return np.float32(0.0), True


@kernel((F32, F64, I64, I64, F64_ROWS, INT, FLOAT32, F32))
def heat_row(
    row: Array, settings: Array, tokens: Array, said: Array, losses: Array, count: int, top: Any, out: Array
) -> tuple[Any, bool]:
    """Write row (V,) float32 to out, and run the biases and the first `count` samplers of the settings, none of which
    may remove tokens. top: the largest of the row, float32. Returns as `change`."""
    for i in range(row.shape[0]):
        out[i] = row[i]
    ids = np.empty(0, dtype=np.int64)
    top = bias(out, ids, settings, top)
    for sampler in range(count):
        top, is_sure = change(out, ids, settings, FIRST + SIZE * sampler, tokens, said, losses, top)
        if not is_sure:
            return top, False
    return top, True
