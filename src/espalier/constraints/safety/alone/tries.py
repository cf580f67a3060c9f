"""What the readings of a filter need of a vocabulary: parts of its trie, made once for each. It knows no filter."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from espalier.automata.masks.layout import TrieLayout, lay_out
from espalier.constraints.safety.readings import SPECIAL
from espalier.tokens import mask as masks
from espalier.tokens.trie import TokenTrie

Bits = NDArray[np.uint32]  # (W,)
ESCAPES = b"\\u", b"\\x"
"""The beginnings of escapes by number."""


@cache
def kernels() -> Any:
    return import_module("espalier.constraints.safety.alone.kernels")  # numba is loaded with the first machine


class SubTrie(NamedTuple):
    """Some tokens of a trie. high: `(N,) int32`, from `kernels.heights`."""

    laid: TrieLayout
    high: NDArray[np.int32]


class Reading(NamedTuple):
    """special: the tokens that hold what is not read as it is written. all: the tokens to be judged, these or every
    one. doubtful: those of them that end within a character, or that may be within an escape by number. invalid: those
    that are not UTF-8 from the beginning of a character on."""

    special: Bits
    all: SubTrie
    doubtful: SubTrie
    invalid: Bits


_MADE: WeakKeyDictionary[TokenTrie, tuple[Reading, ...]] = WeakKeyDictionary()


def readings_of(trie: TokenTrie, tokens: Sequence[bytes], words: int) -> tuple[Reading, ...]:
    """tokens: the bytes of each token. words: W."""
    readings = _MADE.get(trie)
    if readings is None:
        laid = lay_out(trie)
        depth = trie.max_depth + 2
        invalid, unfinished = np.zeros((2, words), dtype=np.uint32)
        kernels().sort_out(laid.nodes, laid.ids, np.zeros(depth, dtype=np.int64), invalid, unfinished)
        escaping = _holding(tokens, ESCAPES, words)
        new = []
        for special in SPECIAL:
            held = _holding(tokens, special, words)
            judged = only(laid, held) if special else laid
            doubtful = only(judged, unfinished | escaping if special else unfinished)
            new.append(Reading(held, _sub_trie(judged, depth), _sub_trie(doubtful, depth), invalid))
        readings = _MADE[trie] = tuple(new)
    return readings


def only(laid: TrieLayout, tokens: Bits) -> TrieLayout:
    """The part of a trie that leads to these tokens, `(W,)`."""
    first, skipped = kernels().FIRST, kernels().SKIP
    wanted = masks.unpack(tokens.view(np.int32), 32 * len(tokens))[laid.ids]  # (T,)
    before = np.append(0, np.cumsum(wanted))[laid.nodes[:, first]]  # (N + 1,), wanted tokens before each node
    skip = laid.nodes[:-1, skipped]
    stays = np.append(before[skip] > before[:-1], True)  # (N + 1,)
    number = np.append(0, np.cumsum(stays))[:-1]  # (N + 1,), nodes that stay before each
    nodes = laid.nodes[stays].copy()
    nodes[:, first] = before[stays]
    nodes[:-1, skipped] = number[skip][stays[:-1]]
    return TrieLayout(nodes=nodes, contents=laid.contents[stays], heads=laid.heads[:0], ids=laid.ids[wanted])


def _holding(tokens: Sequence[bytes], some: Sequence[bytes], words: int) -> Bits:
    """The tokens that hold one of these."""
    text = np.frombuffer(b"".join(tokens) + bytes(1), dtype=np.uint8)
    begins = np.cumsum([0, *map(len, tokens)])
    holders = [np.empty(0, dtype=np.intp)]
    for piece in some:
        at = np.flatnonzero(text[:-1] == piece[0])
        for k, byte in enumerate(piece[1:], 1):
            at = at[text[at + k] == byte]
        first, last = (np.searchsorted(begins, place, side="right") for place in (at, at + len(piece) - 1))
        holders.append(first[first == last] - 1)
    return masks.from_ids(np.unique(np.concatenate(holders)).tolist(), 32 * words).view(np.uint32)


def _sub_trie(laid: TrieLayout, depth: int) -> SubTrie:
    high = np.empty(len(laid.nodes) - 1, dtype=np.int32)
    kernels().heights(laid.nodes, np.zeros(depth, dtype=np.int32), high)
    return SubTrie(laid, high)
