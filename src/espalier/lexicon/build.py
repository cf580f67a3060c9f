"""Builds ranked word lists from the optional package wordfreq. It knows no constraint.

wordfreq cuts words at apostrophes and folds some letters; `SPELT` and `finish` restore the usual spelling where it is
known.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from espalier.errors import InputError, UnknownName
from espalier.lexicon.files import check_code
from espalier.lexicon.languages import fold, language
from espalier.optional import optional_imports

INSIDE = frozenset("'’-‐·׳״\"\u200c\u200d")
"""Characters allowed between two letters of a word: apostrophes, hyphens, the Catalan dot, Hebrew marks, joiners."""
FIRST = frozenset({"Ll", "Lu", "Lt", "Lo"})
NOT_LETTERS = "ªº"
"""Ordinal signs, which Unicode classifies as letters."""
WEB = frozenset({"http", "https", "www"})

ONE_LETTER = {"en": "aio", "es": "aeouy", "fr": "aàyôo", "it": "aeèio", "pt": "aeoàé"}
"""The one-letter words of a language; other single letters are dropped. Languages not listed here keep all."""

SPELT: dict[str, dict[str, str]] = {
    "en": {w: f"'{w}" for w in ("s", "d", "m", "ll", "re", "ve")},
    "fr": {w: f"{w}'" for w in ("l", "d", "c", "j", "n", "s", "t", "m", "qu", "jusqu", "lorsqu", "puisqu", "quoiqu")},
    "it": {
        w: f"{w}'"
        for w in ("l", "d", "c", "all", "dell", "nell", "dall", "sull", "quell", "anch", "quest", "bell", "sant")
    },
    "ca": {w: f"{w}'" for w in ("l", "d", "s", "m", "t", "n")},
}
"""Words that wordfreq cuts off at an apostrophe, with their apostrophe. Only words that wordfreq has are restored."""

ENGLISH = 1.5
"""In Zipf units (powers of ten): a word is dropped if it is more than thirty times as frequent in English."""
LOST = {"de": "ß is written ss, as wordfreq gives it."}
"""Notes in the file on spellings that cannot be restored."""

SOURCE = "wordfreq {version} by Robyn Speer, https://github.com/rspeer/wordfreq"
LICENCE = "CC BY-SA 4.0, https://creativecommons.org/licenses/by-sa/4.0/"


def languages() -> tuple[str, ...]:
    """The codes of the languages that wordfreq has, sorted. Raises MissingDependency."""
    return tuple(sorted(_wordfreq().available_languages("best")))


def build_words(lang: str, count: int) -> tuple[str, ...]:
    """The `count` most frequent words of a language, best first, normalised, without duplicates.

    Raises MissingDependency, SpecError for an invalid code, UnknownName for a language that wordfreq does not have,
    InputError for a count below 1 or above the number of words, which the error states.
    """
    check_code(lang)
    if count < 1:
        raise InputError(f"count: {count} must be at least 1", field="count")
    known = languages()
    if lang not in known:  # wordfreq itself would fall back to a related language
        raise UnknownName(f"wordfreq has no words for {lang!r}", hint=f"it has: {', '.join(known)}", field="lang")
    words: dict[str, None] = {}
    source = _wordfreq()
    for raw in source.iter_wordlist(lang):
        word = finish(raw, lang)
        if word is not None and (lang == "en" or not _is_english(source, raw, lang)):
            words[word] = None
        if len(words) == count:
            return tuple(words)
    raise InputError(
        f"count: {count} is more than there are: {len(words)} words for {lang}",
        hint=f"ask for at most {len(words)}",
        field="count",
    )


def _is_english(source: Any, raw: str, lang: str) -> bool:
    """Whether a word is so much more frequent in English that it is English text quoted on web pages."""
    return raw.isascii() and source.zipf_frequency(raw, "en") - source.zipf_frequency(raw, lang) > ENGLISH


def finish(raw: str, lang: str) -> str | None:
    """A word of wordfreq in its usual spelling; None if it is no word."""
    word = fold(raw, language(lang))
    if (whole := SPELT.get(lang, {}).get(word)) is not None:
        return whole
    if not is_word(word) or word in WEB or (len(word) == 1 and word not in ONE_LETTER.get(lang, word)):
        return None
    if lang == "el":  # wordfreq folds the final sigma
        word = re.sub("σ$", "ς", word)
    return word


def is_word(word: str) -> bool:
    """Whether a text is letters with their marks, and `INSIDE` characters only between letters; no digits, signs,
    emoji."""
    if not word or unicodedata.category(word[0]) not in FIRST or word[-1] in INSIDE:
        return False
    for before, char in pairwise(word):
        if char in INSIDE:
            if before in INSIDE:
                return False
        elif unicodedata.category(char)[0] not in "LM":
            return False
    return not any(c in NOT_LETTERS for c in word)


def list_text(lang: str, words: Sequence[str]) -> str:
    """The text of a list file: source and licence as comments, then one word on each line. Raises MissingDependency."""
    _wordfreq()
    lines = [
        f"# {lang}: the {len(words):,} most frequent words, the most frequent first.",
        f"# Source: {SOURCE.format(version=version('wordfreq'))}",
        f"# Licence: {LICENCE}",
        "# Changed: only words are kept, without repetitions, in NFC and lower case, one a line;",
        "# words that are English rather than of this language are left out.",
        "# Credits: Google Books Ngrams, Leeds Internet Corpus, Wikipedia, ParaCrawl, OPUS OpenSubtitles 2018 and",
        "# SUBTLEX (Marc Brysbaert et al.; freely available data), among others: see the wordfreq README.",
        *([f"# {LOST[lang]}"] if lang in LOST else []),
    ]
    return "\n".join([*lines, *words, ""])


def _wordfreq() -> Any:
    """The package wordfreq. Raises MissingDependency."""
    with optional_imports("wordlists"):
        return import_module("wordfreq")
