"""Builds the DFA of texts made of the words of a list: separators, words that attach to others, capitals, numbers.

The states of the word graph are kept as they are, and what may follow a whole word is attached to all of its accept
states at once. The subset construction runs only where a byte can both continue a word and start what follows it. It
knows bytes, and neither languages nor word files.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.dfa import Dfa, trimmed
from espalier.automata.languages.words import WordTable, word_table
from espalier.errors import LimitExceeded
from espalier.time_limit import check as check_time

MAX_STATES = 1_000_000
LoopState: TypeAlias = int
"""A state of the word graph, or, from `_Net.offset` on, a state of the rest."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WordParts:
    """The parts of the texts, in UTF-8.

    words: words that stand alone. capitals, elided_capitals: (capitalised prefix, plain prefix) pairs; a word may start
    with the capitalised one at the start of a sentence, or everywhere with `capitals_anywhere`. names: words that are
    written exactly so, anywhere. elided: words that attach to the next one. clitics: words that attach to the previous
    one. digits: the digits of numbers. joints: marks between groups of digits. hyphens: marks that join two words.
    separators: marks between words; ends: those of them that end a sentence. max_run: the most separators in a row.
    spaced: words must be separated.
    """

    words: Sequence[bytes]
    separators: Sequence[bytes]
    ends: Sequence[bytes]
    capitals: Sequence[tuple[bytes, bytes]] = ()
    names: Sequence[bytes] = ()
    elided: Sequence[bytes] = ()
    elided_capitals: Sequence[tuple[bytes, bytes]] = ()
    clitics: Sequence[bytes] = ()
    digits: Sequence[bytes] = ()
    joints: Sequence[bytes] = (b".", b",", b":")
    hyphens: Sequence[bytes] = ()
    max_run: int = 8
    spaced: bool = True
    capitals_anywhere: bool = False


MAX_DIGITS = 12
MAX_GROUPS = 5


def word_loop(parts: WordParts, *, max_states: int = MAX_STATES) -> Dfa:
    """The DFA of the texts made of these parts. A text ends after a whole word, or after the separators that follow it.

    Raises GrammarError if there is no such text, LimitExceeded.
    """
    graph = word_table(parts.words)
    net = _Net(len(graph.table))
    start = _wire(net, graph, parts)
    return _LoopSubsets(net, graph, max_states).automaton(start)


@dataclass(slots=True)
class _Net:
    """The states beside those of the word graph, as an NFA. rows: by state, the target states of each byte. empty: by
    state, the targets of its epsilon edges. accepting: by state."""

    offset: int
    rows: list[dict[int, set[LoopState]]] = field(default_factory=list)
    empty: list[set[LoopState]] = field(default_factory=list)
    accepting: list[bool] = field(default_factory=list)

    def new(self, *, accepting: bool = False, to: Iterable[LoopState] = ()) -> LoopState:
        self.rows.append({})
        self.empty.append(set(to))
        self.accepting.append(accepting)
        return self.offset + len(self.rows) - 1

    def path(self, source: LoopState, data: bytes, target: LoopState) -> None:
        """Add a path that reads `data`, at least one byte."""
        for byte in data[:-1]:
            following = self.new()
            self.rows[source - self.offset].setdefault(byte, set()).add(following)
            source = following
        self.rows[source - self.offset].setdefault(data[-1], set()).add(target)

    def go(self, source: LoopState, target: LoopState) -> None:
        self.empty[source - self.offset].add(target)

    def words(self, words: Sequence[bytes], after: LoopState) -> tuple[LoopState, WordTable | None, int]:
        """Add a word graph of a few words, each of which leads to `after`. Returns its start, the graph, and the number
        of its first state here."""
        if not words:
            return self.new(), None, 0
        graph = word_table(words)
        base = self.offset + len(self.rows)
        for state in range(len(graph.table)):
            self.new(to=[after] if graph.ends[state] else ())
        used = np.unique(graph.classes[sorted({b for word in words for b in word})]).tolist()
        byte_of = {int(graph.classes[b]): b for word in words for b in word}
        for state, row in enumerate(graph.table):
            for letter in used:
                if row[letter] >= 0:
                    self.rows[base + state - self.offset][byte_of[letter]] = {base + int(row[letter])}
        return base + graph.start, graph, base


