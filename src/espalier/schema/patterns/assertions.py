r"""Patterns with assertions in any place as regular languages: `\b`, `\B`, look-ahead, look-behind, `^`, `$`.

    \bcat\b       every text with a `cat` whose neighbours are no word characters

A pattern is read from right to left. What may follow a place depends on the text to its left only by the state in which
one small automaton is after it, which knows whether the text is empty, ends in a word character, and ends in each of
the look-behinds. So each part becomes a table: by state, the texts that start with a match of the part and of all that
follows. It knows neither the dialects nor groups that are referred to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

import numpy as np

from espalier.automata.languages.algebra import both, completed, either, every_text, language, without
from espalier.automata.languages.dfa import Dfa
from espalier.automata.languages.embed import Assembly
from espalier.automata.languages.fragment import Fragment
from espalier.errors import GrammarError, LimitExceeded, UnsupportedError
from espalier.grammar.regex.parse import parse_regex
from espalier.time_limit import check as check_time

ASSERTION = re.compile(r"\\[bB]|\(\?<?[=!]")
MAX_ROUNDS = 8
"""Rounds of a repetition of something with assertions."""
MAX_STATES = 5_000
"""States of the automaton of what stands to the left."""
MAX_CONTEXTS = 24
"""Those of them in which a whole character has been read."""
MAX_SIZE = 20_000
"""States of the automaton of one part and all that follows."""
_COUNTS = re.compile(r"\{(\d+)(,(\d*))?\}")
_OPENING = re.compile(r"\(\?(?:<?[=!]|:|P?<[A-Za-z_$][\w$]*>)|\(")

Left: TypeAlias = int
"""A state of the automaton of what stands to the left."""
Table: TypeAlias = "Mapping[Left, Dfa | None]"
"""By what stands to the left: the texts that may follow; None for none."""


@dataclass(frozen=True, slots=True)
class PlainPiece:
    """A piece without assertions, as it is written."""

    text: str


@dataclass(frozen=True, slots=True)
class Assert:
    r"""kind: `^`, `$`, `\b`, `\B`, `(?=`, `(?!`, `(?<=`, `(?<!`. body: of a look-around; source: as it is written."""

    kind: str
    body: Part | None = None
    source: str = ""


@dataclass(frozen=True, slots=True)
class InOrder:
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class OneOf:
    parts: tuple[Part, ...]


@dataclass(frozen=True, slots=True)
class Rounds:
    part: Part
    low: int
    high: int | None


Part: TypeAlias = "PlainPiece | Assert | InOrder | OneOf | Rounds"


def asserted(pattern: str, translated: Callable[[str], str]) -> Dfa | None:
    """The texts that contain a match; None for no text. translated: a piece without assertions in the dialect of
    `parse_regex`. Raises UnsupportedError, RegexError, LimitExceeded."""
    parser = _AssertionParser(pattern)
    whole = parser.options()
    if parser.at < len(pattern):
        raise parser.refused("a `)` that closes nothing")
    return _AssertionReader(whole, translated, pattern).search()


class _AssertionParser:
    """Splits a pattern into pieces without assertions, and assertions."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0

    def refused(self, what: str) -> UnsupportedError:
        return UnsupportedError(
            f"{what} cannot be enforced, at offset {self.at} of the pattern {self.text[:200]!r}", field="pattern"
        )

    def options(self) -> Part:
        options = [self.sequence()]
        while self.text.startswith("|", self.at):
            self.at += 1
            options.append(self.sequence())
        if all(isinstance(option, PlainPiece) for option in options):
            return PlainPiece("|".join(option.text for option in options if isinstance(option, PlainPiece)))
        return options[0] if len(options) == 1 else OneOf(tuple(options))

    def sequence(self) -> Part:
        parts: list[Part] = []
        while self.at < len(self.text) and self.text[self.at] not in "|)":
            check_time()
            part = self.repeated()
            if isinstance(part, PlainPiece) and parts and isinstance(parts[-1], PlainPiece):
                parts[-1] = PlainPiece(parts[-1].text + part.text)
            else:
                parts.append(part)
        return parts[0] if len(parts) == 1 else InOrder(tuple(parts)) if parts else PlainPiece("")

    def repeated(self) -> Part:
        start = self.at
        part = self.atom()
        end = self.at
        low, high = 1, 1
        char = self.text[self.at : self.at + 1]
        if char and char in "*+?":
            low, high = {"*": (0, None), "+": (1, None), "?": (0, 1)}[char]  # type: ignore[assignment]
            self.at += 1
        elif counts := _COUNTS.match(self.text, self.at):
            low = int(counts[1])
            high = low if counts[2] is None else int(counts[3]) if counts[3] else None  # type: ignore[assignment]
            self.at = counts.end()
        if self.at > end and self.text.startswith("?", self.at):
            self.at += 1
        if isinstance(part, PlainPiece):
            return PlainPiece(self.text[start : self.at])
        return part if self.at == end else Rounds(part, low, high)

    def atom(self) -> Part:
        start, char = self.at, self.text[self.at]
        if char == "\\":
            kind = self.text[start + 1 : start + 2]
            braced = re.compile(r"\\[upP]\{[^}]*\}").match(self.text, start)
            self.at = braced.end() if braced else start + 2
            return Assert(f"\\{kind}") if kind in ("b", "B") else PlainPiece(self.text[start : self.at])
        if char in "^$":
            self.at += 1
            return Assert(char)
        if char == "[":
            self.at += 1
            while self.at < len(self.text) and self.text[self.at] != "]":
                check_time()
                self.at += 1 + (self.text[self.at] == "\\")
            self.at += 1
            return PlainPiece(self.text[start : self.at])
        if char != "(":
            self.at += 1
            return PlainPiece(char)
        opening = _OPENING.match(self.text, start)
        assert opening is not None
        if opening[0] == "(" and self.text.startswith("(?", start):
            raise self.refused(f"a group that begins with {self.text[start : start + 4]!r}")
        self.at = opening.end()
        inner = self.options()
        if not self.text.startswith(")", self.at):
            raise self.refused("a group that is never closed")
        self.at += 1
        if opening[0][1:2] == "?" and opening[0][-1] in "=!":
            return Assert(opening[0], inner, self.text[opening.end() : self.at - 1])
        return PlainPiece(f"(?:{inner.text})") if isinstance(inner, PlainPiece) else inner


