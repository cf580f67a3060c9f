"""The token trie as the kernels read it, and what of it is plain text: tables made once for each vocabulary.

A state that is uniform over some kinds of bytes (`kernels.py`) allows every token that is made of these alone. Such
tokens are a slice of the vocabulary: their mask is ready, and a walk goes through the rest of the trie. Strings,
patterns and free text of all constraints share a few slices. It knows no automata.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from importlib import import_module
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from espalier.automata.masks.cache import ByteCache
from espalier.kernels.group import KernelGroup
from espalier.tokens.trie import TokenTrie

SLICES_BYTES = 24 * 2**20
"""What the slices of one vocabulary may take. One of plain text of 131,072 tokens takes about 1 MB."""
LENGTHS = (1 << 20, 24, 16, 12)
"""The lengths of the tokens of a slice. With shorter ones, too much of the trie is left."""
_ALIKE = (
    "abcdefghijklmnopqrstuvwxyz",
    "ABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "0123456789",
    " ",
    "\t",
    "\n",
    "\r",
    '"',
    "\\",
    "'",
    "/",
    "*",
    "<>",
    "()",
    "[]",
    "{}",
    ",",
    ".",
    ":;",
    "-",
    "_",
    "+=",
    "!?",
    "#@",
    "$%",
    "&|",
    "`~^",
    "\x7f",
)
"""Bytes of one kind: bytes that grammars seldom tell apart inside a repetition. All other bytes are two more kinds."""


def _kinds() -> NDArray[np.int32]:
    kinds = np.where(np.arange(256) < 128, 1 << len(_ALIKE), 1 << (len(_ALIKE) + 1)).astype(np.int32)  # (256,)
    for i, alike in enumerate(_ALIKE):
        kinds[list(alike.encode())] = 1 << i
    return kinds


KIND = _kinds()
"""The kind of each byte as one bit, `(256,)`."""


_PACKAGE = "espalier.automata.masks"
MASKS = KernelGroup("masks", [f"{_PACKAGE}.kernels", f"{_PACKAGE}.word_kernels"], seconds=5)


@cache
def load_kernels(name: str = "kernels") -> Any:
    """A module of kernels, with which numba is loaded."""
    MASKS.load()
    return import_module(f"{_PACKAGE}.{name}")


@dataclass(frozen=True, slots=True, eq=False)
class TrieLayout:
    """A trie in the layout of `kernels.py`, N nodes."""

    nodes: NDArray[np.int32]  # (N + 1, 4)
    contents: NDArray[np.int32]  # (N + 1, 3)
    heads: NDArray[np.int32]  # (R, 2)
    ids: NDArray[np.int32]  # (T,)
    #: Slices by their kinds and the length of their tokens.
    slices: ByteCache[tuple[int, int], TextSlice] = field(default_factory=lambda: ByteCache(SLICES_BYTES))

    def slice(self, kinds: int, reach: int, words: int) -> TextSlice | None:
        """The tokens that are made of these kinds alone, none longer than `reach`; None where these are too few. words:
        W."""
        kernels = load_kernels()
        length = next((length for length in LENGTHS if length <= reach), 0)
        if not length or ~kinds & kernels.PLAIN:
            return None
        known = self.slices.get((kinds, length))
        if known is None:
            size, bits = len(self.nodes), np.zeros(words, dtype=np.uint32)
            number, origin = np.empty((2, size), dtype=np.int32)
            nodes, ids = np.zeros((size, 4), dtype=np.int32), np.empty_like(self.ids)
            left, tokens = kernels.cut(
                self.nodes, self.contents, self.ids, kinds, length, bits, number, nodes, ids, origin
            )
            origin = origin[:left].copy()
            heads = self.heads[np.isin(self.heads[:, 0], origin)]  # a copy
            heads[:, 0] = number[heads[:, 0]]
            rest = TrieLayout(
                nodes=nodes[: left + 1].copy(),
                contents=np.append(self.contents[origin], self.contents[-1:], axis=0),
                heads=heads,
                ids=ids[:tokens].copy(),
            )
            known = TextSlice(bits, rest, origin)
            self.slices.put((kinds, length), known, known.nbytes)
        return known


@dataclass(frozen=True, slots=True, eq=False)
class TextSlice:
    """Tokens of some kinds of bytes alone. bits: `(W,) uint32`. rest: the trie of all other tokens; origin: the number
    of each of its nodes in the whole trie, `(N,) int32`."""

    bits: NDArray[np.uint32]
    rest: TrieLayout
    origin: NDArray[np.int32]

    @property
    def nbytes(self) -> int:
        rest = self.rest
        return sum(array.nbytes for array in (self.bits, self.origin, rest.nodes, rest.contents, rest.ids))


_LAYOUTS: WeakKeyDictionary[TokenTrie, TrieLayout] = WeakKeyDictionary()


def lay_out(trie: TokenTrie) -> TrieLayout:
    """The trie in the layout of `kernels.py`, made once for each trie."""
    layout = _LAYOUTS.get(trie)
    if layout is None:
        kernels = load_kernels()
        total = len(trie)
        # Each round takes one more id of every node that has one; a stable sort then groups the ids by node.
        owners, found_ids = [], []
        at = np.flatnonzero(trie.token >= 0)
        ids = trie.token[at]
        while at.size:
            owners.append(at)
            found_ids.append(ids)
            ids = trie.next_same[ids]
            at, ids = at[ids >= 0], ids[ids >= 0]
        owner = np.concatenate([*owners, np.empty(0, dtype=np.intp)])  # (T,)
        order = np.argsort(owner, kind="stable")
        nodes = np.zeros((total + 1, 4), dtype=np.int32)
        nodes[1:, kernels.FIRST] = np.cumsum(np.bincount(owner, minlength=total)[:total])
        nodes[:total, kernels.SKIP] = trie.skip
        nodes[:total, kernels.PLACE] = (trie.depth.astype(np.int32) << 8) | trie.byte
        contents = np.zeros((total + 1, 3), dtype=np.int32)
        depths = trie.max_depth + 3
        kernels.find_contents(
            nodes, KIND, *np.zeros((2, depths), dtype=np.int32), np.zeros(3 * depths, dtype=np.int32), contents
        )
        at = np.flatnonzero(trie.depth == 1)
        layout = _LAYOUTS[trie] = TrieLayout(
            nodes=nodes,
            contents=contents,
            heads=np.stack([at, trie.byte[at]], axis=1).astype(np.int32),
            ids=np.concatenate([*found_ids, np.empty(0, dtype=np.int32)])[order].astype(np.int32),
        )
    return layout
