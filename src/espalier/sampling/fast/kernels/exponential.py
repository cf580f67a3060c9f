"""`exp` that LLVM can vectorise, and sums of it. Whatever adds up probabilities imports this module."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np

from espalier.kernels.compiled import kernel

# compiled with: 8c7aafc1

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings

RUN = 256  # logits whose weights are summed together; a multiple of the 32 of a mask's word
LOWEST = -708.0  # below it `exp` counts as 0: no probability comes near

_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = (
    6.93147180369123816490e-01,
    1.90821492927058770002e-10,
)  # from fdlibm: the high part has trailing zeros
_ROUNDER = 6755399441055744.0  # 1.5 * 2**52: adding it rounds to a whole number, held in the lowest bits
_C2, _C3, _C4, _C5, _C6, _C7, _C8, _C9, _C10, _C11, _C12, _C13 = (1.0 / math.factorial(n) for n in range(2, 14))


@kernel(inline="always", error_model="numpy")
def exp(x: float) -> float:
    """`exp` of x <= 0, to 2 units in the last place. LLVM vectorises it, unlike the library's."""
    clipped = x if x > LOWEST else LOWEST  # noqa: FURB136  # numba's `max` is no vector
    rounder = clipped * _LOG2E + _ROUNDER
    k = rounder - _ROUNDER
    r = (clipped - k * _LN2_HIGH) - k * _LN2_LOW
    p = _C13
    p = p * r + _C12
    p = p * r + _C11
    p = p * r + _C10
    p = p * r + _C9
    p = p * r + _C8
    p = p * r + _C7
    p = p * r + _C6
    p = p * r + _C5
    p = p * r + _C4
    p = p * r + _C3
    p = p * r + _C2
    p = p * r * r + r + 1.0
    power = np.int64((np.float64(rounder).view(np.int64) + np.int64(1023)) << np.int64(52))
    return p * power.view(np.float64) if x > LOWEST else 0.0


@kernel(error_model="numpy")
def weight(value: Any, top: float) -> float:
    """`exp(value - top)` of one float32: in a loop that is not vectorised, as a call, which is compiled once."""
    return exp(np.float64(value) - top)


@kernel(error_model="numpy", fastmath={"contract"})
def weights(row: Array, top: float, out: Array) -> None:
    """Write `exp(row - top)` of row (n,) float32 into the beginning of out (m,) float64."""
    for i in range(row.shape[0]):
        out[i] = exp(np.float64(row[i]) - top)


@kernel(fastmath={"reassoc", "nsz"})
def added(values: Array) -> float:
    """The sum of values (n,) float64, in any order."""
    total = 0.0
    for i in range(values.shape[0]):
        total += values[i]
    return total


@kernel(fastmath={"contract", "reassoc", "nsz"})
def spread_of(row: Array, top: float, out: Array) -> float:
    """The sum of weight times distance from the top; a weight of 0 adds nothing. out: from `weights`."""
    total = 0.0
    for i in range(row.shape[0]):
        down = np.float64(row[i]) - top
        total += out[i] * (down if down > LOWEST else LOWEST)  # noqa: FURB136
    return total


@kernel(error_model="numpy")
def divide(row: Array, heat: Any, out: Array) -> Array:
    """Write row (n,) float32 / heat, float32, into the beginning of out (m,) float32, and return that."""
    for i in range(row.shape[0]):
        out[i] = row[i] / heat
    return out[: row.shape[0]]