def _wire(net: _Net, graph: WordTable, parts: WordParts) -> LoopState:
    """Add all states but those of the word graph; the first is the state after a whole word. Returns the start."""
    after = net.new(accepting=True)  # after a word: clitics, hyphens, separators may follow
    middle = net.new()  # a word may start here, inside a sentence
    opening = net.new()  # a word may start here, at the start of a sentence
    joined = net.new(to=[middle])  # after an elided word or a hyphen: a word must follow, no number
    net.go(middle, graph.start)
    names, _, _ = net.words(parts.names, after)
    net.go(middle, names)
    elided, elided_graph, elided_base = net.words(parts.elided, joined)
    net.go(middle, elided)
    clitics, _, _ = net.words(parts.clitics, after)
    net.go(after, clitics)
    net.go(opening, middle)
    for title, plain in parts.capitals:
        if (target := graph.walk(plain)) >= 0:
            net.path(opening, title, target)
    for title, plain in parts.elided_capitals:
        if elided_graph is not None and (target := elided_graph.walk(plain)) >= 0:
            net.path(opening, title, elided_base + target)
    begin_middle, begin_opening = net.new(to=[middle]), net.new(to=[opening])
    if parts.capitals_anywhere:
        net.go(joined, opening)
        net.go(begin_middle, opening)
    for hyphen in parts.hyphens:
        net.path(after, hyphen, joined)
    apart = net.new(accepting=True)  # after a word or a number: separators may follow
    net.go(after, apart)
    if parts.digits:
        number = _numbers(net, parts, apart)
        net.go(begin_middle, number)
        net.go(begin_opening, number)
    if not parts.spaced:
        net.go(apart, begin_middle)
    _runs(net, parts, apart, begin_middle, begin_opening, accepting=True)
    start = net.new(to=[begin_opening])
    _runs(net, parts, start, begin_middle, begin_opening, accepting=False)
    return start


def _numbers(net: _Net, parts: WordParts, after: LoopState) -> LoopState:
    start = begin = net.new()
    for group in range(MAX_GROUPS):
        at = begin
        following = net.new()
        for _ in range(MAX_DIGITS):
            here = net.new(to=[after])
            for digit in parts.digits:
                net.path(at, digit, here)
            if group < MAX_GROUPS - 1:
                for joint in parts.joints:
                    net.path(here, joint, following)
            at = here
        begin = following
    return start


def _runs(
    net: _Net, parts: WordParts, source: LoopState, middle: LoopState, opening: LoopState, *, accepting: bool
) -> None:
    """Add runs of separators after `source`, up to `max_run`, and the words that may start after them. At the start of
    a text (not `accepting`) a sentence starts after any separators."""
    ends = set(parts.ends)
    runs = [
        [net.new(accepting=accepting, to=[begin]) for begin in (middle if accepting else opening, opening)]
        for _ in range(parts.max_run)
    ]
    for depth, targets in enumerate(runs):
        for ended, state in enumerate([source] if depth == 0 else runs[depth - 1]):
            for separator in parts.separators:
                net.path(state, separator, targets[bool(ended) or separator in ends])


