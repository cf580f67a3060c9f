r"""Patterns of JSON Schema as regular languages: the texts in which ECMA-262 with the flag u finds a match.

Look-ahead right after a leading `^` becomes a pattern of its own. It does not know JSON strings.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple

from espalier.automata.languages.algebra import both, either, every_text, language, without
from espalier.automata.languages.dfa import Dfa
from espalier.errors import RegexError, UnsupportedError
from espalier.grammar.ast import Node
from espalier.grammar.regex.parse import parse_regex
from espalier.owners import owned_cache
from espalier.schema.patterns.assertions import ASSERTION, asserted
from espalier.schema.patterns.references import REFERENCE, without_references
from espalier.schema.patterns.translate import translate
from espalier.time_limit import check as check_time

_LOOK_AHEAD = re.compile(r"\(\?([=!])")
_GROUP_SIGN = re.compile(r"\(\?(?!:)")
"""What begins a group with more to it than its contents."""
_OTHER_ANCHOR = re.compile(r"\\[bBAZz]")


@dataclass(frozen=True, slots=True)
class LookAheadPattern:
    """A pattern whose leading look-ahead was split off. parts: (pattern without look-ahead, whether it must match); all
    must hold. is_plain: there is one part, and it must match."""

    text: str
    parts: tuple[tuple[str, bool], ...]

    @property
    def is_plain(self) -> bool:
        return len(self.parts) == 1 and self.parts[0][1] and not _is_hard(self.parts[0][0])

    def node(self) -> Node:
        """The texts that contain a match of a plain pattern. Raises UnsupportedError."""
        return searched(self.parts[0][0])

    def dfa(self) -> Dfa | None:
        """The texts that contain a match; None for no text. Raises UnsupportedError, LimitExceeded."""
        texts: Dfa | None = every_text()
        for text, wanted in self.parts:
            part = _search_dfa(text)
            texts = both(texts, part) if wanted else without(texts, part)
        return texts


def read(pattern: str) -> LookAheadPattern:
    """Split off the leading look-ahead of a pattern. Whether the pattern is supported shows in `node` and `dfa`."""
    if REFERENCE.search(pattern):
        return LookAheadPattern(pattern, ((pattern, True),))  # it may refer to a group within the look-ahead
    if not pattern.startswith("^") or not _LOOK_AHEAD.match(pattern, 1):
        return LookAheadPattern(pattern, ((pattern, True),))
    parts: list[tuple[str, bool]] = []
    at = 1
    while match := _LOOK_AHEAD.match(pattern, at):
        check_time()
        end = _group_end(pattern, at)
        if end is None:
            return LookAheadPattern(pattern, ((pattern, True),))
        parts.append((f"^(?:{pattern[match.end() : end]})", match[1] == "="))
        at = end + 1
    rest = pattern[at:]
    if _has_bar(rest):  # the look-ahead belongs to the first option only
        return LookAheadPattern(pattern, ((pattern, True),))
    return LookAheadPattern(pattern, (*parts, *([(f"^{rest}", True)] if rest else [])))


def _is_hard(text: str) -> bool:
    """Whether a pattern without leading look-ahead is no single expression: it has assertions, or back-references."""
    return bool(ASSERTION.search(text) or REFERENCE.search(text))


@owned_cache(256)
def _search_dfa(text: str) -> Dfa | None:
    if not _is_hard(text):
        return language(searched(text))
    try:
        texts: Dfa | None = None
        for spelled in without_references(text, _translate_text):
            texts = either(texts, asserted(spelled, _translate_text))
    except RegexError as error:
        raise UnsupportedError(f"the pattern {text[:200]!r}: {error.message}", field="pattern") from error
    return texts


def _translate_text(text: str) -> str:
    return translate(text)[0]


@owned_cache(1024)
def searched(pattern: str) -> Node:
    """The texts that contain a match. Raises UnsupportedError with the pattern and an offset into it."""
    with suppress(RegexError, UnsupportedError):  # the whole pattern raises it again, with an offset of its own
        if (body := _between_anchors(pattern)) is not None:
            return parse_regex(f"{'' if body.begins else '(?s:.*)'}(?:{body.text}){'' if body.ends else '(?s:.*)'}")
    translation, origin = translate(pattern)
    lead = "(?s:.*)(?:"
    try:
        return parse_regex(f"{lead}{translation})(?s:.*)")
    except (RegexError, UnsupportedError) as error:
        raise _ours(error, pattern, len(lead), origin) from error


class _PatternBody(NamedTuple):
    """What of a pattern stands between its anchors, in the dialect of `re`. begins, ends: whether it has these
    anchors."""

    text: str
    begins: bool
    ends: bool


def _between_anchors(pattern: str) -> _PatternBody | None:
    """The body of a pattern whose only anchors are a leading `^` and a final `$`, if any; None for other patterns. So
    read, it need not be told apart what stands before and after each of its parts. Raises UnsupportedError."""
    if _GROUP_SIGN.search(pattern) or _OTHER_ANCHOR.search(pattern):
        return None
    signs = [at for at, char in _symbols(pattern, 0) if char in "^$"]
    begins = pattern[:1] == "^" and signs[:1] == [0]
    ends = pattern[-1:] == "$" and signs[-1:] == [len(pattern) - 1]
    text = pattern[begins : len(pattern) - ends]
    if len(signs) > begins + ends or not text or ((begins or ends) and _has_bar(text)):
        return None
    return _PatternBody(translate(text)[0], begins, ends)


def _ours(
    error: RegexError | UnsupportedError, pattern: str, lead: int, origin: Callable[[int], int]
) -> UnsupportedError:
    """The same error, with its offset in the pattern that the user wrote."""
    match = re.search(r"^(.*?),? at offset (\d+):", error.message, re.DOTALL)
    what, offset = (match[1], origin(int(match[2]) - lead)) if match else (error.message, 0)
    message = f"{what}, at offset {offset} of the pattern {pattern[:200]!r}"
    return UnsupportedError(message, hint=error.hint, field="pattern")


def _group_end(pattern: str, start: int) -> int | None:
    """The offset at which the group that opens at `start` closes."""
    depth = 0
    for at, char in _symbols(pattern, start):
        depth += (char == "(") - (char == ")")
        if depth == 0:
            return at
    return None


def _has_bar(pattern: str) -> bool:
    depth = 0
    for _, char in _symbols(pattern, 0):
        depth += (char == "(") - (char == ")")
        if char == "|" and depth == 0:
            return True
    return False


def _symbols(pattern: str, start: int) -> list[tuple[int, str]]:
    """The characters, with offsets, that are neither escaped nor in a class."""
    symbols: list[tuple[int, str]] = []
    i, in_class = start, False
    while i < len(pattern):
        check_time()
        char = pattern[i]
        if char == "\\":
            i += 1
        elif in_class:
            in_class = char != "]"
        elif char == "[":
            in_class = True
        else:
            symbols.append((i, char))
        i += 1
    return symbols
