"""The numba kernels: walk an automaton's transition table against the flat token trie. Imported with the first walker.

Rows of the table are states; -1 is no transition. If a row is not `known` (filled) yet, the walk skips that subtree and
returns it as (node, state), to be resumed once the row is filled. The kernels know numbers only.

The trie has one row for each node in pre-order, and one more at the end; a row fits a cache line: FIRST (index of the
node's first id in `ids`), SKIP (the node after its subtree), PLACE (depth << 8 | byte) and KINDS (the kinds of bytes
below the node, as bits). `ids` holds all token ids in node order; a node's own ids end at the FIRST of the next row.

Most tokens are plain text, and most states that read text read all of it. So a second array has for each node what the
bytes from its own on are made of: CONTENT (their kinds; a character of several bytes is CHARACTER, bytes that make no
characters are HIGH, and so is all that begins within a character) and HEIGHT (how many bytes the longest token has from
there on); and PATH, the kinds of the bytes up to it. A state is *uniform* over some kinds for a reach of bytes if it
reads every text of these kinds up to that length: then a subtree with that content and height is allowed as a whole,
whatever states its tokens lead to.

    /[0-9a-f]*x|.{3}/     start: uniform over all kinds for 3 bytes; after "ab": for 1 byte; after "abc": over none
"""

from __future__ import annotations

from typing import Any, TypeAlias

from espalier.kernels.compiled import I32, I32_ROWS, INT, U8, U32, kernel

# compiled with: 8c7aafc1

Array: TypeAlias = Any  # numpy arrays; shapes and types are in `walk`'s docstring

FIRST, SKIP, PLACE, KINDS = range(4)
CONTENT, HEIGHT, PATH = range(3)
UNIFORM, REACH, SIMPLER, STOPS, LIMIT = range(5)
"""What is known of a state as a reader of text: the kinds over which it is uniform; its reach, -1 for none, 0 while it
is not known; a state, itself where there is none, that reads no text which it does not read too, and is easier to look
at; where there is one, the kinds of the bytes with which the rule may end, and the most characters of which that is
true, 0 for any number."""
HIGH, CHARACTER = 1 << 29, 1 << 30
PLAIN, WORDLIKE = 3 | CHARACTER, 3 | HIGH | CHARACTER
"""Small and capital letters, and what is not ASCII: without them a state reads too little to be worth a look."""
MAX_REACH, ENDLESS_REACH = 24, 1 << 20
"""How many bytes of a text are looked at, and the reach of a state whose texts lead to no new states before that."""
SURE_REACH = 6
"""From so many bytes on, a state that reads fewer kinds ends the reach; before, the kinds become fewer."""


@kernel()
def _after_lead(byte: int) -> int:
    """What a byte begins: 0 no character of several bytes, else the state of its rest, as `_rest` knows it."""
    if byte < 0xC2 or byte > 0xF4:
        return 0
    if byte < 0xE0:
        return 1
    if byte < 0xF0:
        return 4 if byte == 0xE0 else 5 if byte == 0xED else 2
    return 6 if byte == 0xF0 else 7 if byte == 0xF4 else 3


@kernel()
def _rest(within: int) -> tuple[int, int, int]:
    """The lowest and the highest next byte of a character of which a part is read, and the state after it, 0 at its
    end. 1, 2, 3: so many bytes are left, any; 4 to 7: after E0, ED, F0, F4."""
    low = 0xA0 if within == 4 else 0x90 if within == 6 else 0x80
    high = 0x9F if within == 5 else 0x8F if within == 7 else 0xBF
    return low, high, within - 1 if within < 4 else 1 if within < 6 else 2


