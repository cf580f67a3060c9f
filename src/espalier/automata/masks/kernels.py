"""The numba kernels: walk an automaton's transition table against the flat token trie. Imported with the first walker.

Rows of the table are states; -1 is no transition. If a row is not `known` (filled) yet, the walk skips that subtree and
returns it as (node, state), to be resumed once the row is filled. The kernels know numbers only.

The trie has one row for each node in pre-order, and one more at the end; a row fits a cache line: FIRST (index of the
node's first id in `ids`), SKIP (the node after its subtree), PLACE (depth << 8 | byte) and KINDS (the kinds of bytes
below the node, as bits). `ids` holds all token ids in node order; a node's own ids end at the FIRST of the next row.
"""

from __future__ import annotations

from typing import Any, TypeAlias

from espalier.kernels.compiled import BYTES, I32, I32_ROWS, INT, U8, U32, kernel

# compiled with: 8c7aafc1

Array: TypeAlias = Any  # numpy arrays; shapes and types are in `walk`'s docstring

FIRST, SKIP, PLACE, KINDS = range(4)
_SOME, _MANY = 3, 32
"""A state that loops on every byte below a node allows the whole subtree at once. That is checked for subtrees of more
than _SOME nodes; the bytes on which a state loops are computed only for more than _MANY nodes, so the check stays cheap
even if two states alternate."""


@kernel((I32_ROWS, I32))
def find_kinds(trie: Array, kind: Array) -> None:
    """Fill the KINDS column of trie, (N + 1, 4) int32. kind: the kind of each byte as one bit, (256,) int32."""
    for i in range(trie.shape[0] - 1):
        kinds = 0
        for below in range(i + 1, trie[i, SKIP]):
            kinds |= kind[trie[below, PLACE] & 255]
        trie[i, KINDS] = kinds


@kernel()
def _kinds_kept(state: int, table: Array, classes: Array, kind: Array) -> int:
    """The kinds on all of whose bytes the state loops."""
    kept = -1
    for byte in range(256):
        if table[state, classes[byte]] != state:
            kept &= ~kind[byte]
    return kept


@kernel((I32_ROWS, I32_ROWS, I32, I32, U8, I32_ROWS, U8, U8, U8, I32, I32, I32, U32, I32, INT, U8, I32, I32))
def walk(
    trie: Array,
    heads: Array,
    kind: Array,
    ids: Array,
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
    """Set the bits of the tokens below each `nodes[k]` that the automaton reads from `states[k]`. `nodes == [-1]` walks
    the whole trie.

    Inputs: trie (N + 1, 4) int32; heads (R, 2) int32, the nodes of depth 1 and their bytes; kind (256,) int32; ids (T,)
    int32; classes (256,) uint8; table (S, C) int32; known, leaves, ends (S,) uint8: the row is filled, the rule may
    return here, a token may end here. stack: (depth + 2,) int32, scratch.
    Outputs: bits (W,) uint32; left_at (N,) int32, the nodes with children at which the rule may return, each once
    (marked in was_left (N,) uint8), from index left_count on; open_nodes and open_states (M,) int32, the skipped
    subtrees. Returns the new left_count, and how many subtrees were skipped, -1 if M is too small.
    """
    opened = 0
    looping, kept = -1, 0  # a state, and the kinds of bytes on which it loops
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
            state = table[before, classes[place & 255]]
            after = trie[i, SKIP]
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
            if leaves[state]:
                if not was_left[i]:
                    was_left[i] = 1
                    left_at[left_count] = i
                    left_count += 1
            elif state == before and after - i > _SOME and ends[state]:
                if looping != state and after - i > _MANY:
                    looping, kept = state, _kinds_kept(state, table, classes, kind)
                if looping == state and trie[i, KINDS] & ~kept == 0:
                    for token in ids[past : trie[after, FIRST]]:
                        bits[token >> 5] |= 1 << (token & 31)
                    i = after
                    continue
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


@kernel((I32_ROWS, I32_ROWS, I32, BYTES, I32, I32, I32, INT, I32, U32, I32, I32))
def spell(
    trie: Array,
    heads: Array,
    ids: Array,
    data: Array,
    begins: Array,
    stops: Array,
    nodes: Array,
    last: int,
    path: Array,
    bits: Array,
    found_nodes: Array,
    found_words: Array,
) -> int:
    """Follow words below each of `nodes`, or from the root for -1, as far as the trie has them, and set the bits of the
    tokens that end on the way. data: the bytes of all words, (B,) uint8; begins, stops: where each one is read from and
    where it ends, (K,) int32; sorted words share the work for what they have in common. path: (depth + 2,) int32,
    scratch.

    Fills found_nodes and found_words, (M,) int32: the node at which a word ends, and its number; with `last` >= 0 only
    where a token goes on with that byte, 256 for any. Returns how many, -1 if M is too small."""
    count = 0
    for k in range(nodes.shape[0]):
        path[0] = nodes[k]
        matched = 0  # bytes of the word before that the trie has
        failed = False  # the trie lacks its next byte
        for w in range(begins.shape[0]):
            begin, size = begins[w], stops[w] - begins[w]
            if w:
                before, common = begins[w - 1], 0
                most = min(size, stops[w - 1] - before, matched + 1)
                while common < most and data[begin + common] == data[before + common]:
                    common += 1
                if failed and common > matched:
                    continue  # it has the byte that the trie lacks
                matched = min(matched, common)
            failed = False
            while matched < size:
                byte, node = data[begin + matched], path[matched]
                child = -1
                if node < 0:
                    for r in range(heads.shape[0]):
                        if heads[r, 1] == byte:
                            child = heads[r, 0]
                            break
                else:
                    at, past = node + 1, trie[node, SKIP]
                    while at < past and trie[at, PLACE] & 255 < byte:
                        at = trie[at, SKIP]
                    if at < past and trie[at, PLACE] & 255 == byte:
                        child = at
                if child < 0:
                    failed = True
                    break
                matched += 1
                path[matched] = child
                for token in ids[trie[child, FIRST] : trie[child + 1, FIRST]]:
                    bits[token >> 5] |= 1 << (token & 31)
            if failed or path[size] < 0:
                continue
            if last == 256:
                if path[size] + 1 == trie[path[size], SKIP]:
                    continue
            elif last >= 0:
                at, past = path[size] + 1, trie[path[size], SKIP]
                while at < past and trie[at, PLACE] & 255 < last:
                    at = trie[at, SKIP]
                if at >= past or trie[at, PLACE] & 255 != last:
                    continue
            if count == found_nodes.shape[0]:
                return -1
            found_nodes[count] = path[size]
            found_words[count] = w
            count += 1
    return count
