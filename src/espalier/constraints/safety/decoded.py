"""The strings in a finished text as their reader decodes them: what stands between two quotation marks of one kind,
with escapes decoded as in JSON and Python.

A string begins at every quotation mark of its kind that no backslash escapes and ends at the next one, or at the end of
the text; so what lies between two strings is read as a string too, which makes no difference unless it holds a
backslash. It is written for the judge, with `re` and `json`, and shares no code with the automata. It knows no
patterns."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass

QUOTES = ('"', "'")
UNKNOWN = "\ufffd"
"""What a broken escape, or half of a surrogate pair, is read as."""
_ESCAPE = re.compile(
    r"\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{0,3}"
    r"|\\x[0-9a-fA-F]{2}|\\x[0-9a-fA-F]?|\\[\"'\\/bfnrt]"
)
_NESTED_ESCAPE = re.compile(
    r"\\+u[dD][89abAB][0-9a-fA-F]{2}\\+u[dD][c-fC-F][0-9a-fA-F]{2}|\\+u[0-9a-fA-F]{4}|\\+u[0-9a-fA-F]{0,3}"
    r"|\\+x[0-9a-fA-F]{2}|\\+x[0-9a-fA-F]?|\\+[\"'/bfnrt]|\\+"
)
_BEGIN_NESTED = re.compile(r'\\"')
_END_NESTED = re.compile(r'(?<!\\)(?:\\)?"')
_STRINGS = {quote: re.compile(rf"{quote}((?:[^{quote}\\]|\\.)*\\?)", re.DOTALL) for quote in QUOTES}


@dataclass(frozen=True, slots=True)
class DecodedString:
    """A string of a text. places: where in the text each of its characters begins, and where the string ends."""

    text: str
    places: range | list[int]


def strings_of(text: str) -> Iterator[DecodedString]:
    """The strings of a text, by both kinds of quotation marks."""
    for quote in QUOTES:
        at = text.find(quote)
        while at >= 0:
            string = _STRINGS[quote].match(text, at)
            assert string is not None, "it begins with the quotation mark"
            yield _decode(text, *string.span(1), _ESCAPE)
            at = string.end() if string.end() < len(text) else -1
    yield from nested_strings(text)


def nested_strings(text: str) -> Iterator[DecodedString]:
    """The strings that stand in strings, however deep: between quotation marks with one backslash, or several at the
    beginning."""
    begin = _BEGIN_NESTED.search(text)
    while begin is not None:
        at = begin.end()
        while True:
            end = _END_NESTED.search(text, at)
            yield _decode(text, at, len(text) if end is None else end.start(), _NESTED_ESCAPE)
            if end is None:
                return
            at = end.end()
            if end[0] == QUOTES[0]:
                break
        begin = _BEGIN_NESTED.search(text, at)


def _decode(text: str, start: int, end: int, escape: re.Pattern[str]) -> DecodedString:
    if text.find("\\", start, end) < 0:
        return DecodedString(text[start:end], range(start, end + 1))
    pieces: list[str] = []
    places: list[int] = []
    at = start
    while at < end:
        match = escape.match(text, at, end)
        piece, after = (text[at], at + 1) if match is None else (_meaning(match[0]), match.end())
        pieces.append(piece)
        places.append(at)
        at = after
    return DecodedString("".join(pieces), [*places, end])


def _meaning(escape: str) -> str:
    """The character of an escape, with one backslash or several."""
    escape = re.sub(r"\\+", r"\\", escape)
    if escape == "\\":
        return escape
    if escape[1] == "x":
        return chr(int(f"0{escape[1:]}", 0)) if len(escape) == 4 else UNKNOWN
    if escape[1] == "'":
        return "'"
    try:
        character: str = json.loads(f'"{escape}"')
    except ValueError:
        return UNKNOWN
    return UNKNOWN if "\ud800" <= character <= "\udfff" else character
