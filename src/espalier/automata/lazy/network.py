"""A network that grows: positions of rules explored on demand, numbered when they are first an edge's target.

A position is a set of items, what is left to be read in each way that the text so far can be taken (`items.py`). What
can be read there is worked out when a walk first comes by:

    ab|ac*     0 {ab, ac*} --a--> 1 {b, c*, end} --b--> 2 {end}
                                  1              --c--> 3 {c*, end} --c--> 3

    >>> from espalier.automata.lazy.explored import LazyStates
    >>> from espalier.automata.lazy.rules import NoRules
    >>> from espalier.grammar.regex.parse import parse_regex
    >>> explored = LazyStates(NoRules())
    >>> network = LazyNetwork(explored.begin([parse_regex("ab|ac*")]))
    >>> len(network.places), network.least          # the start alone, one byte from the end
    (1, [1])
    >>> network.move(0, ord("a")), len(network.places)
    ((1,), 2)
    >>> network.move(1, ord("b")), network.move(1, ord("c")), len(network.places)
    ((2,), (3,), 4)
    >>> network.final
    [False, True, True, True]

It is a `PositionNetwork` (`masks/positions.py`), as `languages/network.py:Network` is, whose positions are all known
from the start. `meet` works out what can be read at a position, for `masks` and `moves`; `follow_calls` what is called
there, for `calls`; `move` only what follows one byte. Machines hold a lock while they walk; each of these has one of
its own. Whoever knows which positions are in use calls `forget` when `is_full`; a number is then
given to another position.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.fragment import Targets
from espalier.automata.languages.nfa import ByteSet
from espalier.automata.lazy.explored import LazyState
from espalier.automata.lazy.items import End, LazyItem, RuleCall, TokenItem
from espalier.errors import LimitExceeded
from espalier.grammar.ast import TokenRef
from espalier.time_limit import WorkLock

MAX_POSITIONS = 250_000
"""Past so many positions those that no state in use holds are forgotten."""


class LazyNetwork:
    """See `Network` for the lists. masks[p]: the bytes of each entry of `moves[p]`. live[p]: something is read there.
    plain[p]: something is read there, nothing is called, and the rule cannot end. places[p]: what the position is."""

    def __init__(
        self, start: LazyState, *, most: int = MAX_POSITIONS, refs: tuple[TokenRef, ...] = (), owns_tables: bool = False
    ) -> None:
        """refs: the tokens that the expressions name. owns_tables: nobody else reads the tables of its positions, so
        they are emptied with it."""
        self._owns_tables = owns_tables
        self._is_finalizing = sys.is_finalizing  # at the end of the process the names of modules are gone
        self._most = self._full = most
        self._free: list[int] = []
        self._nowhere = start  # what the number of no position stands for
        self.classes: NDArray[np.uint8] = np.arange(256, dtype=np.uint8)
        self.letters = 256
        self.places: list[LazyState] = []
        self.masks: list[tuple[ByteSet, ...]] = []
        self.moves: list[tuple[Targets, ...]] = []
        self.calls: list[tuple[tuple[int, int], ...]] = []
        self.tokens: list[tuple[tuple[int, Targets], ...]] = []
        self.final: list[bool] = []
        self.pure: list[bool] = []
        self.live: list[bool] = []
        self.plain: list[bool] = []
        self.is_met: list[bool] = []
        self._is_called: list[bool] = []
        self._bytes_read: dict[int, ByteSet] = {}  # by position, see `reads`
        self.least: list[int] = []
        self.refs = refs
        self._of_ref = {ref: number for number, ref in enumerate(refs)}
        self._numbers: dict[LazyState, int] = {}
        self._lock = WorkLock()
        self.start = self.number(start)

    def __del__(self) -> None:
        """Break the cycles of positions and items, so that they are free at once: a collection of garbage, which stops
        every thread, need not find them."""
        if self._owns_tables and not self._is_finalizing():
            tables = {place.explored for place in self._numbers if not place.explored.is_shared}
            self._numbers, self.places = {}, []
            for explored in tables:
                explored.release()

    def number(self, place: LazyState) -> int:
        """The number of a position."""
        number = self._numbers.get(place)
        if number is None:
            # Every item but the end and the calls reads something, since all can be finished.
            ends, calls, is_over = place.final, place.has_calls, place.is_over
            live = not is_over and (not calls or (len(place.core) > 1 and any(map(reads, place.core))))
            number = self._numbers[place] = self._free.pop() if self._free else self._new()
            self.places[number] = place
            self.final[number] = ends
            self.pure[number] = is_over
            self.live[number] = live
            self.plain[number] = not ends and not calls
            self.least[number] = place.least
            if self.refs:
                self._name_tokens(number)
        return number

    def _name_tokens(self, position: int) -> None:
        """Note the tokens that can be read at a position by their names."""
        place = self.places[position]
        named = place.explored.named(place) if any(isinstance(item, TokenItem) for item in place.core) else ()
        self.tokens[position] = tuple([(self._of_ref[ref], (self.number(after),)) for ref, after in named])

    def _new(self) -> int:
        number = len(self.places)
        if number >= self._full + MAX_POSITIONS:
            raise LimitExceeded(
                f"one token meets more than {MAX_POSITIONS} positions of its constraint", hint="lower the counts"
            )
        self.places.append(self._nowhere)
        for many in (self.masks, self.moves, self.calls, self.tokens):
            many.append(())
        for flags in (self.final, self.pure, self.live, self.plain, self.is_met, self._is_called):
            flags.append(False)
        self.least.append(0)
        return number

    @property
    def is_full(self) -> bool:
        """Whether `forget` is due."""
        return len(self._numbers) >= self._full

    def forget(self, used: set[int]) -> None:
        """Drop all positions but these, and what was worked out of these. Not while someone walks."""
        with self._lock:
            tables = {place.explored: None for place in self._numbers if not place.explored.is_shared}
            self._drop({self.start, *used})
            for explored in tables:
                explored.forget()
            for position in list(self._numbers.values()) if self.refs else ():
                self._name_tokens(position)
            self._full = max(self._most, 2 * len(self._numbers))

    def _drop(self, used: set[int]) -> None:
        self._bytes_read.clear()
        for place, number in list(self._numbers.items()):
            self.is_met[number] = self._is_called[number] = False
            self.masks[number] = self.moves[number] = self.calls[number] = ()
            if number not in used:
                del self._numbers[place]
                self.places[number] = self._nowhere
                self._free.append(number)

    def follow_calls(self, position: int) -> None:
        """Work out the calls of a position."""
        if not self.plain[position] and not self._is_called[position]:
            with self._lock:
                number = self.number
                place = self.places[position].called()
                self.calls[position] = tuple([(number(start), number(after)) for start, after in place.calls])
                self._is_called[position] = True

    def meet(self, position: int) -> None:
        """Work out what can be read at a position. Explanations and questions about bytes come from other threads, so
        it holds a lock."""
        with self._lock:
            if not self.is_met[position]:
                number = self.number
                place = self.places[position].met()
                self.masks[position] = tuple([members for members, _ in place.edges])
                self.moves[position] = tuple([(number(after),) for _, after in place.edges])
                self.is_met[position] = True

    def edges(self, position: int) -> Iterable[tuple[ByteSet, Targets]]:
        """See `PositionNetwork`."""
        if not self.is_met[position]:
            self.meet(position)
        return zip(self.masks[position], self.moves[position], strict=True)

    def needed_bytes(self) -> bytes:
        """Any: which bytes are read is not known beforehand."""
        return bytes(range(256))

    def move(self, position: int, byte: int) -> Targets:
        """The positions after a byte, () where it cannot be read."""
        after = self.places[position].step(byte)
        return () if after is None else (self._numbered(after),)

    def read(self, position: int, data: bytes, at: int) -> list[tuple[Targets, int]]:
        """See `PositionNetwork`."""
        place = self.places[position]
        if not place.explored.is_shared:
            return [((self._numbered(after),), past) for after, past in place.explored.read(place, data, at)]
        end = len(data)
        while True:  # what follows a byte is remembered for all schemas
            if place.loops is not None:
                past = end - len(data[at:].lstrip(place.loops))
                if past == end:
                    return [((self._numbered(place),), end)]
                at = past
            byte = data[at]
            after = place.steps[byte] if byte in place.steps else place.explored.step(place, byte)
            if after is None:
                return []
            at += 1
            if at == end or after.final:
                return [((self._numbered(after),), at)]
            place = after

    def _numbered(self, place: LazyState) -> int:
        number = self._numbers.get(place)
        if number is None:
            with self._lock:
                number = self.number(place)
        return number

    def reads(self, position: int) -> ByteSet:
        """The bytes that can be read at a position."""
        with self._lock:  # other threads ask too, and `forget` drops the masks
            bytes_read = self._bytes_read.get(position)
            if bytes_read is None:
                self.meet(position)
                bytes_read = 0
                for members in self.masks[position]:
                    bytes_read |= members
                self._bytes_read[position] = bytes_read
        return bytes_read


def reads(item: LazyItem) -> bool:
    """Whether an item reads bytes itself."""
    return not isinstance(item, RuleCall | End)
