"""The number types that vectors are stored in, as bytes, little-endian.

NumPy has no bfloat16: its bits are kept as uint16. int8 has one float32 scale for each vector: value = scale * int8.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

DTYPES: Mapping[str, int] = MappingProxyType({"float16": 2, "bfloat16": 2, "float32": 4, "int8": 1})
"""By name: bytes of a value."""
LARGEST_INT8 = 127
SCALE_BYTES = 4


def to_bytes(values: npt.NDArray[Any], dtype: str) -> bytes:
    """Vectors `(n, hidden)` of float16 or float32, or of uint16 for the bits of bfloat16, as bytes of `dtype`.

    float32 becomes bfloat16 by rounding to the nearest, ties to even. int8: the scales `(n,) float32`, then the values;
    a vector's largest magnitude becomes 127. Raises ValueError for an unknown dtype, another shape, or values that
    float16 or int8 cannot hold (infinities, NaN).
    """
    if dtype not in DTYPES or values.ndim != 2:
        raise ValueError(f"{values.ndim} axes as {dtype}")
    if dtype == "bfloat16":
        bits = values if values.dtype == np.uint16 else bfloat16_bits(values.astype(np.float32))
        return _little(bits)
    if values.dtype == np.uint16:
        values = from_bfloat16_bits(values)
    if dtype == "int8":
        exact = values.astype(np.float32)
        scales = np.abs(exact).max(axis=1, initial=0) / LARGEST_INT8
        if not np.isfinite(scales).all():
            raise ValueError("int8 holds finite numbers alone")
        with np.errstate(over="ignore"):  # the quotient of the largest numbers is rounded up
            is_over = np.isinf(scales * LARGEST_INT8)
        scales = np.where(is_over, np.nextafter(scales, np.float32(0)), scales)
        divisors = np.where(scales == 0, 1, scales)[:, None]
        rounded: npt.NDArray[np.int8] = np.rint(exact / divisors).astype(np.int8)
        return _little(scales.astype(np.float32)) + rounded.tobytes()
    with np.errstate(over="ignore"):
        made = values.astype(dtype)
    if dtype == "float16" and values.dtype != np.float16 and not np.isfinite(made[np.isfinite(values)]).all():
        raise ValueError("float16 ends at 65,504, and a value is larger; bfloat16 or float32 hold it")
    return _little(made)


def from_bytes(data: bytes | memoryview, dtype: str, shape: tuple[int, int]) -> npt.NDArray[Any]:
    """The inverse of `to_bytes`: `(n, hidden)` of float16, or float32 for the others. Raises ValueError for other than
    `size_of` bytes."""
    if len(data) != size_of(dtype, shape):
        raise ValueError(f"{len(data):,} bytes of {dtype} for the shape {shape}")
    if dtype == "int8":
        split = shape[0] * SCALE_BYTES
        scales = np.frombuffer(data[:split], dtype="<f4")[:, None]
        values: npt.NDArray[np.int8] = np.frombuffer(data[split:], dtype=np.int8)
        scaled: npt.NDArray[np.float32] = values.reshape(shape).astype(np.float32) * scales
        return scaled
    if dtype == "bfloat16":
        return from_bfloat16_bits(np.frombuffer(data, dtype="<u2").reshape(shape))
    vectors: npt.NDArray[Any] = np.frombuffer(data, dtype=np.dtype(dtype).newbyteorder("<"))
    return vectors.reshape(shape).astype(dtype)


def size_of(dtype: str, shape: tuple[int, int]) -> int:
    """Bytes of so many vectors. Raises ValueError for an unknown dtype."""
    if dtype not in DTYPES:
        raise ValueError(f"the dtype {dtype!r} is not known")
    return shape[0] * (shape[1] * DTYPES[dtype] + (SCALE_BYTES if dtype == "int8" else 0))


def bfloat16_bits(values: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """The upper half of each float32, rounded to the nearest, ties to even; NaN stays NaN."""
    bits = values.view(np.uint32)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(values), 0x7FC0, rounded).astype(np.uint16)


def from_bfloat16_bits(bits: npt.NDArray[np.uint16]) -> npt.NDArray[np.float32]:
    """Exact, as float32."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def _little(values: npt.NDArray[Any]) -> bytes:
    turned: npt.NDArray[Any] = values if sys.byteorder == "little" else values.byteswap()
    return turned.tobytes()