WORD, OTHER = "[A-Za-z0-9_]", "[^A-Za-z0-9_]"
"""Word characters, and all others."""


class _AssertionReader:
    """Reads one pattern."""

    def __init__(self, whole: Part, translated: Callable[[str], str], pattern: str) -> None:
        self._whole = whole
        self._translated = translated
        self._pattern = pattern
        self._known: dict[str, Dfa | None] = {}
        self._moves: dict[str, dict[tuple[Left, Left], Dfa]] = {}
        self._before_word = language(parse_regex(f"{WORD}(?s:.*)"))
        self._before_other = language(parse_regex(f"(?:{OTHER}(?s:.*))?"))
        # What the automaton of the left tells apart: the empty text, its last character, each look-behind.
        self._behind: list[str] = []
        self._collect(whole)
        ends_in_word = language(parse_regex(f"(?s:.*){WORD}"))
        wanted = [Dfa.of_words([""]), ends_in_word, *map(self._ends_in, self._behind)]
        self._left, self._holds = _product([dfa for dfa in wanted if dfa is not None])
        self._absent = [dfa is None for dfa in wanted]
        ways = {state: both(every_text(), self._way(self._left.start, state)) for state in _between(self._left)}
        self._contexts = {state: way for state, way in ways.items() if way is not None}
        if len(self._contexts) > MAX_CONTEXTS:
            raise LimitExceeded("the look-behinds of a pattern tell too many texts apart")

    def _collect(self, part: Part) -> None:
        match part:
            case Assert(kind="(?<=" | "(?<!", source=source):
                self._behind += [source] if source not in self._behind else []
            case Assert(body=PlainPiece() | Assert() | InOrder() | OneOf() | Rounds() as body):
                self._collect(body)
            case InOrder(parts) | OneOf(parts):
                for inner in parts:
                    self._collect(inner)
            case Rounds(inner, _, _):
                self._collect(inner)
            case _:
                pass

    def _ends_in(self, source: str) -> Dfa | None:
        if ASSERTION.search(source) or re.search(r"(?<!\\)[\^$](?![^\[]*\])", source):
            raise UnsupportedError(
                f"an assertion inside a look-behind cannot be enforced: the pattern {self._pattern[:200]!r}",
                field="pattern",
            )
        return language(parse_regex(f"(?s:.*)(?:{self._translated(source)})"))

    def _way(self, start: Left, end: Left) -> Dfa:
        accepting = np.zeros(len(self._left), dtype=np.bool_)
        accepting[end] = True
        return Dfa(classes=self._left.classes, table=self._left.table, accepting=accepting, start=start)

    def _is(self, left: Left, which: int) -> bool:
        if self._absent[which]:
            return False
        return bool(self._holds[left][which - sum(self._absent[:which])])

    def search(self) -> Dfa | None:
        table = self._read(self._whole, dict.fromkeys(self._contexts, every_text()))
        return _unite_pairs([(way, table[left]) for left, way in self._contexts.items()])

    def _read(self, part: Part, after: Table) -> Table:
        """The texts that start with the part and go on as `after` says."""
        check_time()
        match part:
            case PlainPiece(text):
                return self._text(text, after)
            case InOrder(parts):
                for inner in reversed(parts):
                    after = self._read(inner, after)
                return after
            case OneOf(parts):
                tables = [self._read(option, after) for option in parts]
                return {left: reduce(either, (table[left] for table in tables)) for left in self._contexts}
            case Rounds(inner, low, high):
                if high is None or high > MAX_ROUNDS:
                    raise UnsupportedError(
                        f"an assertion inside a repetition of more than {MAX_ROUNDS} rounds cannot be enforced: the "
                        f"pattern {self._pattern[:200]!r}",
                        field="pattern",
                    )
                rest = after
                for rounds in range(high, 0, -1):
                    more = self._read(inner, rest)
                    skips = rounds > low
                    rest = {left: either(more[left], after[left]) if skips else more[left] for left in self._contexts}
                return rest
            case Assert():
                return {left: self._asserted(part, left, after[left]) for left in self._contexts}

    def _asserted(self, assertion: Assert, left: Left, after: Dfa | None) -> Dfa | None:
        if after is None:
            return None
        if assertion.kind == "^":
            return after if self._is(left, 0) else None
        if assertion.kind == "$":
            return both(after, Dfa.of_words([""]))
        if assertion.kind in ("\\b", "\\B"):
            return self._boundary(left, after, is_inside=assertion.kind == "\\B")
        if assertion.kind in ("(?<=", "(?<!"):
            wanted = assertion.kind == "(?<="
            holds = self._is(left, 2 + self._behind.index(assertion.source))
            return after if holds == wanted else None
        assert assertion.body is not None
        wanted = assertion.kind == "(?="
        ahead = self._read(assertion.body, dict.fromkeys(self._contexts, every_text()))[left]
        return both(after, ahead) if wanted else without(after, ahead)

    def _boundary(self, left: Left, after: Dfa, *, is_inside: bool) -> Dfa | None:
        """What may follow a word boundary; is_inside: what is none."""
        goes_on_with_word = self._is(left, 1) is is_inside
        return both(after, self._before_word if goes_on_with_word else self._before_other)

    def _text(self, text: str, after: Table) -> Table:
        if not text:
            return after
        if text not in self._known:
            self._known[text] = language(parse_regex(self._translated(text)))
        texts = self._known[text]
        if texts is None:
            return dict.fromkeys(self._contexts)
        if len({id(dfa) for dfa in after.values()}) == 1:
            whole = _unite_pairs([(texts, next(iter(after.values())))])
            return dict.fromkeys(self._contexts, whole)
        if text not in self._moves:
            pairs = [(start, other) for start in self._contexts for other in self._contexts]
            ways = {pair: both(texts, self._way(*pair)) for pair in pairs}
            self._moves[text] = {pair: way for pair, way in ways.items() if way is not None}
        moves = self._moves[text]
        return {
            left: _unite_pairs([(moves[left, end], after[end]) for end in self._contexts if (left, end) in moves])
            for left in self._contexts
        }