@kernel((I32_ROWS, I32, I32, I32, I32, I32_ROWS))
def find_contents(trie: Array, kind: Array, within: Array, paths: Array, pending: Array, contents: Array) -> None:
    """Fill contents, (N + 1, 3) int32, and the KINDS column of trie, (N + 1, 4) int32. kind: the kind of each byte as
    one bit, (256,) int32. within and paths, (depth + 2,) int32, and pending, (3 * (depth + 3),) int32, zero: scratch.
    """
    size = trie.shape[0] - 1
    for i in range(size):  # first whether each byte begins, continues or breaks a character; kept in HEIGHT
        depth, byte = trie[i, PLACE] >> 8, trie[i, PLACE] & 255
        before = within[depth - 1] if depth > 1 else 0
        state = -1
        if before == 0:
            state = 0 if byte < 128 else _after_lead(byte)
            if byte >= 128 and state == 0:
                state = -1
        elif before > 0:
            low, high, rest = _rest(before)
            if low <= byte <= high:
                state = rest
        within[depth] = state
        contents[i, CONTENT] = HIGH if state < 0 else CHARACTER if byte >= 128 else kind[byte]
        contents[i, HEIGHT] = before
        contents[i, PATH] = contents[i, CONTENT] | (paths[depth - 1] if depth > 1 else 0)
        paths[depth] = contents[i, PATH]
    for i in range(size - 1, -1, -1):  # a node's children come after it
        depth = trie[i, PLACE] >> 8
        at, below = 3 * depth, 3 * (depth + 1)
        kinds, content, height = pending[below], pending[below + 1], pending[below + 2]
        pending[below] = pending[below + 1] = pending[below + 2] = 0
        trie[i, KINDS] = kinds
        content |= contents[i, CONTENT]
        pending[at] |= kinds | kind[trie[i, PLACE] & 255]
        pending[at + 1] |= content
        pending[at + 2] = max(pending[at + 2], height + 1)
        contents[i, CONTENT] = content if contents[i, HEIGHT] == 0 else content | HIGH
        contents[i, HEIGHT] = height + 1


@kernel((I32_ROWS, I32_ROWS, I32, INT, INT, U32, I32, I32_ROWS, I32, I32))
def cut(
    trie: Array,
    contents: Array,
    ids: Array,
    kinds: int,
    length: int,
    bits: Array,
    number: Array,
    rest: Array,
    rest_ids: Array,
    origin: Array,
) -> tuple[int, int]:
    """Set the bits, (W,) uint32, of the tokens of at most `length` bytes that are made of some kinds alone, and fill
    the trie of all others: rest, (N + 1, 4) int32, rest_ids, (T,) int32, and for each of its nodes the node in the
    whole trie, origin, (N,) int32. number: (N + 1,) int32, scratch. Returns how many nodes and ids it has."""
    size = trie.shape[0] - 1
    after = size  # the next node that stays
    for i in range(size - 1, -1, -1):
        is_inside = contents[i, PATH] & ~kinds == 0 and trie[i, PLACE] >> 8 <= length
        number[i] = 0
        if after < trie[i, SKIP] or (not is_inside and trie[i, FIRST] < trie[i + 1, FIRST]):
            number[i] = 1
            after = i
    nodes, tokens = 0, 0
    for i in range(size):
        stays = number[i]
        number[i] = nodes
        is_inside = contents[i, PATH] & ~kinds == 0 and trie[i, PLACE] >> 8 <= length
        if stays:
            origin[nodes] = i
            rest[nodes, FIRST] = tokens
            nodes += 1
        for token in ids[trie[i, FIRST] : trie[i + 1, FIRST]]:
            if is_inside:
                bits[token >> 5] |= 1 << (token & 31)
            else:
                rest_ids[tokens] = token
                tokens += 1
    number[size] = nodes
    rest[nodes, FIRST] = tokens
    for k in range(nodes):
        rest[k, SKIP] = number[trie[origin[k], SKIP]]
        rest[k, PLACE], rest[k, KINDS] = trie[origin[k], PLACE], trie[origin[k], KINDS]
    return nodes, tokens


@kernel()
def _reads(target: int, leaves: Array, ends: Array) -> bool:
    return target >= 0 and not leaves[target] and ends[target] != 0


@kernel()
def _settle(
    state: int,
    kind: Array,
    classes: Array,
    table: Array,
    known: Array,
    leaves: Array,
    ends: Array,
    readings: Array,
    queue: Array,
    marks: Array,
    unknown: Array,
) -> int:
    """See `settle`."""
    simpler, opened = readings[state, SIMPLER], 0
    if readings[simpler, REACH] == 0 or unknown.shape[0]:
        wanted, unwanted = 2 * CHARACTER - 1, 1
        while unwanted:
            kinds, reach, opened, unwanted = _follow(
                simpler, wanted, kind, classes, table, known, leaves, ends, readings, queue, marks, unknown
            )
            wanted &= ~unwanted
        readings[simpler, UNIFORM] = kinds & ~readings[simpler, STOPS]
        readings[simpler, REACH] = reach or -1
    readings[state, UNIFORM] = readings[simpler, UNIFORM] & ~readings[state, STOPS]
    readings[state, REACH] = readings[simpler, REACH]
    if 0 < readings[state, LIMIT] < readings[state, REACH]:
        readings[state, REACH] = readings[state, LIMIT]
    return opened


