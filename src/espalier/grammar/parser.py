"""Parses GBNF text to a tree, as llama.cpp does (src/llama-grammar.cpp at 0.6.0), with a position for every error.

It does not interpret the grammar: `check` finds undefined rules, left recursion and the like. As in llama.cpp: a rule
ends with its line, unless inside a group or right after `|` or `::=`; a literal may contain line ends; of two rules
with one name, the later one counts. The differences, and why:

- accepted here: `_` in names (its own guide allows it, its parser does not), a byte order mark, `()*`;
- exact here: `{0,5000}` is at most 5,000 (there, a maximum above 2,000 is unbounded), up to MAX_REPEAT;
- refused here: `[]` and `[^]` (there: the empty text), reversed ranges (there: match nothing), `{3,1}`
  (there: hangs), surrogates and numbers past U+10FFFF (there: match nothing), NUL (there: ends the grammar).
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import ClassVar, NoReturn

from espalier.errors import GrammarError, excerpt
from espalier.grammar.ast import (
    EMPTY,
    NAME,
    AnyChar,
    CharClass,
    Grammar,
    Literal,
    Node,
    Position,
    Repeat,
    Rule,
    RuleRef,
    TokenRef,
    alt,
    seq,
)
from espalier.grammar.ranges import MAX_CODE_POINT, SURROGATES
from espalier.time_limit import check as check_time

MAX_REPEAT = 1_000_000
"""The largest count in `{m,n}`; anything above is a slip or an attack."""
MAX_TOKEN_ID = 2**31 - 1

_FLAT = re.compile(r"[ \t]*(?:#[^\r\n]*)?")
_NESTED = re.compile(r"(?:[ \t\r\n]+|#[^\r\n]*)*")
_PLAIN = re.compile(r'[^"\\]*')
_TOKEN = re.compile(r"<[^>\r\n]*>")
_LINE_END = re.compile(r"\r\n|\r|\n")
_UNREADABLE = re.compile("[\0\ud800-\udfff]")
_DIGITS = re.compile(r"[0-9]+")
_HEX = re.compile(r"[0-9A-Fa-f]*")
_ESCAPES = {"t": "\t", "r": "\r", "n": "\n", "\\": "\\", '"': '"', "[": "[", "]": "]", "-": "-"}
_HEX_DIGITS = {"x": 2, "u": 4, "U": 8}
_COUNTS: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
_STRAY_HINTS = {
    ")": "no group is open here",
    "]": "no class is open here; as text it is a literal",
    "}": "no repetition is open here; as text it is a literal",
    "'": "literals take double quotes",
    ":": "a rule is `name ::= ...`",
    "=": "a rule is `name ::= ...`",
    "/": 'a comment starts with #; as text write "/"',
    ";": "a rule ends with its line; there is no `;`",
    ",": 'things in order stand side by side; as text write ","',
    ">": "a token reference starts with <",
    "^": "negation is written inside a class: [^...]",
    "_": "a rule name starts with a letter, a digit, - or _",
}


def parse(source: str | bytes, *, root: str = "root") -> Grammar:
    """Parse a grammar. Bytes must be UTF-8; a byte order mark is skipped.

    Raises GrammarError with line, column and excerpt for the first error.
    """
    text = _decode(source) if isinstance(source, bytes) else source
    return _GbnfParser(text).grammar(root)


def _decode(source: bytes) -> str:
    try:
        return source.decode("utf-8")
    except UnicodeDecodeError as error:
        before = source[: error.start].decode("utf-8")
        reader = _GbnfParser(before + source[error.start :].decode("utf-8", "replace"))
        reader.fail(f"byte 0x{source[error.start]:02x} is not UTF-8", len(before), hint="save the grammar as UTF-8")


@dataclass(slots=True)
class _GbnfGroup:
    """A group being read; the outermost one is the rule's body."""

    opened: int
    options: list[Node] = field(default_factory=list)
    items: list[Node] = field(default_factory=list)
    item_start: int = -1
    """Offset of the last item; -1 if there is nothing to repeat."""

    def add(self, node: Node, start: int) -> None:
        self.items.append(node)
        self.item_start = start


