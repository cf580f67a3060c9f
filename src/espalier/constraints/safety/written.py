"""Writes what a grammar can hold of a filter: the texts of a form in which as many patterns as fit do not match.

    Safety(patterns=["rm -rf"]), no form      root ::= ([^r] | "r" ...)*

Patterns are joined one by one, the user's own first, then in the order of the catalogue; one that would make the
grammar too large is left to the judge, who reads everything. A grammar of every character that Unicode calls a letter
would take megabytes: patterns read those beyond ASCII as a letter that occurs in none of them, and strings as they are
written, not as their reader decodes them. It knows no engine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.dfa import Dfa
from espalier.automata.lazy.table import Table
from espalier.constraints.safety.automaton import smallest, without_dooms
from espalier.constraints.safety.expressions import CharDfa
from espalier.constraints.safety.kept import Segments
from espalier.constraints.safety.own import Own
from espalier.constraints.safety.parts import built_in_parts
from espalier.constraints.safety.spec import Safety
from espalier.errors import LimitExceeded, SpecError
from espalier.grammar.ast import Grammar, Node, Rule, RuleRef
from espalier.grammar.ranges import SURROGATES, Ranges, merge
from espalier.schema.lowering.dfa_rules import characters
from espalier.schema.lowering.linear import write
from espalier.schema.lowering.rulebook import one_of
from espalier.time_limit import check as check_time

MAX_STATES = 800
"""States of the whole, beside those of the form."""
FULL = 0.8
"""The share of them from which no further pattern is tried."""
MAX_PATTERN = 400
"""States of one pattern: a larger one would leave no room for others."""
MANY_RANGES = 6
"""A set of more ranges than this gets a rule of its own, which is written once."""
ASCII, LETTER = 0x80, ord("é")


class HeldPatterns(NamedTuple):
    """grammar: None where no pattern could be joined. held: `category/name` of those that the grammar holds. Of a list
    the name is `list`, of a custom pattern its text."""

    grammar: Grammar | None
    held: frozenset[str]


class _Pattern(NamedTuple):
    names: tuple[str, ...]
    parts: tuple[tuple[CharDfa, Segments], ...]

    @property
    def states(self) -> int:
        return sum(len(dfa) for dfa, _ in self.parts)


def held_patterns(spec: Safety, form: Dfa | None = None) -> HeldPatterns:
    """The grammar of the form's texts (None: any text) without what can be held of the filter."""
    begin = None if form is None else _of_form(form)
    classes = _Classes(None if begin is None else begin[1])
    whole = None if begin is None else classes.widened(*begin, is_form=True)
    most = MAX_STATES + (0 if whole is None else len(whole))
    held: set[str] = set()
    for pattern in _patterns(spec):
        check_time()
        if whole is not None and len(whole) > most * FULL:
            break
        if pattern.states > MAX_PATTERN:
            continue
        tried = whole
        for part in pattern.parts:
            widened = classes.widened(*part)
            tried = widened if tried is None else _intersect(tried, widened, most)
            if tried is None:
                break
        if tried is not None:
            whole = tried
            held.update(pattern.names)
    if whole is None or not held:
        return HeldPatterns(None, frozenset())
    return HeldPatterns(_to_grammar(whole, classes), frozenset(held))


def _patterns(spec: Safety) -> Iterator[_Pattern]:
    for name, phrases in spec.lists:
        yield from _own((f"{name}/list",), Own(words=[(phrase, 0) for phrase in phrases], texts=(), expressions=()))
    for custom in spec.patterns:
        text = [(custom.text, 0)]
        own = Own(words=(), texts=() if custom.is_regex else text, expressions=text if custom.is_regex else ())
        yield from _own((f"custom/{custom.text}",), own)
    for pattern in spec.built_in():
        yield _Pattern(
            (pattern.full_name,), tuple((part.dfa, part.segments) for part in built_in_parts([pattern], [0]))
        )


def _own(names: tuple[str, ...], own: Own) -> Iterator[_Pattern]:
    """A user's own patterns; none where they are too large to be held here."""
    try:
        parts = own.parts()
    except (LimitExceeded, SpecError):  # compiling the filter tells what is wrong with it
        return
    yield _Pattern(names, tuple((part.dfa, part.segments) for part in parts))


def _of_form(form: Dfa) -> tuple[CharDfa, Segments]:
    """An automaton over bytes as one over segments of characters."""
    edges, ends, _ = characters(form)
    points = {0, *SURROGATES, 0x110000, SURROGATES[1] + 1}
    for row in edges:
        for ranges in row.values():
            points.update(point for low, high in ranges for point in (low, high + 1))
    first = np.array(sorted(points - {0x110000}), dtype=np.int64)  # (G,)
    table = np.full((len(edges), len(first)), -1, dtype=np.int32)
    for state, row in enumerate(edges):
        for target, ranges in row.items():
            for low, high in ranges:
                table[state, np.searchsorted(first, low) : np.searchsorted(first, high, side="right")] = target
    columns, which = np.unique(table, axis=1, return_inverse=True)
    return _dfa(columns, np.array(ends, dtype=np.bool_)), (first, which.reshape(-1).astype(np.int64))