@kernel()
def _follow(
    state: int,
    wanted: int,
    kind: Array,
    classes: Array,
    table: Array,
    known: Array,
    leaves: Array,
    ends: Array,
    readings: Array,
    queue: Array,
    marks: Array,
    unknown: Array,
) -> tuple[int, int, int, int]:
    """Of some kinds those over which a state is uniform, its reach, 0 for none, and how many states are not `known`
    that stand in the way of a longer one: they are the first of `unknown`; and a kind after which too little can be
    read, 0 if there is none: then the others do not count. A backslash is such a kind. queue: (Q, 2) int32. marks:
    (8 S,) uint8, zero before and after."""
    first, last, most = 0, 1, ENDLESS_REACH
    queue[0, 0], queue[0, 1] = 8 * state, 0  # state and what is left of a character, as `_rest` knows it; the kind read
    marks[8 * state] = 1
    kinds, reach, opened, unwanted = wanted, 0, 0, 0
    while unwanted == 0:
        narrowed = kinds
        for q in range(first, last):
            at, within = queue[q, 0] >> 3, queue[q, 0] & 7
            if not known[at]:
                if opened < unknown.shape[0]:
                    unknown[opened] = at
                opened += 1
                continue
            own = kinds
            if within:
                low, high, _ = _rest(within)
                for byte in range(low, high + 1):
                    if byte > low and classes[byte] == classes[byte - 1]:
                        continue
                    if not _reads(table[at, classes[byte]], leaves, ends):
                        own &= ~CHARACTER
                        break
            else:
                letter = -1  # one that is read: neighbours are mostly alike
                for byte in range(256):
                    if classes[byte] == letter or own & (kind[byte] | CHARACTER) == 0:
                        continue
                    if _reads(table[at, classes[byte]], leaves, ends):
                        letter = classes[byte]
                        continue
                    own &= ~kind[byte]
                    if _after_lead(byte):
                        own &= ~CHARACTER
            if reach and kinds & HIGH & ~own:  # its bytes were followed one by one, not as characters
                unwanted = HIGH
                break
            if reach and own & WORDLIKE != kinds & WORDLIKE and queue[q, 1] & WORDLIKE == 0:
                unwanted = queue[q, 1]
                break
            narrowed &= own
        if opened or unwanted or narrowed & WORDLIKE == 0 or (narrowed != kinds and reach >= SURE_REACH):
            break
        kinds = narrowed
        reach += 1
        if reach >= min(most, MAX_REACH):
            break
        end, full, stops = last, False, 0
        for q in range(first, end):
            at, within = queue[q, 0] >> 3, queue[q, 0] & 7
            low, high, rest, letter, latest = 0, 255, 0, -1, 0
            if within:
                if not kinds & CHARACTER:
                    continue
                low, high, rest = _rest(within)
            for byte in range(low, high + 1):
                via = CHARACTER
                if not within:
                    rest, via = 0, kinds & kind[byte]
                    if via == 0:
                        rest, via = _after_lead(byte), kinds & CHARACTER
                        if rest == 0 or via == 0:
                            continue
                if classes[byte] == letter and rest == latest:
                    continue  # as the byte before
                letter, latest = classes[byte], rest
                target = table[at, classes[byte]]
                stops |= readings[target, STOPS]
                if readings[target, LIMIT]:
                    most = min(most, reach + readings[target, LIMIT])
                after = 8 * readings[target, SIMPLER] + rest
                if not marks[after]:
                    if last == queue.shape[0]:
                        full = True
                        break
                    marks[after] = 1
                    queue[last, 0], queue[last, 1] = after, via
                    last += 1
        kinds &= ~stops
        if full:
            break
        if last == end:
            reach = most
            break
        first = end
    for q in range(last):
        marks[queue[q, 0]] = 0
    return (0 if reach == 0 else kinds), reach, opened, unwanted


@kernel((INT, I32, U8, I32_ROWS, U8, U8, U8, I32_ROWS, I32_ROWS, U8, I32))
def settle(
    state: int,
    kind: Array,
    classes: Array,
    table: Array,
    known: Array,
    leaves: Array,
    ends: Array,
    readings: Array,
    queue: Array,
    marks: Array,
    unknown: Array,
) -> int:
    """Note over which kinds a state is uniform, and its reach, in readings, (S, 5) int32. Returns how many rows have to
    be filled for a longer one: those of the first of `unknown`."""
    return _settle(state, kind, classes, table, known, leaves, ends, readings, queue, marks, unknown)


