"""`Wordlist`: the spec of texts made only of the words of a list. `compile.py` compiles it.

It reads no file: the list of a language is read when the constraint is compiled.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from espalier.constraints.spec import Spec, check_text
from espalier.errors import SpecError
from espalier.lexicon.files import check_code, check_word
from espalier.lexicon.languages import WHITESPACE, Language, fold, language

Capitals = Literal["never", "sentence", "anywhere"]
"""Where a word of the list may begin with a capital letter."""
MAX_RUN = 64


@dataclass(frozen=True, slots=True, init=False)
class Wordlist(Spec):
    """A text made of words of a list, with separators between them; it ends only after a whole word.

    words: the list, best first. lang: the code of a language, whose list is used if `words` is not given
    (`espalier wordlist`), and whose writing rules apply. top: use only so many of the first words. extra: words to add
    to the list. names: words that are written exactly as given, anywhere.

    Words are compared in NFC and lower case. capitals: where the first letter of a word may be a capital. digits: allow
    numbers such as 12, 1.5 or 10:30. quotes, colons, hyphens: allow these marks; a hyphen also joins two words.
    separators: further characters that may stand between words. max_run: the most separators in a row.

    Raises SpecError naming the field.
    """

    kind: ClassVar[str] = "wordlist"
    words: tuple[str, ...] | None
    lang: str | None
    top: int | None
    extra: tuple[str, ...]
    names: tuple[str, ...]
    capitals: Capitals
    digits: bool
    quotes: bool
    hyphens: bool
    colons: bool
    separators: str
    max_run: int

    def __init__(
        self,
        words: Sequence[str] | None = None,
        *,
        lang: str | None = None,
        top: int | None = None,
        extra: Sequence[str] = (),
        names: Sequence[str] = (),
        capitals: Capitals = "sentence",
        digits: bool = False,
        quotes: bool = False,
        hyphens: bool = False,
        colons: bool = False,
        separators: str = "",
        max_run: int = 8,
    ) -> None:
        if words is None and lang is None:
            raise SpecError(
                "a word list needs words, or a language", hint='Wordlist(lang="es", top=3000)', field="words"
            )
        if lang is not None:
            check_code(lang)
        rules = language(lang)
        listed = None if words is None else _words(words, "words", rules)
        if listed is not None and not listed:
            raise SpecError("the word list is empty", field="words")
        if top is not None:
            if isinstance(top, bool) or not isinstance(top, int) or top < 1:
                raise SpecError(f"top: {top!r} must be a whole number, at least 1", field="top")
            if listed is not None:
                check_top(top, len(listed), "the list")
        if capitals not in get_args(Capitals):
            raise SpecError(
                f"capitals: {capitals!r}", hint=f"one of: {', '.join(get_args(Capitals))}", field="capitals"
            )
        for name, value in (("digits", digits), ("quotes", quotes), ("hyphens", hyphens), ("colons", colons)):
            if not isinstance(value, bool):
                raise SpecError(f"{name}: {value!r} is not true or false", field=name)
        check_text(separators, "separators", "separators")
        bad = next((c for c in separators if c.isalnum() or unicodedata.combining(c)), None)
        if bad is not None:
            raise SpecError(f"separators: {bad!r} is part of words", field="separators")
        if isinstance(max_run, bool) or not isinstance(max_run, int) or not 1 <= max_run <= MAX_RUN:
            raise SpecError(f"max_run: {max_run!r} must be at least 1 and at most {MAX_RUN}", field="max_run")
        values: dict[str, Any] = {
            "words": listed,
            "lang": lang,
            "top": top,
            "extra": _words(extra, "extra", rules),
            "names": _names(names),
            "capitals": capitals,
            "digits": digits,
            "quotes": quotes,
            "hyphens": hyphens,
            "colons": colons,
            "separators": "".join(dict.fromkeys(c for c in separators if c not in WHITESPACE)),
            "max_run": max_run,
        }
        for name, value in values.items():
            object.__setattr__(self, name, value)

    def word_languages(self) -> tuple[str, ...]:
        return (self.lang,) if self.words is None and self.lang is not None else ()


def check_top(top: int, count: int, what: str) -> None:
    """Raises SpecError, with the number of words, for a `top` beyond the list."""
    if top > count:
        raise SpecError(
            f"top: {top} is more than {what} has: {count} words",
            hint=f"ask for at most {count}, or leave `top` out",
            field="top",
        )


def _words(words: Sequence[str], field: str, rules: Language) -> tuple[str, ...]:
    """The words folded, without duplicates. Raises SpecError naming the word."""
    if isinstance(words, str) or not isinstance(words, Sequence):
        raise SpecError(f"{field} are a list of strings", field=field)
    folded: dict[str, None] = {}
    for number, word in enumerate(words):
        check_text(word, f"word {number} of {field}", field)
        folded[check_word(fold(word, rules), f"word {number} of {field}", field)] = None
    return tuple(folded)


def _names(names: Sequence[str]) -> tuple[str, ...]:
    if isinstance(names, str) or not isinstance(names, Sequence):
        raise SpecError("names are a list of strings", field="names")
    normal: dict[str, None] = {}
    for number, name in enumerate(names):
        check_text(name, f"name {number}", "names")
        normal[check_word(unicodedata.normalize("NFC", name.strip()), f"name {number}", "names")] = None
    return tuple(normal)
