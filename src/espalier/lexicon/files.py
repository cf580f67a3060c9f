"""Ranked word lists on disk: `<lang>.txt`, one word a line, the most frequent first.

UTF-8 with or without a byte order mark; `#` begins a comment line; blank lines do not count. Words are read in NFC
and lower case, and one that comes again keeps its first rank. It knows nothing of constraints.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from importlib.resources import files
from pathlib import Path

from espalier.errors import SpecError, UnknownName
from espalier.lexicon.languages import fold, language

CODE = re.compile(r"[A-Za-z0-9_-]+")


def check_code(lang: object) -> None:
    """Raises SpecError for what cannot be the name of a list: it is no path."""
    if not isinstance(lang, str) or CODE.fullmatch(lang) is None:
        raise SpecError(
            f"lang: {lang!r} is no language", hint="letters, digits, - and _, such as es or pt-BR", field="lang"
        )


def check_word(word: str, what: str, field: str) -> str:
    """The word, if it is one. Raises SpecError for an empty one, or one with whitespace or control characters."""
    if not word:
        raise SpecError(f"{what} is empty", field=field)
    if any(c.isspace() or unicodedata.category(c) == "Cc" for c in word):
        raise SpecError(f"{what} is not one word: {word!r}", hint="one word each, without spaces", field=field)
    if unicodedata.category(word[0])[0] == "M" or all(unicodedata.category(c) == "Cf" for c in word):
        raise SpecError(
            f"{what} is no word: {word!r}", hint="it begins with a mark that belongs to a letter", field=field
        )
    return word


class WordFiles:
    """The lists in some folders; a folder before another wins."""

    def __init__(self, folders: Sequence[Path]) -> None:
        self._folders = tuple(folders)
        self._read: dict[str, tuple[str, tuple[str, ...]]] = {}  # by path: stamp and words

    @staticmethod
    def standard(extra: Path | None = None) -> WordFiles:
        """The folder given, if there is one, then the lists that ship with Espalier."""
        package = Path(str(files("espalier")))
        shipped = [package / "_wordlists", package.parents[1] / "wordlists"]
        return WordFiles([*([extra] if extra else []), *(folder for folder in shipped if folder.is_dir())])

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
                if (found := folder / f"{name}.txt").is_file():
                    return found
        known = ", ".join(self.languages()) or "none"
        raise UnknownName(
            f"there is no word list for {lang!r}",
            hint=f"there are: {known}; `espalier wordlist build {lang}` makes one where it can",
            field="lang",
        )

    def stamp(self, lang: str) -> str:
        """Changes when the file of a language does."""
        path = self.path(lang)
        status = path.stat()
        return f"{path} {status.st_mtime_ns} {status.st_size}"

    def words(self, lang: str) -> tuple[str, ...]:
        """The words of a language, best first. Raises SpecError naming the file and the line."""
        path, stamp = self.path(lang), self.stamp(lang)
        known = self._read.get(str(path))
        if known is None or known[0] != stamp:
            known = self._read[str(path)] = (stamp, read_words(path, lang))
        return known[1]


def read_words(path: Path, lang: str | None = None) -> tuple[str, ...]:
    """A ranked list; the language says which letters are a pair.

    Raises SpecError for a file that cannot be read, is not UTF-8 or has no words."""
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except OSError as error:
        raise SpecError(f"cannot read the word list {path}: {error.strerror or error}", field="lang") from error
    except UnicodeDecodeError as error:
        raise SpecError(f"the word list {path} is not UTF-8 at byte {error.start}", field="lang") from error
    found = parse_words(text.splitlines(), str(path), lang)
    if not found:
        raise SpecError(f"the word list {path} has no words", field="lang")
    return found


def parse_words(lines: Iterable[str], source: str, lang: str | None = None) -> tuple[str, ...]:
    """The words of the lines of a list, first rank first. Raises SpecError naming the line."""
    found: dict[str, None] = {}
    rules = language(lang)
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("#") or not line.strip():
            continue
        found[check_word(fold(line, rules), f"line {number} of {source}", "lang")] = None
    return tuple(found)
