"""Reads ranked word lists: `<lang>.txt`, UTF-8, one word on each line, the most frequent first. It knows no constraint.

A list of the user's own may also be a JSON array of words. A byte order mark is allowed; lines that start with `#` and
blank lines are ignored. Words are folded to NFC and lower case; a duplicate keeps its first rank.
"""

from __future__ import annotations

import json
import logging
import re
import unicodedata
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from espalier.errors import InputError, SpecError, TooLarge, UnknownName
from espalier.files.json_shape import check_shape
from espalier.files.limits import WORDS
from espalier.files.reading import read_text
from espalier.lexicon.languages import fold, language

log = logging.getLogger(__name__)
CODE = re.compile(r"[A-Za-z0-9_-]{1,64}")
MAX_WORDS = 2_000_000
MOST_FAULTS = 10
GOOD_FOR_EACH = 10
"""A list may have as many faults as this, and as many words for each."""
MAX_LENGTH = 1_000
"""The longest word, in characters."""


def check_code(lang: object) -> None:
    """Raises SpecError for anything but up to 64 letters, digits, - and _, so a code is never a path."""
    if not isinstance(lang, str) or CODE.fullmatch(lang) is None:
        raise SpecError(
            f"lang: {str(lang)[:80]!r} is not a language code",
            hint="letters, digits, - and _, such as es or pt-BR",
            field="lang",
        )


def check_word(word: str, what: str, field: str) -> str:
    """Returns the word. Raises SpecError if it is empty, has whitespace or control characters, or starts with a
    mark."""
    if not word:
        raise SpecError(f"{what} is empty", field=field)
    if any(c.isspace() or unicodedata.category(c) == "Cc" for c in word):
        raise SpecError(f"{what} is not one word: {word!r}", hint="one word each, without spaces", field=field)
    if unicodedata.category(word[0])[0] == "M" or all(unicodedata.category(c) == "Cf" for c in word):
        raise SpecError(f"{what} is not a word: {word!r}", hint="it starts with a mark, or is invisible", field=field)
    return word


class WordFiles:
    """The word lists in some folders; earlier folders take precedence."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)
        self._read: dict[str, tuple[str, tuple[str, ...]]] = {}  # by path: stamp and words

    @staticmethod
    def standard(extra: Path | None = None) -> WordFiles:
        """The given folder, if any, then the lists that ship with Espalier. Raises InputError for a folder that is not
        there."""
        if extra is not None and not extra.is_dir():
            raise InputError(
                f"there is no folder {extra} of word lists",
                hint="make it, or leave ESPALIER_WORDLIST_DIR out",
                field="ESPALIER_WORDLIST_DIR",
            )
        package = Path(str(files("espalier")))
        shipped = [package / "_wordlists", package.parents[1] / "wordlists"]
        return WordFiles([*([extra] if extra else []), *(folder for folder in shipped if folder.is_dir())])

    @property
    def folders(self) -> tuple[Path, ...]:
        return self._folders

    def languages(self) -> tuple[str, ...]:
        """The names of all lists, sorted."""
        return tuple(
            sorted({p.stem for folder in self._folders for p in folder.glob("*.txt") if CODE.fullmatch(p.stem)})
        )

    def path(self, lang: str) -> Path:
        """The file of a language: `es-MX.txt` for es-MX, else `es.txt`. Raises SpecError, UnknownName."""
        check_code(lang)
        base = lang.replace("_", "-").split("-", 1)[0]
        for name in dict.fromkeys((lang, lang.lower(), base, base.lower())):
            for folder in self._folders:
                if (path := folder / f"{name}.txt").is_file():
                    return path
        known = ", ".join(self.languages()) or "none"
        raise UnknownName(
            f"there is no word list for {lang!r}",
            hint=f"there are: {known}; `espalier wordlist build {lang}` makes one where it can",
            field="lang",
        )

    def stamp(self, lang: str) -> str:
        """A text that changes when the file of a language changes: path, time, size."""
        path = self.path(lang)
        status = path.stat()
        return f"{path} {status.st_mtime_ns} {status.st_size}"

    def words(self, lang: str) -> tuple[str, ...]:
        """The words of a language, best first; cached until the file changes. Raises SpecError naming the file and the
        line, UnknownName."""
        path, stamp = self.path(lang), self.stamp(lang)
        known = self._read.get(str(path))
        if known is None or known[0] != stamp:
            known = self._read[str(path)] = (stamp, read_words(path, lang))
        return known[1]

    def words_within(self, lang: str, count: int) -> int:
        """How many words the first `count` lines of a language's list have; see `words_within`. Raises as `words`."""
        path = self.path(lang)
        return words_within(_entries(read_text(path, WORDS), path), count, lang)


def read_words(path: Path, lang: str | None = None) -> tuple[str, ...]:
    """The words of a file, best first. lang: the language whose rules fold them. Raises SpecError for a file that
    cannot be read, is not UTF-8 or has no words, TooLarge."""
    words = parse_words(_entries(read_text(path, WORDS), path), str(path), lang)
    if not words:
        raise SpecError(f"the word list {path} has no words", field="lang")
    return words


def _entries(text: str, path: Path) -> list[str]:
    """The lines of a list, or the entries of a JSON array. Raises SpecError for a `.json` that is no such array,
    TooLarge."""
    is_json = path.suffix == ".json"
    if is_json or text.lstrip().startswith("["):
        check_shape(text, WORDS, str(path))
        try:
            entries = json.loads(text)
        except (ValueError, RecursionError):
            entries = None
        if isinstance(entries, list) and all(isinstance(entry, str) for entry in entries):
            return entries
        if is_json:
            raise SpecError(f"the word list {path} is not a JSON array of words", field="lang")
    return text.splitlines()


def parse_words(lines: Iterable[str], source: str, lang: str | None = None) -> tuple[str, ...]:
    """The words of the lines of a list, best first, without duplicates. A few lines that are no word are skipped, which
    the log says with their numbers. Raises SpecError naming the line where there are many, TooLarge."""
    words: dict[str, None] = {}
    rules = language(lang)
    faults: list[SpecError] = []
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#") or not line.strip():
            continue
        if len(line) > MAX_LENGTH:
            raise TooLarge(f"line {number} of {source} has more than {MAX_LENGTH} characters", field="lang")
        try:
            words[check_word(fold(line, rules), f"line {number} of {source}", "lang")] = None
        except SpecError as error:
            faults.append(error)
            if len(faults) > MOST_FAULTS:
                raise faults[0] from None
        if len(words) > MAX_WORDS:
            raise TooLarge(f"{source} has more than {MAX_WORDS:,} words", field="lang")
    if len(faults) * GOOD_FOR_EACH > len(words):  # a list of something else
        raise faults[0]
    for fault in faults:
        log.warning("skipped: %s", fault)
    return tuple(words)


def words_within(lines: Iterable[str], count: int, lang: str | None = None) -> int:
    """How many distinct words are among the first `count` lines that are not blank: the word-list server counted
    comments and duplicates as words."""
    rules = language(lang)
    firsts = [line for line in lines if line.strip()][:count]
    return len({fold(line, rules) for line in firsts if not line.lstrip().startswith("#")})
