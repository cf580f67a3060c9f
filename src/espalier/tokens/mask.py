"""Packed token masks, and the rule for padding ids.

A mask is `(W,) int32`: bit `i % 32` of word `i // 32` (least significant bit first) is token id `i`, the layout of
llguidance and xgrammar. `W = words(V)`.

The padding rule: V is the *model's* logit width. An id beyond the mask, or beyond the tokenizer's last id, is
forbidden. The rule is applied here and nowhere else. This module knows nothing about matchers.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Mask: TypeAlias = NDArray[np.int32]  # (W,)
Logits: TypeAlias = NDArray[np.float32]  # (V,)
LARGEST = float(np.finfo(np.float32).max)  # no logit is further from 0


def words(width: int) -> int:
    """The number of int32 words for `width` bits."""
    return (width + 31) // 32


def empty(width: int) -> Mask:
    """A mask that allows no token, `(W,) int32`."""
    return np.zeros(words(width), dtype=np.int32)


def from_ids(ids: NDArray[np.integer] | list[int] | tuple[int, ...], width: int) -> Mask:
    """The mask that allows exactly `ids`; ids outside `[0, width)` raise IndexError."""
    flags = np.zeros(words(width) * 32, dtype=np.uint8)  # (32 W,)
    index = np.asarray(ids, dtype=np.int64)
    if index.size and (int(index.min()) < 0 or int(index.max()) >= width):
        raise IndexError(f"token id outside 0..{width - 1}")
    flags[index] = 1
    return np.packbits(flags, bitorder="little").view(np.int32)


def from_bool(flags: NDArray[np.bool_]) -> Mask:
    """`(V,) bool` to `(W,) int32`."""
    padded = np.zeros(words(flags.shape[0]) * 32, dtype=np.uint8)
    padded[: flags.shape[0]] = flags
    return np.packbits(padded, bitorder="little").view(np.int32)


def unpack(mask: Mask, width: int) -> NDArray[np.bool_]:
    """`(W,) int32` to `(V,) bool`; ids beyond the mask are False."""
    bits = np.unpackbits(mask.view(np.uint8), bitorder="little").view(np.bool_)
    if bits.shape[0] >= width:
        return bits[:width]
    out = np.zeros(width, dtype=np.bool_)
    out[: bits.shape[0]] = bits
    return out


def allowed_ids(mask: Mask, width: int) -> NDArray[np.intp]:
    """The allowed ids, ascending, `(n,)`."""
    return np.flatnonzero(unpack(mask, width))


def test(mask: Mask, token: int) -> bool:
    """Whether one id is allowed; an id beyond the mask is not."""
    word = token >> 5
    return 0 <= word < mask.shape[0] and bool((int(mask[word]) >> (token & 31)) & 1)


def chosen(mask: Mask, ids: NDArray[np.int64]) -> list[int]:
    """Those of the ids, `(n,)`, that are allowed; ids beyond the mask raise IndexError."""
    if not ids.size:
        return []
    bits = mask[ids >> 5].view(np.uint32) >> (ids & 31).astype(np.uint32) & np.uint32(1)
    allowed: list[int] = ids[bits != 0].tolist()
    return allowed


def set_bits_inplace(mask: Mask, ids: tuple[int, ...], on: bool) -> None:
    """Set or clear the bits of `ids`, in place; ids beyond the mask raise IndexError."""
    if not ids:
        return
    unsigned = mask.view(np.uint32).data  # its items are plain numbers: a third of the time
    for token in ids:
        if token < 0:  # a memoryview would count from the end
            raise IndexError(f"token id {token} is negative")
        if on:
            unsigned[token >> 5] |= 1 << (token & 31)
        else:
            unsigned[token >> 5] &= ~(1 << (token & 31))


def count(mask: Mask) -> int:
    """The number of allowed ids."""
    return int(np.bitwise_count(mask.view(np.uint32)).sum())


def single(mask: Mask) -> int | None:
    """The allowed id where exactly one is allowed, else None."""
    places = np.flatnonzero(mask)
    if places.shape[0] != 1:
        return None
    word = int(mask.view(np.uint32)[places[0]])
    return None if word & (word - 1) else 32 * int(places[0]) + word.bit_length() - 1


def resized(mask: Mask, width: int) -> Mask:
    """A copy with `words(width)` words: ids beyond the old mask, and from `width` on, are forbidden."""
    out = empty(width)
    shared = min(mask.shape[0], out.shape[0])
    out[:shared] = mask[:shared]
    clear_past_inplace(out, width)
    return out


def apply_inplace(logits: Logits, mask: Mask) -> None:
    """Set every forbidden logit to -inf, in place. `logits` is `(V,) float32`."""
    np.copyto(logits, np.float32(-np.inf), where=~unpack(mask, logits.shape[0]))


def clear_past_inplace(mask: Mask, width: int) -> None:
    """Forbid every id from `width` on, in place: the tail of the last word, and all later words."""
    full, rest = divmod(width, 32)
    if full < mask.shape[0]:
        keep = np.uint32((1 << rest) - 1)
        mask.view(np.uint32)[full] &= keep
        mask[full + 1 :] = 0
