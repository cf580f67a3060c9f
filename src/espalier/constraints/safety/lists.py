"""Reads phrase lists for safety categories from text files: UTF-8, one phrase on each line, or a JSON array.

A byte order mark is allowed. A line that starts with `#` is a comment, and so is the rest of a line after ` #`. Blank
lines and surrounding spaces are ignored. Case and width are folded (`folding.py`), so spellings that differ only in
them are one phrase. It does not know how phrases are matched.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from espalier.constraints.safety.folding import folded
from espalier.constraints.spec import check_text
from espalier.errors import InputError, LimitExceeded
from espalier.files.limits import PHRASES
from espalier.files.reading import read_bytes
from espalier.time_limit import check as check_time

MAX_PHRASES = 20_000
"""The most phrases of all lists of a filter together."""
MAX_LENGTH = 1_000
"""The longest phrase, in characters."""


def read_list(path: Path) -> tuple[str, ...]:
    """The phrases of a file. Raises InputError naming the file and the line, TooLarge, LimitExceeded."""
    return parse_list(read_bytes(path, PHRASES), str(path))


def parse_list(data: bytes, source: str = "the list") -> tuple[str, ...]:
    """The phrases in the bytes of a file, folded, without duplicates. Raises InputError naming the line,
    LimitExceeded."""
    data = data.removeprefix(b"\xef\xbb\xbf")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        place = data.count(b"\n", 0, error.start) + 1
        raise InputError(
            f"{source} is not UTF-8 at line {place}, byte {error.start}", hint="save it as UTF-8", field="lists"
        ) from error
    listed = _array(text, source)
    if listed is not None:
        return check_phrases(listed, source)
    phrases: dict[str, None] = {}
    for number, line in enumerate(text.split("\n"), 1):
        check_time()
        phrase = "" if line.lstrip().startswith("#") else line.split(" #", 1)[0].strip()
        if not phrase:
            continue
        phrases[_check_phrase(phrase, f"line {number} of {source}")] = None
        if len(phrases) > MAX_PHRASES:
            raise _too_many()
    if not phrases:
        raise InputError(
            f"{source} has no phrases", hint="write one phrase on each line; `#` starts a comment", field="lists"
        )
    return tuple(phrases)


def _array(text: str, source: str) -> list[Any] | None:
    """The entries of a JSON array; None for any other text. Raises InputError for a `.json` that is none."""
    is_json = source.endswith(".json")
    if not is_json and not text.lstrip().startswith("["):
        return None
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        value = None
    if isinstance(value, list):
        return value
    if is_json:
        raise InputError(f"{source} is not a JSON array of phrases", field="lists")
    return None


def check_phrases(phrases: object, category: str) -> tuple[str, ...]:
    """Phrases given as strings, folded, without duplicates. Raises InputError naming the phrase, LimitExceeded."""
    if isinstance(phrases, str) or not isinstance(phrases, Iterable):
        raise InputError(f"the list of {category} is a list of strings", field="lists")
    checked: dict[str, None] = {}
    for number, phrase in enumerate(phrases):
        check_time()
        check_text(phrase, f"phrase {number} of {category}", "lists")
        if not phrase.strip():
            raise InputError(f"phrase {number} of {category} is empty", field="lists")
        checked[_check_phrase(phrase.strip(), f"phrase {number} of {category}")] = None
        if len(checked) > MAX_PHRASES:
            raise _too_many()
    if not checked:
        raise InputError(f"the list of {category} has no phrases", field="lists")
    return tuple(checked)


def _check_phrase(phrase: str, what: str) -> str:
    if len(phrase) > MAX_LENGTH:
        raise LimitExceeded(f"{what} has more than {MAX_LENGTH} characters", hint="write one phrase on each line")
    if any(unicodedata.category(character) == "Cc" and character != "\t" for character in phrase):
        raise InputError(f"{what} holds a control character: {phrase!r}", field="lists")
    return folded(phrase)


def _too_many() -> LimitExceeded:
    return LimitExceeded(
        f"a filter holds at most {MAX_PHRASES} phrases",
        hint="keep the most important ones, or check the finished text instead",
    )