@kernel(
    (
        *(I32_ROWS, I32_ROWS, I32_ROWS, I32, I32, U8, I32_ROWS, U8, U8, U8, I32_ROWS, I32_ROWS, U8),
        *(INT, I32, I32, I32, U32, I32, INT, U8, I32, I32),
    )
)
def walk(
    trie: Array,
    contents: Array,
    heads: Array,
    kind: Array,
    ids: Array,
    classes: Array,
    table: Array,
    known: Array,
    leaves: Array,
    ends: Array,
    readings: Array,
    queue: Array,
    marks: Array,
    many: int,
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
    """Set the bits of the tokens below each `nodes[k]` that the automaton reads from `states[k]`. `nodes == [-1]` walks
    the whole trie.

    Inputs: trie (N + 1, 4) int32; contents (N + 1, 3) int32; heads (R, 2) int32, the nodes of depth 1 and their bytes;
    kind (256,) int32; ids (T,) int32; classes (256,) uint8; table (S, C) int32; known, leaves, ends (S,) uint8: the row
    is filled, the rule may return here, a token may end here. readings: (S, 5) int32, see UNIFORM. queue, (Q, 2)
    int32, marks, (8 S,) uint8, all zero, and stack, (depth + 2,) int32: scratch. many: what a state reads is looked up
    for subtrees of more nodes only, until it is known.
    Outputs: bits (W,) uint32; left_at (N,) int32, the nodes with children at which the rule may return, each once
    (marked in was_left (N,) uint8), from index left_count on; open_nodes and open_states (M,) int32, the skipped
    subtrees. Returns the new left_count, and how many subtrees were skipped, -1 if M is too small.
    """
    opened = 0
    whole = nodes.shape[0] > 0 and nodes[0] < 0
    for k in range(heads.shape[0] if whole else nodes.shape[0]):
        if whole:
            if table[states[0], classes[heads[k, 1]]] < 0:
                continue
            i = heads[k, 0]
            stop = trie[i, SKIP]
            stack[0] = states[0]
        else:
            root = nodes[k]
            i, stop = root + 1, trie[root, SKIP]
            stack[trie[root, PLACE] >> 8] = states[k]
        while i < stop:
            place = trie[i, PLACE]
            depth = place >> 8
            before = stack[depth - 1]
            after = trie[i, SKIP]
            if readings[before, REACH] >= 0:
                if readings[before, REACH] == 0 and after - i > many:
                    _settle(before, kind, classes, table, known, leaves, ends, readings, queue, marks, open_states[:0])
                if (
                    readings[before, REACH] >= contents[i, HEIGHT]
                    and contents[i, CONTENT] & ~readings[before, UNIFORM] == 0
                ):
                    for token in ids[trie[i, FIRST] : trie[after, FIRST]]:
                        bits[token >> 5] |= 1 << (token & 31)
                    i = after
                    continue
            state = table[before, classes[place & 255]]
            if state < 0:
                i = after
                continue
            at, past = trie[i, FIRST], trie[i + 1, FIRST]
            if at < past and ends[state]:
                while at < past:
                    token = ids[at]
                    bits[token >> 5] |= 1 << (token & 31)
                    at += 1
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
            stack[depth] = state
            i += 1
    return left_count, opened


@kernel((I32_ROWS, I32, U8, I32_ROWS, U8, U8, I32, I32, I32, I32, I32, I32, I32))
def land(
    trie: Array,
    ids: Array,
    classes: Array,
    table: Array,
    known: Array,
    ends: Array,
    nodes: Array,
    states: Array,
    stack: Array,
    first: Array,
    landed: Array,
    open_nodes: Array,
    open_states: Array,
) -> int:
    """As `walk`, but tells where the tokens end: fills first, (S,) int32, for each state the lowest id of a token that
    ends there; and landed, (V,) int32, for each allowed token the state in which it ends. An empty array is not filled;
    all other entries are left as they are. Returns how many subtrees were skipped, -1 if M is too small."""
    opened = 0
    by_state, by_token = first.shape[0] > 0, landed.shape[0] > 0
    for k in range(nodes.shape[0]):
        root = nodes[k]
        if root < 0:
            i, stop = 0, trie.shape[0] - 1
            stack[0] = states[k]
        else:
            i, stop = root + 1, trie[root, SKIP]
            stack[trie[root, PLACE] >> 8] = states[k]
        while i < stop:
            place = trie[i, PLACE]
            depth = place >> 8
            state = table[stack[depth - 1], classes[place & 255]]
            after = trie[i, SKIP]
            if state < 0:
                i = after
                continue
            at, past = trie[i, FIRST], trie[i + 1, FIRST]
            if at < past and ends[state]:
                if by_state and (first[state] < 0 or ids[at] < first[state]):
                    first[state] = ids[at]
                if by_token:
                    for token in ids[at:past]:
                        landed[token] = state
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
            stack[depth] = state
            i += 1
    return opened
