"""The writing rules of languages: punctuation, how words attach to each other, which words always have a capital.

It knows no lists, automata or vocabularies. A language that is not listed here gets `OTHER`.
"""

from __future__ import annotations

import unicodedata
from dataclasses import dataclass

WHITESPACE = " \n\t\r"
"""Separators in every language."""
APOSTROPHES = "'’"
"""Two spellings of the same letter, in every word of a list."""
COLONS = ":;"
HYPHENS = "-‐"
"""Marks that join two words if `hyphens=True`."""
DASHES = "–—-"
"""Marks that are separators if `hyphens=True`."""
QUOTES = '"“”„«»‹›'
OPENING = '"“„«‹「『《'
"""Quotes after which a sentence may start if `quotes=True`."""
DIGITS = "0123456789"


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """The rules of one language.

    punctuation: separators in addition to whitespace. ends: separators after which a sentence may start, so that a
    capital may follow; line ends always are. quotes, digits, colons: in addition to QUOTES, DIGITS, COLONS. spaced:
    words are separated; otherwise words and punctuation follow in any order. elisions: words that end in an apostrophe
    attach to the next word (l'eau). clitics: words that start with an apostrophe attach to the previous word (dog's).
    capitals: words of the list that have these capitals anywhere. turkic: i pairs with İ, and ı with I. digraphs:
    letters of two characters, which may be capitalised together (IJ).
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
    # A sentence may start after an opening mark inside another one: "Pero, ¡Dios!".
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
    """The rules of a language; `es-ES` and `es_MX` get those of `es`."""
    return LANGUAGES.get(base_code(code), OTHER) if code else OTHER


def fold(word: str, rules: Language = OTHER) -> str:
    """A word in the form of the lists: NFC, lower case, straight apostrophes, no surrounding space."""
    word = unicodedata.normalize("NFC", word.strip())
    if rules.turkic:
        word = word.replace("I", "ı")
    # Python's lower case of İ is i with a combining dot, which is redundant.
    return unicodedata.normalize("NFC", word.replace("İ", "i").lower()).replace("’", "'")


def capitalised(word: str, rules: Language = OTHER) -> tuple[str, ...]:
    """The capitalised spellings of a word at the start of a sentence: none, one or two."""
    for letters in rules.digraphs:
        if word.startswith(letters):
            rest = word[len(letters) :]
            return (letters.upper() + rest, letters[0].upper() + letters[1:] + rest)
    first = "İ" if rules.turkic and word[0] == "i" else unicodedata.normalize("NFC", word[0].title())
    return () if first == word[0] else (first + word[1:],)


def base_code(code: str) -> str:
    """The base code in lower case: `es` for `es-ES`."""
    return code.replace("_", "-").split("-", 1)[0].lower()
