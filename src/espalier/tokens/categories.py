"""Classify a token's bytes by the Unicode properties of its characters: one category per byte string.

This module knows no ids, special tokens or `Vocab`. Python has no Script property, so a letter's script is the first
word of its Unicode name; a test compares that with the property itself.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cache
from types import MappingProxyType

# fmt: off
_NAMED_BY_ITSELF = (
    "latin", "greek", "cyrillic", "hiragana", "katakana", "hangul", "bopomofo", "arabic", "hebrew", "syriac", "thaana",
    "armenian", "georgian", "devanagari", "bengali", "gurmukhi", "gujarati", "oriya", "tamil", "telugu", "kannada",
    "malayalam", "sinhala", "thai", "lao", "khmer", "myanmar", "tibetan", "mongolian", "ethiopic", "cherokee",
    "javanese", "tifinagh", "yi",
)
# fmt: on

_SCRIPT_OF_WORD: Mapping[str, str] = MappingProxyType(
    {name.upper(): name for name in _NAMED_BY_ITSELF} | {"CJK": "han", "IDEOGRAPHIC": "han", "HENTAIGANA": "hiragana"}
)
"""First word of a letter's name -> category of its script."""

_WITHOUT_SCRIPT = frozenset({"MODIFIER", "KATAKANA-HIRAGANA", "VERTICAL"})
"""First words of the names of letters that occur with several scripts, such as the Japanese `ー`."""

SCRIPTS = frozenset({*_SCRIPT_OF_WORD.values(), "other_script"})

CATEGORIES: Mapping[str, str] = MappingProxyType(
    {
        "special": "stands outside the text: EOS, chat markers",
        "unused": "an id that is no token: padding",
        "byte": "one byte that is no whole character, or the spare spelling of one by its byte",
        "partial": "several bytes that are not whole UTF-8",
        "whitespace": "spaces, tabs and line ends only",
        "punctuation": "punctuation, and the symbols of ASCII",
        "digits": "digits and other numerals",
        "symbols": "mathematics, currencies, emoji",
    }
    | {name: f"letters of the script {name.title()}" for name in _SCRIPT_OF_WORD.values()}
    | {
        "other_script": "letters of any other script",
        "mixed": "letters of several scripts, or, without letters, several of punctuation, digits and symbols",
        "other": "controls, format characters, lone accents, and what has no character",
    }
)
"""Category -> description."""

_KIND_OF_CLASS: Mapping[str, str] = MappingProxyType(
    {"P": "punctuation", "N": "digits", "S": "symbols", "Z": "whitespace", "C": "other"}
)
"""First letter of the general category -> kind of character; letters and marks have the category of their script."""

_ONLY_ALONE = frozenset({"whitespace", "other"})
"""Kinds that count only if a token has nothing else."""


def category_of(data: bytes) -> str:
    """The category of a token with these bytes (at least one).

    Letters decide: letters of one script give that script, of several `mixed`. Without letters, a single kind of
    digits, punctuation or symbols gives that kind, several give `mixed`. Spaces, accents and format characters count
    only if there is nothing else.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return "byte" if len(data) == 1 else "partial"
    kinds = set(map(kind_of, text))
    deciding = kinds & SCRIPTS or kinds - _ONLY_ALONE or kinds & {"other"} or kinds
    return next(iter(deciding)) if len(deciding) == 1 else "mixed"


@cache
def kind_of(char: str) -> str:
    """The category of a single character."""
    if char.isspace():  # some white space characters are controls
        return "whitespace"
    general = unicodedata.category(char)
    if general[0] in "LM":
        return _script(char, general)
    return "punctuation" if general[0] == "S" and char.isascii() else _KIND_OF_CLASS[general[0]]


def _script(char: str, general: str) -> str:
    """The script of a letter or mark. A styled letter counts as the plain one: `𝐀`, `ª`, a full-width `Ａ`."""
    plain = unicodedata.normalize("NFKC", char)[0]
    words = [unicodedata.name(letter, "").partition(" ")[0] for letter in (char, plain)]
    script = next((_SCRIPT_OF_WORD[word] for word in words if word in _SCRIPT_OF_WORD), None)
    if script is None:
        return "other" if general[0] == "M" or words[0] in _WITHOUT_SCRIPT else "other_script"
    return script
