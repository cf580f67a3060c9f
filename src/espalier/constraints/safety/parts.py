"""The parts of a filter: a few small DFAs over classes of characters that read the text side by side. Their product is
never built: it has tens of thousands of states, the parts together have some thousand.

Built-in patterns are grouped by category; the lists, the custom texts, the custom expressions and the card numbers are
parts of their own. A part of built-in patterns is made once. It knows no bytes and no tokens.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.constraints.safety.alphabet import Alphabet
from espalier.constraints.safety.automaton import is_endless, joined, smallest, without_dooms
from espalier.constraints.safety.cards import card_automata, card_sets
from espalier.constraints.safety.catalogue import BY_NAME, PATTERNS
from espalier.constraints.safety.expressions import CharDfa, PatternParts, PatternPositions, pattern_dfa
from espalier.constraints.safety.folding import folded_pattern
from espalier.constraints.safety.kept import Automaton, Segments, kept_or_made
from espalier.constraints.safety.patterns.pattern import SafetyPattern
from espalier.constraints.safety.phrases import Phrase, phrase_automaton, phrase_sets
from espalier.constraints.safety.spec import Custom
from espalier.errors import SpecError
from espalier.grammar.ast import EMPTY, NEVER
from espalier.grammar.ranges import SURROGATES
from espalier.grammar.regex.parse import parse_regex

_FLAGS = re.compile(r"\(\?[aimsux]+\)")
CARD = "card"
MAX_TOGETHER = 20_000
"""Custom texts and custom expressions become one part if their states multiply to at most so many; then a text that
satisfies neither alone is found when the filter is made."""


class PatternPart(NamedTuple):
    """A DFA over the classes of its own alphabet, of which only the segments are kept (`Alphabet.segments`). rules: the
    number of the rule for each number in the DFA."""

    dfa: CharDfa
    segments: Segments
    rules: tuple[int, ...]


class Tables(NamedTuple):
    """All parts in the arrays that `kernels.py` reads, in its order."""

    points: NDArray[np.int16]
    letters: NDArray[np.int16]
    table: NDArray[np.int32]
    first: NDArray[np.int64]
    wide: NDArray[np.int64]
    cuts: NDArray[np.int32]
    begin: NDArray[np.int64]
    busy: NDArray[np.uint8]
    samples: NDArray[np.int32]
    sample_places: NDArray[np.int64]

    @property
    def states(self) -> int:
        return len(self.cuts)


def built_in_parts(
    patterns: Sequence[SafetyPattern], numbers: Sequence[int], folder: Path | None = None
) -> list[PatternPart]:
    """The parts of built-in patterns. numbers: of their rules. folder: where parts of whole groups are kept."""
    groups: dict[str, list[tuple[str, int]]] = {}
    parts: list[PatternPart] = []
    for pattern, number in zip(patterns, numbers, strict=True):
        if pattern.detector == CARD:
            parts += [PatternPart(dfa, segments, (number,)) for dfa, segments in _cards(folder)]
        else:
            groups.setdefault(pattern.part or pattern.category, []).append((pattern.name, number))
    for members in groups.values():
        dfa, segments = _group(tuple(name for name, _ in members), folder)
        parts.append(PatternPart(dfa, segments, tuple(number for _, number in members)))
    return parts


@lru_cache(maxsize=64)
def _group(names: tuple[str, ...], folder: Path | None) -> Automaton:
    patterns = [BY_NAME[name] for name in names]

    def made() -> list[Automaton]:
        places = PatternPositions([_parts(pattern) for pattern in patterns])
        alphabet = Alphabet(places.char_sets)
        return [(smallest(pattern_dfa(places, alphabet)), alphabet.segments)]

    if names != _whole_group(patterns[0]):  # a choice of a request's own: these would be too many to keep
        folder = None
    (automaton,) = kept_or_made(folder, [*patterns], made)
    return automaton


def _whole_group(member: SafetyPattern) -> tuple[str, ...]:
    """The names of the patterns that are on by default, of the group of one of them."""
    part = member.part or member.category
    return tuple(
        pattern.name
        for pattern in PATTERNS
        if (pattern.part or pattern.category) == part and not pattern.is_option and pattern.detector != CARD
    )


@lru_cache(maxsize=4)
def _cards(folder: Path | None) -> list[Automaton]:
    def made() -> list[Automaton]:
        alphabet = Alphabet(card_sets())
        return [(smallest(dfa), alphabet.segments) for dfa in card_automata(alphabet)]

    return kept_or_made(folder, [pattern for pattern in PATTERNS if pattern.detector == CARD], made)


def forget_parts() -> None:
    """Forget the parts of built-in patterns, for measurements."""
    _group.cache_clear()
    _cards.cache_clear()


def listed_part(words: Sequence[Phrase]) -> PatternPart:
    """The phrases of all lists, as whole words. Raises LimitExceeded."""
    alphabet = Alphabet(phrase_sets(words))
    return _whole(phrase_automaton(words, alphabet, whole=True), alphabet, "lists")


def custom_parts(texts: Sequence[Phrase], expressions: Sequence[tuple[Custom, int]]) -> list[PatternPart]:
    """The parts of custom texts and expressions, matched anywhere. Raises SpecError and its subclasses,
    UnsupportedError, LimitExceeded."""
    places = PatternPositions([checked_parts(custom) for custom, _ in expressions])
    alphabet = Alphabet([*places.char_sets, *(phrase_sets(texts) if texts else ())])
    automata: list[CharDfa] = []
    if expressions:
        automata.append(_with_numbers(pattern_dfa(places, alphabet), [number for _, number in expressions]))
    if texts:
        automata.append(phrase_automaton(texts, alphabet, whole=False))
    small = [smallest(dfa) for dfa in automata]
    if len(small) == 2 and len(small[0]) * len(small[1]) <= MAX_TOGETHER:
        small = [joined(small)]
    return [_whole(dfa, alphabet, "patterns") for dfa in small]


def _whole(dfa: CharDfa, alphabet: Alphabet, field: str) -> PatternPart:
    """A part that users gave. Raises SpecError if it leaves no text."""
    live = without_dooms(smallest(dfa))
    if live is None:
        raise SpecError(f"the {field} together leave no text at all", field=field)
    if not is_endless(live):
        raise SpecError(f"the {field} together leave next to no text", field=field)
    return PatternPart(live, alphabet.segments, ())


def _with_numbers(dfa: CharDfa, numbers: list[int]) -> CharDfa:
    """The DFA with other numbers of patterns."""
    rule = np.array([*numbers, -1], dtype=np.int32)  # the last stands for none
    hits = -1 - rule[np.maximum(-1 - dfa.table, 0)]
    return replace(dfa, table=np.where(dfa.table < 0, hits, dfa.table).astype(np.int32), cuts=rule[dfa.cuts])


def _parts(pattern: SafetyPattern) -> PatternParts:
    flags = "i"
    return PatternParts(
        before=parse_regex(f"(?s:.*)(?:{pattern.before})", flags=flags),
        itself=parse_regex(pattern.itself, flags=flags),
        after=parse_regex(f"(?:{pattern.after})(?s:.*)", flags=flags),
        is_folded=True,
    )


def checked_parts(custom: Custom) -> PatternParts:
    """A custom regular expression, found anywhere. Raises SpecError and its subclasses, UnsupportedError."""
    parse_regex(custom.text)  # an error then names a position in what the user wrote
    own = _FLAGS.match(custom.text)
    flags = own[0] if own else ""
    pattern = f"{flags}(?s:.*)(?:{folded_pattern(custom.text[len(flags) :])})(?s:.*)"
    node = parse_regex(pattern, flags="" if "i" in flags else "i")
    if node is NEVER:
        raise SpecError(f"the pattern {custom.text!r} matches no text at all", field="patterns")
    parts = PatternParts(before=EMPTY, itself=node, after=EMPTY, is_folded=True)
    places = PatternPositions([parts])
    if places.empty[0]:
        raise SpecError(
            f"the pattern {custom.text!r} matches the empty text, so it is found everywhere", field="patterns"
        )
    if not is_endless(pattern_dfa(places, Alphabet(places.char_sets))):
        raise SpecError(f"the pattern {custom.text!r} is found in every text but a few short ones", field="patterns")
    return parts


def tables_of(parts: Sequence[PatternPart]) -> Tables:
    """The parts over the classes that all of them together can tell apart."""
    bounds = np.unique(np.concatenate([part.segments[0] for part in parts]))  # (G,)
    columns = []
    for part in parts:
        firsts, classes = part.segments
        columns.append(classes[np.searchsorted(firsts, bounds, side="right") - 1])
    letters, which = np.unique(np.array(columns, dtype=np.int16), axis=1, return_inverse=True)  # (P, K)
    lengths = np.diff(np.append(bounds, 0x110000))
    points = np.repeat(which.reshape(-1), lengths).astype(np.int16)
    samples, places = _samples(points)
    numbered = [part.dfa if not part.rules else _with_numbers(part.dfa, list(part.rules)) for part in parts]
    sizes = [len(dfa) for dfa in numbered]
    cells = [dfa.table.size for dfa in numbered]
    return Tables(
        points=points,
        letters=np.ascontiguousarray(letters),
        table=np.concatenate([dfa.table.ravel() for dfa in numbered]).astype(np.int32),
        first=np.cumsum([0, *cells[:-1]]).astype(np.int64),
        wide=np.array([dfa.table.shape[1] for dfa in numbered], dtype=np.int64),
        cuts=np.concatenate([dfa.cuts for dfa in numbered]).astype(np.int32),
        begin=np.cumsum([0, *sizes[:-1]]).astype(np.int64),
        busy=np.concatenate([dfa.busy for dfa in numbered]).astype(np.uint8),
        samples=samples,
        sample_places=places,
    )


def _samples(points: NDArray[np.int16]) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """One character of each class that the beginning of a character in UTF-8 can become: for each beginning that lacks
    one byte, then two, then three; and where those of each beginning are. points: `(0x110000,)`, the classes."""
    blocks = points.reshape(-1, 64)  # (17408, 64)
    order = np.argsort(blocks, axis=1, kind="stable")
    ranked = np.take_along_axis(blocks, order, axis=1)
    is_first = np.ones(blocks.shape, dtype=np.bool_)
    is_first[:, 1:] = ranked[:, 1:] != ranked[:, :-1]
    is_first[SURROGATES[0] >> 6 : (SURROGATES[1] + 1) >> 6] = False
    is_first[:2] = False  # ASCII has no beginnings
    rows, columns = np.nonzero(is_first)
    characters = rows * 64 + order[rows, columns]  # ascending by block
    samples = [characters]
    counts = [is_first.sum(axis=1)]
    for shift, lowest in ((12, 0x800), (18, 0x10000)):
        keys = (characters >> shift) * 2**16 + points[characters]
        _, at = np.unique(np.where(characters >= lowest, keys, -1), return_index=True)
        sampled = at[characters[at] >= lowest]
        samples.append(characters[sampled])
        counts.append(np.bincount(characters[sampled] >> shift, minlength=0x110000 >> shift if shift == 12 else 5))
    return np.concatenate(samples).astype(np.int32), np.cumsum([0, *np.concatenate(counts)]).astype(np.int64)
