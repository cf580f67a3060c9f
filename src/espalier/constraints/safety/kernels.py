"""The numba kernels of safety filters: read bytes with all parts of a filter at once, as written and as decoded.
Imported with the first machine. They know numbers only.

Outside, a state is N = 4 + 4 P integers, `(N,) int64`: the bytes read of an unfinished character, what has been read
of an escape in each reading but the first, then the states of the P parts in each of the four readings (`readings.py`).

Inside a kernel, the P states of a reading are one number, which is made when they are met for the first time: a row is
then eight integers, and two more for `read`. The numbers are memory only, and may be forgotten between two calls.

tables: a tuple of arrays, see `parts.Tables`: points (0x110000,) int16, the class of each character; letters (P, K)
int16, a part's own number of each class; table (cells,) int32, the parts' tables one after another, the next state or
-1 - i for a match of rule i; first (P,) int64, where a part's table begins; wide (P,) int64, the width of a row; cuts
(states,) int32, the rule that matches if the text ends in a state, -1 for none; begin (P,) int64, where a part's
states begin in cuts; busy (states,) uint8, a match may be in progress; samples and their places, see `_goes_on`.

met: see `met.py`.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from espalier.automata.masks.kernels import FIRST, KINDS, PLACE, SKIP
from espalier.constraints.safety.met import FILTER, FULL, MET, find_jump, number_of
from espalier.constraints.safety.readings import KEPT, NESTED, NUMBER, READINGS
from espalier.constraints.safety.unescape import (
    HALF,
    HALF_SLASH,
    HEX,
    INT64,
    OFF,
    PLAIN,
    UNKNOWN,
    decode_as,
    flush,
    next_character,
    quote_of,
)
from espalier.kernels.compiled import BOOL, BYTES, I32, I32_ROWS, I64, I64_ROWS, INT, U32, kernel

# compiled with: c75689df

Array: TypeAlias = Any  # numpy arrays; shapes and types are above
Filter: TypeAlias = Any
Met: TypeAlias = Any

BLOCKS, GROUPS = 0x110000 >> 6, 0x110000 >> 12
"""Beginnings of characters: all but the last byte, all but the last two; then all but the last three."""
INVALID = -1
"""What `read` returns for a byte that is not valid UTF-8 here; 0 if it may be read; 1 + 4 i + r for a match of rule i
in reading r."""


MISS = -3
"""What `read` returns if a jump is not known yet: let `find_jump` find it, and read again."""


@kernel()
def _take(
    rows: Array, at: int, reading: int, unknown: int, slash: int, point: int, is_end: bool,
    points: Array, jumps: Array, cuts: Array,
) -> Any:  # fmt: skip
    """Read what was decoded, in one of the readings; as `read`."""
    number = rows[at, NUMBER + reading]
    for i in range(unknown + slash + (point >= 0)):
        letter = points[UNKNOWN if i < unknown else 92 if i < unknown + slash else point]
        after = jumps[number, letter]
        if after < 0:
            if after == -1:
                rows[at, KEPT] = number
                rows[at, KEPT + 1] = letter
                return MISS
            return 1 + READINGS * (-2 - after) + reading
        number = after
    if is_end:
        rule = cuts[number]
        if rule >= 0:
            return 1 + READINGS * rule + reading
        number = 0
    rows[at, NUMBER + reading] = number
    return 0


@kernel()
def _goes_on(
    rows: Array, at: int, reading: int, begun: int, points: Array, jumps: Array, cuts: Array, samples: Array,
    first: Array,
) -> Any:  # fmt: skip
    """Whether a character that has begun can be completed without a match in one reading: 0, else as `read`. samples: a
    character of each class that a beginning can still become; first: where those of each beginning are."""
    left, value = begun & 15, begun >> 8
    place = value if left == 1 else BLOCKS + value if left == 2 else BLOCKS + GROUPS + value
    number, escape = rows[at, NUMBER + reading], rows[at, reading]
    found = INVALID
    for i in range(first[place], first[place + 1]):
        unknown, slash, point, is_end = 0, 0, INT64(samples[i]), False
        if reading:
            if escape & 7 == OFF:
                return 0
            rows[at, reading], unknown, slash, point, is_end = decode_as(escape, point, reading)
        found = _take(rows, at, reading, unknown, slash, point, is_end, points, jumps, cuts)
        rows[at, NUMBER + reading] = number
        if reading:
            rows[at, reading] = escape
        if found == 0 or found == MISS:
            return found
    return found


@kernel()
def _escape_goes_on(rows: Array, at: int, reading: int, points: Array, jumps: Array) -> Any:
    """Whether an escape that has begun can be completed without a match: 0, else as `read`."""
    escape, number = rows[at, reading], rows[at, NUMBER + reading]
    mode, left, value, half = escape & 7, (escape >> 3) & 15, (escape >> 7) & 0xFFFF, escape >> 23
    begin, count = value << 4 * left, 1 << 4 * left
    if mode in (HALF, HALF_SLASH):
        begin, count = 0xDC00, 0x400
    found = 0
    for i in range(-1, count):
        point = UNKNOWN if i < 0 else begin + i
        if i < 0 and mode == HEX:
            continue
        if i >= 0 and mode != HEX:
            point = 0x10000 + (half << 10) + (point & 0x3FF) if 0xDC00 <= point < 0xE000 else UNKNOWN
        elif 0xD800 <= point < 0xDC00:
            point = 0x10000 + ((point & 0x3FF) << 10)  # one of those that its pairs are read as
        elif 0xDC00 <= point < 0xE000:
            point = UNKNOWN
        after = jumps[number, points[point]]
        if after >= 0:
            return 0
        if after == -1:
            rows[at, KEPT] = number
            rows[at, KEPT + 1] = points[point]
            return MISS
        found = 1 + READINGS * (-2 - after) + reading
    return found


@kernel()
def read(
    rows: Array, at: int, byte: int, points: Array, jumps: Array, cuts: Array, samples: Array, first: Array, low: int,
    high: int,
) -> Any:  # fmt: skip
    """Read one byte after a row, rows[at]; see INVALID for what it returns, or MISS. The row changes, and is not to be
    used unless 0 is returned. points: of the filter. jumps, cuts: of `met`. samples, first: see `_goes_on`. low, high:
    only these readings are asked, `low <= reading < high`."""
    is_plain = low == 0 or (rows[at, low] == PLAIN and byte != 92 and byte != quote_of(low))
    if is_plain and high - low == 1 and byte < 128 and rows[at, 0] == 0:
        number = rows[at, NUMBER + low]  # the usual case, without the rest
        after = jumps[number, points[byte]]
        if after >= 0:
            rows[at, NUMBER + low] = after
            return 0
        if after == -1:
            rows[at, KEPT] = number
            rows[at, KEPT + 1] = points[byte]
            return MISS
        return 1 + READINGS * (-2 - after) + low
    found = next_character(rows[at, 0], byte)
    if found < 0:
        return INVALID
    if not found & 1:
        for reading in range(low, high):
            hit = _goes_on(rows, at, reading, found >> 1, points, jumps, cuts, samples, first)
            if hit:
                return hit
        rows[at, 0] = found >> 1
        return 0
    rows[at, 0] = 0
    for reading in range(low, high):
        unknown, slash, point, is_end = 0, 0, found >> 1, False
        if reading:
            escape = rows[at, reading]
            begins = 92 if reading == NESTED else quote_of(reading)
            if escape == OFF and point != begins:
                continue
            rows[at, reading], unknown, slash, point, is_end = decode_as(escape, point, reading)
        hit = _take(rows, at, reading, unknown, slash, point, is_end, points, jumps, cuts)
        if hit == 0 and reading and rows[at, reading] & 7 >= HEX:
            hit = _escape_goes_on(rows, at, reading, points, jumps)
        if hit:
            return hit
    return 0


@kernel((I64, I64, FILTER, MET))
def enter(state: Array, row: Array, tables: Filter, met: Met) -> Any:
    """Fill the row, (10,) int64, of a state, (N,) int64. 0, or FULL."""
    count = tables[3].shape[0]
    states = np.zeros(count, dtype=np.int32)
    if met[5][0] == 0:
        number_of(states, tables, met)  # after all was forgotten too, number 0 is the start: strings begin with it
    for i in range(READINGS):
        row[i] = state[i]
        for k in range(count):
            states[k] = state[READINGS + i * count + k]
        row[NUMBER + i] = number_of(states, tables, met)
        if row[NUMBER + i] == FULL:
            return FULL
    return 0


@kernel((I64_ROWS, I64_ROWS, MET))
def leave_all(rows: Array, states: Array, met: Met) -> None:
    """Fill the states, (n, N) int64, of rows, (n, 10) int64."""
    parts = met[0]
    count = parts.shape[1]
    for at in range(rows.shape[0]):
        for i in range(READINGS):
            states[at, i] = rows[at, i]
            for k in range(count):
                states[at, READINGS + i * count + k] = parts[rows[at, NUMBER + i], k]


@kernel((I64, BYTES, I64_ROWS, I64, FILTER, MET))
def run(state: Array, data: Array, rows: Array, last: Array, tables: Filter, met: Met) -> Any:
    """Read several bytes, (n,) uint8, from a state, (N,) int64; as `read`, and stops at a refusal. rows: (2, 10) int64;
    the first is filled with the row after the bytes. last: (1,) int64, filled with how many bytes were read when no
    match, character or escape was in progress last, -1 if one always was."""
    points, jumps, cuts, busy = tables[0], met[1], met[2], met[3]
    if enter(state, rows[0], tables, met):
        return FULL
    last[0] = -1
    at, low, high = INT64(0), INT64(0), INT64(READINGS)
    i = 0
    while True:
        is_idle = rows[0, 0] == 0
        for reading in range(READINGS):
            is_idle &= (reading == 0 or rows[0, reading] & 7 <= PLAIN) and not busy[rows[0, NUMBER + reading]]
        if is_idle:
            last[0] = i
        if i == data.shape[0]:
            return 0
        for k in range(KEPT):
            rows[1, k] = rows[0, k]
        found = read(rows, at, INT64(data[i]), points, jumps, cuts, tables[8], tables[9], low, high)
        if found == MISS:
            if find_jump(rows[0, KEPT], rows[0, KEPT + 1], tables, met) == -1:
                return FULL
            for k in range(KEPT):
                rows[0, k] = rows[1, k]
        elif found:
            return found
        else:
            i += 1


@kernel((I64, I64_ROWS, FILTER, MET))
def ends(state: Array, rows: Array, tables: Filter, met: Met) -> Any:
    """What the text's end would complete; see INVALID, here for the middle of a character, or FULL. rows: (1, 10)
    int64, scratch."""
    if state[0]:
        return INVALID
    points, jumps, cuts = tables[0], met[1], met[2]
    if enter(state, rows[0], tables, met):
        return FULL
    at, nothing, reading = INT64(0), INT64(-1), INT64(0)
    while reading < READINGS:
        unknown, slash, is_end = 0, 0, True
        if reading:
            unknown, slash, is_end = flush(rows[0, reading])
        hit = _take(rows, at, reading, unknown, slash, nothing, is_end, points, jumps, cuts)
        if hit == MISS:
            if find_jump(rows[0, KEPT], rows[0, KEPT + 1], tables, met) == -1:
                return FULL
        elif hit:
            return hit
        else:
            reading += 1
    return 0


@kernel((I64_ROWS, I64, INT, INT, FILTER, MET))
def options(rows: Array, codes: Array, low: int, high: int, tables: Filter, met: Met) -> Any:
    """Read each byte after rows[256]: rows (257, 10) int64 and codes (256,) int64 are filled with the row and what
    `read` returns. low, high: see `read`. 0, or FULL."""
    points, jumps, cuts = tables[0], met[1], met[2]
    byte = INT64(0)
    while byte < 256:
        for k in range(KEPT):
            rows[byte, k] = rows[256, k]
        codes[byte] = read(rows, byte, byte, points, jumps, cuts, tables[8], tables[9], low, high)
        if codes[byte] != MISS:
            byte += 1
        elif find_jump(rows[byte, KEPT], rows[byte, KEPT + 1], tables, met) == -1:
            return FULL
    return 0


@kernel()
def _keep(rows: Array, place: int, kept: Array, count: int, slots: Array) -> Any:
    """The number of rows[place] among kept[:count], or `count` if it was new and is now there; -1 if there is no
    room. slots: (2 ** k,) int32 of -1, at least twice as many as rows."""
    mixed = np.uint64(14695981039346656037)
    for i in range(KEPT):
        mixed = (mixed ^ np.uint64(rows[place, i])) * np.uint64(1099511628211)
        mixed ^= mixed >> np.uint64(29)
    at = np.int64(mixed & np.uint64(slots.shape[0] - 1))
    while slots[at] >= 0:
        other = slots[at]
        same = True
        for i in range(KEPT):
            if kept[other, i] != rows[place, i]:
                same = False
                break
        if same:
            return other
        at = (at + 1) & (slots.shape[0] - 1)
    if count == kept.shape[0]:
        return -1
    for i in range(KEPT):
        kept[count, i] = rows[place, i]
    slots[at] = count
    return count


@kernel((I32_ROWS, I32, BOOL, INT, INT, INT, I32, I64_ROWS, I64_ROWS, U32, I32, I64_ROWS, INT, I32, FILTER, MET))
def walk(
    trie: Array, ids: Array, has_other: bool, low: int, high: int, kinds: int, kind: Array, stack: Array,
    beside: Array, bits: Array, landed: Array, kept: Array, count: int, slots: Array, tables: Filter, met: Met,
) -> Any:  # fmt: skip
    """Find the tokens that a state refuses, and the row after each other token, by what differs from another state.

    Where both have become one, the subtree is left as it is. Inputs: trie (N + 1, 4) int32 and ids (T,) int32 as in
    `automata/masks/kernels.py`; stack, beside (depth + 2, 10) int64, the first rows are those of the state and of the
    other one, the rest is scratch; kind (256,) int32, the kind of each byte as one bit; low, high: see `read`; kinds:
    if not 0, only tokens that hold a byte of one of these kinds are to be right. Outputs: bits (W,)
    uint32, the refused tokens, must be those of `other`; landed (V,) int32, the number of the row after each token that
    was visited, -1 if it is refused, else left as it is; not filled if it is empty. kept (M, 10) int64: rows by
    number, of which `count` are there. slots: see `_keep`. Returns how many rows there are, -1 if kept is too small,
    FULL. has_other: if not, bits must be 0."""
    points, jumps, cuts = tables[0], met[1], met[2]
    is_alone = high - low == 1
    quote = quote_of(low)
    wants = landed.shape[0] > 0
    # How far the other state can be followed: depths from `dead` on lie behind its refusal.
    dead = 2**30
    if wants:
        for j in range(count):
            _keep(kept, j, kept, j, slots)
    seen = 2**30  # the depth of the first byte of these kinds on the way
    i, stop = 0, trie.shape[0] - 1
    while i < stop:
        place = trie[i, PLACE]
        depth, byte = place >> 8, place & 255
        after = trie[i, SKIP]
        if depth <= dead:
            dead = 2**30
        if kinds:
            if depth <= seen:
                seen = depth if kind[byte] & kinds else 2**30
            if depth < seen and not trie[i, KINDS] & kinds:
                i = after
                continue
        gone = depth > dead or not has_other
        refused = False
        which, last = 0, 1 if gone else 2
        if is_alone and byte < 128 and stack[depth - 1, 0] == 0 and (gone or beside[depth - 1, 0] == 0):
            # The usual case, as at the beginning of `read`: a call for each node would take ten times as long.
            letter = points[byte]
            if low == 0 or (stack[depth - 1, low] == PLAIN and byte != 92 and byte != quote):
                stack[depth, 0] = 0
                stack[depth, low] = stack[depth - 1, low]
                target = jumps[stack[depth - 1, NUMBER + low], letter]
                stack[depth, NUMBER + low] = target
                if target != -1:
                    which = 1
                    refused = target < 0
            if which and not gone and (low == 0 or (beside[depth - 1, low] == PLAIN and byte != 92 and byte != quote)):
                beside[depth, 0] = 0
                beside[depth, low] = beside[depth - 1, low]
                target = jumps[beside[depth - 1, NUMBER + low], letter]
                beside[depth, NUMBER + low] = target
                if target != -1:
                    which = 2
                    if target < 0:
                        gone = True
                        dead = depth
        while which < last:
            rows = beside if which else stack
            rows[depth, 0] = rows[depth - 1, 0]
            for k in range(low, high):
                rows[depth, k] = rows[depth - 1, k]
                rows[depth, NUMBER + k] = rows[depth - 1, NUMBER + k]
            found = read(rows, depth, byte, points, jumps, cuts, tables[8], tables[9], low, high)
            if found == MISS:
                if find_jump(rows[depth, KEPT], rows[depth, KEPT + 1], tables, met) == -1:
                    return FULL
                continue
            if found:
                if which:
                    gone = True
                    dead = depth
                else:
                    refused = True
            which += 1
        at, past = trie[i, FIRST], trie[i + 1, FIRST]
        if refused:
            if not gone or not has_other:
                for j in range(at, trie[after, FIRST]):
                    token = ids[j]
                    bits[token >> 5] |= np.uint32(1) << np.uint32(token & 31)
                    if wants:
                        landed[token] = -1
            i = after
            continue
        if not gone:
            same = stack[depth, 0] == beside[depth, 0]
            for k in range(low, high):
                same &= stack[depth, NUMBER + k] == beside[depth, NUMBER + k]
                same &= k == 0 or stack[depth, k] == beside[depth, k]
            if same:
                i = after
                continue
        if at < past:
            number = -1
            if wants:
                number = _keep(stack, depth, kept, count, slots)
                if number < 0:
                    return -1
                count = max(count, number + 1)
            for j in range(at, past):
                token = ids[j]
                bits[token >> 5] &= ~(np.uint32(1) << np.uint32(token & 31))
                if wants:
                    landed[token] = number
        i += 1
    return count