def _dfa(table: NDArray[np.int32], ends: NDArray[np.bool_]) -> CharDfa:
    cuts = np.where(ends, -1, 0).astype(np.int32)
    return CharDfa(table=table.astype(np.int32), cuts=cuts, busy=np.zeros(len(table), dtype=np.bool_))


class _Classes:
    """The classes of characters that are told apart: each of ASCII, and what a form tells apart beyond."""

    def __init__(self, form: Segments | None) -> None:
        edges = np.array([*range(ASCII + 1), SURROGATES[0], SURROGATES[1] + 1], dtype=np.int64)
        self._first = edges if form is None else np.unique(np.concatenate([edges, form[0]]))  # (K,)
        self._is_half = (self._first >= SURROGATES[0]) & (self._first <= SURROGATES[1])

    def widened(self, dfa: CharDfa, segments: Segments, *, is_form: bool = False) -> CharDfa:
        """The automaton over these classes; matches and surrogates lead nowhere."""
        read = self._first if is_form else np.where(self._first < ASCII, self._first, LETTER)
        table = dfa.table[:, _classes_of(segments, read)]  # (S, K)
        widened = without_dooms(_dfa(np.where(self._is_half | (table < 0), -1, table), dfa.ends))
        assert widened is not None  # every pattern leaves some text, and so does a form
        return smallest(widened)

    def ranges(self, wanted: NDArray[np.bool_]) -> Ranges:
        """The characters of some classes. wanted: `(K,) bool`."""
        ends = np.append(self._first[1:], 0x110000)
        places = np.flatnonzero(wanted)
        return merge([(int(self._first[i]), int(ends[i]) - 1) for i in places.tolist()])


def _classes_of(segments: Segments, characters: NDArray[np.int64]) -> NDArray[np.int64]:
    first, classes = segments
    return np.asarray(classes[np.searchsorted(first, characters, side="right") - 1], dtype=np.int64)


def _intersect(one: CharDfa, other: CharDfa, most: int) -> CharDfa | None:
    """The texts of both; None for more than so many states, and where there is no such text."""
    width = len(other)
    number = {0: 0}
    fresh = np.zeros(1, dtype=np.int64)
    rows = []
    while fresh.size:
        check_time()
        a, b = one.table[fresh // width].astype(np.int64), other.table[fresh % width]  # (F, K)
        targets = np.where((a < 0) | (b < 0), -1, a * width + b)
        rows.append(targets)
        new = [code for code in np.unique(targets).tolist() if code >= 0 and code not in number]
        number.update((code, len(number) + i) for i, code in enumerate(new))
        if len(number) > 3 * most:
            return None
        fresh = np.array(new, dtype=np.int64)
    codes = np.array(list(number), dtype=np.int64)
    order = np.argsort(codes)
    table = np.concatenate(rows)
    numbered = order[np.searchsorted(codes[order], np.maximum(table, 0))]
    ends = one.ends[codes // width] & other.ends[codes % width]
    live = without_dooms(smallest(_dfa(np.where(table < 0, -1, numbered), ends)))
    if live is None:
        return None
    smaller = smallest(live)
    return smaller if len(smaller) <= most else None


def _to_grammar(whole: CharDfa, classes: _Classes) -> Grammar:
    count = 0
    named: dict[Ranges, Rule] = {}
    spelled: dict[bytes, Node] = {}

    def fresh() -> str:
        nonlocal count
        count += 1
        return f"text-{count}"

    def spell(wanted: NDArray[np.bool_]) -> Node:
        """A set of classes: a large one by its rule."""
        key = wanted.tobytes()
        if key not in spelled:
            ranges = classes.ranges(wanted)
            spelled[key] = one_of(ranges)
            if len(ranges) > MANY_RANGES:
                rule = named.setdefault(ranges, Rule(f"letter-{len(named) + 1}", spelled[key]))
                spelled[key] = RuleRef(rule.name)
        return spelled[key]

    rows: list[list[tuple[Node, int]]] = []
    for row in whole.table:
        check_time()
        rows.append([(spell(row == target), target) for target in np.unique(row[row >= 0]).tolist()])
    body, rules = write(Table(rows=rows, ends=whole.ends.tolist()), fresh)
    return Grammar.of([Rule("root", body), *rules, *named.values()])
