"""Combines the parts of a safety filter into one DFA over classes of characters, and translates that to UTF-8 bytes.

A byte state is a state over characters, or lies in the middle of a character. Middle states with the same transitions
are merged. It knows no tokens, and not what a match means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.dfa import Dfa, distances
from espalier.constraints.safety.alphabet import Alphabet
from espalier.constraints.safety.expressions import CharDfa
from espalier.errors import LimitExceeded
from espalier.time_limit import check as check_time

MAX_PAIRS = 200_000
"""The most states over characters, of all parts together."""
MAX_CELLS = 60_000_000
"""The most states times classes."""
MAX_STATES = 200_000
"""The most states over bytes."""
BLOCK = 64
"""The number of characters that differ only in their last UTF-8 byte, for characters of two bytes or more."""
_NONE = -1
"""The transition for a byte that is not valid UTF-8 here."""


@dataclass(frozen=True, kw_only=True, eq=False)
class ByteDfa:
    """N states over bytes; state 0 is the start. table: `(N, 256) int32`, the next state, NOTHING for invalid UTF-8, or
    -2 - i for a match of rule i. ends: `(N,) bool`, the text may end here (never in the middle of a character). busy:
    `(N,) bool`, a match may be in progress, or was before the character being read."""

    table: NDArray[np.int32]
    ends: NDArray[np.bool_]
    busy: NDArray[np.bool_]
    size: int
    """How many states lie between two characters; these are the first ones."""
    kept: NDArray[np.intp]
    """The states of `avoiding`, by number: reachable without a match, and co-reachable."""

    NOTHING: ClassVar[int] = -1

    @cached_property
    def avoiding(self) -> Dfa | None:
        """The DFA of the texts without a match, None if there are none."""
        kept = self.kept
        if not kept.size:
            return None
        number = np.full(len(self.table) + 1, -1, dtype=np.int32)  # the last stands for none
        number[kept] = np.arange(len(kept))
        table = number[np.maximum(self.table[kept], -1)]  # (S, 256)
        # Bytes of one class lead to the same state from every state.
        weights = np.random.default_rng(20_26).integers(0, 2**63, size=(2, len(kept), 1), dtype=np.uint64)
        sums = np.zeros((2, 256), dtype=np.uint64)
        for low in range(0, len(kept), 4096):
            check_time()
            part = _mixed(table[low : low + 4096])
            sums += np.stack([(part * weight[low : low + 4096]).sum(axis=0) for weight in weights])
        _, first, which = np.unique(sums[0] ^ _mixed(sums[1]), return_index=True, return_inverse=True)
        return Dfa(
            classes=which.reshape(256).astype(np.uint8),
            table=np.ascontiguousarray(table[:, first]),
            accepting=self.ends[kept],
        )

    def idle(self, state: int) -> bool:
        """Whether no match and no character is in progress in a state of `avoiding`."""
        at = int(self.kept[state])
        return at < self.size and not self.busy[at]

    def completed(self, state: int, data: bytes) -> int | None:
        """The rule that matches while these bytes are read from a state of `avoiding`, None if none does. Bytes after
        which a match is unavoidable count as a match."""
        at = int(self.kept[state])
        for byte in data:
            after = int(self.table[at, byte])
            if after < ByteDfa.NOTHING:
                return -2 - after
            if after < 0:
                return None
            at = after
        return None if at in self._alive else self._doom(at)

    def pending(self, state: int) -> int | None:
        """The rule that would match if the text ended in a state of `avoiding`; None if it may end there."""
        at = int(self.kept[state])
        return None if at >= self.size or self.ends[at] else self._doom(at)

    @cached_property
    def _alive(self) -> frozenset[int]:
        return frozenset(self.kept.tolist())

    def _doom(self, state: int) -> int | None:
        """The first rule that matches on some continuation of a state from which every continuation matches."""
        seen, todo = {state}, [state]
        for at in todo:
            row = np.unique(self.table[at])
            hit = row[row < ByteDfa.NOTHING]
            if hit.size:
                return int(-2 - hit.max())
            for target in row[row >= 0].tolist():
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return None


def joined(parts: Sequence[CharDfa]) -> CharDfa:
    """The product of all parts, over characters. Raises LimitExceeded.

    The parts are minimised, their product is not: minimising it removes under 5 % of its states and takes a fifth of
    the whole time.
    """
    return reduce(_together, map(smallest, parts))


def is_endless(dfa: CharDfa) -> bool:
    """Whether texts without a match can be arbitrarily long."""
    live = distances(np.maximum(dfa.table, -1), dfa.ends) >= 0
    table = np.where((dfa.table >= 0) & live[np.maximum(dfa.table, 0)] & live[:, None], dfa.table, -1)
    into = np.zeros(len(dfa), dtype=np.int64)  # how many transitions lead to each state
    targets, counts = np.unique(table, return_counts=True)
    into[targets[targets >= 0]] = counts[targets >= 0]
    todo, gone = list(np.flatnonzero(into == 0)), 0
    while todo:
        check_time()
        gone += 1
        targets, counts = np.unique(table[todo.pop()], return_counts=True)
        for target, count in zip(targets.tolist(), counts.tolist(), strict=True):
            if target >= 0:
                into[target] -= count
                if not into[target]:
                    todo.append(target)
    return gone < len(dfa)


def _together(one: CharDfa, other: CharDfa) -> CharDfa:
    """The product of two parts. If both match at once, the lower rule is named."""
    width = len(other)
    number = {0: 0}
    fresh = np.zeros(1, dtype=np.int64)
    rows: list[NDArray[np.int32]] = []
    while fresh.size:
        check_time()
        a, b = one.table[fresh // width], other.table[fresh % width]  # (F, K)
        hit = np.where((a < 0) & (b < 0), np.maximum(a, b), np.minimum(a, b))  # the one nearest to 0 is the lowest rule
        targets = np.where((a < 0) | (b < 0), hit, a.astype(np.int64) * width + b)
        distinct, place = np.unique(targets, return_inverse=True)
        before = len(number)
        new = [code if code < 0 else number.setdefault(code, len(number)) for code in distinct.tolist()]
        rows.append(np.array(new, dtype=np.int32)[place].reshape(targets.shape))
        if len(number) > MAX_PAIRS or len(number) * a.shape[1] > MAX_CELLS:
            raise _too_large(len(number))
        fresh = np.array(list(number)[before:], dtype=np.int64)
    known = np.array(list(number), dtype=np.int64)  # (S,)
    return CharDfa(
        table=np.concatenate(rows),
        ends=one.ends[known // width] & other.ends[known % width],
        busy=one.busy[known // width] | other.busy[known % width],
    )


def smallest(dfa: CharDfa) -> CharDfa:
    """The minimal DFA, by Moore's algorithm with whole-array rounds; state 0 stays first.

    These automata are dense and shallow, so few rounds are needed: ten times faster here than `fragment.minimise`,
    which in turn is far faster for deep automata.
    """
    block = dfa.ends * 2 + dfa.busy.astype(np.int64)  # (S,)
    _, block = np.unique(block, return_inverse=True)
    count = int(block.max()) + 1
    low = int(dfa.table.min())
    while True:
        check_time()
        # Negative targets are matches, each a block of its own.
        ahead = np.where(dfa.table >= 0, block[np.maximum(dfa.table, 0)], dfa.table) - min(low, 0)  # (S, K)
        key = _hashed(np.concatenate([block[:, None], ahead], axis=1))
        _, first, block = np.unique(key, return_index=True, return_inverse=True)
        if len(first) == count:
            break
        count = len(first)
    order = np.argsort(first)
    number = np.empty(count, dtype=np.int32)
    number[order] = np.arange(count)
    first = first[order]  # state 0 is the first of its block, and so the first of all
    table = dfa.table[first]
    table = np.where(table >= 0, number[block[np.maximum(table, 0)]], table).astype(np.int32)
    return CharDfa(table=table, ends=dfa.ends[first], busy=dfa.busy[first])


def _hashed(rows: NDArray[np.integer]) -> NDArray[np.uint64]:
    """A 64-bit hash of each row, `(n,) uint64`. Equal rows have equal hashes; among the about 10^9 pairs of different
    rows that one call compares, a collision has a probability of 10^-10."""
    weights = np.random.default_rng(20_26).integers(0, 2**63, size=(2, rows.shape[1]), dtype=np.uint64)
    values = _mixed(rows)
    found: NDArray[np.uint64] = (values * weights[0]).sum(axis=1)
    return found ^ _mixed((values * weights[1]).sum(axis=1))


def _mixed(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Each number mixed to 64 pseudo-random bits (the finaliser of splitmix64)."""
    found = (values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    found ^= found >> np.uint64(31)
    return found


def _too_large(states: int) -> LimitExceeded:
    return LimitExceeded(
        f"the patterns and lists together need {states} states or more",
        hint="give fewer phrases, or leave out what is not needed",
    )


def byte_dfa(dfa: CharDfa, alphabet: Alphabet) -> ByteDfa:
    """The DFA over UTF-8 bytes of a DFA over classes of characters. Raises LimitExceeded."""
    size = len(dfa)
    # The target of each class, and -1 for invalid UTF-8 as the last column; matches move down by one to make room.
    ahead = np.where(dfa.table >= 0, dfa.table, dfa.table - 1)  # (S, K)
    ahead = np.concatenate([ahead, np.full((size, 1), _NONE, dtype=np.int32)], axis=1)  # (S, K + 1)
    points = alphabet.points.astype(np.int64)
    points[points < 0] = alphabet.count
    middles = _Middles(size)
    ascii_ = points[:0x80].copy()
    blocks = points.reshape(-1, BLOCK)  # (17408, 64)
    blocks[:2] = blocks[2]  # ASCII characters have no middle state
    kinds, block = _distinct(blocks)
    by_block = middles.add(ahead, kinds, dfa.busy)  # (S, blocks of a kind)
    bad = by_block.shape[1]
    by_block = np.concatenate([by_block, np.full((size, 1), _NONE, dtype=np.int32)], axis=1)
    groups = block.reshape(-1, BLOCK).copy()  # (272, 64)
    groups[0, :32] = bad  # E0 80 to E0 9F are overlong: these characters have two bytes
    kinds, group = _distinct(groups)
    by_group = middles.add(by_block, kinds, dfa.busy)
    none = by_group.shape[1]
    by_group = np.concatenate([by_group, np.full((size, 1), _NONE, dtype=np.int32)], axis=1)
    planes = np.full((5, BLOCK), none, dtype=np.int64)
    planes.reshape(-1)[16:272] = group[16:]  # F0 80 to F0 8F are overlong, F4 90 is past the last code point
    kinds, plane = _distinct(planes)
    by_plane = middles.add(by_group, kinds, dfa.busy)
    table = np.full((size, 256), _NONE, dtype=np.int32)
    table[:, :0x80] = ahead[:, ascii_]
    table[:, 0xC2:0xE0] = by_block[:, block[2:32]]
    table[:, 0xE0:0xF0] = by_group[:, group[:16]]
    table[:, 0xF0:0xF5] = by_plane[:, plane]
    inner = np.array(middles.rows, dtype=np.int32).reshape(-1, BLOCK)  # (M, 64)
    rest = np.full((len(inner), 256), _NONE, dtype=np.int32)
    rest[:, 0x80:0xC0] = inner
    return ByteDfa(
        table=np.concatenate([table, rest]),
        ends=np.concatenate([dfa.ends, np.zeros(len(rest), dtype=np.bool_)]),
        busy=np.concatenate([dfa.busy, np.array(middles.busy, dtype=np.bool_)]),
        size=size,
        kept=_kept(dfa, table, inner),
    )


def _kept(dfa: CharDfa, table: NDArray[np.int32], inner: NDArray[np.int32]) -> NDArray[np.intp]:
    """See `ByteDfa.kept`. table: `(S, 256)`, the states between characters. inner: `(M, 64)`, the middle states."""
    size = len(dfa)
    live = np.zeros(size + len(inner) + 1, dtype=np.bool_)  # the last stands for none
    live[:size] = distances(np.maximum(dfa.table, -1), dfa.ends) >= 0
    for _ in range(3):  # a character has at most three bytes after its first
        live[size:-1] = live[np.maximum(inner, -1)].any(axis=1)
    reached = np.zeros(len(live), dtype=np.bool_)
    reached[0] = live[0]
    fresh = np.flatnonzero(reached)
    while fresh.size:
        check_time()
        heads, rest = fresh[fresh < size], fresh[fresh >= size] - size
        met = np.zeros(len(live), dtype=np.bool_)
        met[np.maximum(table[heads], -1).ravel()] = True
        met[np.maximum(inner[rest], -1).ravel()] = True
        fresh = np.flatnonzero(met & live & ~reached)
        reached[fresh] = True
    return np.flatnonzero(reached)


class _Middles:
    """The states in the middle of a character, one for each distinct row of 64 next bytes."""

    def __init__(self, size: int) -> None:
        self.rows: list[NDArray[np.int32]] = []
        self.busy: list[bool] = []
        self._size = size
        self._known: dict[bytes, int] = {}

    def add(self, ahead: NDArray[np.int32], kinds: NDArray[np.int64], busy: NDArray[np.bool_]) -> NDArray[np.int32]:
        """Add middle states. ahead: the target of each class, `(S, K)`. kinds: distinct rows of classes, `(U, 64)`.
        busy: `(S,)`. Returns the middle state of each state and row, `(S, U) int32`."""
        found = np.full((len(ahead), len(kinds)), _NONE, dtype=np.int32)
        for place, kind in enumerate(kinds):
            check_time()
            classes, spot = np.unique(kind, return_inverse=True)
            columns = np.concatenate([ahead[:, classes], busy[:, None]], axis=1)  # (S, c + 1)
            _, first, which = np.unique(_hashed(columns), return_index=True, return_inverse=True)
            numbers = [self._number(ahead[at, classes][spot], bool(busy[at])) for at in first.tolist()]
            found[:, place] = np.array(numbers, dtype=np.int32)[which]
        return found

    def _number(self, row: NDArray[np.int32], busy: bool) -> int:
        if not (row != _NONE).any():
            return _NONE
        key = row.tobytes() + bytes([busy])
        number = self._known.setdefault(key, self._size + len(self.rows))
        if number == self._size + len(self.rows):
            if number >= MAX_STATES:
                raise _too_large(number)
            self.rows.append(row)
            self.busy.append(busy)
        return number


def _distinct(rows: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """The distinct rows, and the index of each row among them."""
    _, first, which = np.unique(_hashed(rows), return_index=True, return_inverse=True)
    return rows[first], which.reshape(-1)
