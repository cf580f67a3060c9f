"""Patterns that may begin anywhere, as one automaton over classes of characters: Glushkov's positions as bits.

A state is the set of places that the patterns have come to. A place where a pattern is complete whatever follows ends
in a hit, which says which pattern it was; one that is complete only if the text ends there forbids the end.
It knows nothing of bytes, and nothing of what the patterns are for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, assert_never

import numpy as np
from numpy.typing import NDArray

from espalier.constraints.safety.alphabet import Alphabet, Label
from espalier.errors import LimitExceeded
from espalier.grammar.ast import (
    Alternative,
    AnyChar,
    CharClass,
    Literal,
    Node,
    Repeat,
    RuleRef,
    TokenRef,
)
from espalier.grammar.ast import Sequence as InOrder
from espalier.grammar.ranges import SURROGATES, complement
from espalier.time_limit import check as check_time

ANY = complement((SURROGATES,))
MAX_PLACES = 60_000
"""Characters of all patterns together, counts written out."""
MAX_WALKED = 20_000
"""States of the patterns together."""
MAX_WORK = 20_000_000
"""PatternPositions looked at on the way to them: some seconds."""
BEFORE = -1
"""The state before the first character."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class CharDfa:
    """S states by K classes of characters, the first the start. table: `(S, K) int32`, -1 - i where pattern i is
    complete. ends: `(S,)`, the text may end here. busy: `(S,)`, something has begun here that may become a match."""

    table: NDArray[np.int32]
    ends: NDArray[np.bool_]
    busy: NDArray[np.bool_]

    def __len__(self) -> int:
        return len(self.table)


class PatternParts(NamedTuple):
    """A pattern in three: what must stand before, itself, what must stand after. Together they match whole texts: the
    first begins with anything, and the last, where something may follow, ends with anything."""

    before: Node
    itself: Node
    after: Node
    is_folded: bool


class PatternPositions:
    """The places of several patterns. A place is one character that a pattern reads."""

    def __init__(self, patterns: Sequence[PatternParts]) -> None:
        self.labels: list[Label] = []  # by place
        self._epsilon: list[list[int]] = []
        self._reads: list[list[int]] = []  # by state: places
        self._target: list[int] = []  # by place: state
        self._of: list[int] = []  # by place: pattern
        begun: list[bool] = []
        starts, ends = [], []
        for number, parts in enumerate(patterns):
            at = start = self._new()
            for node, inner in ((parts.before, False), (parts.itself, True), (parts.after, True)):
                after = self._new()
                first = len(self.labels)
                self._add(node, at, after, parts.is_folded, number)
                # The endless rest of `before` and of a pattern such as (?:.*x) is no beginning of a match.
                begun += [inner and self.labels[i].ranges != ANY for i in range(first, len(self.labels))]
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
            return sum(1 << place for one in closure(state) for place in self._reads[one])

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
            1 << i for i, label in enumerate(self.labels) if label.ranges == ANY and last[i] and self.follow[i] >> i & 1
        )
        self.begun = sum(1 << i for i, is_begun in enumerate(begun) if is_begun)
        self.hits = sum(1 << i for i, is_last in enumerate(last) if is_last and self.follow[i] & endless)
        self.cuts = sum(1 << i for i, is_last in enumerate(last) if is_last) & ~self.hits
        self.hit_of = self._of

    def _new(self) -> int:
        self._epsilon.append([])
        self._reads.append([])
        return len(self._epsilon) - 1

    def _read(self, label: Label, s: int, t: int, number: int) -> None:
        check_time()
        if len(self.labels) >= MAX_PLACES:
            raise LimitExceeded(
                f"the patterns have more than {MAX_PLACES} places", hint="lower the counts in {m,n}, or give fewer"
            )
        self._reads[s].append(len(self.labels))
        self.labels.append(label)
        self._target.append(t)
        self._of.append(number)

    def _add(self, node: Node, start: int, end: int, is_folded: bool, number: int) -> None:
        """As `Nfa.add`, over characters."""
        todo: list[tuple[Node, int, int]] = [(node, start, end)]
        while todo:
            node, s, t = todo.pop()
            match node:
                case Literal(text):
                    for i, character in enumerate(text):
                        after = t if i == len(text) - 1 else self._new()
                        self._read(Label(((ord(character), ord(character)),), is_folded), s, after, number)
                        s = after
                case CharClass() | AnyChar():
                    self._read(Label(node.scalars(), is_folded), s, t, number)
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
        """States of its own at both ends, so that nothing that is beside it is repeated with it."""
        for _ in range(node.min):
            after = self._new()
            todo.append((node.item, s, after))
            s = after
            self._bounded()
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
            self._bounded()
        self._epsilon[s].append(t)

    def _bounded(self) -> None:
        check_time()
        if len(self._epsilon) > 20 * MAX_PLACES:
            raise LimitExceeded(
                f"the patterns have more than {MAX_PLACES} places", hint="lower the counts in {m,n}, or give fewer"
            )


def walked(places: PatternPositions, alphabet: Alphabet) -> CharDfa:
    """The subset construction. Of several patterns that are complete at once the first is told. Raises
    LimitExceeded."""
    count = alphabet.count
    reads = [0] * count  # by class: the places that read it
    for place, label in enumerate(places.labels):
        check_time()
        for letter in np.flatnonzero(alphabet.of(label)).tolist():
            reads[letter] |= 1 << place
    distinct = list(dict.fromkeys(reads))
    which = np.array([distinct.index(read) for read in reads])  # (K,)
    number: dict[int, int] = {BEFORE: 0}
    order = [BEFORE]
    rows: list[list[int]] = []
    work = 0
    for state in order:  # grows as states are met
        check_time()
        after = places.first if state == BEFORE else _following(state, places.follow)
        work += len(distinct) + (state.bit_count() if state > 0 else 0)
        row = []
        for read in distinct:
            target = after & read
            hit = target & places.hits
            if hit:
                row.append(-1 - min(places.hit_of[place] for place in _bits(hit)))
                continue
            found = number.setdefault(target, len(order))
            if found == len(order):
                order.append(target)
            row.append(found)
        rows.append(row)
        if len(order) > MAX_WALKED or work > MAX_WORK:
            raise LimitExceeded(
                f"the patterns need more than {MAX_WALKED} states together",
                hint="a count after something that may come again and again is dear: lower it, or give fewer patterns",
            )
    table = np.array(rows, dtype=np.int32)[:, which]  # (S, K)
    ends = np.array([state == BEFORE or not state & places.cuts for state in order])
    busy = np.array([state != BEFORE and bool(state & places.begun) for state in order])
    return CharDfa(table=table, ends=ends, busy=busy)


def _following(state: int, follow: list[int]) -> int:
    found = 0
    for place in _bits(state):
        found |= follow[place]
    return found


def _bits(members: int) -> list[int]:
    found = []
    while members:
        low = members & -members
        found.append(low.bit_length() - 1)
        members ^= low
    return found