class _GbnfParser:
    """i: the offset of the next character. lines: the offsets at which lines start. split: see `note_split`."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.i = 0
        self.lines = [0, *(match.end() for match in _LINE_END.finditer(text))]
        self.split: int | None = None

    # Positions and errors

    def at(self, offset: int) -> Position:
        line = bisect_right(self.lines, offset)
        return Position(offset, line, offset - self.lines[line - 1] + 1)

    def fail(self, message: str, offset: int, *, hint: str | None = None) -> NoReturn:
        place = self.at(offset)
        raise GrammarError(message, line=place.line, column=place.column, excerpt=excerpt(self.text, offset), hint=hint)

    def peek(self) -> str:
        return self.text[self.i : self.i + 1]

    def space(self, *, lines: bool) -> None:
        match = (_NESTED if lines else _FLAT).match(self.text, self.i)
        self.i = match.end() if match else self.i

    # Rules

    def grammar(self, root: str) -> Grammar:
        if bad := _UNREADABLE.search(self.text):
            name = "a NUL" if bad[0] == "\0" else f"the surrogate U+{ord(bad[0]):04X}"
            self.fail(f"{name} cannot be part of a grammar", bad.start(), hint=r"write \x00 for a NUL in a literal")
        self.i = 1 if self.text.startswith("\ufeff") else 0
        rules: list[Rule] = []
        self.space(lines=True)
        while self.peek():
            check_time()
            rules.append(self.rule())
            self.space(lines=True)
        if not rules:
            self.fail("there are no rules", len(self.text), hint='for example: root ::= "yes" | "no"')
        grammar = Grammar.of(rules, root=root, source=self.text)
        if root not in grammar.rules:
            self.fail(f"there is no rule named {root!r}", len(self.text), hint="it is where every sentence starts")
        return grammar

    def rule(self) -> Rule:
        start = self.i
        match = NAME.match(self.text, start)
        if not match:
            if self.peek() == "|":
                self.fail(
                    "a rule cannot start with `|`", start, hint="end the line before with `|`, or use parentheses"
                )
            self.stray("where a rule should start")
        self.i = match.end()
        self.space(lines=False)
        if not self.text.startswith("::=", self.i):
            wrong = re.compile(r":?:?=|->|:").match(self.text, self.i)
            hint = f"write `::=`, not `{wrong[0]}`" if wrong else "a rule is `name ::= ...`"
            self.fail(f"`::=` is missing after {match[0]!r}", self.i, hint=hint)
        self.i += 3
        self.space(lines=True)
        return Rule(match[0], self.body(match[0]), self.at(start))

    def body(self, name: str) -> Node:
        stack = [_GbnfGroup(self.i)]
        while True:
            check_time()
            start, char, group = self.i, self.peek(), stack[-1]
            if read := self.ATOMS.get(char):
                group.add(read(self), start)
                if group.items[-1] is EMPTY:  # `""` cannot be repeated, as in llama.cpp
                    group.item_start = -1
            elif match := NAME.match(self.text, start):
                self.i = match.end()
                group.add(RuleRef(match[0], self.at(start)), start)
            elif char == "(":
                self.i += 1
                stack.append(_GbnfGroup(start))
                self.space(lines=True)
                continue
            elif char == ")" and len(stack) > 1:
                self.i += 1
                node = self.close(stack.pop())
                stack[-1].add(node, group.opened)
            elif char == "|":
                self.i += 1
                self.close_option(group)
                self.space(lines=True)
                continue
            elif char and char in "*+?{":
                self.repeat(group, nested=len(stack) > 1)
            else:
                break
            self.space(lines=len(stack) > 1)
        self.end_of_rule(name, stack)
        return self.close(stack.pop())

    def close_option(self, group: _GbnfGroup) -> None:
        start = group.items[0].position if group.items else None
        group.options.append(seq(*group.items, position=start) if group.items else EMPTY)
        group.items, group.item_start = [], -1

    def close(self, group: _GbnfGroup) -> Node:
        self.close_option(group)
        return alt(*group.options, position=self.at(group.opened))

    def end_of_rule(self, name: str, stack: list[_GbnfGroup]) -> None:
        char = self.peek()
        items = stack[-1].items
        if items and isinstance(items[-1], RuleRef) and self.text.startswith("::=", self.i):
            if len(stack) == 1:
                hint = f'{name!r} goes on here, as it ended with `|` or `::=`; write "" for the empty text'
                self.fail("a new rule starts inside a rule", stack[-1].item_start, hint=hint)
            char = ""
        if len(stack) > 1 and not char:
            self.fail("this group is never closed", stack[-1].opened, hint="its `)` comes before the next rule")
        if char not in ("", "\r", "\n"):
            self.stray(f"in rule {name!r}")

    def stray(self, where: str) -> NoReturn:
        char = self.peek()
        shown = f"`{char}`" if char.isprintable() else f"U+{ord(char):04X} {unicodedata.name(char, '')}".rstrip()
        hint = self.split_hint() or _STRAY_HINTS.get(char)
        if char.isspace():
            hint = "only spaces and tabs separate symbols"
        self.fail(f"unexpected {shown} {where}", self.i, hint=hint)

    # Symbols

    def literal(self) -> Node:
        start, pieces = self.i, []
        self.i += 1
        while True:
            check_time()
            match = _PLAIN.match(self.text, self.i)
            pieces.append(match[0] if match else "")
            self.i += len(pieces[-1])
            if self.peek() != "\\":
                break
            pieces.append(chr(self.escape()))
        if not self.peek():
            self.fail("this literal is never closed", start, hint=self.split_hint() or 'it ends with a `"`')
        self.i += 1
        self.note_split(start)
        text = "".join(pieces)
        return Literal(text, self.at(start)) if text else EMPTY

    def char_class(self) -> Node:
        start = self.i
        negated = self.text.startswith("^", start + 1)
        self.i += 2 if negated else 1
        ranges: list[tuple[int, int]] = []
        while self.peek() != "]":
            check_time()
            place = self.i
            low = high = self.class_char(start)
            if self.peek() == "-" and self.text[self.i + 1 : self.i + 2] != "]":
                self.i += 1
                high = self.class_char(start)
                if high < low:
                    message = f"the range {self.text[place : self.i]} is reversed"
                    self.fail(message, place, hint="low end first; a - that is meant as itself goes first or last")
            ranges.append((low, high))
        self.i += 1
        self.note_split(start)
        if not ranges:
            hint = "any code point is `.`" if negated else 'the empty text is ""'
            self.fail("this class is empty", start, hint=hint)
        return CharClass(tuple(ranges), negated, self.at(start))

    def class_char(self, opened: int) -> int:
        char = self.peek()
        if not char:
            self.fail("this class is never closed", opened, hint=self.split_hint() or "it ends with a `]`")
        if char == "\\":
            return self.escape()
        self.i += 1
        return ord(char)

    def escape(self) -> int:
        start, kind = self.i, self.text[self.i + 1 : self.i + 2]
        if kind in _ESCAPES:
            self.i += 2
            return ord(_ESCAPES[kind])
        if kind not in _HEX_DIGITS:
            known = r"known: \n \r \t \\ \" \[ \] \- \xHH \uHHHH \UHHHHHHHH"
            self.fail(f"unknown escape `\\{kind}`" if kind.strip() else "a lone `\\`", start, hint=known)
        digits = self.hex_digits(start + 2, _HEX_DIGITS[kind])
        self.i += 2 + _HEX_DIGITS[kind]
        if len(digits) < _HEX_DIGITS[kind]:
            self.fail(f"`\\{kind}` takes {_HEX_DIGITS[kind]} hexadecimal digits", start)
        value = int(digits, 16)
        if value > MAX_CODE_POINT:
            self.fail(f"U+{value:X} is past the last code point, U+10FFFF", start)
        if SURROGATES[0] <= value <= SURROGATES[1]:
            low = int(self.hex_digits(self.i + 2, 4) or "0", 16) if self.text.startswith("\\u", self.i) else 0
            whole = 0x10000 + ((value & 0x3FF) << 10) + (low & 0x3FF)
            paired = value < 0xDC00 <= low <= SURROGATES[1]
            hint = f"write \\U{whole:08X}" if paired else "a surrogate alone is not text"
            self.fail(f"U+{value:04X} is a surrogate, not a code point of text", start, hint=hint)
        return value

    def hex_digits(self, start: int, count: int) -> str:
        match = _HEX.match(self.text, start, start + count)
        return match[0] if match else ""

    def any_char(self) -> Node:
        self.i += 1
        return AnyChar(self.at(self.i - 1))

    def token(self) -> Node:
        start = self.i
        negated = self.peek() == "!"
        self.i += negated
        if self.peek() != "<":
            self.fail(
                "`!` negates a token reference only", start, hint="!<name> or !<[id]>; a class is negated as [^...]"
            )
        if not self.text.startswith("<[", self.i):
            match = _TOKEN.match(self.text, self.i)
            if not match:
                self.fail("this token reference is never closed", start, hint="it ends with a `>` in the same line")
            self.i = match.end()
            return TokenRef(match[0], None, negated, self.at(start))
        self.i += 2
        number = self.number("a token id", MAX_TOKEN_ID)
        if not self.text.startswith("]>", self.i):
            self.fail("a token id ends with `]>`", self.i, hint="for example: <[5]>")
        self.i += 2
        return TokenRef(None, number, negated, self.at(start))

    def repeat(self, group: _GbnfGroup, *, nested: bool) -> None:
        start, char = self.i, self.peek()
        if group.item_start < 0:
            hint = "* + ? {m,n} stand after a literal, class, group, token or rule name"
            self.fail(f"there is nothing that `{char}` could repeat", start, hint=hint)
        self.i += 1
        low, high = _COUNTS[char] if char in _COUNTS else self.counts(start, nested=nested)
        group.items[-1] = Repeat(group.items[-1], low, high, self.at(group.item_start))
        if high == 0:
            group.item_start = -1

    def counts(self, opened: int, *, nested: bool) -> tuple[int, int | None]:
        self.space(lines=nested)
        if self.peek() == ",":
            self.fail("a repetition needs its least count", self.i, hint="write {0,n}")
        low: int = self.number("a count", MAX_REPEAT)
        high: int | None = low
        self.space(lines=nested)
        if self.peek() == ",":
            self.i += 1
            self.space(lines=nested)
            high = self.number("a count", MAX_REPEAT) if self.peek() != "}" else None
            self.space(lines=nested)
        if self.peek() != "}":
            self.fail("this repetition is never closed", opened, hint="{m}, {m,} or {m,n}")
        if high is not None and high < low:
            self.fail(f"at least {low} and at most {high} is never possible", opened, hint=f"{{{high},{low}}}?")
        self.i += 1
        return low, high

    def number(self, what: str, most: int) -> int:
        match = _DIGITS.match(self.text, self.i)
        if not match:
            self.fail(f"{what} is expected here, in digits", self.i)
        digits = match[0].lstrip("0") or "0"
        if len(digits) > len(str(most)) or int(digits) > most:
            self.fail(f"{what} is {most} at most", self.i)
        self.i = match.end()
        return int(digits)

    def note_split(self, start: int) -> None:
        """Remember the first literal or class that contains a line end: legal, but mostly a missing end quote."""
        if self.split is None and _LINE_END.search(self.text, start, self.i):
            self.split = start

    def split_hint(self) -> str | None:
        if self.split is None:
            return None
        what = "literal" if self.text[self.split] == '"' else "class"
        return f"the {what} opened in {self.at(self.split)} runs over the end of its line: is its end missing?"

    ATOMS: ClassVar[dict[str, Callable[[_GbnfParser], Node]]] = {
        '"': literal,
        "[": char_class,
        ".": any_char,
        "<": token,
        "!": token,
    }
