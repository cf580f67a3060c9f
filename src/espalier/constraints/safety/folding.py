"""Case and width folding of single characters: characters with the same NFKC case fold are equal, such as `ｒ`, `𝐫`,
`R` and `r`.

Each group of equal characters has a representative, so two texts are equal if `folded` gives the same text for both. A
character is never equal to a sequence of several: `ß` is not `ss`, and `ﬁ` is not `fi`. It knows no patterns.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from espalier.time_limit import check as check_time

PLAIN = (
    (0x3400, 0x4DBF),
    (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3),
    (0xD800, 0xF8FF),
    (0x20000, 0x2F7FF),
    (0x2FA20, 0xDFFFF),
    (0xE0200, 0x10FFFF),
)
"""Ranges in which every character equals only itself: unified ideographs, Hangul syllables, private use, planes without
characters, and surrogates. A test checks all of them."""


_GAP = 0x0A
"""A character that equals only itself, and that no other character has in its fold."""


def fold_of(text: str) -> str:
    """The NFKC case fold: NFKC, then case fold, then NFKC again."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())


@cache
def representatives() -> Mapping[int, int]:
    """The representative of each code point; code points that represent themselves are left out."""
    points: list[int] = []
    at = 0
    for low, high in (*PLAIN, (0x110000, 0x110000)):
        points += [point for point in range(at, low) if point != _GAP]
        at = high + 1
    check_time()
    # All characters at once, which is many times faster; the gaps keep them from being composed with one another.
    folds = fold_of(chr(_GAP).join(map(chr, points))).split(chr(_GAP))
    groups: dict[str, list[int]] = {}
    for point, fold in zip(points, folds, strict=True):
        groups.setdefault(fold, []).append(point)
    heads: dict[int, int] = {}
    for fold, points in groups.items():
        # The fold itself if it is one character, otherwise the first of the group, such as ß of ß and ẞ.
        head = ord(fold) if len(fold) == 1 else points[0]
        heads.update((point, head) for point in points if point != head)
    return heads


@cache
def folded_points() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`representatives` as two arrays, `(n,) int64` each, sorted by code point."""
    pairs = np.array(sorted(representatives().items()), dtype=np.int64)  # (n, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def folded(text: str) -> str:
    """The text with each character replaced by its representative; its length stays."""
    return text.translate(representatives())


def folded_pattern(pattern: str) -> str:
    """A regular expression with its non-ASCII characters folded. ASCII letters are left to the flag `i`, because a
    capital may be part of an escape."""
    return "".join(letter if letter.isascii() else folded(letter) for letter in pattern)
