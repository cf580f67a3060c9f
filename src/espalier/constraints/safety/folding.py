"""Which single characters count as the same: those whose NFKC case-folds are equal, such as `ｒ`, `𝐫`, `R` and `r`.

Each class of equal characters has one that stands for it, so two texts are equal under this rule where `folded` says
the same of both, character by character. It knows no patterns. A character is never equal to several others together:
`ß` is not `ss`, and `ﬁ` is not `fi`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cache

import numpy as np
from numpy.typing import NDArray

from espalier.time_limit import check as check_time

PLAIN = (
    (0x3400, 0x4DBF), (0x4E00, 0x9FFF), (0xAC00, 0xD7A3), (0xD800, 0xF8FF), (0x20000, 0x2F7FF), (0x2FA20, 0xDFFFF),
    (0xE0200, 0x10FFFF),
)  # fmt: skip
"""Where every character is its own fold and that of no other: unified ideographs, Hangul syllables, private use,
planes without characters, and the surrogates, which are no text. A test looks at all of them."""


def fold_of(character: str) -> str:
    """NFKC of the case-fold of NFKC."""
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", character).casefold())


@cache
def representatives() -> Mapping[int, int]:
    """By code point, the one that stands for its class; those that stand for themselves are left out."""
    groups: dict[str, list[int]] = {}
    at = 0
    for low, high in (*PLAIN, (0x110000, 0x110000)):
        for point in range(at, low):
            if not point % 4096:
                check_time()
            groups.setdefault(fold_of(chr(point)), []).append(point)
        at = high + 1
    found: dict[int, int] = {}
    for fold, points in groups.items():
        # The fold itself, where it is one character; else the first of them, such as the small ß of ß and ẞ.
        head = ord(fold) if len(fold) == 1 else points[0]
        found.update((point, head) for point in points if point != head)
    return found


@cache
def folded_points() -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """`representatives` as two arrays, `(n,)` each, the first ascending."""
    pairs = np.array(sorted(representatives().items()), dtype=np.int64)  # (n, 2)
    return pairs[:, 0].copy(), pairs[:, 1].copy()


def folded(text: str) -> str:
    """Each character replaced by the one that stands for it; as long as it was."""
    return text.translate(representatives())


def folded_pattern(pattern: str) -> str:
    """A regular expression with what is past ASCII folded: in ASCII a capital may be an escape, and the flag `i` does
    the rest."""
    return "".join(letter if letter.isascii() else folded(letter) for letter in pattern)
