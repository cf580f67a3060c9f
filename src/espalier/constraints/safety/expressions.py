"""Compiles all regex patterns, which may start anywhere, to one DFA over classes of characters (Glushkov's construction
with the positions as bits).

A state is the set of positions that the patterns have reached. If a pattern is complete whatever follows, the
transition is a match, which names the pattern; if it is complete only at the end of the text, the text may not end
there. It knows no bytes, and not what the patterns are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from espalier.constraints.safety.alphabet import Alphabet, CharSet
from espalier.errors import LimitExceeded
from espalier.grammar.ast import Alternative, AnyChar, CharClass, Literal, Node, Repeat, RuleRef, TokenRef
from espalier.grammar.ast import Sequence as InOrder
from espalier.grammar.ranges import SURROGATES, complement
from espalier.time_limit import check as check_time

ANY = complement((SURROGATES,))
MAX_POSITIONS = 60_000
"""The most positions of all patterns together, with counted repetitions expanded."""
MAX_WALKED = 20_000
"""The most states of the DFA."""
MAX_WORK = 20_000_000
"""The most positions looked at while the DFA is built: some seconds."""
MAX_CELLS = 30_000_000
"""The most states times classes of characters of one part: 120 MB."""
BEFORE = -1
"""The state before the first character."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CharDfa:
    """S states by K classes of characters; state 0 is the start. table: the next state, `(S, K) int32`, or -1 - i for a
    match of pattern i. cuts: `(S,) int32`, the pattern that matches if the text ends here, -1 for none. busy: `(S,)
    bool`, a match may be in progress."""

    table: NDArray[np.int32]
    cuts: NDArray[np.int32]
    busy: NDArray[np.bool_]

    @property
    def ends(self) -> NDArray[np.bool_]:
        """Whether the text may end here, `(S,) bool`."""
        return self.cuts < 0

    def __len__(self) -> int:
        return len(self.table)


class PatternParts(NamedTuple):
    """A pattern in three parts: the context before it, the pattern itself, the context after it. Together they match
    whole texts: `before` starts with `.*`, and `after` ends with `.*` if anything may follow."""

    before: Node
    itself: Node
    after: Node
    is_folded: bool


class PatternPositions:
    """The positions of several patterns. A position is one character that a pattern reads."""

    def __init__(self, patterns: Sequence[PatternParts]) -> None:
        self.char_sets: list[CharSet] = []  # by position
        self._epsilon: list[list[int]] = []
        self._reads: list[list[int]] = []  # by state: positions
        self._target: list[int] = []  # by position: state
        self._of: list[int] = []  # by position: pattern
        begun: list[bool] = []
        starts, ends = [], []
        for number, parts in enumerate(patterns):
            at = start = self._new()
            for node, inner in ((parts.before, False), (parts.itself, True), (parts.after, True)):
                after = self._new()
                first = len(self.char_sets)
                self._add(node, at, after, parts.is_folded, number)
                # The `.*` of `before`, and of a pattern such as (?:.*x), does not start a match.
                begun += [inner and self.char_sets[i].ranges != ANY for i in range(first, len(self.char_sets))]
                at = after
            starts.append(start)
            ends.append(at)
        self._finish(starts, ends, begun)

    def _finish(self, starts: list[int], ends: list[int], begun: list[bool]) -> None:
        closed: dict[int, set[int]] = {}

        def closure(state: int) -> set[int]:
            if state not in closed:
                seen, todo = {state}, [state]
                while todo:
                    check_time()
                    for after in self._epsilon[todo.pop()]:
                        if after not in seen:
                            seen.add(after)
                            todo.append(after)
                closed[state] = seen
            return closed[state]

        def bits(state: int) -> int:
            return sum(1 << position for reached in closure(state) for position in self._reads[reached])

        follows: dict[int, int] = {}
        self.follow: list[int] = []
        for target in self._target:
            if target not in follows:
                follows[target] = bits(target)
            self.follow.append(follows[target])
        self.first = 0
        for start in starts:
            self.first |= bits(start)
        self.empty = [end in closure(start) for start, end in zip(starts, ends, strict=True)]
        last = [ends[self._of[i]] in closure(target) for i, target in enumerate(self._target)]
        endless = sum(
            1 << i
            for i, char_set in enumerate(self.char_sets)
            if char_set.ranges == ANY and last[i] and self.follow[i] >> i & 1
        )
        self.begun = sum(1 << i for i, is_begun in enumerate(begun) if is_begun)
        self.hits = sum(1 << i for i, is_last in enumerate(last) if is_last and self.follow[i] & endless)
        self.cuts = sum(1 << i for i, is_last in enumerate(last) if is_last) & ~self.hits
        self.hit_of = self._of

    def _new(self) -> int:
        self._epsilon.append([])
        self._reads.append([])
        return len(self._epsilon) - 1

    def _read(self, char_set: CharSet, s: int, t: int, number: int) -> None:
        check_time()
        if len(self.char_sets) >= MAX_POSITIONS:
            raise LimitExceeded(
                f"the patterns have more than {MAX_POSITIONS} positions",
                hint="lower the counts in {m,n}, or give fewer",
            )
        self._reads[s].append(len(self.char_sets))
        self.char_sets.append(char_set)
        self._target.append(t)
        self._of.append(number)

    def _add(self, node: Node, start: int, end: int, is_folded: bool, number: int) -> None:
        """Add paths that read `node`, as `Nfa.add` does, over characters instead of bytes."""
        todo: list[tuple[Node, int, int]] = [(node, start, end)]
        while todo:
            node, s, t = todo.pop()
            match node:
                case Literal(text):
                    for i, character in enumerate(text):
                        after = t if i == len(text) - 1 else self._new()
                        self._read(CharSet(((ord(character), ord(character)),), is_folded), s, after, number)
                        s = after
                case CharClass() | AnyChar():
                    self._read(CharSet(node.scalars(), is_folded), s, t, number)
                case InOrder(()):
                    self._epsilon[s].append(t)
                case InOrder(items):
                    inner = [s, *(self._new() for _ in items[1:]), t]
                    todo.extend((item, inner[i], inner[i + 1]) for i, item in enumerate(items))
                case Alternative(options):
                    todo.extend((option, s, t) for option in options)
                case Repeat():
                    self._repeat(node, s, t, todo)
                case RuleRef() | TokenRef():
                    raise AssertionError("an expression has no rules and no tokens")
                case _:
                    assert_never(node)

    def _repeat(self, node: Repeat, s: int, t: int, todo: list[tuple[Node, int, int]]) -> None:
        """Add paths for a repetition, with new states at both ends so that nothing beside it is repeated."""
        for _ in range(node.min):
            after = self._new()
            todo.append((node.item, s, after))
            s = after
            self._check_bounds()
        if node.max is None:
            loop = self._new()
            self._epsilon[s].append(loop)
            self._epsilon[loop].append(t)
            back = self._new()
            self._epsilon[back].append(loop)
            todo.append((node.item, loop, back))
            return
        for _ in range(node.max - node.min):
            after = self._new()
            self._epsilon[s].append(t)
            todo.append((node.item, s, after))
            s = after
            self._check_bounds()
        self._epsilon[s].append(t)

    def _check_bounds(self) -> None:
        check_time()
        if len(self._epsilon) > 20 * MAX_POSITIONS:
            raise LimitExceeded(
                f"the patterns have more than {MAX_POSITIONS} positions",
                hint="lower the counts in {m,n}, or give fewer",
            )


