"""`TokenTrie`: a vocabulary's tokens as a byte trie in flat arrays, with a cache on disk.

The trie knows neither automata nor masks: the caller that walks it decides which tokens to keep. It reads no settings.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from espalier.computed import computed
from espalier.errors import VocabError
from espalier.files.kept import HEADER_BYTES, keep, kept, made_by_one
from espalier.files.limits import TRIE
from espalier.tokens.vocab import Vocab

LAYOUT = 1
"""The version of the arrays and of the cache file. Increase it with any change of either."""

_MAX_DEPTH = 0xFFFF


@dataclass(frozen=True, kw_only=True, eq=False)
class TokenTrie:
    """N nodes in depth-first pre-order, children by ascending byte. There is no root node.

    byte: the byte on the edge into a node. depth: how many bytes the path to it has; the first level has 1.
    skip: the next node outside its subtree, N at the end: where a walk goes on if the byte was refused.
    token: the lowest id that is spelled by exactly this path, -1 for none.
    next_same: by id, the next higher id with the same bytes, -1 for none: `token[i]` starts a chain.
    Ids without bytes (specials, padding) are not in it, and their `next_same` is -1.

    A walk keeps one state per depth; `stack` has room for `max_depth + 1`:

        stack[0] = start; i = 0
        while i < N:
            state = step(stack[depth[i] - 1], byte[i])
            if state is dead: i = skip[i]
            else: stack[depth[i]] = state; take token[i] and its chain; i += 1

    The arrays are read-only and contiguous however the trie was made: a compiled kernel sees one signature.
    """

    byte: NDArray[np.uint8]  # (N,)
    depth: NDArray[np.uint16]  # (N,)
    skip: NDArray[np.int32]  # (N,)
    token: NDArray[np.int32]  # (N,)
    next_same: NDArray[np.int32]  # (ids,), the tokenizer's ids: `len(vocab)`, not its width

    def __len__(self) -> int:
        """The number of nodes, N."""
        return int(self.byte.shape[0])

    @computed
    def max_depth(self) -> int:
        """The length of the longest token, in bytes."""
        return int(self.depth.max(initial=0))

    def ids_at(self, node: int) -> tuple[int, ...]:
        """The ids whose bytes end at this node, ascending."""
        return tuple(self._chain(int(self.token[node])))

    def prefixes(self, data: bytes, start: int = 0) -> tuple[int, ...]:
        """The ids of the tokens that `data` contains at `start`: shorter first, then by id."""
        return tuple(i for _end, first in self._matches(data, start) for i in self._chain(first))

    def segment(self, data: bytes) -> tuple[int, ...] | None:
        """The fewest tokens that spell `data`, or None if there are none; `()` for no bytes.

        Among equally short segmentations, the one with the longest first token, then the longest second, and so on;
        among ids with the same bytes, the lowest.
        """
        size = len(data)
        fewest: list[int | None] = [None] * size + [0]  # number of tokens from a position to the end
        choice = [(0, -1)] * size  # end and id of the token that starts at a position
        for start in range(size - 1, -1, -1):
            for end, token in self._matches(data, start):
                rest, best = fewest[end], fewest[start]
                if rest is not None and (best is None or rest + 1 <= best):
                    fewest[start] = rest + 1
                    choice[start] = (end, token)
        if fewest[0] is None:
            return None
        spelled = []
        position = 0
        while position < size:
            position, token = choice[position]
            spelled.append(token)
        return tuple(spelled)

    def node(self, data: bytes) -> int:
        """The node of a path from the root, -1 if no token begins with these bytes."""
        if not data:
            return -1
        byte, skip, _ = self._views
        node = self._first[data[0]]
        for wanted in data[1:]:
            if node < 0:
                return -1
            child, stop = node + 1, skip[node]
            while child < stop and byte[child] < wanted:
                child = skip[child]
            node = child if child < stop and byte[child] == wanted else -1
        return node

    def _matches(self, data: bytes, start: int) -> Iterator[tuple[int, int]]:
        """End and lowest id of each token at `start`, shorter first."""
        if not 0 <= start < len(data):
            return
        byte, skip, token = self._views
        node, stop = self._first[data[start]], len(self)
        for end in range(start + 1, len(data) + 1):
            if node < 0:
                return
            if token[node] >= 0:
                yield end, token[node]
            if end == len(data):
                return
            # Search the children, which lie between the node and its skip.
            wanted, child, stop = data[end], node + 1, skip[node]
            while child < stop and byte[child] < wanted:
                child = skip[child]
            node = child if child < stop and byte[child] == wanted else -1

    def _chain(self, token: int) -> Iterator[int]:
        while token >= 0:
            yield token
            token = int(self.next_same[token])

    @computed
    def _views(self) -> tuple[memoryview, memoryview, memoryview]:
        # Plain ints from a memoryview are several times faster than NumPy scalars.
        return self.byte.data, self.skip.data, self.token.data

    @computed
    def _first(self) -> list[int]:
        """The first-level node of each byte value, -1 for none."""
        first = [-1] * 256
        for node in np.flatnonzero(self.depth == 1):
            first[int(self.byte[node])] = int(node)
        return first


def build_trie(tokens: Sequence[bytes]) -> TokenTrie:
    """Build the trie of tokens, index = id; `b""` marks ids that are not in it. Raises VocabError for tokens longer
    than 65,535 bytes."""
    # The sort is stable: ids with the same bytes stay in order.
    order = sorted((i for i, t in enumerate(tokens) if t), key=tokens.__getitem__)
    ids = np.array(order, dtype=np.int32)  # (T,)
    size = np.array([len(tokens[i]) for i in order], dtype=np.int64)  # (T,)
    if size.size and int(size.max()) > _MAX_DEPTH:
        raise VocabError(f"a token of {int(size.max())} bytes is too long", hint=f"{_MAX_DEPTH} at most")
    flat = np.frombuffer(b"".join(tokens[i] for i in order), dtype=np.uint8)
    start = np.cumsum(size) - size  # (T,), offsets into flat
    shared = _shared_with_previous(flat, start, size)  # (T,)

    next_same = np.full(len(tokens), -1, dtype=np.int32)  # (ids,)
    is_new = shared < size  # in sorted order, a token that adds no node equals the one before it
    again = np.flatnonzero(~is_new)
    next_same[ids[again - 1]] = ids[again]

    # A token adds one node for each byte beyond the prefix it shares with the previous token: this is pre-order.
    ids, size, start, shared = ids[is_new], size[is_new], start[is_new], shared[is_new]
    added = size - shared
    total = int(added.sum())
    ends = np.cumsum(added)
    at = np.arange(total) - np.repeat(ends - added - shared, added)  # (N,), the byte offset of a node in its token
    token = np.full(total, -1, dtype=np.int32)
    token[ends - 1] = ids
    byte = flat[np.repeat(start, added) + at]
    depth = (at + 1).astype(np.uint16)
    return _freeze_trie(byte, depth, _skip(depth), token, next_same)


def load_trie(vocab: Vocab, cache_dir: Path | None) -> TokenTrie:
    """The vocabulary's trie, read from `cache_dir` if it is there, otherwise built and written there.

    A file that is damaged, or belongs to another vocabulary or layout, is replaced. If the folder cannot be written, a
    warning is logged. cache_dir None: no cache.
    """
    if cache_dir is None:
        return build_trie(vocab.tokens)
    path = cache_dir / f"{vocab.fingerprint[:32]}.trie"
    trie = _read(path, vocab)
    if trie is not None:
        return trie
    with made_by_one(path) as was_made:
        trie = _read(path, vocab) if was_made else None
        if trie is None:
            trie = build_trie(vocab.tokens)
            _write(path, trie, vocab)
    return trie


def _shared_with_previous(
    flat: NDArray[np.uint8], start: NDArray[np.int64], size: NDArray[np.int64]
) -> NDArray[np.int64]:
    """The number of leading bytes that each token shares with the previous one, `(T,)`."""
    shared = np.zeros(size.shape[0], dtype=np.int64)
    alive = np.arange(1, size.shape[0])  # tokens whose first `length` bytes are shared
    length = 0
    while alive.size:
        alive = alive[(size[alive] > length) & (size[alive - 1] > length)]
        alive = alive[flat[start[alive] + length] == flat[start[alive - 1] + length]]
        length += 1
        shared[alive] = length
    return shared


def _skip(depth: NDArray[np.uint16]) -> NDArray[np.int32]:
    """The next node outside each subtree, `(N,)`: sizes of subtrees are summed level by level, deepest first."""
    total = depth.shape[0]
    by_level = np.argsort(depth, kind="stable")  # (N,)
    bounds = np.searchsorted(depth[by_level], np.arange(1, int(depth.max(initial=0)) + 2))
    levels = [by_level[low:high] for low, high in pairwise(bounds)]
    below = np.ones(total, dtype=np.int64)  # (N,), nodes in each subtree
    for level in range(len(levels) - 1, 0, -1):
        # In pre-order, a node's parent is the last preceding node of the level above.
        parents = levels[level - 1][np.searchsorted(levels[level - 1], levels[level]) - 1]
        np.add.at(below, parents, below[levels[level]])
    return (np.arange(total) + below).astype(np.int32)


def _freeze_trie(*arrays: NDArray[Any]) -> TokenTrie:
    byte, depth, skip, token, next_same = (np.ascontiguousarray(a) for a in arrays)
    for array in (byte, depth, skip, token, next_same):
        array.setflags(write=False)
    return TokenTrie(byte=byte, depth=depth, skip=skip, token=token, next_same=next_same)


# The cache file's body: skip, token, next_same, depth, byte, little-endian.


def _read(path: Path, vocab: Vocab) -> TokenTrie | None:
    nodes = 1 + sum(map(len, vocab.tokens))
    reader = replace(TRIE, bytes=min(TRIE.bytes, HEADER_BYTES + 11 * nodes + 4 * len(vocab)))
    body = kept(path, _what(vocab), reader)
    if body is None:
        return None
    ids = len(vocab)
    nodes = (len(body) - 4 * ids) // 11  # 4 + 4 + 2 + 1 bytes a node
    counts = (("<i4", nodes), ("<i4", nodes), ("<i4", ids), ("<u2", nodes), ("<u1", nodes))
    arrays: list[NDArray[Any]] = []
    offset = 0
    for dtype, count in counts:
        arrays.append(np.frombuffer(body, dtype=dtype, count=count, offset=offset))
        offset += arrays[-1].nbytes
    skip, token, next_same, depth, byte = arrays
    return _freeze_trie(byte, depth, skip, token, next_same)


def _write(path: Path, trie: TokenTrie, vocab: Vocab) -> None:
    body = b"".join(
        (
            trie.skip.astype("<i4").tobytes(),
            trie.token.astype("<i4").tobytes(),
            trie.next_same.astype("<i4").tobytes(),
            trie.depth.astype("<u2").tobytes(),
            trie.byte.tobytes(),
        )
    )
    keep(path, _what(vocab), body, TRIE)


def _what(vocab: Vocab) -> str:
    return f"token trie, layout {LAYOUT}, {vocab.fingerprint}"
