"""A network that grows: positions of rules explored on demand, numbered when they are first an edge's target.

It has the attributes of `languages/network.py:Network` that stacks and machines use. `meet` works out what can be read
at a position; `masks`, `moves` and `calls` have true entries only for those that were met. Whoever puts a position on a
stack calls `follow_calls`. Machines hold a lock while they walk; `meet`
has one of its own.
"""

from __future__ import annotations

import threading

import numpy as np
from numpy.typing import NDArray

from espalier.automata.languages.fragment import Targets
from espalier.automata.languages.nfa import ByteSet
from espalier.automata.lazy.explored import Place
from espalier.automata.lazy.items import Call, End, Item
from espalier.errors import LimitExceeded
from espalier.grammar.ast import TokenRef

MAX_POSITIONS = 500_000
"""The most positions of one schema's texts."""


class LazyNetwork:
    """See `Network` for the lists. masks[p]: the bytes of each entry of `moves[p]`. live[p]: something is read there.
    plain[p]: something is read there, nothing is called, and the rule cannot end. places[p]: what the position is."""

    def __init__(self, start: Place) -> None:
        self.classes: NDArray[np.uint8] = np.arange(256, dtype=np.uint8)
        self.letters = 256
        self.places: list[Place] = []
        self.masks: list[tuple[ByteSet, ...]] = []
        self.moves: list[tuple[Targets, ...]] = []
        self.calls: list[tuple[tuple[int, int], ...]] = []
        self.tokens: list[tuple[tuple[int, Targets], ...]] = []
        self.final: list[bool] = []
        self.pure: list[bool] = []
        self.live: list[bool] = []
        self.plain: list[bool] = []
        self.is_met: list[bool] = []
        self.least: list[int] = []
        self.refs: tuple[TokenRef, ...] = ()
        self._numbers: dict[Place, int] = {}
        self._lock = threading.RLock()
        self.start = self.number(start)

    def number(self, place: Place) -> int:
        """The number of a position."""
        found = self._numbers.get(place)
        if found is None:
            found = len(self.places)
            if found >= MAX_POSITIONS:
                raise LimitExceeded(
                    f"the text meets more than {MAX_POSITIONS} positions of its schema", hint="lower the counts"
                )
            self._numbers[place] = found
            self.places.append(place)
            self.masks.append(())
            self.moves.append(())
            self.calls.append(())
            self.tokens.append(())
            ends, calls = place.final, place.has_calls
            self.final.append(ends)
            self.pure.append(place.is_over)
            # Every item but the end and the calls reads something, since all can be finished.
            self.live.append(not place.is_over and (not calls or any(reads(item) for item in place.core)))
            self.plain.append(not ends and not calls)
            self.is_met.append(False)
            self.least.append(place.least)
        return found

    def follow_calls(self, position: int) -> None:
        """Work out the calls of a position, if it has any, and of those that they lead to."""
        if not self.plain[position] and not self.is_met[position] and self.places[position].has_calls:
            self.meet(position)

    def meet(self, position: int) -> None:
        """Work out what can be read at a position, and the calls of those that its calls lead to."""
        with self._lock:  # explanations and questions about bytes come from other threads
            self._meet(position)

    def _meet(self, position: int) -> None:
        todo = [position]
        while todo:
            at = todo.pop()
            if self.is_met[at]:
                continue
            place = self.places[at].met()
            number = self.number
            self.masks[at] = tuple([members for members, _ in place.edges])
            self.moves[at] = tuple([(number(after),) for _, after in place.edges])
            if place.calls:
                calls = self.calls[at] = tuple([(number(start), number(after)) for start, after in place.calls])
                todo += [met for call in calls for met in call if self.places[met].has_calls]
            self.is_met[at] = True

    def move(self, position: int, byte: int) -> Targets:
        """The positions after a byte, () where it cannot be read."""
        if not self.is_met[position]:
            self.meet(position)
        for members, targets in zip(self.masks[position], self.moves[position], strict=True):
            if members >> byte & 1:
                return targets
        return ()

    def reads(self, position: int) -> ByteSet:
        """The bytes that can be read at a position."""
        if not self.is_met[position]:
            self.meet(position)
        found: ByteSet = 0
        for members in self.masks[position]:
            found |= members
        return found


def reads(item: Item) -> bool:
    """Whether an item reads bytes itself."""
    return not isinstance(item, Call | End)
