"""Writes strings as expressions: lengths, patterns, formats and excluded values.

    String(max_length=9)      "\\"" char{0,9} "\\""

Languages are intersected over the characters of the value; the spelling in JSON comes last. It does not know objects
and arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from espalier.automata.languages.algebra import both, every_text, language, of_length, without
from espalier.automata.languages.dfa import Dfa
from espalier.errors import LimitExceeded, UnsupportedError
from espalier.grammar.ast import NEVER, Alternative, AnyChar, CharClass, Literal, Node, Repeat, RuleRef, fold, seq
from espalier.grammar.regex.parse import parse_regex
from espalier.schema.form import String
from espalier.schema.lowering.dfa_rules import dfa_rules
from espalier.schema.lowering.rulebook import RuleBook
from espalier.schema.patterns.formats import FORMATS, NARROWER
from espalier.schema.patterns.languages import LookAheadPattern, read
from espalier.time_limit import check as check_time

QUOTE = Literal('"')
MAX_MINIMISED = 3_000
"""Larger automata are not minimised: they are products with a count, which are nearly minimal already."""
MAX_COUNTED = 10_000
"""States of a pattern's automaton times the characters that are counted beside it."""


class StringRules:
    """The string rules of one conversion; equal cases are written once."""

    def __init__(self, book: RuleBook) -> None:
        self._book = book
        self._known: dict[String, Node] = {}

    def node(self, case: String, base: str, pointer: str, *, keyword: str = "pattern") -> Node:
        """A string with its quotes. A demand that cannot be enforced becomes a gap at `pointer`, of `keyword` if it is
        a pattern."""
        if case == String():
            return self._book.basic("string")
        self.remarks(case, pointer)
        if case not in self._known:
            self._known[case] = self._write_string(case, base, pointer, keyword)
        return self._known[case]

    def remarks(self, case: String, pointer: str) -> None:
        """Notes on what the grammar leaves out of the formats."""
        for name in case.formats:
            if name in NARROWER:
                self._book.note(pointer, "format", f"{name}: {NARROWER[name]}")

    def _write_string(self, case: String, base: str, pointer: str, keyword: str) -> Node:
        content = self.content(case, pointer, keyword)
        if content is None:
            return NEVER
        if isinstance(content, Dfa):
            return self.of_dfa(content, base, pointer)
        return seq(QUOTE, content, QUOTE)

    def content(self, case: String, pointer: str, keyword: str) -> Node | Dfa | None:
        """What stands between the quotes: an expression, or an automaton over the characters of the value; None for
        nothing. Demands that cannot be enforced become gaps."""
        case, patterns = self._possible(case, keyword, pointer)
        direct = self._direct(case, patterns)
        if direct is not None:
            return None if direct == NEVER else self._book.spelled(direct)
        return self._automaton(case, pointer)

    def language(self, case: String, keyword: str, pointer: str) -> Dfa | None:
        """The values as an automaton over characters, without quotes and escapes. A pattern that has none is a gap."""
        return self._automaton(self._possible(case, keyword, pointer)[0], pointer)

    def of_dfa(self, dfa: Dfa | None, base: str, pointer: str) -> Node:
        """A string with a value of this language, with its quotes."""
        if dfa is None:
            return NEVER
        if len(dfa) <= MAX_MINIMISED:
            dfa = dfa.minimised()
        try:
            content, rules = dfa_rules(dfa, self._book.spell, self._book.fresh(base, pointer))
        except LimitExceeded as error:
            self._book.gap(pointer, "pattern", error.message)
            return self._book.basic("string")
        self._book.add_all(rules)
        node = seq(QUOTE, content, QUOTE)
        return self._book.add(self._book.name(f"{base}-text", pointer), node) if rules else node

    def _possible(self, case: String, keyword: str, pointer: str) -> tuple[String, list[LookAheadPattern]]:
        """The case without patterns and formats that have no automaton (each becomes a gap), and its patterns."""
        possible: dict[str, list[str]] = {"patterns": [], "not_patterns": []}
        read_ones: list[LookAheadPattern] = []
        for kind in possible:
            for text in getattr(case, kind):
                pattern = read(text)
                try:
                    if kind == "patterns" and pattern.is_plain:
                        pattern.node()
                    else:
                        pattern.dfa()
                except (UnsupportedError, LimitExceeded) as error:
                    self._book.gap(pointer, keyword if kind == "patterns" else "not", str(error))
                    continue
                possible[kind].append(text)
                if kind == "patterns":
                    read_ones.append(pattern)
        formats = tuple(name for name in case.formats if name in FORMATS)
        for name in case.formats:
            if name not in FORMATS:
                self._book.gap(pointer, "format", f"{name} is not a regular language that is known here")
        narrowed = replace(
            case, patterns=tuple(possible["patterns"]), not_patterns=tuple(possible["not_patterns"]), formats=formats
        )
        return narrowed, read_ones

    def _direct(self, case: String, patterns: list[LookAheadPattern]) -> Node | None:
        """The expression, without building an automaton, where a single demand determines it; else None."""
        if case.not_patterns or case.excluded or len(patterns) + len(case.formats) > 1:
            return None
        low, high = case.min_length, case.max_length
        if high is not None and high < low:
            return NEVER
        if not patterns and not case.formats:
            return Repeat(AnyChar(), low, high)
        if patterns and not patterns[0].is_plain:
            return None
        node = patterns[0].node() if patterns else parse_regex(FORMATS[case.formats[0]])
        if isinstance(node, Repeat) and isinstance(node.item, CharClass | AnyChar):
            low, high = max(low, node.min), _least(high, node.max)
            return NEVER if high is not None and high < low else Repeat(node.item, low, high)
        shortest, longest = lengths(node)
        if shortest >= low and (high is None or (longest is not None and longest <= high)):
            return node
        return None

    def _automaton(self, case: String, pointer: str) -> Dfa | None:
        """The intersection of all demands. A demand that makes it too large is left out and becomes a gap."""
        texts = self._every()
        demands: list[tuple[str, Callable[[], Dfa | None], bool]] = [
            *(("format", lambda name=name: language(parse_regex(FORMATS[name])), True) for name in case.formats),
            *(("pattern", lambda text=text: read(text).dfa(), True) for text in case.patterns),
            *(("not", lambda text=text: read(text).dfa(), False) for text in case.not_patterns),
        ]
        if words := [word for word in case.excluded if _is_text(word)]:
            demands.append(("not", lambda: Dfa.of_words(words), False))
        for keyword, make, wanted in demands:
            try:
                texts = both(texts, make()) if wanted else without(texts, make())
            except LimitExceeded as error:
                self._book.gap(pointer, keyword, error.message)
        return self._of_length(texts, case.min_length, case.max_length, pointer)

    def _every(self) -> Dfa | None:
        """The values of strings without any demand."""
        return every_text()

    def _of_length(self, texts: Dfa | None, low: int, high: int | None, pointer: str) -> Dfa | None:
        """With bounds on the length. Where counting would take too many states, the longest texts are left out."""
        if texts is None or (low == 0 and high is None):
            return texts
        room = MAX_COUNTED // len(texts)
        if low > room and not is_finite(texts):
            self._book.gap(pointer, "minLength", f"{low} characters are too many to count next to a pattern")
            low = 0
        if high is not None and high > room and not is_finite(texts):
            self._book.note(pointer, "maxLength", f"at most {max(low, room)} characters, as there is a pattern as well")
            high = max(low, room)
        try:
            return both(texts, of_length(low, high))
        except LimitExceeded as error:
            self._book.gap(pointer, "minLength" if high is None else "maxLength", error.message)
            return texts


