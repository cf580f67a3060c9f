"""Judges a finished text for a `Wordlist`: cuts it into words, and finds where that is not possible.

It reads the text from left to right and keeps every possible cut, without the automaton or a vocabulary. `report.py`
counts the words of a text; this module only judges it.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from espalier.computed import computed
from espalier.constraints.verdict import Verdict
from espalier.constraints.words.spec import Wordlist, check_top
from espalier.errors import InputError
from espalier.json_record import JsonRecord
from espalier.lexicon.files import WordFiles
from espalier.lexicon.languages import (
    COLONS,
    DASHES,
    DIGITS,
    HYPHENS,
    OPENING,
    QUOTES,
    WHITESPACE,
    capitalised,
    fold,
    language,
)

JUDGED_ERRORS = 5
GROUP_DIGITS = 12
GROUPS = 5
JOINERS = ".,:"
LINE_ENDS = "\n\r"
SHOWN = 12  # characters shown of a text without spaces where it does not fit


@dataclass(frozen=True, slots=True)
class Problem(JsonRecord):
    """One place where the text does not fit. offset: in characters. text: from there to the next separator; empty at
    the end of the text."""

    offset: int
    text: str
    reason: str


class CutEnd(Enum):
    """What the text read so far ends with, under one cut."""

    RUN = "separators, or the start of the text"
    WORD = "a word, a name or a clitic"
    NUMBER = "a number"
    ELIDED = "an elided form, which needs a word after it"
    HYPHEN = "a hyphen, which needs a word after it"


class WordCut(NamedTuple):
    """One way to cut the text read so far. kind: what it ends with. length: separators in the run at its end. start: a
    sentence may start next. seen: there was a word or number before."""

    kind: CutEnd
    length: int = 0
    start: bool = False
    seen: bool = True


START = WordCut(CutEnd.RUN, 0, start=True, seen=False)
AFTER_WORD = WordCut(CutEnd.WORD)
AFTER_NUMBER = WordCut(CutEnd.NUMBER)
AFTER_ELIDED = WordCut(CutEnd.ELIDED)
AFTER_HYPHEN = WordCut(CutEnd.HYPHEN)
UNITS = (CutEnd.WORD, CutEnd.NUMBER)


def list_of(spec: Wordlist, words: WordFiles) -> tuple[str, ...]:
    """The whole list that a spec names, before `top` and `extra`. Raises SpecError, UnknownName."""
    listed = spec.words if spec.words is not None else words.words(str(spec.lang))
    if spec.top is not None:
        check_top(spec.top, len(listed), f"the list {spec.lang}" if spec.words is None else "the list")
    return listed


def straight(text: str) -> str:
    """The text with one kind of apostrophe; character offsets stay."""
    return text.replace("’", "'")


class WordReader:
    """The words and characters of one spec, and the rules by which they may follow one another."""

    def __init__(self, spec: Wordlist, words: WordFiles) -> None:
        """Raises SpecError, UnknownName where there is no such list."""
        rules = language(spec.lang)
        self.spec = spec
        self.rules = rules
        self.full = list_of(spec, words)
        listed = dict.fromkeys((*self.full[: spec.top], *spec.extra))
        bound = [w for w in listed if w != "'"]  # an apostrophe alone attaches to nothing
        self.elided = {w for w in bound if rules.elisions and w.endswith("'")}
        self.clitics = {w for w in bound if rules.clitics and w.startswith("'")} - self.elided
        self.plain = set(listed) - self.elided - self.clitics
        # Allowed anywhere, exactly as written: the words, words with fixed capitals, and names.
        self.always = self.plain | {form for form in map(straight, rules.capitals) if fold(form, rules) in self.plain}
        self.always |= {straight(name) for name in spec.names}
        self.capital = {form for w in self.plain for form in capitalised(w, rules)}
        self.capital_elided = {form for w in self.elided for form in capitalised(w, rules)}
        self.digits = frozenset(DIGITS + rules.digits)
        self.ends = frozenset(rules.ends + LINE_ENDS + (OPENING if spec.quotes else ""))
        self.separators = frozenset(
            WHITESPACE
            + rules.punctuation
            + spec.separators
            + (QUOTES + rules.quotes if spec.quotes else "")
            + (COLONS + rules.colons if spec.colons else "")
            + (DASHES if spec.hyphens else "")
        )
        forms = (self.always, self.capital, self.elided, self.capital_elided, self.clitics)
        self._lengths = sorted({len(form) for group in forms for form in group})

    @computed
    def alphabet(self) -> frozenset[str]:
        """All characters of words and names, in lower case and as capitals."""
        forms = (self.always, self.capital, self.elided, self.capital_elided, self.clitics)
        return frozenset(c for group in forms for form in group for c in form) | {"’"}

    def read(
        self, text: str, begin: int = 0, cuts: frozenset[WordCut] = frozenset({START})
    ) -> tuple[int, set[WordCut]]:
        """Read from `begin`, with `cuts` of the text before it: the furthest offset that a cut reaches, and the cuts
        that reach it."""
        folded = straight(text)
        reached: dict[int, set[WordCut]] = {begin: set(cuts)}
        furthest, last = begin, set(cuts)
        for at in range(begin, len(text) + 1):
            here = reached.pop(at, None)
            if here is None:
                if not reached:
                    break
                continue
            furthest, last = at, here
            for cut in here:
                for end, then in self._steps(text, folded, at, cut):
                    reached.setdefault(end, set()).add(then)
        return furthest, last

    def fits(self, text: str, *, start: bool = True) -> bool:
        """Whether a whole text is in the language. start: a sentence may start with it."""
        furthest, cuts = self.read(text, 0, frozenset({START._replace(start=start)}))
        return furthest == len(text) and any(map(complete, cuts))

    def _steps(self, text: str, folded: str, at: int, cut: WordCut) -> Iterator[tuple[int, WordCut]]:
        """The offsets and cuts after one more separator, word, number or hyphen."""
        if at == len(text):
            return
        char, kind = text[at], cut.kind
        if kind is CutEnd.RUN:
            if cut.length < self.spec.max_run and char in self.separators:
                yield at + 1, WordCut(CutEnd.RUN, cut.length + 1, cut.start or char in self.ends, cut.seen)
        elif kind in UNITS and char in self.separators:
            yield at + 1, WordCut(CutEnd.RUN, 1, char in self.ends)
        if kind is CutEnd.WORD:
            for end in self._matches(folded, at, self.clitics):
                yield end, AFTER_WORD
            if self.spec.hyphens and char in HYPHENS:
                yield at + 1, AFTER_HYPHEN
        opens = kind is CutEnd.RUN or (kind in UNITS and not self.rules.spaced)  # a word or number may start here
        if opens and self.spec.digits:
            for end in self.number_ends(text, at):
                yield end, AFTER_NUMBER
        if opens or kind in (CutEnd.ELIDED, CutEnd.HYPHEN):
            for end in self._matches(folded, at, self.always):
                yield end, AFTER_WORD
            for end in self._matches(folded, at, self.elided):
                yield end, AFTER_ELIDED
            capitals = self.spec.capitals
            if capitals == "anywhere" or (capitals == "sentence" and cut.start):
                for end in self._matches(folded, at, self.capital):
                    yield end, AFTER_WORD
                for end in self._matches(folded, at, self.capital_elided):
                    yield end, AFTER_ELIDED

    def _matches(self, folded: str, at: int, forms: set[str]) -> Iterator[int]:
        if forms:
            for length in self._lengths:
                if at + length <= len(folded) and folded[at : at + length] in forms:
                    yield at + length

    def number_ends(self, text: str, at: int) -> Iterator[int]:
        """The offsets at which a number that starts here may end."""
        for _ in range(GROUPS):
            end = at
            while end < len(text) and end - at < GROUP_DIGITS and text[end] in self.digits:
                end += 1
                yield end
            if end == at or end == len(text) or text[end] not in JOINERS:
                return
            at = end + 1

    def next_separator(self, text: str, at: int) -> int:
        """The offset of the next separator from `at` on, or the end of the text; for languages without spaces, at most
        SHOWN characters away."""
        limit = len(text) if self.rules.spaced else min(len(text), at + SHOWN)
        return next((i for i in range(at, limit) if text[i] in self.separators), limit)


def complete(cut: WordCut) -> bool:
    """Whether the text may end with this cut."""
    return cut.kind in UNITS or (cut.kind is CutEnd.RUN and cut.seen)


def check_text(spec: Wordlist, text: str, words: WordFiles) -> list[Problem]:
    """The places where the text does not fit, in order; empty if the text is in the language.

    The first one is the furthest offset that any cut reaches. After a piece that does not fit, reading continues as if
    the piece were a word. Raises SpecError, UnknownName if there is no such list.
    """
    return problems(WordReader(spec, words), text)


def problems(reader: WordReader, text: str) -> list[Problem]:
    """As `check_text`, with an existing reader."""
    faults: list[Problem] = []
    begin, cuts = 0, frozenset({START})
    while True:
        at, last = reader.read(text, begin, cuts)
        if at == len(text):
            if not any(map(complete, last)):
                faults.append(Problem(at, "", _explain_unfinished(last)))
            return faults
        faults.append(_problem(reader, text, at, last))
        begin, cuts = _resume(reader, text, at, last)


def _resume(reader: WordReader, text: str, at: int, last: set[WordCut]) -> tuple[int, frozenset[WordCut]]:
    """Where to continue after a piece that does not fit, which counts as a word, and the cuts there."""
    if text[at] not in reader.separators:
        return reader.next_separator(text, at) if reader.rules.spaced else at + 1, frozenset({AFTER_WORD})
    if any(cut.kind is CutEnd.RUN for cut in last):  # too many separators: skip the rest of them
        while at < len(text) and text[at] in reader.separators:
            at += 1
        return at, frozenset({WordCut(CutEnd.RUN, 1, start=True)})
    return at, frozenset({AFTER_WORD})


def _explain_unfinished(last: set[WordCut]) -> str:
    """Why the text may not end here."""
    kinds = {cut.kind for cut in last}
    if CutEnd.ELIDED in kinds:
        return "the text ends after an elided form, which stands directly before a word"
    if CutEnd.HYPHEN in kinds:
        return "the text ends after a hyphen, which joins two words"
    return "there is no word"


def _problem(reader: WordReader, text: str, at: int, last: set[WordCut]) -> Problem:
    """The problem at the offset where no cut can continue."""
    spec, char = reader.spec, text[at]
    kinds = {cut.kind for cut in last}
    if char in reader.separators:
        if CutEnd.RUN in kinds:
            return Problem(at, char, f"more than {spec.max_run} separators in a row")
        what = "an elided form stands directly before a word" if CutEnd.ELIDED in kinds else "a hyphen joins two words"
        return Problem(at, char, f"{what}, not before {char!r}")
    end = reader.next_separator(text, at)
    begin = at
    if reader.rules.spaced:
        while begin and text[begin - 1] not in reader.separators:
            begin -= 1
    return Problem(at, text[at:end], _why(reader, text[begin:end], char))


def _why(reader: WordReader, token: str, char: str) -> str:
    """Why a word does not fit from `char` on."""
    spec = reader.spec
    composed = unicodedata.normalize("NFC", token)
    if composed != token and reader.fits(composed):
        return f"{token!r} is not in NFC: some letters are written as a letter and a mark"
    plain = fold(token, reader.rules)
    if plain != straight(composed) and reader.fits(plain):
        return f"{token!r} is in the list, but not with capitals here"
    if char in reader.digits:
        if not spec.digits:
            return f"{token!r} has a digit, and numbers are not allowed"
        if all(c in reader.digits for c in token):
            return f"{token!r} has more than {GROUP_DIGITS} digits"
        return f"{token!r}: a number stands apart from words"
    if straight(token) in reader.clitics:
        return f"{token!r} stands directly after a word"
    if not char.isalnum() and not unicodedata.combining(char) and char not in reader.alphabet:
        return f"the character {char!r} is neither a separator nor part of a word"
    return f"{token!r} is not in the list"


def line_and_column(text: str, offset: int) -> tuple[int, int]:
    """Line and column of an offset, both from 1."""
    return text.count("\n", 0, offset) + 1, offset - text.rfind("\n", 0, offset)


def judge_wordlist(spec: Wordlist, text: str, words: WordFiles) -> Verdict:
    """The verdict by cutting the text into words; None if the list cannot be read."""
    try:
        faults = check_text(spec, text, words)
    except InputError as error:
        return Verdict(valid=None, judge="words", errors=(f"could not judge: {error.message}"[:200],))
    errors = []
    for problem in faults[:JUDGED_ERRORS]:
        line, column = line_and_column(text, problem.offset)
        errors.append(f"line {line}, column {column}: {problem.reason}"[:200])
    return Verdict(valid=not faults, judge="words", errors=tuple(errors))
