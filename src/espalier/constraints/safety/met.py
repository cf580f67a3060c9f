"""The numba kernels that number combinations of the states of a filter's parts, and remember what follows each number.

tables: see `kernels.py`.

met: a tuple of arrays: the P states of each number (M, P) int32; the number after each class (M, K) int32, -1 if it
is not known yet, -2 - i for a match of rule i; the rule that matches if the text ends (M,) int32, -1 for none;
whether a match may be in progress (M,) uint8; slots of a hash table (2 ** k,) int32; how many numbers there are (1,)
int64. Number 0 is the start.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from espalier.kernels.compiled import I16, I16_ROWS, I32, I32_ROWS, I64, U8, kernel, tuple_of

# compiled with: 8c7aafc1

Array: TypeAlias = Any  # numpy arrays; shapes and types are above
Filter: TypeAlias = Any
Met: TypeAlias = Any

FILTER = tuple_of((I16, I16_ROWS, I32, I64, I64, I32, I64, U8, I32, I64))
MET = tuple_of((I32_ROWS, I32_ROWS, I32, U8, I32, I64))
"""The types of `tables` and of `met`."""
FULL = -2
"""What kernels return if there is no room for another number in `met`: forget all, and try again."""


@kernel()
def number_of(states: Array, tables: Filter, met: Met) -> Any:
    """The number of the states of the parts, (P,) int32; FULL."""
    parts, jumps, ends_with, is_busy, slots, count = met
    cuts, begin, busy = tables[5], tables[6], tables[7]
    mixed = np.uint64(14695981039346656037)
    for i in range(states.shape[0]):
        mixed = (mixed ^ np.uint64(states[i])) * np.uint64(1099511628211)
        mixed ^= mixed >> np.uint64(29)
    at = np.int64(mixed & np.uint64(slots.shape[0] - 1))
    while slots[at] >= 0:
        known = slots[at]
        same = True
        for i in range(states.shape[0]):
            if parts[known, i] != states[i]:
                same = False
                break
        if same:
            return known
        at = (at + 1) & (slots.shape[0] - 1)
    number = count[0]
    if number == parts.shape[0]:
        return FULL
    count[0] += 1
    slots[at] = number
    cut, some = -1, 0
    for i in range(states.shape[0]):
        state = begin[i] + states[i]
        parts[number, i] = states[i]
        rule = cuts[state]
        if rule >= 0 and (cut < 0 or rule < cut):
            cut = rule
        some |= busy[state]
    ends_with[number] = cut
    is_busy[number] = some
    for i in range(jumps.shape[1]):
        jumps[number, i] = -1
    return number


@kernel()
def find_jump(number: int, letter: int, tables: Filter, met: Met) -> Any:
    """Find and keep the number after a class that was not met after this one: -2 - i for a match of rule i, -1 if there
    is no room."""
    letters, table, first, wide = tables[1], tables[2], tables[3], tables[4]
    parts, jumps = met[0], met[1]
    states = np.empty(first.shape[0], dtype=np.int32)
    hit = -(2**31)
    for i in range(first.shape[0]):
        after = table[first[i] + parts[number, i] * wide[i] + letters[i, letter]]
        if after < 0:
            hit = max(hit, after)
        states[i] = after
    if hit > -(2**31):
        jumps[number, letter] = hit - 1
        return hit - 1
    found = number_of(states, tables, met)
    if found == FULL:
        return -1
    jumps[number, letter] = found
    return found
