"""Cuts texts into words for full-text search: folded, without accents, in any script. It knows no database."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

MOST_CHARACTERS = 100_000
"""Characters of words that one row is found by; PostgreSQL refuses more than 1 MiB."""
LONGEST = 100
"""Characters of a word that count; PostgreSQL refuses words of more than 2,046 bytes."""

_NO_SPACES = (
    "\u0e00-\u0eff"  # Thai, Lao
    "\u1000-\u109f\u1780-\u17ff"  # Burmese, Khmer
    "\u3005-\u3007\u3041-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"  # kana, ideographs
    "\U00020000-\U0003ffff"
)
"""Scripts that are written without spaces: each character is a word, so that any part of a text is found."""

_WORD = re.compile(rf"[{_NO_SPACES}](?<=[^\W_])|[^\W_{_NO_SPACES}]+")


def words_in(text: str) -> list[str]:
    """The words of a text in order: runs of letters and digits, in lower case and without accents."""
    return [word[:LONGEST] for word in _WORD.findall(folded(text))]


def folded(text: str) -> str:
    """Without case, accents and differences of compatibility (`Ａ`, `ﬁ`)."""
    if text.isascii():
        return text.lower()
    spelled = unicodedata.normalize("NFKD", text.casefold())
    bare = "".join(c for c in spelled if unicodedata.category(c) != "Mn")
    return unicodedata.normalize("NFC", bare.casefold())


def word_column(texts: Iterable[str]) -> str:
    """What a row is found by: the words of its texts with a space between two, and ` . ` between texts, so that no
    phrase crosses. Words beyond MOST_CHARACTERS are left out."""
    column: list[str] = []
    room = MOST_CHARACTERS
    for text in texts:
        words = words_in(text[:room])
        if not words:
            continue
        column += [BREAK, *words] if column else words
        room -= sum(len(word) + 1 for word in words)
        if room <= 0:
            break
    return " ".join(column)[:MOST_CHARACTERS]


BREAK = "\u00b6"  # no letter, so no query has it
