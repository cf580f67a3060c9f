"""What may not be said, as one automaton over bytes: parts over characters put together, made small, and spelled in
UTF-8.

A state over bytes is a state over characters, or the middle of a character: which is then told by where each of its
endings leads, so that middles that lead the same way are one. It knows nothing of tokens or of what a match means.
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
"""States over characters, of all parts together."""
MAX_CELLS = 60_000_000
"""States times classes."""
MAX_STATES = 200_000
"""States over bytes."""
BLOCK = 64
"""Characters that differ in their last byte of UTF-8 alone, from two bytes on."""
_NONE = -1
"""No text goes on so: not UTF-8."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Guard:
    """N states over bytes, the first the start. table: `(N, 256) int32`: the next state, NOTHING where no text goes on
    so, or -2 - i where pattern i is complete. ends: `(N,)`, the text may end here: false in the middle of a character
    too. busy: `(N,)`, something has begun that may become a match, or so it was before the character that is being
    read."""

    table: NDArray[np.int32]
    ends: NDArray[np.bool_]
    busy: NDArray[np.bool_]
    size: int
    """How many states lie between two characters: they are the first."""
    kept: NDArray[np.intp]
    """The states of `avoiding`, by number: reached without a match, and from which a text can come to an end."""

    NOTHING: ClassVar[int] = -1

    @cached_property
    def avoiding(self) -> Dfa | None:
        """The texts without a match. None if there are none."""
        kept = self.kept
        if not kept.size:
            return None
        number = np.full(len(self.table) + 1, -1, dtype=np.int32)  # the last stands for none
        number[kept] = np.arange(len(kept))
        table = number[np.maximum(self.table[kept], -1)]  # (S, 256)
        # Bytes of one class lead to the same states wherever they are read.
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
        """Whether in a state of `avoiding` nothing has begun, not even a character."""
        at = int(self.kept[state])
        return at < self.size and not self.busy[at]

    def completed(self, state: int, data: bytes) -> int | None:
        """The pattern that these bytes complete from a state of `avoiding`, whatever else they do; None if they
        complete none. Bytes after which a match can no longer be helped count as completing it."""
        at = int(self.kept[state])
        for byte in data:
            after = int(self.table[at, byte])
            if after < Guard.NOTHING:
                return -2 - after
            if after < 0:
                return None
            at = after
        return None if at in self._alive else self._doom(at)

    def pending(self, state: int) -> int | None:
        """The pattern that is complete if the text ends in a state of `avoiding`; None if it may end there."""
        at = int(self.kept[state])
        return None if at >= self.size or self.ends[at] else self._doom(at)

    @cached_property
    def _alive(self) -> frozenset[int]:
        return frozenset(self.kept.tolist())

    def _doom(self, state: int) -> int | None:
        """The first pattern on some way from a state from which every way leads to one."""
        seen, todo = {state}, [state]
        for at in todo:
            row = np.unique(self.table[at])
            hit = row[row < Guard.NOTHING]
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
    """Whether the texts without a match have no longest one."""
    live = distances(np.maximum(dfa.table, -1), dfa.ends) >= 0
    table = np.where((dfa.table >= 0) & live[np.maximum(dfa.table, 0)] & live[:, None], dfa.table, -1)
    into = np.zeros(len(dfa), dtype=np.int64)  # ways into each state, by class
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
    """Both at once. Where both are complete the pattern of the lower number is told."""
    width = len(other)
    number = {0: 0}
    fresh = np.zeros(1, dtype=np.int64)
    rows: list[NDArray[np.int32]] = []
    while fresh.size:
        check_time()
        a, b = one.table[fresh // width], other.table[fresh % width]  # (F, K)
        hit = np.where((a < 0) & (b < 0), np.maximum(a, b), np.minimum(a, b))  # the nearest to 0 is the first pattern
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
    """States with the same future made one, by Moore's rounds; the first stays first."""
    block = dfa.ends * 2 + dfa.busy.astype(np.int64)  # (S,)
    _, block = np.unique(block, return_inverse=True)
    count = int(block.max()) + 1
    low = int(dfa.table.min())
    while True:
        check_time()
        # Below zero are the hits, which are blocks of their own.
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
    """A 64-bit number for each row, by two fixed random maps: equal rows have equal numbers, and of the some 10^9 pairs
    of different rows that one call compares, none has with a chance of 1 - 10^-10."""
    weights = np.random.default_rng(20_26).integers(0, 2**63, size=(2, rows.shape[1]), dtype=np.uint64)
    values = _mixed(rows)
    found: NDArray[np.uint64] = (values * weights[0]).sum(axis=1)
    return found ^ _mixed((values * weights[1]).sum(axis=1))


def _mixed(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Each number as 64 bits that look random (the finaliser of splitmix64)."""
    found = (values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    found ^= found >> np.uint64(31)
    return found


def _too_large(states: int) -> LimitExceeded:
    return LimitExceeded(
        f"the patterns and lists together need {states} states or more",
        hint="give fewer phrases, or leave out what is not needed",
    )


def guard(dfa: CharDfa, alphabet: Alphabet) -> Guard:
    """An automaton over characters as one over the bytes of UTF-8. Raises LimitExceeded."""
    size = len(dfa)
    # What a class leads to, with what is not UTF-8 last: -1; hits move down by one to make room for it.
    ahead = np.where(dfa.table >= 0, dfa.table, dfa.table - 1)  # (S, K)
    ahead = np.concatenate([ahead, np.full((size, 1), _NONE, dtype=np.int32)], axis=1)  # (S, K + 1)
    points = alphabet.points.astype(np.int64)
    points[points < 0] = alphabet.count
    middles = _Middles(size)
    ascii_ = points[:0x80].copy()
    blocks = points.reshape(-1, BLOCK)  # (17408, 64)
    blocks[:2] = blocks[2]  # ASCII has no middle
    kinds, block = _distinct(blocks)
    by_block = middles.add(ahead, kinds, dfa.busy)  # (S, blocks of a kind)
    bad = by_block.shape[1]
    by_block = np.concatenate([by_block, np.full((size, 1), _NONE, dtype=np.int32)], axis=1)
    groups = block.reshape(-1, BLOCK).copy()  # (272, 64)
    groups[0, :32] = bad  # E0 80 to E0 9F would spell in three bytes what has two
    kinds, group = _distinct(groups)
    by_group = middles.add(by_block, kinds, dfa.busy)
    none = by_group.shape[1]
    by_group = np.concatenate([by_group, np.full((size, 1), _NONE, dtype=np.int32)], axis=1)
    planes = np.full((5, BLOCK), none, dtype=np.int64)
    planes.reshape(-1)[16:272] = group[16:]  # F0 80 to F0 8F would spell what has three; F4 90 is past the last
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
    return Guard(
        table=np.concatenate([table, rest]),
        ends=np.concatenate([dfa.ends, np.zeros(len(rest), dtype=np.bool_)]),
        busy=np.concatenate([dfa.busy, np.array(middles.busy, dtype=np.bool_)]),
        size=size,
        kept=_kept(dfa, table, inner),
    )


def _kept(dfa: CharDfa, table: NDArray[np.int32], inner: NDArray[np.int32]) -> NDArray[np.intp]:
    """See `Guard.kept`. table: `(S, 256)`, of the states between characters. inner: `(M, 64)`, of those within one."""
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
    """States in the middle of a character, one for each way its 64 next bytes can lead."""

    def __init__(self, size: int) -> None:
        self.rows: list[NDArray[np.int32]] = []
        self.busy: list[bool] = []
        self._size = size
        self._known: dict[bytes, int] = {}

    def add(self, ahead: NDArray[np.int32], kinds: NDArray[np.int64], busy: NDArray[np.bool_]) -> NDArray[np.int32]:
        """ahead: `(S, K)`, where each class leads. kinds: `(U, 64)` classes. The state in the middle of each kind,
        `(S, U)`."""
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
    """The distinct rows, and which each is."""
    _, first, which = np.unique(_hashed(rows), return_index=True, return_inverse=True)
    return rows[first], which.reshape(-1)
