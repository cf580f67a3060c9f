"""Kernels that apply packed masks to one row of logits."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from espalier.kernels.compiled import F32, I64, U32, kernel

# compiled with: 8c7aafc1

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings


@kernel()
def words_of(width: int, bits: Array) -> Array:
    """The mask, (W,) uint32, of a row of `width`; (0,) for all. bits: (w,) int32, ids beyond them are forbidden; (0,)
    allows everything."""
    if not bits.shape[0]:
        return np.empty(0, dtype=np.uint32)
    count = (width + 31) >> 5
    words = np.zeros(count, dtype=np.uint32)
    for word in range(min(count, bits.shape[0])):
        words[word] = np.uint32(bits[word])
    if width & 31:
        words[count - 1] &= np.uint32((1 << (width & 31)) - 1)
    return words


@kernel()
def _ones(word: Any) -> Any:
    x = np.uint32(word)
    x = np.uint32(x - (np.uint32(x >> np.uint32(1)) & np.uint32(0x55555555)))
    x = np.uint32((x & np.uint32(0x33333333)) + (np.uint32(x >> np.uint32(2)) & np.uint32(0x33333333)))
    x = np.uint32((x + np.uint32(x >> np.uint32(4))) & np.uint32(0x0F0F0F0F))
    return np.uint32(np.uint32(x * np.uint32(0x01010101)) >> np.uint32(24))


@kernel()
def ones(words: Array) -> int:
    """How many bits of (W,) uint32 are set."""
    total = np.uint32(0)
    for word in range(words.shape[0]):
        total = np.uint32(total + _ones(words[word]))
    return int(total)


@kernel()
def is_set(words: Array, token: int) -> bool:
    """Whether the mask, (W,) uint32, allows a token; (0,) allows everything."""
    return not words.shape[0] or bool((words[token >> 5] >> np.uint32(token & 31)) & np.uint32(1))


@kernel((F32, U32, F32))
def mask_row(raw: Array, words: Array, out: Array) -> None:
    """Write to out (V,) float32: raw (V,) float32 where the bit of words (W,) uint32 is set, -inf elsewhere."""
    width = raw.shape[0]
    nothing = np.float32(-np.inf)
    for word in range(width // 32):
        bits = words[word]
        base = word * 32
        for j in range(32):
            out[base + j] = raw[base + j] if bits & np.uint32(1 << j) else nothing
    for i in range(width // 32 * 32, width):
        out[i] = raw[i] if words[i >> 5] & np.uint32(1 << (i & 31)) else nothing


@kernel((F32, U32, I64, F32))
def gather(raw: Array, words: Array, ids: Array, values: Array) -> int:
    """Write the ids whose bit of words (W,) uint32 is set and whose logit is not -inf to ids (n,) int64, ascending, and
    values (n,) float32; returns how many."""
    count = 0
    for word in range(words.shape[0]):
        bits = words[word]
        while bits:
            i = word * 32 + np.int64(_ones(~bits & np.uint32(bits - np.uint32(1))))  # the lowest bit
            bits &= np.uint32(bits - np.uint32(1))
            if raw[i] > -np.inf:
                ids[count] = i
                values[count] = raw[i]
                count += 1
    return count


@kernel()
def copy_row(row: Array, out: Array) -> None:
    """Write row (V,) float32 to out."""
    for i in range(row.shape[0]):
        out[i] = row[i]
