r"""Compiles the anchors `^ $ \A \Z`, with and without multiline, into ordinary expressions, without approximation.

An anchor is a condition on the text to its left or right. So an expression with anchors becomes a table of ordinary
expressions, one for each context (LeftContext x RightContext); the tables of sequences, choices and repetitions are
computed from the tables of their parts. The tables stay small because contexts are ordered: whatever matches in a worse
context also matches in a better one. So a part may be used as if its context were worse than it is, and the better
context is needed only for those texts of the neighbour that provide it.

It does not know the syntax of anchors, word boundaries or look-around.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cache
from typing import TypeVar

from espalier.grammar.ast import (
    EMPTY,
    NEVER,
    Alternative,
    AnyChar,
    CharClass,
    Literal,
    Node,
    Position,
    Repeat,
    alt,
    seq,
)
from espalier.grammar.ast import Sequence as InOrder
from espalier.grammar.ranges import contains
from espalier.time_limit import check as check_time

T = TypeVar("T")
MAX_COPIES = 200_000
"""Nodes that anchors may add to an expression."""
MAX_UNROLLED = 100
"""Rounds of a counted repetition whose item depends, by multiline anchors, on its neighbours."""
NEWLINE = Literal("\n")


class TooManyCopies(Exception):  # internal: the parser turns it into an UnsupportedError
    """Anchors would make the expression too large."""


class LeftContext(IntEnum):
    """The text on the left, worst first: anything, a line end, the start of the text."""

    OTHER = 0
    AFTER_NEWLINE = 1
    START = 2


class RightContext(IntEnum):
    r"""The text on the right, worst first: anything, `\n` and more, a final `\n`, the end of the text."""

    OTHER = 0
    BEFORE_NEWLINE = 1
    BEFORE_LAST = 2
    END = 3


LEFTS, RIGHTS = tuple(LeftContext), tuple(RightContext)
CONTEXTS = tuple((left, right) for left in LEFTS for right in RIGHTS)


@dataclass(frozen=True, slots=True, eq=False)
class ContextVersions:
    """An expression with anchors: one version for each context, in the order of CONTEXTS."""

    versions: tuple[Node, ...]

    def at(self, left: LeftContext, right: RightContext) -> Node:
        return self.versions[left * len(RIGHTS) + right]


Piece = Node | ContextVersions
"""An expression: the same in every context, or with anchors."""


@cache
def starts(least: LeftContext) -> ContextVersions:
    """An anchor that requires at least this context on its left."""
    return ContextVersions(tuple(EMPTY if left >= least else NEVER for left, _ in CONTEXTS))


@cache
def ends(least: RightContext) -> ContextVersions:
    """An anchor that requires at least this context on its right."""
    return ContextVersions(tuple(EMPTY if right >= least else NEVER for _, right in CONTEXTS))


def at(piece: Piece, left: LeftContext, right: RightContext) -> Node:
    return piece.at(left, right) if isinstance(piece, ContextVersions) else piece


# These keep expressions free of dead ends: NEVER is never a part of a larger expression.


def join(*items: Node, position: Position | None = None) -> Node:
    if any(item is NEVER for item in items):
        return NEVER
    kept = [item for item in items if item != EMPTY]
    return seq(*kept, position=position) if kept else EMPTY  # itself, so that tables made of it are known again


def either(*options: Node, position: Position | None = None) -> Node:
    return alt(*dict.fromkeys(option for option in options if option is not NEVER), position=position)


def repeated(item: Node, low: int, high: int | None, position: Position | None = None) -> Node:
    if item is NEVER:
        return NEVER if low else EMPTY
    if item == EMPTY or high == 0:
        return EMPTY
    return item if low == high == 1 else Repeat(item, low, high, position)


def _solid(node: Node) -> Node:
    """The node without an option that is the empty text."""
    options = node.options if isinstance(node, Alternative) else (node,)
    return either(*(option for option in options if option != EMPTY)) if EMPTY in options else node


def _left_tied(piece: ContextVersions) -> bool:
    """Whether a line end on the left makes a difference."""
    return any(piece.at(LeftContext.OTHER, right) != piece.at(LeftContext.AFTER_NEWLINE, right) for right in RIGHTS)


def _right_tied(piece: ContextVersions) -> bool:
    """Whether a line end on the right makes a difference."""
    return any(piece.at(left, RightContext.OTHER) != piece.at(left, RightContext.BEFORE_NEWLINE) for left in LEFTS)


@dataclass(frozen=True, slots=True)
class _Facts:
    """empty, newline: whether it matches the empty text, and a single line end. size: its nodes."""

    empty: bool
    newline: bool
    size: int


_Kept = dict[int, tuple[Node, _Facts]]
_Parts = dict[int, tuple[Node, Node]]


class Contexts:
    """Combines pieces. Caches facts about nodes and what came of two pieces, so use one instance for one pattern."""

    def __init__(self, *, limit: int = MAX_COPIES) -> None:
        self._limit = limit
        self._facts: _Kept = {}
        self._starting: _Parts = {}
        self._ending: _Parts = {}
        # Anchors in a row are the same few tables again and again: each pair of them is combined once.
        self._tables: dict[tuple[int, ...], ContextVersions] = {}
        self._pairs: dict[tuple[int, int], tuple[Piece, Piece, Piece]] = {}

    def sequence(self, pieces: Sequence[Piece], position: Position | None = None) -> Piece:
        """A sequence of pieces."""
        runs: list[Piece] = []
        plain: list[Node] = []
        for piece in pieces:
            if not isinstance(piece, ContextVersions):
                plain.append(piece)
                continue
            runs += [join(*plain, position=position), piece] if plain else [piece]
            plain = []
        if not runs:
            return join(*plain, position=position)
        whole: Piece = join(*plain) if plain else runs.pop()
        for piece in reversed(runs):
            whole = self._pair(piece, whole)
        return whole

    def choice(self, pieces: Sequence[Piece], position: Position | None = None) -> Piece:
        """A choice of pieces."""
        if not any(isinstance(piece, ContextVersions) for piece in pieces):
            return either(*(piece for piece in pieces if not isinstance(piece, ContextVersions)), position=position)
        made: dict[tuple[int, ...], Node] = {}

        def version(left: LeftContext, right: RightContext) -> Node:
            options = [at(piece, left, right) for piece in pieces]
            key = tuple(map(id, options))
            if key not in made:
                made[key] = either(*options, position=position)
            return made[key]

        return self._table(version)

    def repeat(self, piece: Piece, low: int, high: int | None, position: Position | None = None) -> Piece:
        """A piece, at least `low` and at most `high` times."""
        if not isinstance(piece, ContextVersions):
            return repeated(piece, low, high, position)
        if high == 0:
            return EMPTY
        if low == 0:  # then a round without text adds nothing in any context
            solid = self._table(lambda left, right: _solid(at(piece, left, right)))
            if not isinstance(solid, ContextVersions):
                return repeated(solid, low, high, position)
            piece = solid
        tied: ContextVersions = piece
        if not _left_tied(tied) and not _right_tied(tied):
            return self._table(lambda left, right: self._count_piece(tied, low, high, left, right))
        if max(low, high or 0) > MAX_UNROLLED:
            raise TooManyCopies
        rest: Piece = EMPTY
        if low:
            rest = self.repeat(piece, 0, None if high is None else high - low)
        elif high is None:
            rest = self._table(lambda left, right: self._rounds(tied, left, right))
        else:
            for _ in range(high):
                rest = self.choice([EMPTY, self.sequence([piece, rest])])
        for _ in range(low):
            rest = self.sequence([piece, rest])
        return rest

    # Two in a row

    def _pair(self, first: Piece, second: Piece) -> Piece:
        key = (id(first), id(second))
        if key not in self._pairs:  # which keeps both alive, so that their ids stay theirs
            self._pairs[key] = (first, second, self._combined(first, second))
        return self._pairs[key][2]

    def _combined(self, first: Piece, second: Piece) -> Piece:
        made: dict[tuple[int | bool, ...], Node] = {}

        def version(left: LeftContext, right: RightContext) -> Node:
            used = [at(first, left, r) for r in (*RIGHTS, right)]
            used += [at(second, x, right) for x in (*LEFTS, left)]
            key = (right is RightContext.END, *map(id, used))
            if key not in made:
                made[key] = either(*self._joints(first, second, left, right))
            return made[key]

        return self._table(version)

    def _joints(self, first: Piece, second: Piece, left: LeftContext, right: RightContext) -> list[Node]:
        """The ways in which two pieces match in a row, by the context that each provides for the other."""
        befores: list[tuple[LeftContext, Callable[[Node], Node]]] = [
            (LeftContext.OTHER, lambda node: node),
            (LeftContext.AFTER_NEWLINE, self.ending),
            (left, self._nothing),
        ]
        afters: list[tuple[RightContext, Callable[[Node], Node]]] = [
            (RightContext.OTHER, lambda node: node),
            (RightContext.BEFORE_NEWLINE, self.starting),
            (right, self._nothing),
        ]
        if right is RightContext.END:
            afters.append((RightContext.BEFORE_LAST, self._line_end))
        worst_first, worst_second = at(first, left, RightContext.OTHER), at(second, LeftContext.OTHER, right)
        nodes: list[Node] = []
        for i, (before, of_first) in enumerate(befores):
            for j, (after, of_second) in enumerate(afters):
                context_before, two = at(first, left, after), at(second, before, right)
                if (i and two == worst_second) or (j and context_before == worst_first):
                    continue  # a better context on this side matches nothing more
                nodes.append(self._small(join(of_first(context_before), of_second(two))))
        return nodes

    # Repetitions

    def _count_piece(
        self, piece: ContextVersions, low: int, high: int | None, left: LeftContext, right: RightContext
    ) -> Node:
        """A counted repetition of a piece that depends on the edges of the text at most, not on line ends next to
        it."""
        middle = piece.at(LeftContext.OTHER, RightContext.OTHER)
        begin, end, only = piece.at(left, RightContext.OTHER), piece.at(LeftContext.OTHER, right), piece.at(left, right)
        less = [None if high is None else high - rounds for rounds in range(4)]
        spare = self._empty(begin) or self._empty(end)  # some round may be empty, and fill up the count
        nodes: list[Node] = [EMPTY] if low == 0 or self._empty(only) else []
        if only == begin and end == middle:
            nodes.append(join(only, repeated(middle, 0 if spare else max(low - 1, 0), less[1])))
        elif only == end and begin == middle:
            nodes.append(join(repeated(middle, 0 if spare else max(low - 1, 0), less[1]), only))
        else:
            nodes += [only] if low < 2 or spare else []
            if high is None or high > 1:
                nodes.append(join(begin, repeated(middle, 0 if spare else max(low - 2, 0), less[2]), end))
        if right is RightContext.END:
            nodes += self._before_last(piece, low, high, left)
        return self._small(either(*nodes))

    def _before_last(self, piece: ContextVersions, low: int, high: int | None, left: LeftContext) -> list[Node]:
        """Rounds whose last non-empty one is a single line end, so that the round before it is at a final line end."""
        middle, begin = piece.at(LeftContext.OTHER, RightContext.OTHER), piece.at(left, RightContext.OTHER)
        middle_last, begin_last = (
            piece.at(LeftContext.OTHER, RightContext.BEFORE_LAST),
            piece.at(left, RightContext.BEFORE_LAST),
        )
        end = piece.at(LeftContext.OTHER, RightContext.END)
        nodes: list[Node] = []
        if self._facts_of(piece.at(left, RightContext.END)).newline and self._empty(begin_last):
            nodes.append(NEWLINE)
        if (begin, middle) == (begin_last, middle_last) or not self._facts_of(end).newline:
            return nodes
        spare = self._empty(begin) or self._empty(middle_last) or self._empty(end)
        if (high is None or high > 1) and (low < 3 or spare):
            nodes.append(join(begin_last, NEWLINE))
        if high is None or high > 2:
            between = repeated(middle, 0 if spare else max(low - 3, 0), None if high is None else high - 3)
            nodes.append(join(begin, between, middle_last, NEWLINE))
        return nodes

    def _rounds(self, piece: ContextVersions, left: LeftContext, right: RightContext) -> Node:
        """Any number of rounds, each of which may depend on line ends of its neighbours.

        A border between two rounds is a pair of contexts: the left context that the next round assumes (and the
        previous one must provide) and the right context that the previous one assumes (and the next must provide). A
        path of borders is a repetition; borders are eliminated one by one, as states of an automaton.
        """
        lefts = [LeftContext.OTHER, LeftContext.AFTER_NEWLINE] if _left_tied(piece) else [LeftContext.OTHER]
        rights = [RightContext.OTHER, RightContext.BEFORE_NEWLINE] if _right_tied(piece) else [RightContext.OTHER]
        if any(piece.at(x, RightContext.BEFORE_LAST) != piece.at(x, rights[-1]) for x in LEFTS):
            rights.append(RightContext.BEFORE_LAST)
        borders = [(x, y) for x in lefts for y in rights]
        steps: dict[tuple[int, int], Node] = {}
        begin, end = len(borders), len(borders) + 1
        for i in range(begin + 1):
            for j in (*range(begin), end):
                if (i, j) != (begin, end) and (step := self._step(piece, borders, i, j, left, right)) is not NEVER:
                    steps[i, j] = step
        for border in range(begin):
            around = repeated(steps.pop((border, border), NEVER), 0, None)
            before = [(i, step) for (i, j), step in steps.items() if j == border]
            after = [(j, step) for (i, j), step in steps.items() if i == border]
            for i, step in before:
                for j, then in after:
                    way = join(step, around, then)
                    steps[i, j] = self._small(either(steps.get((i, j), NEVER), way))
            steps = {key: step for key, step in steps.items() if border not in key}
        return self._small(either(EMPTY, piece.at(left, right), steps.get((begin, end), NEVER)))

    def _step(
        self,
        piece: ContextVersions,
        borders: Sequence[tuple[LeftContext, RightContext]],
        i: int,
        j: int,
        left: LeftContext,
        right: RightContext,
    ) -> Node:
        """One round from border `i` to border `j`; indices past the last border are the start and end of the
        repetition."""
        here, seen = borders[i] if i < len(borders) else (left, RightContext.OTHER)
        given, there = borders[j] if j < len(borders) else (LeftContext.OTHER, right)
        node = piece.at(here, there)
        if seen is RightContext.BEFORE_LAST:
            return self._line_end(node) if j > len(borders) and right is RightContext.END else NEVER
        if seen is RightContext.BEFORE_NEWLINE:
            node = self.starting(node)
        return self.ending(node) if given is LeftContext.AFTER_NEWLINE else node

    # Facts about nodes

    def _table(self, version: Callable[[LeftContext, RightContext], Node]) -> Piece:
        versions = tuple(self._small(version(left, right)) for left, right in CONTEXTS)
        if all(other == versions[0] for other in versions):
            return versions[0]
        return self._tables.setdefault(tuple(map(id, versions)), ContextVersions(versions))

    def _small(self, node: Node) -> Node:
        if self._facts_of(node).size > self._limit:
            raise TooManyCopies
        return node

    def _empty(self, node: Node) -> bool:
        return self._facts_of(node).empty

    def _nothing(self, node: Node) -> Node:
        return EMPTY if self._empty(node) else NEVER

    def _line_end(self, node: Node) -> Node:
        return NEWLINE if self._facts_of(node).newline else NEVER

    def _facts_of(self, node: Node) -> _Facts:
        def visit(node: Node) -> _Facts:
            parts = [self._facts[id(child)][1] for child in node.children()]
            size = 1 + sum(part.size for part in parts)
            match node:
                case Literal(text):
                    return _Facts(False, text == "\n", size)
                case CharClass() | AnyChar():
                    return _Facts(False, contains(node.scalars(), 10), size)
                case InOrder():
                    full = [part for part in parts if not part.empty]
                    newline = full[0].newline if len(full) == 1 else not full and any(part.newline for part in parts)
                    return _Facts(not full, newline, size)
                case Alternative():
                    return _Facts(any(part.empty for part in parts), any(part.newline for part in parts), size)
                case Repeat(_, low, high):
                    empty = low == 0 or parts[0].empty
                    return _Facts(empty, parts[0].newline and high != 0 and (low < 2 or parts[0].empty), size)
                case _:
                    raise TypeError(f"{node!r} cannot come from a regular expression")

        return _settle(node, self._facts, visit)

    def starting(self, node: Node) -> Node:
        """The texts of `node` that begin with a line end."""
        return self._edge(node, self._starting, first=True)

    def ending(self, node: Node) -> Node:
        """The texts of `node` that end with a line end."""
        return self._edge(node, self._ending, first=False)

    def _edge(self, node: Node, known: _Parts, *, first: bool) -> Node:
        def in_order(node: Node, rest: Node) -> Node:
            return join(node, rest) if first else join(rest, node)

        def visit(node: Node) -> Node:
            parts = [known[id(child)][1] for child in node.children()]
            match node:
                case Literal(text):
                    return node if text[0 if first else -1] == "\n" else NEVER
                case CharClass() | AnyChar():
                    return self._line_end(node)
                case InOrder(items):
                    edge: Node = NEVER
                    for i in range(len(items)) if first else reversed(range(len(items))):
                        rest = join(*(items[i + 1 :] if first else items[:i]))
                        edge = self._small(either(edge, in_order(parts[i], rest)))
                        if not self._empty(items[i]):
                            break
                    return edge
                case Alternative():
                    return either(*parts)
                case Repeat(item, low, high):
                    least = 0 if self._empty(item) else max(low - 1, 0)
                    rest = repeated(item, least, None if high is None else high - 1)
                    return in_order(parts[0], rest) if high != 0 else NEVER
                case _:
                    raise TypeError(f"{node!r} cannot come from a regular expression")

        return _settle(node, known, visit)


def _settle(node: Node, known: dict[int, tuple[Node, T]], visit: Callable[[Node], T]) -> T:
    """`visit` every node at and below this one that is not known yet, children first; the result of this node. `known`
    keeps the nodes alive, so that their ids stay unique."""
    todo = [node]
    while todo:
        check_time()
        current = todo[-1]
        missing = [child for child in current.children() if id(child) not in known]
        if id(current) not in known and not missing:
            known[id(current)] = (current, visit(current))
        if id(current) in known:
            todo.pop()
        else:
            todo += missing
    return known[id(node)][1]
