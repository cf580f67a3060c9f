"""The hot kernels: an automaton's table walked against the flat token trie. Imported when the first matcher is made.

They know numbers only. Rows of the table are states; -1 is no transition. A row that is not `known` yet ends the
walk of its subtree, which is handed back as (node, state) to be resumed once the row is filled.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numba

Array: TypeAlias = Any  # numpy arrays; shapes and types are in `walk`'s docstring


@numba.njit(cache=True, nogil=True, boundscheck=False)
def walk(
    byte: Array,
    depth: Array,
    skip: Array,
    token: Array,
    next_same: Array,
    classes: Array,
    table: Array,
    known: Array,
    leaves: Array,
    ends: Array,
    nodes: Array,
    states: Array,
    stack: Array,
    bits: Array,
    left_at: Array,
    left_count: int,
    was_left: Array,
    open_nodes: Array,
    open_states: Array,
) -> tuple[int, int]:
    """Walk below each `nodes[k]` (-1: the whole trie) from `states[k]`.

    byte (N,) uint8, depth (N,) uint16, skip (N,) int32, token (N,) int32 with -2 - id where other ids have the same
    bytes, next_same (ids,) int32. classes (256,) uint8, table (S, C) int32, known, leaves, ends (S,) uint8: row filled;
    the automaton may be left here; a token may end here. Fills bits (W,) uint32, left_at (N,) int32 (nodes with
    children where the automaton may be left, each once by was_left (N,) uint8), open_nodes and open_states (M,) int32.
    Returns how many nodes were left at and how many subtrees are open, -1 if `M` is too small.
    """
    total = byte.shape[0]
    opened = 0
    for k in range(nodes.shape[0]):
        root = nodes[k]
        if root < 0:
            i, stop = 0, total
            stack[0] = states[k]
        else:
            i, stop = root + 1, skip[root]
            stack[depth[root]] = states[k]
        while i < stop:
            state = table[stack[depth[i] - 1], classes[byte[i]]]
            after = skip[i]
            if state < 0:
                i = after
                continue
            found = token[i]
            if found != -1 and ends[state]:
                if found >= 0:
                    bits[found >> 5] |= 1 << (found & 31)
                else:
                    same = -2 - found
                    while same >= 0:
                        bits[same >> 5] |= 1 << (same & 31)
                        same = next_same[same]
            if i + 1 == after:
                i = after
                continue
            if leaves[state] and not was_left[i]:
                was_left[i] = 1
                left_at[left_count] = i
                left_count += 1
            if not known[state]:
                if opened == open_nodes.shape[0]:
                    return left_count, -1
                open_nodes[opened] = i
                open_states[opened] = state
                opened += 1
                i = after
                continue
            stack[depth[i]] = state
            i += 1
    return left_count, opened


@numba.njit(cache=True, nogil=True, boundscheck=False)
def reach(
    byte: Array,
    depth: Array,
    skip: Array,
    token: Array,
    classes: Array,
    table: Array,
    known: Array,
    ends: Array,
    nodes: Array,
    states: Array,
    stack: Array,
    first: Array,
    open_nodes: Array,
    open_states: Array,
) -> int:
    """As `walk`, but fills first (S,) int32: by state, the lowest id of a token that ends there (-1: none does)."""
    total = byte.shape[0]
    opened = 0
    for k in range(nodes.shape[0]):
        root = nodes[k]
        if root < 0:
            i, stop = 0, total
            stack[0] = states[k]
        else:
            i, stop = root + 1, skip[root]
            stack[depth[root]] = states[k]
        while i < stop:
            state = table[stack[depth[i] - 1], classes[byte[i]]]
            after = skip[i]
            if state < 0:
                i = after
                continue
            found = token[i]
            if found != -1 and ends[state]:
                found = found if found >= 0 else -2 - found
                if first[state] < 0 or found < first[state]:
                    first[state] = found
            if i + 1 == after:
                i = after
                continue
            if not known[state]:
                if opened == open_nodes.shape[0]:
                    return -1
                open_nodes[opened] = i
                open_states[opened] = state
                opened += 1
                i = after
                continue
            stack[depth[i]] = state
            i += 1
    return opened
