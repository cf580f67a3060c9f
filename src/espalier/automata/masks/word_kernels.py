"""The numba kernels that look up words in the flat token trie of `kernels.py`, without an automaton."""

from __future__ import annotations

from typing import Any, TypeAlias

from espalier.automata.masks.kernels import FIRST, PLACE, SKIP
from espalier.kernels.compiled import BYTES, I32, I32_ROWS, INT, U32, kernel

# compiled with: 9e14f16b

Array: TypeAlias = Any  # numpy arrays; shapes and types are in the docstrings


@kernel((I32_ROWS, I32_ROWS, I32, BYTES, INT, INT, I32))
def follow(
    trie: Array, heads: Array, ids: Array, word: Array, node: int, last: int, tokens: Array
) -> tuple[int, int, int]:
    """As `spell` for one word, (B,) uint8, from one node: fills tokens, (T,) int32. Returns how many tokens are its
    beginnings, how many of these are all of it, and the node at which it ends, -1 for none."""
    count, whole = 0, 0
    for k in range(word.shape[0]):
        child = _child(trie, heads, node, word[k])
        if child < 0:
            return count, 0, -1
        node, whole = child, count
        for token in ids[trie[child, FIRST] : trie[child + 1, FIRST]]:
            tokens[count] = token
            count += 1
    return count, count - whole, node if _goes_on(trie, heads, node, last) else -1


@kernel()
def _child(trie: Array, heads: Array, node: int, byte: int) -> int:
    """The child of a node, -1 for the root, for a byte; -1 for none."""
    if node < 0:
        child = -1
        for r in range(heads.shape[0]):
            if heads[r, 1] == byte:
                child = heads[r, 0]
                break
        return child
    at, past = node + 1, trie[node, SKIP]
    while at < past and trie[at, PLACE] & 255 < byte:
        at = trie[at, SKIP]
    return at if at < past and trie[at, PLACE] & 255 == byte else -1


@kernel()
def _goes_on(trie: Array, heads: Array, node: int, last: int) -> bool:
    """Whether a token goes on below a node with the byte `last`, with any for 256; below 0 nothing is asked for."""
    if last == 256:
        return bool(node + 1 < trie[node, SKIP])
    return last < 0 or _child(trie, heads, node, last) >= 0


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
                child = _child(trie, heads, path[matched], data[begin + matched])
                if child < 0:
                    failed = True
                    break
                matched += 1
                path[matched] = child
                for token in ids[trie[child, FIRST] : trie[child + 1, FIRST]]:
                    bits[token >> 5] |= 1 << (token & 31)
            if failed or path[size] < 0 or not _goes_on(trie, heads, path[size], last):
                continue
            if count == found_nodes.shape[0]:
                return -1
            found_nodes[count] = path[size]
            found_words[count] = w
            count += 1
    return count