class _LoopSubsets:
    """The subset construction. A state of the word graph, together with the state after a word if a word ends there,
    keeps its number; every other set of states gets a new number."""

    def __init__(self, net: _Net, graph: WordTable, max_states: int) -> None:
        self._net = net
        self._graph = graph
        self._size = net.offset
        self._max_states = max_states
        self._closures: dict[LoopState, frozenset[LoopState]] = {}
        self._number: dict[frozenset[LoopState], int] = {}
        self._sets: list[frozenset[LoopState]] = []
        self._follow = self._closed(net.offset)  # the set after a whole word
        self._bytes = [int(b) for b in np.flatnonzero(self._letters())]
        self._used = {
            int(graph.classes[b]): b for b in self._bytes if bool((graph.table[:, graph.classes[b]] >= 0).any())
        }

    def automaton(self, start: LoopState) -> Dfa:
        graph, size = self._graph, self._size
        letters = {byte: i for i, byte in enumerate(self._bytes)}
        classes = np.full(256, min(len(letters), 255), dtype=np.uint8)
        classes[self._bytes] = np.arange(len(letters))
        words = np.full((size, len(letters) + 1), -1, dtype=np.int32)  # (S, C)
        for letter, byte in self._used.items():
            words[:, letters[byte]] = graph.table[:, letter]
        first = self._place(self._closed(start))
        ends = np.flatnonzero(graph.ends)
        for byte, targets in self._row(self._follow).items():
            column = words[ends, letters[byte]]
            free = column < 0
            words[ends[free], letters[byte]] = self._place(targets)
            for state, target in zip(ends[~free].tolist(), column[~free].tolist(), strict=True):
                words[state, letters[byte]] = self._place(self._closed(target) | targets)
        rows: list[NDArray[np.int32]] = []
        for members in self._sets:  # grows as sets are met
            check_time()
            row = np.full(len(letters) + 1, -1, dtype=np.int32)
            for byte, targets in self._row(members).items():
                row[letters[byte]] = self._place(targets)
            rows.append(row)
        accepting = [any(self._accepts(state) for state in members) for members in self._sets]
        table = np.concatenate([words, np.array(rows, dtype=np.int32).reshape(len(rows), -1)])
        return trimmed(classes, table, np.concatenate([graph.ends, np.array(accepting, dtype=np.bool_)]), first)

    def _letters(self) -> NDArray[np.bool_]:
        graph = self._graph
        read: NDArray[np.bool_] = np.asarray((graph.table >= 0).any(axis=0))  # (C,)
        used = read[graph.classes]  # (256,)
        for row in self._net.rows:
            used[list(row)] = True
        return used

    def _accepts(self, state: LoopState) -> bool:
        return bool(self._graph.ends[state]) if state < self._size else self._net.accepting[state - self._size]

    def _closed(self, state: LoopState) -> frozenset[LoopState]:
        known = self._closures.get(state)
        if known is None:
            closure = {state}
            todo = [state]
            while todo:
                check_time()
                at = todo.pop()
                if at >= self._size:
                    more = self._net.empty[at - self._size] - closure
                else:
                    more = ({self._size} if self._graph.ends[at] else set()) - closure
                closure |= more
                todo += more
            known = self._closures[state] = frozenset(closure)
        return known

    def _row(self, members: frozenset[LoopState]) -> dict[int, frozenset[LoopState]]:
        """The closed target set of each byte from a closed set."""
        targets_by_byte: dict[int, frozenset[LoopState]] = {}
        none: frozenset[LoopState] = frozenset()
        for state in members:
            if state >= self._size:
                for byte, targets in self._net.rows[state - self._size].items():
                    for target in targets:
                        targets_by_byte[byte] = targets_by_byte.get(byte, none) | self._closed(target)
            else:
                row = self._graph.table[state]
                for letter, byte in self._used.items():
                    if (target := int(row[letter])) >= 0:
                        targets_by_byte[byte] = targets_by_byte.get(byte, none) | self._closed(target)
        return targets_by_byte

    def _place(self, members: frozenset[LoopState]) -> int:
        lowest = min(members)
        if lowest < self._size and members == self._closed(lowest):
            return lowest
        number = self._number.get(members)
        if number is None:
            number = self._number[members] = self._size + len(self._sets)
            if number >= self._max_states:
                raise LimitExceeded(f"the words need more than {self._max_states} states", hint="use fewer words")
            self._sets.append(members)
        return number
