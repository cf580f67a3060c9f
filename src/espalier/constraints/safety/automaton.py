"""Combines DFAs over classes of characters: products, the minimal DFA, and states from which no text is left.

It knows no bytes and no tokens, and not what a match means.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.dfa import distances
from espalier.automata.languages.rounds import equal_states
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
    a_cut, b_cut = one.cuts[known // width], other.cuts[known % width]
    return CharDfa(
        table=np.concatenate(rows),
        cuts=np.where((a_cut < 0) | (b_cut < 0), np.maximum(a_cut, b_cut), np.minimum(a_cut, b_cut)),
        busy=one.busy[known // width] | other.busy[known % width],
    )


def smallest(dfa: CharDfa) -> CharDfa:
    """The minimal DFA; state 0 stays first."""
    blocks = equal_states(dfa.table, (dfa.cuts.astype(np.int64) + 1) * 2 + dfa.busy)
    if blocks is None:
        raise AssertionError("rounds without a bound came to none")
    _, first = np.unique(blocks, return_index=True)
    table = dfa.table[first]
    table = np.where(table >= 0, blocks[np.maximum(table, 0)], table).astype(np.int32)
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


def _too_large(states: int) -> LimitExceeded:
    return LimitExceeded(
        f"the patterns and lists together need {states} states or more",
        hint="give fewer phrases, or leave out what is not needed",
    )
