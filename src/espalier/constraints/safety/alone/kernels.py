"""The numba kernels that find the tokens in which one part of a filter, read by itself, completes a match. They know
numbers only; the arrays of the trie are those of `automata/masks/kernels.py`."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from espalier.automata.masks.kernels import FIRST, PLACE, SKIP
from espalier.constraints.safety.unescape import HEX, INT64, PLAIN, UNKNOWN, decode_as, next_character
from espalier.kernels.compiled import BOOL, I16, I32, I32_ROWS, I64, I64_ROWS, INT, U32, kernel

# compiled with: bae8af0e

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings

NO_OTHER, REFUSED = -2, -1
"""In place of the other state: there is none; it has refused what has been read."""
PENDING = 4
"""More characters than bytes that the end of a broken escape may give."""


@kernel((I32_ROWS, I32, I32))
def heights(trie: Array, deepest: Array, found: Array) -> None:
    """Fill found (N,) int32: the bytes of the longest way down to each node of trie (N + 1, 4) int32 from its parent
    and on below it. deepest: (depth + 2,) int32 of 0, scratch."""
    for i in range(found.shape[0] - 1, -1, -1):  # the nodes below one stand behind it
        depth = trie[i, PLACE] >> 8
        far = max(depth, deepest[depth + 1])
        deepest[depth + 1] = 0
        deepest[depth] = max(deepest[depth], far)
        found[i] = far - depth + 1


@kernel((I32, INT, I32))
def distances(table: Array, wide: int, found: Array) -> None:
    """Fill found (n,) int32 of a part's states: the fewest characters that lead to a match or to a state that has 0.
    Before, it holds 0 for these, and the largest number for the rest, which stands for never. table: (n * wide,) int32,
    the next states, or negative for a match."""
    never = np.iinfo(np.int32).max
    is_changed, reached = True, 1
    while is_changed:
        is_changed = False
        for state in range(found.shape[0]):
            if found[state] != never:
                continue
            for k in range(state * wide, state * wide + wide):
                if reached == 1 if table[k] < 0 else found[table[k]] == reached - 1:
                    found[state] = reached
                    is_changed = True
                    break
        reached += 1


@kernel()
def _set_below(trie: Array, ids: Array, bits: Array, begin: int, end: int) -> None:
    """Set the bits (W,) uint32 of the tokens of the nodes from begin up to end, both int64."""
    for j in range(trie[begin, FIRST], trie[end, FIRST]):
        bits[ids[j] >> 5] |= np.uint32(1) << np.uint32(ids[j] & 31)


@kernel()
def _clear_below(trie: Array, ids: Array, bits: Array, begin: int, end: int) -> None:
    """As `_set_below`, but clear the bits."""
    for j in range(trie[begin, FIRST], trie[end, FIRST]):
        bits[ids[j] >> 5] &= ~(np.uint32(1) << np.uint32(ids[j] & 31))


@kernel((I32_ROWS, I32, I64, U32, U32))
def sort_out(trie: Array, ids: Array, begun: Array, invalid: Array, unfinished: Array) -> None:
    """Set in invalid (W,) uint32 the tokens whose bytes are not UTF-8 from the beginning of a character on, and in
    unfinished (W,) uint32 those that end within a character. begun: (depth + 2,) int64 of 0, scratch."""
    i, stop = 0, trie.shape[0] - 1
    while i < stop:
        depth = trie[i, PLACE] >> 8
        found = next_character(begun[depth - 1], trie[i, PLACE] & 255)
        if found < 0:
            _set_below(trie, ids, invalid, i, INT64(trie[i, SKIP]))
            i = trie[i, SKIP]
            continue
        begun[depth] = 0 if found & 1 else found >> 1
        if begun[depth]:
            _set_below(trie, ids, unfinished, i, i + 1)
        i += 1


@kernel((I32_ROWS, I32, I32, I16, I16, I32, INT, I32, I32, I32, INT, INT, INT, I64_ROWS, BOOL, U32))
def walk(
    trie: Array,
    high: Array,
    ids: Array,
    points: Array,
    letters: Array,
    table: Array,
    wide: int,
    cuts: Array,
    far: Array,
    near: Array,
    reading: int,
    state: int,
    other: int,
    ways: Array,
    wants_doubts: bool,
    bits: Array,
) -> None:
    """Find the tokens in which a part completes a match when it reads them from a state, between characters and between
    escapes.

    They are found by what differs from another state, whose tokens bits (W,) uint32 holds; without it bits is 0. Where
    both states have become one, and where the bytes that are left are too few for a match, nothing is visited. Tokens
    that are not UTF-8 are no matches. wants_doubts: instead find some tokens, and all of those within or at the end of
    which a character or an escape is unfinished whose end could make a match; without another state.

    trie (N + 1, 4) and ids (T,) int32; high (N,) int32 from `heights`. points: of the filter. Of the part: letters (K,)
    int16, its own number of each class; table (n * wide,) int32; cuts (n,) int32; near, far (n,) int32 from
    `distances`, to a match, and to what the end of the text makes one too, if the reading has such ends. reading: 0 as
    the text is written, else as in `unescape.py`. ways: (4, depth + 2) int64, scratch."""
    now, beside, begun, escapes = ways[0], ways[1], ways[2], ways[3]
    now[0], beside[0], begun[0], escapes[0] = state, other, 0, PLAIN
    i, stop = 0, trie.shape[0] - 1
    while i < stop:
        place, after = trie[i, PLACE], INT64(trie[i, SKIP])
        depth, byte = place >> 8, place & 255
        here, there, escape = now[depth - 1], beside[depth - 1], escapes[depth - 1]
        # In a string, what is pending may give a few characters at once. After its end the text begins anew, for both.
        room = high[i] + (PENDING if reading and escape & 7 > PLAIN else 0)
        if far[here] > room and (far[there] > room if there >= 0 else reading == 0 or far[0] > room):
            if there == REFUSED:
                _clear_below(trie, ids, bits, i, after)
            i = after
            continue
        if byte < 128 and begun[depth - 1] == 0:
            character = 2 * byte + 1
        else:
            character = next_character(begun[depth - 1], byte)
        if character < 0:
            i = after
            continue
        begun[depth] = 0
        if character & 1 == 0:
            begun[depth] = character >> 1
        elif reading == 0:
            letter = letters[points[character >> 1]]
            here = table[here * wide + letter]
            if there >= 0:
                there = max(table[there * wide + letter], REFUSED)
        else:
            escape, unknown, slash, point, is_end = decode_as(escape, character >> 1, reading)
            for k in range(unknown + slash + (point >= 0)):
                letter = letters[points[UNKNOWN if k < unknown else 92 if k < unknown + slash else point]]
                if here >= 0:
                    here = table[here * wide + letter]
                if there >= 0:
                    there = max(table[there * wide + letter], REFUSED)
            if is_end and here >= 0:
                here = 0 if cuts[here] < 0 else REFUSED
            if is_end and there >= 0:
                there = 0 if cuts[there] < 0 else REFUSED
        if here < 0:
            if not wants_doubts and there != REFUSED:
                _set_below(trie, ids, bits, i, after)
            i = after
            continue
        if here == there:
            i = after
            continue
        now[depth], beside[depth], escapes[depth] = here, there, escape
        is_open = begun[depth] or (reading and escape & 7 >= HEX)
        at_once = 1 + (PENDING if begun[depth] and reading and escape & 7 > PLAIN else 0)
        if wants_doubts and is_open and near[here] <= at_once:
            _set_below(trie, ids, bits, i, after)
        if there == REFUSED:
            _clear_below(trie, ids, bits, i, i + 1)
        i += 1