def pattern_dfa(positions: PatternPositions, alphabet: Alphabet) -> CharDfa:
    """The DFA of the positions, by the subset construction. If several patterns match at once, the first is named.
    Raises LimitExceeded."""
    count = alphabet.count
    reads = [0] * count  # by class: the positions that read it
    for position, char_set in enumerate(positions.char_sets):
        check_time()
        for letter in np.flatnonzero(alphabet.of(char_set)).tolist():
            reads[letter] |= 1 << position
    distinct = list(dict.fromkeys(reads))
    place = {read: i for i, read in enumerate(distinct)}
    which = np.array([place[read] for read in reads])  # (K,)
    number: dict[int, int] = {BEFORE: 0}
    order = [BEFORE]
    rows: list[list[int]] = []
    work = 0
    for state in order:  # grows as states are met
        check_time()
        after = positions.first if state == BEFORE else _following(state, positions.follow)
        work += len(distinct) + (state.bit_count() if state > 0 else 0)
        row = []
        for read in distinct:
            target = after & read
            hit = target & positions.hits
            if hit:
                row.append(-1 - min(positions.hit_of[position] for position in _bits(hit)))
                continue
            known = number.setdefault(target, len(order))
            if known == len(order):
                order.append(target)
            row.append(known)
        rows.append(row)
        if len(order) * count > MAX_CELLS:
            raise too_many_cells()
        if len(order) > MAX_WALKED or work > MAX_WORK:
            raise LimitExceeded(
                f"the patterns need more than {MAX_WALKED} states together",
                hint="lower the counts {m,n} that follow an unbounded repetition, or give fewer patterns",
            )
    table = np.array(rows, dtype=np.int32)[:, which]  # (S, K)
    cuts = [-1 if state == BEFORE else _cut(state & positions.cuts, positions) for state in order]
    busy = np.array([state != BEFORE and bool(state & positions.begun) for state in order])
    return CharDfa(table=table, cuts=np.array(cuts, dtype=np.int32), busy=busy)


def too_many_cells() -> LimitExceeded:
    return LimitExceeded(
        f"the patterns need more than {MAX_CELLS} states times classes of characters",
        hint="give fewer patterns, or patterns with fewer different characters",
    )


def _cut(members: int, positions: PatternPositions) -> int:
    """The first pattern that matches if the text ends in these positions, -1 for none."""
    return min((positions.hit_of[position] for position in _bits(members)), default=-1)


def _following(state: int, follow: list[int]) -> int:
    following = 0
    for position in _bits(state):
        following |= follow[position]
    return following


def _bits(members: int) -> list[int]:
    positions = []
    while members:
        low = members & -members
        positions.append(low.bit_length() - 1)
        members ^= low
    return positions