def _between(left: Dfa) -> list[Left]:
    """The states after whole characters; others only stand in the middle of one."""
    text = every_text()
    rows, steps = left.table[:, left.classes], text.table[:, text.classes]  # (S, 256) each
    order = [(left.start, text.start)]
    seen = {order[0]}
    for state, at in order:  # grows as pairs are met
        check_time()
        after = np.unique(np.stack([rows[state], steps[at]], axis=1)[steps[at] >= 0], axis=0)  # (n, 2)
        for pair in map(tuple, after.tolist()):
            if pair not in seen:
                seen.add(pair)
                order.append(pair)
    return list(dict.fromkeys(state for state, at in order if text.accepting[at]))


def _unite_pairs(pairs: list[tuple[Dfa | None, Dfa | None]]) -> Dfa | None:
    """The union of concatenations. Raises LimitExceeded."""
    assembly = Assembly()
    root = Fragment(edges=[[], []], symbols=[[], []], final=[False, True], leaf=[None, None])
    assembly.rule(root, "")
    for first, second in pairs:
        if first is None or second is None:
            continue
        root.edges.append([])
        root.symbols.append([(assembly.embed(second, ""), (1,))])
        root.final.append(False)
        root.leaf.append(None)
        root.symbols[0].append((assembly.embed(first, ""), (len(root.edges) - 1,)))
    if not root.symbols[0]:
        return None
    try:
        dfa = assembly.dfa(max_states=MAX_SIZE)
    except GrammarError:
        return None
    if dfa is None:
        raise LimitExceeded(f"a pattern with assertions needs an automaton of more than {MAX_SIZE} states")
    return dfa


