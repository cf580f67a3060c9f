r"""Parses regular expressions of Python's `re` to grammar expressions, where they are regular.

`parse_regex(p)` matches exactly the texts that `re.fullmatch(p, text)` matches in the same Python; what cannot be
expressed exactly is refused with its offset. It does not know captures, which of several matches comes first (lazy and
greedy are the same), bytes patterns, or ECMAScript beyond what both dialects share.

Supported: literals; `.`; `\d \s \w \D \S \W`; the escapes `\a \b` (in a class) `\f \n \r \t \v \0 \012 \xHH \uHHHH
\UHHHHHHHH \N{NAME}` and any escaped non-letter; classes; `* + ? {m} {m,} {,n} {m,n}`, greedy or lazy; groups,
`(?:...)`, `(?P<name>...)`; `(?i)` at the start and `(?i-s:...)` with the flags a i m s u x; comments; `|`, empty
options; `^ $ \A \Z` anywhere, multiline too. As in re, `$` also matches before a last line end: `a$\n` matches.

Supported beyond re: `\p{Lu}`, `\p{Letter}`, `\p{gc=L}`, `\pL`, `\p{^L}`, `\P{L}` (general categories, and Any, ASCII,
Assigned; the flag a does not narrow them), `\z`, `(?<name>...)`.

Refused: back-references, look-around, `\b \B` outside a class, conditionals, recursion, atomic groups and possessive
repetition, POSIX classes, scripts and other properties, the flag L.

Different from re: surrogates are never text, so classes lose them and a lone one is refused; counts end at MAX_COUNT;
`(?i)[q\U00010400]` matches that capital, which re misses because of a bug; `(?i)\p{Lu}` matches small letters.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field
from typing import ClassVar

from espalier.errors import RegexError
from espalier.grammar.ast import EMPTY, NEVER, AnyChar, CharClass, LazyRepeat, Literal, Node, Position, Repeat
from espalier.grammar.ranges import Ranges, complement
from espalier.grammar.regex.anchors import (
    MAX_COPIES,
    Contexts,
    LeftContext,
    Piece,
    RightContext,
    TooManyCopies,
    at,
    ends,
    starts,
)
from espalier.grammar.regex.classes import both_cases, has_cases, scalars
from espalier.grammar.regex.escapes import SURROGATE, Escapes
from espalier.time_limit import check as check_time

MAX_COUNT = 1_000_000
"""The largest count in `{m,n}`, and the largest product of nested counts."""
MAX_PLACED = 200
"""Large classes with a position of their own (making one takes a millisecond); further ones are shared, without one."""
FLAGS = frozenset("aimsux")

_RUN = re.compile(r"[^\\.\[({)*+?^$|]+")
_RUN_VERBOSE = re.compile(r"[^\\.\[({)*+?^$|\s#]+|[^\S \t\n\r\v\f]+")
_SPACE = re.compile(r"(?:[ \t\n\r\v\f]+|#(?:\\.|[^\\\n])*(?:\n|\Z|(?=\\\Z)))*", re.DOTALL)
_COMMENT = re.compile(r"(?:\\.|[^\\)])*", re.DOTALL)
_COUNTS = re.compile(r"\{(?=[0-9,])([0-9]*)(?:(,)([0-9]*))?\}")
_GROUP_FLAGS = re.compile(r"([A-Za-z]*)(-?)([A-Za-z]*)")
_OCTAL_OR_GROUP = re.compile(r"[0-7]{3}|[0-9]{1,2}")
_POSIX = re.compile(r"\[([:.=])\^?\w*\1\]")
_REPEATS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_REGULAR = "only what a finite automaton can decide is taken"
_REFUSED_GROUPS = {
    "=": ("look-ahead", "list the allowed values here"),
    "!": ("negative look-ahead", "list the allowed values here, for example with a class [^...]"),
    "<=": ("look-behind", "list the allowed values here"),
    "<!": ("negative look-behind", "list the allowed values here, for example with a class [^...]"),
    ">": ("an atomic group", "it changes what matches; (?:...) does not"),
    "(": ("a conditional", "write both cases out with `|`"),
    "P=": ("a back-reference", _REGULAR),
    "P>": ("recursion", "a grammar can do that: rules may refer to themselves"),
    "R": ("recursion", "a grammar can do that: rules may refer to themselves"),
    "&": ("recursion", "a grammar can do that: rules may refer to themselves"),
}


def parse_regex(pattern: str, *, flags: str = "", keeps_lazy: bool = False) -> Node:
    """An expression for the texts that `re.fullmatch(pattern, text)` matches. flags: letters of `aimsux`, as if the
    pattern began with them. keeps_lazy: lazy repetitions become `LazyRepeat`.

    Raises RegexError, with the offset, for a malformed pattern, and UnsupportedError for one that cannot be expressed
    exactly. The result is NEVER for a pattern that matches no text.
    """
    return _RegexParser(pattern, flags, keeps_lazy=keeps_lazy).parse()


@dataclass(slots=True)
class _Item:
    """A part of a pattern that a quantifier may follow. kind: text, unit, anchor or repeat. product: the
    product of the nested counts in it."""

    kind: str
    start: int
    piece: Piece = EMPTY
    product: int = 1
    text: list[str] = field(default_factory=list)
    last: int = 0
    """Offset of the last character of a text."""


@dataclass(slots=True)
class _RegexGroup:
    """A group being read; the outermost one is the pattern."""

    opened: int
    flags: frozenset[str]
    options: list[Piece] = field(default_factory=list)
    items: list[_Item] = field(default_factory=list)
    product: int = 1


class _RegexParser(Escapes):
    def __init__(self, pattern: str, flags: str, *, keeps_lazy: bool) -> None:
        super().__init__(pattern)
        self.keeps_lazy = keeps_lazy
        for letter in flags:
            if letter not in FLAGS or {"a", "u"} <= set(flags):
                raise RegexError(
                    f"the flags {flags!r} cannot be", hint="any of i, m, s, x, and one of a and u", pattern=pattern
                )
        self.lines = [0, *(match.end() for match in re.finditer("\n", pattern))]
        self.groups: dict[str, int] = {}
        self.group_count = 0
        self.start = 0
        self.large = 0
        self.shared: dict[Ranges, Node] = {}
        self.stack = [_RegexGroup(0, frozenset(flags) - {"u"})]
        self.contexts = Contexts(limit=MAX_COPIES + 4 * len(pattern))

    def parse(self) -> Node:
        if bad := SURROGATE.search(self.text):
            self.surrogate(ord(bad[0]), bad.start())
        try:
            while self.i < len(self.text):
                check_time()
                self.symbol(self.stack[-1])
            if len(self.stack) > 1:
                self.fail("this group is never closed", self.stack[-1].opened, hint=r"it ends with a `)`; as text `\(`")
            return at(self.close(self.stack.pop()), LeftContext.START, RightContext.END)
        except TooManyCopies:
            hint = "move them to the start and the end of the pattern, or repeat less around them"
            self.refuse("anchors in this many places", self.start, hint=hint)

    def symbol(self, group: _RegexGroup) -> None:
        verbose = "x" in group.flags
        if verbose and (space := _SPACE.match(self.text, self.i)) and space[0]:
            self.i = space.end()
            return
        start, char = self.i, self.text[self.i]
        self.start = start
        if read := self.SYMBOLS.get(char):
            read(self, group, start)
        elif char in "*+?" or (char == "{" and _COUNTS.match(self.text, start)):
            self.quantifier(group, start)
        elif run := (_RUN_VERBOSE if verbose else _RUN).match(self.text, start):
            self.add_text(group, run[0], start, run.end() - 1)
            self.i = run.end()
        else:
            self.add_text(group, char, start, start)
            self.i += 1

    # Items

    def at_offset(self, offset: int) -> Position:
        line = bisect_right(self.lines, offset)
        return Position(offset, line, offset - self.lines[line - 1] + 1)

    def add_text(self, group: _RegexGroup, text: str, start: int, last: int) -> None:
        if not group.items or group.items[-1].kind != "text":
            group.items.append(_Item("text", start))
        group.items[-1].text.append(text)
        group.items[-1].last = last

    def add_ranges(self, group: _RegexGroup, ranges: Ranges, start: int) -> None:
        group.items.append(_Item("unit", start, self.class_of(ranges, start) if ranges else NEVER))

    def class_of(self, ranges: Ranges, start: int) -> Node:
        if len(ranges) < 50:
            return CharClass(ranges, False, self.at_offset(start))
        self.large += 1
        if self.large <= MAX_PLACED:
            return CharClass(ranges, False, self.at_offset(start))
        if ranges not in self.shared:
            self.shared[ranges] = CharClass(ranges)
        return self.shared[ranges]

    def spell(self, text: str, start: int, flags: frozenset[str]) -> list[Piece]:
        """Literal text; with the flag i, a class for each letter."""
        position = self.at_offset(start)
        if "i" not in flags:
            return [Literal(text, position)]
        ascii_only = "a" in flags
        pieces: list[Piece] = []
        plain: list[str] = []
        for char in text:
            if not has_cases(char, ascii_only=ascii_only):
                plain.append(char)
                continue
            pieces += [Literal("".join(plain), position)] if plain else []
            plain = []
            ranges = both_cases(((ord(char), ord(char)),), ascii_only=ascii_only)
            pieces.append(CharClass(ranges, False, position))
        return pieces + ([Literal("".join(plain), position)] if plain else [])

    def close_option(self, group: _RegexGroup) -> None:
        pieces: list[Piece] = []
        for item in group.items:
            if item.kind == "text":
                pieces += self.spell("".join(item.text), item.start, group.flags)
            else:
                pieces.append(item.piece)
            group.product = max(group.product, item.product)
        position = self.at_offset(group.items[0].start) if group.items else None
        group.options.append(self.contexts.sequence(pieces, position))
        group.items = []

    def close(self, group: _RegexGroup) -> Piece:
        self.close_option(group)
        return self.contexts.choice(group.options, self.at_offset(group.opened))

    # Symbols

    def bar(self, group: _RegexGroup, start: int) -> None:
        self.i = start + 1
        self.close_option(group)

    def closing(self, group: _RegexGroup, start: int) -> None:
        if len(self.stack) == 1:
            self.fail("unexpected `)`", start, hint=r"no group is open here; as text write `\)`")
        self.i = start + 1
        piece = self.close(self.stack.pop())
        self.stack[-1].items.append(_Item("unit", group.opened, piece, group.product))

    def any_char(self, group: _RegexGroup, start: int) -> None:
        self.i = start + 1
        position = self.at_offset(start)
        node = AnyChar(position) if "s" in group.flags else CharClass(((10, 10),), True, position)
        group.items.append(_Item("unit", start, node))

    def caret(self, group: _RegexGroup, start: int) -> None:
        self.i = start + 1
        anchor = starts(LeftContext.AFTER_NEWLINE if "m" in group.flags else LeftContext.START)
        group.items.append(_Item("anchor", start, anchor))

    def dollar(self, group: _RegexGroup, start: int) -> None:
        self.i = start + 1
        anchor = ends(RightContext.BEFORE_NEWLINE if "m" in group.flags else RightContext.BEFORE_LAST)
        group.items.append(_Item("anchor", start, anchor))

    def backslash(self, group: _RegexGroup, start: int) -> None:
        kind = self.text[start + 1 : start + 2]
        if kind in ("A", "Z", "z"):
            self.i = start + 2
            group.items.append(
                _Item("anchor", start, starts(LeftContext.START) if kind == "A" else ends(RightContext.END))
            )
        elif kind in ("b", "B"):
            self.refuse("a word boundary", start, hint="say in place which characters may stand there")
        elif kind and kind in "123456789":
            self.digits(group, start)
        elif (ranges := self.set_escape(group.flags)) is not None:
            self.add_ranges(group, ranges, start)
        else:
            self.add_text(group, chr(self.char_escape(in_class=False)), start, start)

    def digits(self, group: _RegexGroup, start: int) -> None:
        """An octal escape if there are three octal digits, else a back-reference, as in re."""
        digits = _OCTAL_OR_GROUP.match(self.text, start + 1)
        number = digits[0] if digits else ""
        if len(number) == 3:
            self.i += 4
            self.add_text(group, chr(self.octal(number, start)), start, start)
            return
        if int(number) > self.group_count:
            self.fail(f"there is no group {number}", start, hint="and back-references are not taken anyway")
        self.refuse("a back-reference", start, hint=_REGULAR)

    def quantifier(self, group: _RegexGroup, start: int) -> None:
        low, high = self.counts(start)
        shown = self.text[start : self.i]
        if self.text.startswith("+", self.i):
            hint = "it changes what matches; without the second + it does not"
            self.refuse(f"the possessive `{shown}+`", start, hint=hint)
        item = group.items[-1] if group.items else None
        if item is None or item.kind == "anchor":
            hint = "* + ? {m,n} stand after a character, class or group; as text put a backslash before"
            self.fail(f"there is nothing that `{shown}` could repeat", start, hint=hint)
        if item.kind == "repeat":
            self.fail(f"`{shown}` after a repetition", start, hint="put the repetition into (?:...) first")
        is_lazy = self.text.startswith("?", self.i)
        self.i += is_lazy
        if item.kind == "text":
            item = self.split_last(group, item)
        product = item.product * max(1, low, high or 0)
        if product > MAX_COUNT:
            hint = f"counts inside one another multiply: {MAX_COUNT:,} at most"
            self.fail(f"this repeats up to {product:,} times", start, hint=hint)
        piece = self.contexts.repeat(item.piece, low, high, self.at_offset(item.start))
        if is_lazy and self.keeps_lazy and isinstance(piece, Repeat):
            piece = LazyRepeat(piece.item, piece.min, piece.max, piece.position)
        group.items[-1] = _Item("repeat", item.start, piece, product)

    def split_last(self, group: _RegexGroup, item: _Item) -> _Item:
        """Split off the last character of a text as an item of its own."""
        *_, run = item.text
        item.text[-1] = run[:-1]
        if len(item.text) == 1 and not item.text[0]:
            group.items.pop()
        piece = self.contexts.sequence(self.spell(run[-1], item.last, group.flags))
        group.items.append(_Item("unit", item.last, piece))
        return group.items[-1]

    def counts(self, start: int) -> tuple[int, int | None]:
        char = self.text[start]
        if char in _REPEATS:
            self.i = start + 1
            return _REPEATS[char]
        match = _COUNTS.match(self.text, start)
        if match is None:
            raise AssertionError("only called at a count")
        self.i = match.end()
        least, comma, most = match.groups()
        if max(len(least), len(most or "")) > 4300 or max(int(least or 0), int(most or 0)) > MAX_COUNT:
            self.fail("this count is too large", start, hint=f"{MAX_COUNT:,} at most")
        low = int(least or 0)
        high = (int(most) if most else None) if comma else low
        if high is not None and high < low:
            self.fail(f"`{match[0]}` is reversed", start, hint="the least count comes first")
        return low, high

    # Groups

    def opening(self, group: _RegexGroup, start: int) -> None:
        self.i = start + 1
        if not self.text.startswith("?", self.i):
            self.open(start, group.flags, capture=True)
            return
        self.i += 1
        for mark, (what, hint) in _REFUSED_GROUPS.items():
            if self.text.startswith(mark, self.i):
                self.refuse(what, start, hint=hint)
        char = self.text[self.i : self.i + 1]
        if char == ":":
            self.i += 1
            self.open(start, group.flags, capture=False)
        elif char == "#":
            match = _COMMENT.match(self.text, self.i)
            self.i = match.end() if match else self.i
            if not self.text.startswith(")", self.i):
                self.fail("this comment is never closed", start, hint="it ends with a `)`")
            self.i += 1
        elif self.text.startswith(("P<", "<"), self.i):
            self.i += 2 if char == "P" else 1
            self.name_group(start)
            self.open(start, group.flags, capture=True)
        elif char.isdigit() or (char in "+-" and self.text[self.i + 1 : self.i + 2].isdigit()):
            self.refuse("recursion", start, hint=_REFUSED_GROUPS["R"][1])
        elif char and (char == "-" or char.isalpha()) and char != "P":
            self.group_flags(group, start)
        else:
            shown = self.text[start : self.i + (2 if char == "P" else 1)]
            self.fail(f"`{shown}` opens no known group", start, hint="known: (?:...) (?P<name>...) (?i:...) (?#...)")

    def open(self, start: int, flags: frozenset[str], *, capture: bool) -> None:
        self.group_count += capture
        self.stack.append(_RegexGroup(start, flags))

    def name_group(self, start: int) -> None:
        end = self.text.find(">", self.i)
        name = self.text[self.i : end] if end >= 0 else ""
        if not name.isidentifier():
            self.fail("a group name is missing or no identifier", self.i, hint="(?P<name>...)")
        if name in self.groups:
            self.fail(f"there are two groups named {name!r}", self.i, hint="rename one, or use (?:...)")
        self.groups[name] = self.group_count + 1
        self.i = end + 1

    def group_flags(self, group: _RegexGroup, start: int) -> None:
        match = _GROUP_FLAGS.match(self.text, self.i)
        on, dash, off = match.groups() if match else ("", "", "")
        for offset, letter in enumerate(f"{on}{dash}{off}"):
            if letter == "L":
                self.refuse("the flag L", self.i + offset, hint="it depends on the locale, and is for bytes only")
            if letter not in FLAGS | {"-"}:
                self.fail(f"unknown flag `{letter}`", self.i + offset, hint="known: a i m s u x")
        if {"a", "u"} <= set(on) or set(off) & {"a", "u"} or set(on) & set(off) or (dash and not off):
            hint = "one of a and u, which cannot be turned off; and no flag on and off at once"
            self.fail(f"the flags `{on}{dash}{off}` cannot be", self.i, hint=hint)
        self.i += len(f"{on}{dash}{off}")
        kept = group.flags - ({"a"} if set(on) & {"a", "u"} else set())
        flags = (kept | set(on)) - set(off) - {"u"}
        if self.text.startswith(":", self.i):
            self.i += 1
            self.open(start, flags, capture=False)
        elif not self.text.startswith(")", self.i) or dash:
            self.fail("the flags end with `:` or `)`", self.i, hint="(?i) at the start, or (?i-s:...) anywhere")
        elif len(self.stack) > 1 or group.options or group.items:
            self.fail("flags for all of the pattern stand at its start", start, hint=f"write (?{on}:...)")
        elif "u" in on and "a" in group.flags:
            self.fail("the flags a and u together", start, hint="leave one of them out")
        else:
            self.i += 1
            group.flags = frozenset(flags)

    # Classes

    def char_class(self, group: _RegexGroup, start: int) -> None:
        self.i = start + 1
        negated = self.text.startswith("^", self.i)
        self.i += negated
        ranges: list[tuple[int, int]] = []
        first = True
        while first or not self.text.startswith("]", self.i):
            check_time()
            first = False
            ranges += self.member(group.flags, start)
        self.i += 1
        chars = scalars(ranges)
        if "i" in group.flags:
            chars = both_cases(chars, ascii_only="a" in group.flags)
        self.add_ranges(group, scalars(complement(chars)) if negated else chars, start)

    def member(self, flags: frozenset[str], opened: int) -> Ranges:
        """One character, range or escape of a class."""
        start = self.i
        if posix := _POSIX.match(self.text, start):
            hint = r"write \d \s \w \p{L}, or the characters themselves; for a literal `[` write `\[`"
            self.refuse(f"the POSIX class {posix[0]}", start, hint=hint)
        low = self.class_char(flags, opened)
        ends_here = self.text[self.i + 1 : self.i + 2] in ("]", "")
        if not self.text.startswith("-", self.i) or (ends_here and self.i + 1 < len(self.text)):
            if isinstance(low, tuple):
                return low
            if SURROGATE.match(chr(low)):
                self.surrogate(low, start)
            return ((low, low),)
        self.i += 1
        high = self.class_char(flags, opened)
        if isinstance(low, tuple) or isinstance(high, tuple) or high < low:
            hint = "low end first; a - that is meant as itself goes first or last"
            self.fail(f"`{self.text[start : self.i]}` is no range", start, hint=hint)
        return ((low, high),)

    def class_char(self, flags: frozenset[str], opened: int) -> int | Ranges:
        char = self.text[self.i : self.i + 1]
        if not char:
            self.fail("this class is never closed", opened, hint=r"it ends with a `]`; as text write `\[`")
        if char == "\\":
            chars = self.set_escape(flags)
            return self.char_escape(in_class=True) if chars is None else chars
        self.i += 1
        return ord(char)

    SYMBOLS: ClassVar = {
        "|": bar,
        ")": closing,
        "(": opening,
        "[": char_class,
        ".": any_char,
        "^": caret,
        "$": dollar,
        "\\": backslash,
    }
