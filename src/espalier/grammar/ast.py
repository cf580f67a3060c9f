"""The syntax tree of a grammar: frozen, hashable values over Unicode code points.

    root ::= "a" b?      Rule("root", Sequence((Literal("a"), Repeat(RuleRef("b"), 0, 1))))

Nodes keep positions in the source text, which do not count in equality. They do not know bytes, vocabularies or the
meaning of a token id. Trees may be deep (a user can nest 10,000 groups), so no code in this package recurses over them:
use `postorder` and `fold`.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from types import MappingProxyType
from typing import TypeVar

from espalier.errors import GrammarError
from espalier.grammar.ranges import MAX_CODE_POINT, SURROGATES, Ranges, complement, merge, subtract
from espalier.time_limit import check as check_time

T = TypeVar("T")
NAME = re.compile(r"[A-Za-z0-9_-]+")
SURROGATE = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Position:
    """A position in the source. `line` and `column` count from 1, `offset` from 0; all in code points."""

    offset: int
    line: int
    column: int

    def __str__(self) -> str:
        return f"line {self.line}, column {self.column}"


_MARKS = {name: zlib.crc32(f"{name}()".encode()) for name in ("AnyChar", "Sequence", "Alternative")}
"""What hashes of nodes without fields of their own begin with."""


class _Value:
    """Base of nodes and rules: structural equality without recursion, and a hash that is computed once."""

    __slots__ = ("_hash",)
    _hash: int

    def children(self) -> tuple[Node, ...]:
        return ()

    def own(self) -> tuple[object, ...]:
        """The fields besides children and position."""
        return ()

    def _seal(self) -> None:
        # Integers only: their hash is the same in every process, unlike that of strings.
        own = self.own()
        mark = zlib.crc32(f"{type(self).__name__}{own}".encode()) if own else _MARKS[type(self).__name__]
        object.__setattr__(self, "_hash", hash((mark, *[child._hash for child in self.children()])))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, _Value):
            return NotImplemented
        if self._hash != other._hash:
            return False
        todo: list[tuple[_Value, _Value]] = [(self, other)]
        while todo:
            a, b = todo.pop()
            if a is b:
                continue
            if type(a) is not type(b) or a._hash != b._hash or a.own() != b.own():
                return False
            parts, others = a.children(), b.children()
            if len(parts) != len(others):
                return False
            if parts:
                check_time()
                todo.extend(zip(parts, others, strict=True))
        return True

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), tuple(getattr(self, f.name) for f in fields(self))  # type: ignore[arg-type]  # a dataclass


class _Node(_Value):
    __slots__ = ()

    def __repr__(self) -> str:
        def show(node: Node, parts: list[str]) -> str:
            return f"{type(node).__name__}({', '.join([*map(repr, node.own()), *parts])})"

        return fold(self, show)  # type: ignore[arg-type]  # every _Node is a Node

    def with_children(self, children: Iterable[Node]) -> Node:
        """The same node with other children. A sequence or alternative of one child becomes that child."""
        raise NotImplementedError


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Literal(_Node):
    """A terminal string: these code points, in order. Never empty: the empty text is EMPTY."""

    text: str
    position: Position | None = None

    def __post_init__(self) -> None:
        if not self.text or SURROGATE.search(self.text):
            raise GrammarError("a literal is at least one code point, and no surrogates")
        self._seal()

    def own(self) -> tuple[object, ...]:
        return (self.text,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class CharClass(_Node):
    """One code point in `ranges`; if negated, one that is not. Ranges are sorted and merged, never empty."""

    ranges: Ranges
    negated: bool = False
    position: Position | None = None

    def __post_init__(self) -> None:
        if not self.ranges or any(not 0 <= lo <= hi <= MAX_CODE_POINT for lo, hi in self.ranges):
            raise GrammarError("a class is at least one range of code points, each low to high")
        object.__setattr__(self, "ranges", merge(self.ranges))
        self._seal()

    def own(self) -> tuple[object, ...]:
        return (self.ranges, self.negated)

    def scalars(self) -> Ranges:
        """The code points that the class matches: negation applied, surrogates removed. May be empty."""
        return _scalars(self.ranges, self.negated)


@lru_cache(maxsize=1024)
def _scalars(ranges: Ranges, negated: bool) -> Ranges:
    return subtract(complement(ranges) if negated else ranges, (SURROGATES,))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AnyChar(_Node):
    """`.`: any one code point, line ends included."""

    position: Position | None = None

    def __post_init__(self) -> None:
        self._seal()

    def scalars(self) -> Ranges:
        return complement((SURROGATES,))


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RuleRef(_Node):
    """A use of the rule with this name."""

    name: str
    position: Position | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        self._seal()

    def own(self) -> tuple[object, ...]:
        return (self.name,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class TokenRef(_Node):
    """One token; if negated, any other token. Named by `text` with its brackets (`<think>`) or by `id`."""

    text: str | None = None
    id: int | None = None
    negated: bool = False
    position: Position | None = None

    def __post_init__(self) -> None:
        if (self.text is None) == (self.id is None):
            raise GrammarError("a token is named by its text or by its id")
        if self.text is not None and not re.fullmatch(r"<(?!\[)[^>\r\n\0\ud800-\udfff]*>", self.text):
            raise GrammarError(f"{self.text!r} cannot be written as a token", hint="write <name>, or <[id]>")
        if self.id is not None and not 0 <= self.id < 2**31:
            raise GrammarError(f"{self.id} is not a token id")
        self._seal()

    def own(self) -> tuple[object, ...]:
        return (self.text, self.id, self.negated)

    @property
    def spelling(self) -> str:
        """The token in GBNF: `<think>`, `<[5]>`, `!<[5]>`."""
        return f"{'!' if self.negated else ''}{self.text or f'<[{self.id}]>'}"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Sequence(_Node):
    """All items in order: none (the empty text) or at least two. `seq` builds a sequence of any length."""

    items: tuple[Node, ...]
    position: Position | None = None

    def __post_init__(self) -> None:
        if len(self.items) == 1:
            raise GrammarError("a sequence of one item is that item")
        self._seal()

    def children(self) -> tuple[Node, ...]:
        return self.items

    def with_children(self, children: Iterable[Node]) -> Node:
        return seq(*children, position=self.position)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Alternative(_Node):
    """One of at least two options. `alt` accepts any number of options."""

    options: tuple[Node, ...]
    position: Position | None = None

    def __post_init__(self) -> None:
        if len(self.options) < 2:
            raise GrammarError("an alternative has at least two options")
        self._seal()

    def children(self) -> tuple[Node, ...]:
        return self.options

    def with_children(self, children: Iterable[Node]) -> Node:
        return alt(*children, position=self.position)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Repeat(_Node):
    """The item, at least `min` and at most `max` times; None for no limit."""

    item: Node
    min: int = 0
    max: int | None = None
    position: Position | None = None

    def __post_init__(self) -> None:
        if self.min < 0 or (self.max is not None and self.max < self.min):
            raise GrammarError(f"cannot repeat at least {self.min} and at most {self.max} times")
        self._seal()

    def children(self) -> tuple[Node, ...]:
        return (self.item,)

    def own(self) -> tuple[object, ...]:
        return (self.min, self.max)

    def with_children(self, children: Iterable[Node]) -> Node:
        (item,) = children
        return Repeat(item, self.min, self.max, self.position)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class LazyRepeat(Repeat):
    """The same texts as `Repeat`; a search that stops at its first match prefers few times. Only a reader of regular
    expressions that is asked for it makes one, and no grammar has one."""

    def with_children(self, children: Iterable[Node]) -> Node:
        (item,) = children
        return LazyRepeat(item, self.min, self.max, self.position)


Node = Literal | CharClass | AnyChar | RuleRef | TokenRef | Sequence | Alternative | Repeat
"""Every kind of node: a `match` over these ends in `assert_never`."""

EMPTY = Sequence(())
"""The empty text."""
NEVER = CharClass(((0, MAX_CODE_POINT),), negated=True)
"""Matches no text."""


@dataclass(frozen=True, slots=True, eq=False)
class Rule(_Value):
    """`name ::= body`."""

    name: str
    body: Node
    position: Position | None = None

    def __post_init__(self) -> None:
        _check_name(self.name)
        self._seal()

    def children(self) -> tuple[Node, ...]:
        return (self.body,)

    def own(self) -> tuple[object, ...]:
        return (self.name,)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Grammar:
    """Rules by name, in order, and the name of the start rule.

    source: the text it was parsed from, for excerpts. replaced: definitions that a later one of the same name
    replaced. Neither counts in equality, nor does the order of the rules.
    """

    rules: Mapping[str, Rule]
    root: str = "root"
    source: str = field(default="", compare=False)
    replaced: tuple[Rule, ...] = field(default=(), compare=False)

    def __post_init__(self) -> None:
        if any(name != rule.name for name, rule in self.rules.items()):
            raise GrammarError("a rule is stored under another name than its own")
        object.__setattr__(self, "rules", MappingProxyType(dict(self.rules)))

    @staticmethod
    def of(rules: Iterable[Rule], *, root: str = "root", source: str = "") -> Grammar:
        """A grammar of these rules. If two have one name, the later one replaces the earlier one, in its position."""
        kept: dict[str, Rule] = {}
        replaced: list[Rule] = []
        for rule in rules:
            if rule.name in kept:
                replaced.append(kept[rule.name])
            kept[rule.name] = rule
        return Grammar(kept, root, source, tuple(replaced))

    def with_rules(self, rules: Iterable[Rule]) -> Grammar:
        """A grammar of other rules, with the same root and source."""
        return Grammar.of(rules, root=self.root, source=self.source)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Grammar):
            return NotImplemented
        return self.root == other.root and self.rules == other.rules

    def __hash__(self) -> int:
        return hash((self.root, frozenset(self.rules.values())))

    def __repr__(self) -> str:
        return f"Grammar({len(self.rules)} rules, root={self.root!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return Grammar, (dict(self.rules), self.root, self.source, self.replaced)


def seq(*items: Node, position: Position | None = None) -> Node:
    """These items in order: EMPTY for none, the item itself for one."""
    return items[0] if len(items) == 1 else Sequence(items, position)


def alt(*options: Node, position: Position | None = None) -> Node:
    """One of these options: NEVER for none, the option itself for one."""
    if not options:
        return NEVER
    return options[0] if len(options) == 1 else Alternative(options, position)


def postorder(node: Node) -> Iterator[Node]:
    """Every node below and at `node`, children before parents, left to right."""
    nodes: list[Node] = []  # parents first, right to left: the reverse of the result
    todo: list[Node] = [node]
    while todo:
        check_time()
        current = todo.pop()
        nodes.append(current)
        todo.extend(current.children())
    return reversed(nodes)


def fold(node: Node, visit: Callable[[Node, list[T]], T]) -> T:
    """`visit(node, results of its children)` for every node, from the leaves up; the result of the root."""
    given: list[T] = []
    for current in postorder(node):
        count = len(current.children())
        parts = given[len(given) - count :] if count else []
        del given[len(given) - count :]
        given.append(visit(current, parts))
    (result,) = given
    return result


def _check_name(name: str) -> None:
    if not NAME.fullmatch(name):
        raise GrammarError(f"{name!r} is not a rule name", hint="letters, digits, - and _")
