"""The tokens that one reading of a text refuses, put together from what each part of the filter refuses by itself.

A filter has many combinations of its parts' states, but each part has few states of its own and most texts move few
parts: what a new combination refuses is mostly known already. It knows no patterns.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from espalier.automata.masks.cache import ByteCache
from espalier.constraints.safety.alone.tries import Bits, Reading, SubTrie, kernels
from espalier.constraints.safety.memory import ASCII, Recent
from espalier.constraints.safety.parts import Tables
from espalier.time_limit import check as check_time

MEMORY = 12 * 2**20
"""Bytes of masks, for each reading; the few that new ones are compared with are kept beside them."""
MAX_NEAR = 16
"""How many known states of a part a new one is compared with."""


class PartTables(NamedTuple):
    """letters, table, cuts, wide: as in `Tables`, of this part alone. far: `(n,) int32`, the fewest characters to a
    match; to_end: to a match or to a state in which the end of the text completes one. begin: where its states begin
    among those of all parts."""

    letters: NDArray[np.int16]
    table: NDArray[np.int32]
    cuts: NDArray[np.int32]
    wide: int
    far: NDArray[np.int32]
    to_end: NDArray[np.int32]
    begin: int


class _StateRefusals(NamedTuple):
    """Belongs to one state of one part. tokens: those in which it completes a match; None for none. is_in_doubt: see
    `Refusals.of`."""

    tokens: Bits | None
    is_in_doubt: bool


class Refusals:
    """Says what states of the parts refuse in one reading, no character or escape in progress. Not thread-safe."""

    def __init__(
        self,
        points: NDArray[np.int16],
        parts: Sequence[PartTables],
        number: int,
        reading: Reading,
        below: NDArray[np.float64],
    ) -> None:
        """points: of the filter, as in `Tables`. number: the reading's. below: `(256,)`, how many nodes of the trie are
        below each first byte."""
        self._kernels = kernels()
        self._points, self._parts, self._number, self._reading = points, parts, number, reading
        self._words = len(reading.special)
        self._ways = np.zeros((4, int(reading.all.high.max(initial=0)) + 2), dtype=np.int64)  # scratch
        self._known: ByteCache[int, _StateRefusals] = ByteCache(MEMORY)
        self._below = below[:ASCII]
        self._recent: list[Recent[tuple[int, Bits | None]]] = [Recent(MAX_NEAR, ASCII) for _ in parts]

    def _none(self) -> Bits:
        return np.zeros(self._words, dtype=np.uint32)

    def of(self, states: NDArray[np.int32]) -> tuple[Bits, bool]:
        """What a combination of states, `(P,)`, refuses: tokens that complete a match, or that are not UTF-8, `(W,)`.
        And whether it is in doubt: `doubtful` tokens may be refused too, because each way to complete a character or
        an escape completes a match, of one part or another."""
        refused, is_in_doubt = self._reading.invalid.copy(), False
        for which, state in enumerate(states.tolist()):
            key = self._parts[which].begin + state
            known = self._known.get(key)
            if known is None:
                known = self._find_refused(which, state)
                self._known.put(key, known, 0 if known.tokens is None else known.tokens.nbytes)
            if known.tokens is not None:
                refused |= known.tokens
            is_in_doubt |= known.is_in_doubt
        return refused, is_in_doubt

    def _find_refused(self, which: int, state: int) -> _StateRefusals:
        part, no_other = self._parts[which], self._kernels.NO_OTHER
        row = part.table[state * part.wide : (state + 1) * part.wide]
        sign = row[part.letters[self._points[:ASCII]]].astype(np.int64)
        other = self._recent[which].nearest(sign, self._below)
        tokens = self._none() if other is None or other[1] is None else other[1].copy()
        self._walk(self._reading.all, part, state, no_other if other is None else other[0], tokens)
        doubtful = self._none()
        self._walk(self._reading.doubtful, part, state, no_other, doubtful, wants_doubts=True)
        check_time()
        refused = _StateRefusals(tokens if tokens.any() else None, bool(doubtful.any()))
        self._recent[which].add(sign, (state, refused.tokens))
        return refused

    def _walk(
        self, trie: SubTrie, part: PartTables, state: int, other: int, bits: Bits, *, wants_doubts: bool = False
    ) -> None:
        self._kernels.walk(
            trie.laid.nodes,
            trie.high,
            trie.laid.ids,
            self._points,
            part.letters,
            part.table,
            part.wide,
            part.cuts,
            part.to_end if self._number else part.far,
            part.far,
            self._number,
            state,
            other,
            self._ways,
            wants_doubts,
            bits,
        )


def tables_by_part(tables: Tables) -> tuple[PartTables, ...]:
    """The parts of a filter, one by one."""
    never = np.iinfo(np.int32).max
    cells, begins = np.append(tables.first, len(tables.table)), np.append(tables.begin, tables.states)
    parts = []
    for number, wide in enumerate(tables.wide.tolist()):
        table = tables.table[cells[number] : cells[number + 1]]
        cuts = tables.cuts[begins[number] : begins[number + 1]]
        far = np.full(len(cuts), never, dtype=np.int32)
        to_end = np.where(cuts < 0, never, 0).astype(np.int32)
        for distances in (far, to_end):
            kernels().distances(table, wide, distances)
        parts.append(PartTables(tables.letters[number], table, cuts, wide, far, to_end, int(begins[number])))
    return tuple(parts)