def lengths(node: Node) -> tuple[int, int | None]:
    """The fewest and the most characters that an expression matches; None for no upper limit."""

    def visit(inner: Node, parts: list[tuple[int, int | None]]) -> tuple[int, int | None]:
        match inner:
            case Literal(text):
                return len(text), len(text)
            case Repeat(_, low, high):
                ((least, most),) = parts
                if most == 0:
                    return 0, 0
                return least * low, None if high is None or most is None else most * high
            case RuleRef():
                return 0, None
            case CharClass() | AnyChar():
                return 1, 1
            case Alternative():
                tops = [most for _, most in parts]
                return min(least for least, _ in parts), None if None in tops else max(m for m in tops if m is not None)
            case _:
                tops = [most for _, most in parts]
                return sum(least for least, _ in parts), None if None in tops else sum(m for m in tops if m is not None)

    return fold(node, visit)


def is_finite(dfa: Dfa) -> bool:
    """Whether the language is finite."""
    waiting = np.zeros(len(dfa), dtype=np.int64)  # (S,), edges into each state that are not removed yet
    targets = [np.unique(row[row >= 0]) for row in dfa.table]
    for after in targets:
        waiting[after] += 1
    fresh, done = np.flatnonzero(waiting == 0).tolist(), 0
    while fresh:
        check_time()
        done += 1
        for target in targets[fresh.pop()].tolist():
            waiting[target] -= 1
            if not waiting[target]:
                fresh.append(target)
    return done == len(dfa)


def _least(first: int | None, other: int | None) -> int | None:
    return other if first is None else first if other is None else min(first, other)


def _is_text(word: str) -> bool:
    return not any(0xD800 <= ord(char) <= 0xDFFF for char in word)
