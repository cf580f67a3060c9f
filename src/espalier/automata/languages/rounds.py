"""Merges equal states of a dense, shallow DFA in rounds over whole arrays (Moore's algorithm).

Each round tells apart what one more step tells apart, so a DFA takes as many rounds as its shortest telling texts are
long: few for classes of characters and for safety filters, for which this is ten times as fast as
`fragment.minimise`'s other way, and thousands for counted repetitions. It knows no bytes and no rules.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.time_limit import check as check_time


def equal_states(
    table: NDArray[np.integer], block: NDArray[np.integer], *, most: int | None = None
) -> NDArray[np.int64] | None:
    """The block of each state, `(S,)`: states in one block go to the same blocks. None after `most` rounds.

    table: the next state by letter, `(S, K)`; a negative number is a target of its own. block: states that differ
    already, `(S,)`. Blocks are numbered in the order of their first state.
    """
    _, blocks = np.unique(block, return_inverse=True)
    count = int(blocks.max()) + 1
    shift = -min(int(table.min(initial=0)), 0)
    rounds = 0
    while True:
        check_time()
        ahead = np.where(table >= 0, blocks[np.maximum(table, 0)], table) + shift  # (S, K)
        key = _hashed(np.concatenate([blocks[:, None], ahead], axis=1))
        _, first, blocks = np.unique(key, return_index=True, return_inverse=True)
        if len(first) == count:
            break
        count = len(first)
        rounds += 1
        if rounds == most:
            return None
    number = np.empty(count, dtype=np.int64)
    number[np.argsort(first)] = np.arange(count)
    return number[blocks]


def _hashed(rows: NDArray[np.integer]) -> NDArray[np.uint64]:
    """A 64-bit hash of each row, `(n,) uint64`. Equal rows have equal hashes; among the about 10^9 pairs of different
    rows that one call compares, a collision has a probability of 10^-10."""
    weights = np.random.default_rng(20_26).integers(0, 2**63, size=(2, rows.shape[1]), dtype=np.uint64)
    values = _mixed(rows)
    sums: NDArray[np.uint64] = (values * weights[0]).sum(axis=1)
    return sums ^ _mixed((values * weights[1]).sum(axis=1))


def _mixed(values: NDArray[Any]) -> NDArray[np.uint64]:
    """Each number mixed to 64 pseudo-random bits (the finaliser of splitmix64)."""
    mixed = (values.astype(np.uint64) + np.uint64(0x9E3779B97F4A7C15)) * np.uint64(0xBF58476D1CE4E5B9)
    mixed ^= mixed >> np.uint64(31)
    return mixed
