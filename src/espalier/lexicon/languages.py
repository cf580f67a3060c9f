"""What writing a language with a word list takes: its punctuation, how words join, which are always capital.

Rules only. They know no lists, no automata and no vocabularies. A language that is not here gets `OTHER`.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

WHITESPACE = " \n\t\r"
"""What separates words in every language."""
APOSTROPHES = "'’"
"""Both count as the same letter in every word of a list."""
COLONS = ":;"
HYPHENS = "-‐"
"""With `hyphens=True` they join two words."""
DASHES = "–—-"
"""With `hyphens=True` they stand among separators too."""
QUOTES = '"“”„«»‹›'
OPENING = '"“„«‹「『《'
"""With `quotes=True` a sentence may start after these."""
DIGITS = "0123456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """punctuation: separators beside whitespace. ends: those after which a sentence may start, so that a capital may
    follow; a line end is always one. quotes: beside QUOTES. digits: beside DIGITS.

    spaced: words are apart; else words and punctuation come in any order. elisions: words that end in an apostrophe
    attach to the next word (l'eau). clitics: words that begin with one attach to the word before (dog's). capitals:
    words of the list that are capital anywhere, as they are written. colons: beside COLONS. turkic: i and İ, ı and I
    are pairs. digraphs: letters of two characters, capital together too (IJ).
    """

    punctuation: str = ".,!?…"
    ends: str = ".!?…"
    quotes: str = ""
    digits: str = ""
    spaced: bool = True
    elisions: bool = False
    clitics: bool = False
    capitals: tuple[str, ...] = ()
    colons: str = ""
    turkic: bool = False
    digraphs: tuple[str, ...] = ()


OTHER = Language()

_UNSPACED = Language(spaced=False)

LANGUAGES: dict[str, Language] = {
    # An opening mark may start a sentence within one: "Pero, ¡Dios!".
    "es": Language(punctuation=".,!?¿¡…", ends=".!?¿¡…"),
    "gl": Language(punctuation=".,!?¿¡…", ends=".!?¿¡…"),
    "ar": Language(punctuation=".,!?…،؟؛", ends=".!?…؟", digits="٠١٢٣٤٥٦٧٨٩"),
    "fa": Language(punctuation=".,!?…،؟؛", ends=".!?…؟", digits="۰۱۲۳۴۵۶۷۸۹"),
    "ur": Language(punctuation=".,!?…،؟؛۔", ends=".!?…؟۔", digits="۰۱۲۳۴۵۶۷۸۹"),
    "hi": Language(punctuation=".,!?…।॥", ends=".!?…।॥", digits="०१२३४५६७८९"),
    "bn": Language(punctuation=".,!?…।", ends=".!?…।", digits="০১২৩৪৫৬৭৮৯"),
    "el": Language(punctuation=".,!?…;·", ends=".!?…;"),
    "zh": Language(
        punctuation=".,!?…，。！？、\u3000",
        ends=".!?…。！？",
        quotes="「」『』《》",
        digits="０１２３４５６７８９",
        colons="：；",
        spaced=False,
    ),
    "ja": Language(
        punctuation=".,!?…，。、！？\u3000",
        ends=".!?…。！？",
        quotes="「」『』《》",
        digits="０１２３４５６７８９",
        colons="：；",
        spaced=False,
    ),
    "th": _UNSPACED,
    "lo": _UNSPACED,
    "km": _UNSPACED,
    "my": _UNSPACED,
    # No-break spaces stand before ? ! : ; and inside guillemets.
    "fr": Language(punctuation=".,!?…\u00a0\u202f", elisions=True),
    "tr": Language(turkic=True),
    "az": Language(turkic=True),
    "nl": Language(digraphs=("ij",)),
    "it": Language(elisions=True),
    "ca": Language(punctuation=".,!?¿¡…", ends=".!?¿¡…", elisions=True),
    "en": Language(clitics=True, capitals=("I", "I'm", "I've", "I'd", "I'll")),
}


def language(code: str | None) -> Language:
    """The rules of a language; `es-ES` and `es_MX` are `es`."""
    return LANGUAGES.get(base_code(code), OTHER) if code else OTHER


def fold(word: str, rules: Language = OTHER) -> str:
    """A word as lists have it: NFC, lower case, one kind of apostrophe, no space around it."""
    word = unicodedata.normalize("NFC", word.strip())
    if rules.turkic:
        word = word.replace("I", "ı")
    # Python spells a small İ with a dot above it; that dot is already on the i.
    return unicodedata.normalize("NFC", word.replace("İ", "i").lower()).replace("’", "'")


def capitalised(word: str, rules: Language = OTHER) -> tuple[str, ...]:
    """How a word may begin at the start of a sentence: none, one or two spellings of the whole word."""
    for letters in rules.digraphs:
        if word.startswith(letters):
            rest = word[len(letters) :]
            return (letters.upper() + rest, letters[0].upper() + letters[1:] + rest)
    first = "İ" if rules.turkic and word[0] == "i" else unicodedata.normalize("NFC", word[0].title())
    return () if first == word[0] else (first + word[1:],)


def base_code(code: str) -> str:
    """`es` of `es-ES`, in lower case."""
    return code.replace("_", "-").split("-", 1)[0].lower()