def _product(parts: list[Dfa]) -> tuple[Dfa, list[tuple[bool, ...]]]:
    """One automaton that runs all of these, complete; and which of them accept in each of its states."""
    whole = [completed(part) for part in parts]
    rows = [part.table[:, part.classes] for part in whole]  # (S, 256) each
    order = [tuple(part.start for part in whole)]
    number = {order[0]: 0}
    table: list[list[int]] = []
    for state in order:  # grows as states are met
        check_time()
        after = np.stack([row[at] for row, at in zip(rows, state, strict=True)], axis=1).tolist()  # (256, parts)
        line: list[int] = []
        for reached in map(tuple, after):
            if reached not in number:
                number[reached] = len(order)
                order.append(reached)
            line.append(number[reached])
        table.append(line)
        if len(order) > MAX_STATES:
            raise LimitExceeded("a pattern has look-behinds that are too long")
    columns, classes = np.unique(np.array(table, dtype=np.int32), axis=1, return_inverse=True)
    product = Dfa(
        classes=classes.reshape(-1).astype(np.uint8),
        table=np.ascontiguousarray(columns),
        accepting=np.zeros(len(order), dtype=np.bool_),
    )
    holds = [tuple(not part.accepting[at] for part, at in zip(whole, state, strict=True)) for state in order]
    return product, holds
