"""Token masks of a safety filter: a state's mask is computed as a difference from the mask of an idle state, in which
no match is in progress.

From any state nearly all first bytes lead to the same state as from an idle one, so tokens with these first bytes are
allowed alike; only tokens with other first bytes are walked. It knows no patterns.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.dfa import Dfa
from espalier.automata.masks.regular import RegularMachine
from espalier.automata.masks.walker import WHOLE
from espalier.tokens import mask as masks
from espalier.tokens.mask import Mask
from espalier.tokens.trie import TokenTrie
from espalier.tokens.vocab import Vocab

MAX_IDLE = 64


class SafetyMachine(RegularMachine):
    """A `RegularMachine` for filters. idle: the idle states, at least one, `(n,)`."""

    def __init__(self, dfa: Dfa, vocab: Vocab, trie: TokenTrie, idle: NDArray[np.intp]) -> None:
        super().__init__(dfa, vocab, trie)
        self._idle = idle[:MAX_IDLE]
        self._by_byte: dict[int, Mask] = {}

    def _new_mask(self, state: int) -> Mask:
        rows = self.dfa.table  # (S, C)
        sizes = np.bincount(self.dfa.classes, minlength=rows.shape[1])  # (C,), bytes of a class
        differs = rows[self._idle] != rows[state]  # (I, C)
        nearest = int(np.argmin(differs @ sizes))
        other = int(self._idle[nearest])
        if other == state:
            return super()._new_mask(state)
        found = self._masks.get(other)
        if found is None:
            found = super()._new_mask(other)
            self._masks.put(other, found, found.nbytes)
        found = found.copy()
        first = differs[nearest][self.dfa.classes]  # (256,)
        for byte in np.flatnonzero(first).tolist():
            found &= ~self._beginning_with(byte)
        own, _ = self._walk().walk(self._rows, state, WHOLE, first=first)
        np.bitwise_or(found, own, out=found)
        return found

    def _beginning_with(self, byte: int) -> Mask:
        """The mask of the tokens that start with this byte, `(W,) int32`."""
        found = self._by_byte.get(byte)
        if found is None:
            found = self._by_byte[byte] = masks.from_ids(self._ids.get(byte, []), self._vocab.width)
        return found

    @cached_property
    def _ids(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for token, data in enumerate(self._tokens):
            if data:
                found.setdefault(data[0], []).append(token)
        return found
