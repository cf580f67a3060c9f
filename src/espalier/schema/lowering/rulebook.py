"""Collects the rules of one conversion: unique names, their pointers into the schema, notes and gaps.

It spells single characters as JSON does (Python's literals agree), and does not know schemas.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache
from json.encoder import encode_basestring
from typing import NamedTuple

from espalier.grammar.analysis import references
from espalier.grammar.ast import (
    EMPTY,
    SURROGATE,
    AnyChar,
    CharClass,
    Grammar,
    Literal,
    Node,
    Repeat,
    Rule,
    RuleRef,
    alt,
    fold,
    seq,
)
from espalier.grammar.parser import parse
from espalier.grammar.ranges import Ranges, contains, merge, subtract
from espalier.schema.lowering import numbers
from espalier.schema.lowering.notation import JSON, Constants
from espalier.time_limit import check as check_time

SHORT_ESCAPES = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}
ESCAPED: Ranges = ((0x00, 0x1F), (0x22, 0x22), (0x5C, 0x5C))
MAX_NAME = 48
MAX_PLACED = 12
"""A character class with more ranges than this becomes a rule of its own."""
CHUNK = 500
"""A count above twice this uses a rule that repeats its item this often."""

BASICS = {
    "string": '"\\"" char* "\\""',
    "char": r'[^"\\\x00-\x1F] | "\\" (["\\bfnrt] | "u00" ("0" [0-7be-f] | "1" [0-9a-f]))',
    "boolean": '"{true}" | "{false}"',
    "null": '"{null}"',
    "space": "[ \\t\\n\\r]{0,40}",
    **numbers.SCALARS,
}
"""Rules that any grammar may use. Each character has exactly one spelling, so that equal names are equal text. The
words in braces are replaced by those of the notation."""


class Remark(NamedTuple):
    """A note or a gap: pointer into the schema, keyword, and text."""

    pointer: str
    keyword: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaGrammar:
    """A schema as a grammar.

    grammar: without dead ends. pointers: by rule, where in the schema it comes from. notes: what the schema allows and
    the grammar does not. gaps: what the schema demands and the grammar does not: without gaps every text of the grammar
    is a document of the schema.
    """

    grammar: Grammar
    pointers: dict[str, str]
    notes: tuple[Remark, ...]
    gaps: tuple[Remark, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RuleContext:
    """The position of a rule in the grammar and in the schema. base: what the names of its rules begin with. pointer:
    where in the schema it comes from. depth: the number of containers around it, where the layout
    depends on it."""

    base: str
    pointer: str
    depth: int


class RuleBook:
    """The rules so far. A name is given once and never taken back."""

    def __init__(self, constants: Constants = JSON) -> None:
        self.constants = constants
        self.pointers: dict[str, str] = {}
        self.notes: dict[Remark, None] = {}
        self.gaps: dict[Remark, None] = {}
        self.limits: dict[str, str] = {}  # by pointer, why nothing is written there, although some values satisfy it
        self._rules: dict[str, Rule] = {}
        self._taken: set[str] = {"root", *BASICS}
        self._classes: dict[Ranges, RuleRef] = {}
        self._chunks: dict[tuple[Node, int, int], RuleRef] = {}
        self._counts: dict[str, int] = {}

    def name(self, wanted: str, pointer: str) -> str:
        """An unused name that llama.cpp accepts, close to the one wanted, for a rule that comes from `pointer`."""
        base = re.sub(r"[^A-Za-z0-9]+", "-", wanted).strip("-")[:MAX_NAME].strip("-") or "value"
        name, count = base, self._counts.get(base, 1)
        while name in self._taken:
            check_time()
            count += 1
            name = f"{base}-{count}"
        self._counts[base] = count
        self._taken.add(name)
        self.pointers[name] = pointer
        return name

    def fresh(self, base: str, pointer: str) -> Callable[[], str]:
        """A source of names for further rules with the same pointer."""
        return lambda: self.name(f"{base}-part", pointer)

    def add(self, name: str, body: Node) -> RuleRef:
        self._rules[name] = Rule(name, body)
        return RuleRef(name)

    def add_all(self, rules: list[Rule]) -> None:
        self._rules.update((rule.name, rule) for rule in rules)

    def basic(self, name: str) -> RuleRef:
        """A reference to a rule of BASICS, which is added with all rules that it mentions."""
        todo = [name]
        while todo:
            check_time()
            wanted = todo.pop()
            if wanted not in self._rules:
                body = _basics(self.constants).rules[wanted].body
                self._rules[wanted] = Rule(wanted, body)
                todo += [ref.name for ref in references(body)]
        return RuleRef(name)

    def note(self, pointer: str, keyword: str, text: str) -> None:
        self.notes[Remark(pointer, keyword, text)] = None

    def gap(self, pointer: str, keyword: str, text: str) -> None:
        self.gaps[Remark(pointer, keyword, text)] = None

    def limit(self, pointer: str, text: str) -> None:
        """Note that nothing is written at a pointer, although some values satisfy the schema there."""
        self.limits.setdefault(pointer, text)
        self.note("", "number spelling", f"nothing is written at {pointer or 'the top'}: {text}")

    def grammar(self, root: Node) -> Grammar:
        """All rules; `root` has this body."""
        return Grammar.of([Rule("root", root), *self._rules.values()])

    # Characters

    def spell(self, ranges: Ranges) -> Node:
        """One character of these ranges, as spelled in a JSON string."""
        if len(ranges) > MAX_PLACED:
            if ranges not in self._classes:
                name = self.name("chars", "")
                del self.pointers[name]
                self._classes[ranges] = self.add(name, spelled_class(ranges))
            return self._classes[ranges]
        return self.basic("char") if ranges == AnyChar().scalars() else spelled_class(ranges)

    def spelled(self, node: Node) -> Node:
        """An expression over characters, with each character as spelled in a JSON string."""

        def visit(inner: Node, parts: list[Node]) -> Node:
            match inner:
                case Literal(text):
                    return Literal(escaped(text))
                case CharClass() | AnyChar():
                    return self.spell(inner.scalars())
                case Repeat(_, low, high):
                    return self.counted(parts[0], low, high)
                case _:
                    return inner.with_children(parts) if parts else inner

        return fold(node, visit)

    def counted(self, item: Node, low: int, high: int | None) -> Node:
        """A repetition; a large count is split up, as llama.cpp accepts none above 2,000."""
        if high == 0:
            return EMPTY
        if max(low, high or 0) <= 2 * CHUNK:
            return item if low == high == 1 else Repeat(item, low, high)
        least, more = divmod(low, CHUNK)
        parts = [self._chunk(item, CHUNK, CHUNK, least)] if least else []
        parts += [Repeat(item, more, more)] if more else []
        if high is None:
            return seq(*parts, Repeat(item))
        most, more = divmod(high - low, CHUNK)
        if not most:
            return seq(*parts, Repeat(item, 0, more)) if more else seq(*parts)
        # Fewer than `most` full chunks and less than a chunk; or `most` full chunks and the remainder.
        short = seq(self._chunk(item, CHUNK, CHUNK, 0, most - 1), self._chunk(item, 0, CHUNK - 1, 1))
        full = seq(self._chunk(item, CHUNK, CHUNK, most), Repeat(item, 0, more))
        return seq(*parts, alt(short, full))

    def _chunk(self, item: Node, low: int, high: int, least: int, most: int | None = None) -> Node:
        key = (item, low, high)
        if key not in self._chunks:
            name = self.name("run", "")
            del self.pointers[name]
            self._chunks[key] = self.add(name, Repeat(item, low, high))
        return self.counted(self._chunks[key], least, least if most is None else most)


def quoted(text: str) -> str:
    """A text as a JSON string."""
    return encode_basestring(text) if text.isascii() else f'"{escaped(text)}"'


def escaped(text: str) -> str:
    """A text as it stands between the quotes of a JSON string, each character in its one spelling."""
    plain = encode_basestring(text)[1:-1]
    return SURROGATE.sub(lambda match: f"\\u{ord(match[0]):04x}", plain) if SURROGATE.search(plain) else plain


def spelled_class(ranges: Ranges) -> Node:
    """One character of these ranges, as spelled in a JSON string."""
    plain = subtract(ranges, ESCAPED)
    short = sorted(ord(letter) for char, letter in SHORT_ESCAPES.items() if contains(ranges, ord(char)))
    long = [c for c in range(0x20) if contains(ranges, c) and chr(c) not in SHORT_ESCAPES]
    options: list[Node] = [one_of(plain)] if plain else []
    after: list[Node] = [one_of(merge((c, c) for c in short))] if short else []
    for high in (0, 1):
        low = merge((ord(f"{c & 15:x}"),) * 2 for c in long if c >> 4 == high)
        after += [seq(Literal(f"u00{high}"), one_of(low))] if low else []
    return alt(*options, *([seq(Literal("\\"), alt(*after))] if after else []))


def one_of(ranges: Ranges) -> Node:
    """A character class, or a literal where it has only one character."""
    ((low, high), *more) = ranges
    return Literal(chr(low)) if low == high and not more else CharClass(ranges)


def basic_rule(constants: Constants, name: str) -> Node:
    """The body of a rule of BASICS."""
    return _basics(constants).rules[name].body


@cache
def _basics(constants: Constants) -> Grammar:
    words = {f"{{{name}}}": word for name, word in asdict(constants).items()}
    text = "".join(f"{name} ::= {body}\n" for name, body in BASICS.items())
    return parse(re.sub(r"\{(?:null|true|false)\}", lambda match: words[match[0]], text), root="string")
