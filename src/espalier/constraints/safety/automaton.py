"""Combines DFAs over classes of characters: products, the minimal DFA, and states from which no text is left.

It knows no bytes and no tokens, and not what a match means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.dfa import distances
from espalier.constraints.safety.expressions import CharDfa
from espalier.errors import LimitExceeded
from espalier.time_limit import check as check_time

MAX_PAIRS = 200_000
"""The most states of a product."""
MAX_CELLS = 60_000_000
"""The most states times classes."""


def joined(parts: Sequence[CharDfa]) -> CharDfa:
    """The product of all parts, over characters. Raises LimitExceeded.

    The parts are minimised, their product is not: minimising it removes under 5 % of its states and takes a fifth of
    the whole time.
    """
    return reduce(_union_of, map(smallest, parts))


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


def _union_of(one: CharDfa, other: CharDfa) -> CharDfa:
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
    a_cut, b_cut = one.cuts[known // width], other.cuts[known % width]
    return CharDfa(
        table=np.concatenate(rows),
        cuts=np.where((a_cut < 0) | (b_cut < 0), np.maximum(a_cut, b_cut), np.minimum(a_cut, b_cut)),
        busy=one.busy[known // width] | other.busy[known % width],
    )


def smallest(dfa: CharDfa) -> CharDfa:
    """The minimal DFA, by Moore's algorithm with whole-array rounds; state 0 stays first.

    These automata are dense and shallow, so few rounds are needed: ten times faster here than `fragment.minimise`,
    which in turn is far faster for deep automata.
    """
    block = (dfa.cuts.astype(np.int64) + 1) * 2 + dfa.busy  # (S,)
    _, block = np.unique(block, return_inverse=True)
    count = int(block.max()) + 1
    low = int(dfa.table.min())
    while True:
        check_time()
        # Negative targets are matches, each a block of its own.
        ahead = np.where(dfa.table >= 0, block[np.maximum(dfa.table, 0)], dfa.table) - min(low, 0)  # (S, K)
        key = _hash_rows(np.concatenate([block[:, None], ahead], axis=1))
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
    return CharDfa(table=table, cuts=dfa.cuts[first], busy=dfa.busy[first])


def without_dooms(dfa: CharDfa) -> CharDfa | None:
    """The same, where a transition to a state from which every continuation matches is a match itself: of the first
    rule that matches on some continuation. None if there is no text without a match."""
    live = distances(np.maximum(dfa.table, -1), dfa.ends) >= 0
    if not live[0]:
        return None
    if live.all():
        return dfa
    dooms = np.zeros(len(dfa), dtype=np.int32)  # the target that stands for a state
    for state in np.flatnonzero(~live).tolist():
        dooms[state] = _doom(dfa, state)
    ahead = np.maximum(dfa.table, 0)
    table = np.where((dfa.table >= 0) & ~live[ahead], dooms[ahead], dfa.table)
    return replace(dfa, table=table.astype(np.int32))


def _doom(dfa: CharDfa, state: int) -> int:
    seen, todo = {state}, [state]
    for at in todo:
        check_time()
        row = np.unique(dfa.table[at])
        if row[0] < 0:
            return int(row[row < 0].max())
        if dfa.cuts[at] >= 0:
            return -1 - int(dfa.cuts[at])
        for target in row.tolist():
            if target not in seen:
                seen.add(target)
                todo.append(target)
    raise AssertionError("a state that ends nowhere leads to no match")


def _hash_rows(rows: NDArray[np.integer]) -> NDArray[np.uint64]:
    """A 64-bit hash of each row, `(n,) uint64`. Equal rows have equal hashes; among the about 10^9 pairs of different
    rows that one call compares, a collision has a probability of 10^-10."""
    weights = np.random.default_rng(20_26).integers(0, 2**63, size=(2, rows.shape[1]), dtype=np.uint64)
    values = _mix_bits(rows)
    hashes: NDArray[np.uint64] = (values * weights[0]).sum(axis=1)
    return hashes ^ _mix_bits((values * weights[1]).sum(axis=1))


def _mix_bits(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Each number mixed to 64 pseudo-random bits (the finaliser of splitmix64)."""
    mixed = (values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(31)
    return mixed


def _too_large(states: int) -> LimitExceeded:
    return LimitExceeded(
        f"the patterns and lists together need {states} states or more",
        hint="give fewer phrases, or leave out what is not needed",
    )
