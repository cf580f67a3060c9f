"""Finds every match of a filter in a finished text, as it is written and in its strings as they are decoded, with
Python's `re` and arithmetic, independently of the automata.

It judges texts for `Safety` and serves `espalier safety check`. It knows no tokens.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate

from espalier.constraints.safety.cards import find_cards
from espalier.constraints.safety.decoded import strings_of
from espalier.constraints.safety.folding import folded, folded_pattern
from espalier.constraints.safety.patterns.pattern import SafetyPattern
from espalier.constraints.safety.spec import Custom, Safety
from espalier.constraints.verdict import Verdict
from espalier.json_record import JsonRecord
from espalier.lexicon.files import WordFiles
from espalier.owners import owned_cache
from espalier.schema.patterns.cost import is_quick

MAX_SHOWN = 5
_FLAGS = re.compile(r"\(\?([aimsux]+)\)")


@dataclass(frozen=True, slots=True, kw_only=True)
class SafetyMatch(JsonRecord):
    """One match. start, end: character offsets in the text. start_byte, end_byte: byte offsets in its UTF-8. decoded:
    whether it was found in a string as its reader decodes it, and not in the text as it is written; `text` is then what
    the reader reads."""

    category: str
    pattern: str
    text: str
    start: int
    end: int
    start_byte: int
    end_byte: int
    decoded: bool = False


class UnsearchablePattern(Exception):
    """A pattern was not searched, because `re` may not finish in reasonable time."""


def find(spec: Safety, text: str) -> list[SafetyMatch]:
    """All matches, ordered by their start. Matches of one pattern do not overlap. Raises UnsearchablePattern."""
    findings: dict[tuple[str, str, int], SafetyMatch] = {}
    offsets = _byte_offsets(text)
    for shown, places, decoded in _readings(text):
        for category, name, spans in _spans(spec, shown):
            for start, end in spans:
                first, last = places[start], places[end]
                if (category, name, first) not in findings:
                    findings[category, name, first] = SafetyMatch(
                        category=category,
                        pattern=name,
                        text=shown[start:end],
                        start=first,
                        end=last,
                        start_byte=offsets[first],
                        end_byte=offsets[last],
                        decoded=decoded,
                    )
    return sorted(
        findings.values(), key=lambda finding: (finding.start, finding.end, finding.category, finding.pattern)
    )


def _readings(text: str) -> Iterator[tuple[str, range | list[int], bool]]:
    """The text and the strings in it: what is read, where each character of it begins, whether it is a string."""
    yield text, range(len(text) + 1), False
    for string in strings_of(text):
        yield string.text, string.places, True


def _byte_offsets(text: str) -> Sequence[int]:
    """The offset in UTF-8 of each character and of the end."""
    if text.isascii():
        return range(len(text) + 1)
    return list(accumulate((len(character.encode()) for character in text), initial=0))


def first_found(spec: Safety, text: str, *, from_byte: int = 0) -> int | None:
    """The byte offset of the first match that starts at `from_byte` or later; None if there is none, or if `re` may not
    finish."""
    try:
        places = [finding.start_byte for finding in find(spec, text) if finding.start_byte >= from_byte]
    except UnsearchablePattern:
        return None
    return min(places, default=None)


def _spans(spec: Safety, text: str) -> Iterator[tuple[str, str, Iterator[tuple[int, int]]]]:
    low = folded(text)
    for pattern in spec.built_in():
        if pattern.detector == "card":
            yield pattern.category, pattern.name, find_cards(low)
        else:
            yield pattern.category, pattern.name, _matches(_compile_pattern(pattern), low)
    for category, phrases in spec.lists:
        yield category, "list", _matches(_phrases(phrases), low)
    for custom in spec.patterns:
        yield "custom", custom.text[:80], _matches(_custom(custom, len(low)), low)


def _matches(pattern: re.Pattern[str], text: str) -> Iterator[tuple[int, int]]:
    at = reported = 0
    while at <= len(text) and (match := pattern.search(text, at)) is not None:
        start, end = match.span("match")
        at = match.start() + 1
        if start >= reported:
            reported = end
            yield start, end
            at = max(at, end - 1)  # the context before the next one may be the last character of this one


@lru_cache(maxsize=256)
def _compile_pattern(pattern: SafetyPattern) -> re.Pattern[str]:
    return re.compile(f"(?:{pattern.before})(?P<match>{pattern.itself})(?:{pattern.after})", re.IGNORECASE)


@owned_cache(16)
def _phrases(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """One regex for all phrases, longer ones first, so that the longest match is reported."""
    by_length = sorted(phrases, key=len, reverse=True)
    shown = "|".join(_with_borders(phrase) for phrase in by_length)
    return re.compile(f"(?P<match>{shown})")


def _with_borders(phrase: str) -> str:
    before = r"(?<!\w)" if re.match(r"\w", phrase[0]) else ""
    after = r"(?!\w)" if re.match(r"\w", phrase[-1]) else ""
    return f"{before}{re.escape(phrase)}{after}"


@owned_cache(256)
def _custom(custom: Custom, length: int) -> re.Pattern[str]:
    if not custom.is_regex:
        return re.compile(f"(?P<match>{re.escape(folded(custom.text))})")
    own = _FLAGS.match(custom.text)
    flags, rest = (own[1], custom.text[own.end() :]) if own else ("", custom.text)
    if not is_quick(rest, length):
        raise UnsearchablePattern(f"re may not finish with the pattern {custom.text!r}")
    letters = "".join(dict.fromkeys(f"i{flags}"))
    return re.compile(f"(?{letters})(?P<match>{folded_pattern(rest)})")


def judge_safety(spec: Safety, text: str, words: WordFiles) -> Verdict:
    """Valid if `find` finds nothing; None if a pattern was not searched."""
    try:
        findings = find(spec, text)
    except UnsearchablePattern as error:
        return Verdict(valid=None, judge="re", errors=(str(error),))
    errors = tuple(
        f"{hit.category}/{hit.pattern} at character {hit.start}{', in decoded text' if hit.decoded else ''}"
        for hit in findings[:MAX_SHOWN]
    )
    return Verdict(valid=not findings, judge="re", errors=errors)
