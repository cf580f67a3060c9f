r"""The texts that Lark takes for a terminal: those that `re.match` prefers as a whole.

    /a+/|"ab"       "a", "aa", …, not "ab": there `re` takes the "a" of the first option
    /".*?"/         a string without a quotation mark in it

Lark's Earley parser with the lexer `dynamic_complete` asks `re.match` for a terminal, and again for every shorter text.
`re` tries the options in their order, so a text is found exactly where its match in itself is the whole of it. The ways
to match are walked together, in the order of preference, and a match ends all ways that come after it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

from espalier.errors import UnsupportedError
from espalier.grammar.ast import (
    EMPTY,
    Alternative,
    AnyChar,
    CharClass,
    LazyRepeat,
    Literal,
    Node,
    Repeat,
    Rule,
    RuleRef,
    Sequence,
    alt,
    fold,
    seq,
)
from espalier.grammar.ranges import Ranges, merge
from espalier.time_limit import check as check_time

MAX_STEPS = 20_000
"""Characters and choices of a terminal whose counts are written out."""
MAX_STATES = 2_000
"""States of the automaton of what Lark takes."""
MATCH = 0
"""The step that ends a match."""


@dataclass(frozen=True, slots=True)
class Widths:
    """low, high: characters of the texts, None for no limit. is_longest: `re` always prefers the longest match."""

    low: int
    high: int | None
    is_longest: bool

    @property
    def is_fixed(self) -> bool:
        return self.low == self.high


def widths(node: Node) -> Widths:
    """Of an expression without references to rules. is_longest is False where that is not plain to see."""

    def visit(node: Node, parts: list[Widths]) -> Widths:
        match node:
            case Literal(text):
                return Widths(len(text), len(text), True)
            case Sequence():
                high = None if any(part.high is None for part in parts) else sum(part.high or 0 for part in parts)
                is_longest = sum(not part.is_fixed for part in parts) < 2 and all(part.is_longest for part in parts)
                return Widths(sum(part.low for part in parts), high, is_longest)
            case Alternative():
                highs = [part.high for part in parts]
                falls = all(other.high is not None and part.low >= other.high for part, other in pairwise(parts))
                high = None if None in highs else max(high for high in highs if high is not None)
                return Widths(min(part.low for part in parts), high, falls and all(part.is_longest for part in parts))
            case Repeat(_, low, most):
                (part,) = parts
                high = 0 if part.high == 0 else None if most is None or part.high is None else part.high * most
                is_longest = part.is_longest and (part.is_fixed or most in (0, 1))
                widths = Widths(part.low * low, high, is_longest)
                is_lazy = isinstance(node, LazyRepeat) and not widths.is_fixed
                return Widths(widths.low, widths.high, widths.is_longest and not is_lazy)
            case _:
                return Widths(1, 1, True)

    return fold(node, visit)


def greedy(node: Node) -> Node:
    """The same texts without a mark of laziness."""
    return fold(
        node,
        lambda node, parts: (
            Repeat(parts[0], node.min, node.max)
            if isinstance(node, Repeat)
            else node.with_children(parts)
            if parts
            else node
        ),
    )


def preferred(node: Node, name: str, *, shortest: bool = False) -> list[Rule]:
    """Rules for what Lark takes for a terminal, the first of this name; node: without references. shortest: for the
    texts that begin with no other one instead, as llguidance takes a lazy rule. Raises UnsupportedError where that is
    too large, or hangs on how `re` ends loops of the empty text."""
    if widths(node).is_longest and not shortest:
        return [Rule(name, greedy(node))]
    steps = _LarkSteps(shortest=shortest)
    start = steps.build(node)(MATCH)
    table = _Table(steps, name)
    rules = table.rules(start)
    return rules if table.is_cut else [Rule(name, greedy(node))]


@dataclass(slots=True)
class _LarkSteps:
    """The ways through an expression. By step: the characters and the step after them, or the steps to choose from in
    their order."""

    chars: list[tuple[Ranges, int] | None] = field(default_factory=lambda: [None])
    choices: list[list[int]] = field(default_factory=lambda: [[]])
    #: Whether a match ends the ways before it too.
    shortest: bool = False

    def add(self, char: tuple[Ranges, int] | None, choices: list[int]) -> int:
        check_time()
        if len(self.chars) >= MAX_STEPS:
            raise UnsupportedError("a terminal with counts this large cannot be translated exactly")
        self.chars.append(char)
        self.choices.append(choices)
        return len(self.chars) - 1

    def build(self, node: Node) -> Callable[[int], int]:
        """The function from the step after the expression to its first step."""
        return fold(node, self._part)

    def _part(self, node: Node, parts: list[Callable[[int], int]]) -> Callable[[int], int]:
        match node:
            case Literal(text):
                return lambda after: self._spell_text(text, after)
            case CharClass() | AnyChar():
                return lambda after: self.add((node.scalars(), after), [])
            case Sequence():
                return lambda after: self._chain(parts[::-1], after)
            case Alternative():
                return lambda after: self.add(None, [part(after) for part in parts])
            case Repeat(item, low, high):
                if high is None and widths(item).low == 0 and _has_choices(item):
                    raise UnsupportedError("a loop over what may be empty cannot be translated exactly")
                return lambda after: self._repeat(parts[0], low, high, isinstance(node, LazyRepeat), after)
            case _:
                raise TypeError(f"{node!r} cannot stand in a terminal")

    def _spell_text(self, text: str, after: int) -> int:
        for char in reversed(text):
            after = self.add((((ord(char), ord(char)),), after), [])
        return after

    def _chain(self, parts: list[Callable[[int], int]], after: int) -> int:
        for part in parts:
            after = part(after)
        return after

    def _repeat(self, part: Callable[[int], int], low: int, high: int | None, is_lazy: bool, after: int) -> int:
        step = after
        if high is None:
            step = self.add(None, [])
            self.choices[step] += [after, part(step)] if is_lazy else [part(step), after]
        for _ in range((high or low) - low):
            step = self.add(None, [after, part(step)] if is_lazy else [part(step), after])
        for _ in range(low):
            step = part(step)
        return step

    def reached(self, begun: list[int]) -> tuple[tuple[int, ...], bool]:
        """The steps at a character or a match that come next, in the order of preference, up to a match; and whether
        others come after that."""
        todo, seen, reached = begun[::-1], set[int](), list[int]()
        while todo:
            step = todo.pop()
            if step in seen:
                continue
            seen.add(step)
            if step == MATCH or self.chars[step] is not None:
                reached.append(step)
            todo += self.choices[step][::-1]
        if self.shortest and MATCH in reached:
            return (MATCH,), len(reached) > 1
        end = reached.index(MATCH) + 1 if MATCH in reached else len(reached)
        return tuple(reached[:end]), end < len(reached)


class _Table:
    """The automaton over lists of ways. is_cut: some match ended other ways."""

    def __init__(self, steps: _LarkSteps, name: str) -> None:
        self._steps = steps
        self._name = name
        self.is_cut = False

    def rules(self, start: int) -> list[Rule]:
        classes = _classes({char[0] for char in self._steps.chars if char is not None})
        order = [self._reach_steps([start])]
        number = {order[0]: 0}
        edges: list[dict[int, list[tuple[int, int]]]] = []
        for state in order:  # grows as states are met
            check_time()
            targets: dict[int, list[tuple[int, int]]] = {}
            for members, ranges in classes:
                chars = [char for step in state if (char := self._steps.chars[step]) is not None]
                after = self._reach_steps([then for chars_read, then in chars if chars_read in members])
                if not after:
                    continue
                if after not in number:
                    if len(order) >= MAX_STATES:
                        raise UnsupportedError("a terminal with this many ways to match cannot be translated exactly")
                    number[after] = len(order)
                    order.append(after)
                targets.setdefault(number[after], []).extend(ranges)
            edges.append(targets)
        return self._write_rules([MATCH in state for state in order], edges)

    def _reach_steps(self, begun: list[int]) -> tuple[int, ...]:
        steps, is_cut = self._steps.reached(begun)
        self.is_cut = self.is_cut or is_cut
        return steps

    def _write_rules(self, ends: list[bool], edges: list[dict[int, list[tuple[int, int]]]]) -> list[Rule]:
        """One rule a state from which the end can be reached."""
        alive = {state for state, is_end in enumerate(ends) if is_end}
        while grown := {state for state, targets in enumerate(edges) if targets.keys() & alive} - alive:
            check_time()
            alive |= grown
        rules = []
        for state, targets in enumerate(edges):
            options: list[Node] = [
                seq(CharClass(merge(ranges)), RuleRef(self._of(target)))
                for target, ranges in targets.items()
                if target in alive
            ]
            if state in alive or state == 0:
                rules.append(Rule(self._of(state), alt(*options, *([EMPTY] if ends[state] else []))))
        return rules

    def _of(self, state: int) -> str:
        return f"{self._name}-{state}" if state else self._name


def _has_choices(node: Node) -> bool:
    return fold(node, lambda node, parts: isinstance(node, Alternative | LazyRepeat) or any(parts))


def _classes(sets: set[Ranges]) -> list[tuple[frozenset[Ranges], list[tuple[int, int]]]]:
    """The characters that the sets tell apart: which sets have them, and their ranges."""
    marks: dict[int, list[tuple[Ranges, bool]]] = {}
    for char_set in sets:
        for low, high in char_set:
            marks.setdefault(low, []).append((char_set, True))
            marks.setdefault(high + 1, []).append((char_set, False))
    by_inside: dict[frozenset[Ranges], list[tuple[int, int]]] = {}
    inside: set[Ranges] = set()
    points = sorted(marks)
    for point, following in pairwise(points):
        for char_set, begins in sorted(marks[point], key=lambda mark: mark[1]):
            (inside.add if begins else inside.discard)(char_set)
        if inside:
            by_inside.setdefault(frozenset(inside), []).append((point, following - 1))
    return list(by_inside.items())
