"""Ranked word lists from the optional package wordfreq. It knows what a word looks like, and nothing of constraints.

wordfreq cuts and folds words in its own way; `SPELT` and `finish` write them as people do where that can be told.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from importlib import import_module
from importlib.metadata import version
from itertools import pairwise
from typing import Any

from espalier.errors import InputError, MissingDependency, UnknownName
from espalier.lexicon.files import check_code
from espalier.lexicon.languages import fold, language

INSIDE = frozenset("'’-‐·׳״\"\u200c\u200d")
"""What may stand between two letters of a word: apostrophes, hyphens, the Catalan dot, Hebrew marks, joiners."""
FIRST = frozenset({"Ll", "Lu", "Lt", "Lo"})
NOT_LETTERS = "ªº"
"""Letters by category that are signs of ordinals."""
WEB = frozenset({"http", "https", "www"})

ONE_LETTER = {"en": "aio", "es": "aeouy", "fr": "aàyôo", "it": "aeèio", "pt": "aeoàé"}
"""The words of one letter; other letters alone are left out. In languages that are not here all are kept."""

SPELT: dict[str, dict[str, str]] = {
    "en": {w: f"'{w}" for w in ("s", "d", "m", "ll", "re", "ve")},
    "fr": {w: f"{w}'" for w in ("l", "d", "c", "j", "n", "s", "t", "m", "qu", "jusqu", "lorsqu", "puisqu", "quoiqu")},
    "it": {
        w: f"{w}'"
        for w in ("l", "d", "c", "all", "dell", "nell", "dall", "sull", "quell", "anch", "quest", "bell", "sant")
    },
    "ca": {w: f"{w}'" for w in ("l", "d", "s", "m", "t", "n")},
}
"""What wordfreq cuts off at an apostrophe, with its apostrophe. One that it does not have is not added."""

ENGLISH = 1.5
"""Zipf units, powers of ten: a word more than thirty times as frequent in English."""
LOST = {"de": "ß is written ss, as wordfreq gives it."}
"""What cannot be written as people do."""

SOURCE = "wordfreq {version} by Robyn Speer, https://github.com/rspeer/wordfreq"
LICENCE = "CC BY-SA 4.0, https://creativecommons.org/licenses/by-sa/4.0/"


def languages() -> tuple[str, ...]:
    """The codes of the languages that wordfreq has, sorted. Raises MissingDependency."""
    return tuple(sorted(_wordfreq().available_languages("best")))


def build_words(lang: str, count: int) -> tuple[str, ...]:
    """The `count` most frequent words of a language, best first, normalised and without repetitions.

    Raises MissingDependency, SpecError for what is no code, UnknownName for a language that wordfreq has not, and
    InputError for a count below 1 or above what there is, saying how many there are.
    """
    check_code(lang)
    if count < 1:
        raise InputError(f"count: {count} must be at least 1", field="count")
    known = languages()
    if lang not in known:  # wordfreq itself would take the list of a language near it
        raise UnknownName(f"wordfreq has no words for {lang!r}", hint=f"it has: {', '.join(known)}", field="lang")
    found: dict[str, None] = {}
    source = _wordfreq()
    for raw in source.iter_wordlist(lang):
        word = finish(raw, lang)
        if word is not None and (lang == "en" or not _is_english(source, raw, lang)):
            found[word] = None
        if len(found) == count:
            return tuple(found)
    raise InputError(
        f"count: {count} is more than there are: {len(found)} words for {lang}",
        hint=f"ask for at most {len(found)}",
        field="count",
    )


def _is_english(source: Any, raw: str, lang: str) -> bool:
    """Whether a word is that much more frequent in English that it is a quotation in this language: the web is full of
    them."""
    return raw.isascii() and source.zipf_frequency(raw, "en") - source.zipf_frequency(raw, lang) > ENGLISH


def finish(raw: str, lang: str) -> str | None:
    """A word of wordfreq as it is written in a text; None if it is not one."""
    word = fold(raw, language(lang))
    if (whole := SPELT.get(lang, {}).get(word)) is not None:
        return whole
    if not is_word(word) or word in WEB or (len(word) == 1 and word not in ONE_LETTER.get(lang, word)):
        return None
    if lang == "el":  # wordfreq folds the sigma that ends a word
        word = re.sub("σ$", "ς", word)
    return word


def is_word(word: str) -> bool:
    """Letters with their marks; between them also apostrophes and the like (`INSIDE`). No digits, signs or emoji."""
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
    """A list as a file: where it comes from and under which licence, then one word a line. Raises MissingDependency."""
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
    """The package. Raises MissingDependency."""
    try:
        return import_module("wordfreq")
    except ImportError as error:
        raise MissingDependency(error.name or "wordfreq", extra="wordlists") from error
