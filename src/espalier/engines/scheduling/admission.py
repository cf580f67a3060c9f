"""Decides which waiting ticket begins next: owners take turns, and room is left for small requests and for others.

It knows no plans and runs nothing. It is not thread-safe: the scheduler calls it under its lock.
"""

from __future__ import annotations

from typing import TypeVar

from espalier.decoding.ports import StepModel
from espalier.engines.scheduling.fair_queue import FairQueue
from espalier.engines.scheduling.lanes import Ticket
from espalier.engines.scheduling.room import Room

FOR_OTHERS = 8
"""One lane of so many is left to requests that have none, when several outputs of one request wait; of twice as many,
to owners that have none: whoever asks for one text never waits until one of another's long texts ends. The same part
of the KV cache is left to smaller requests, where large ones fill it."""
FEWEST = 4
"""With fewer lanes all may be one owner's."""
Key = TypeVar("Key")


class Admission:
    """The tickets that wait and those that run.

    lanes: how many may run. is_fair: whether lanes and room are left to others; without it tickets begin in their
    order, as soon as they fit.
    """

    def __init__(self, model: StepModel, room: Room, *, lanes: int, is_fair: bool) -> None:
        self._room, self._is_fair = room, is_fair
        self.most = min(lanes, model.max_sequences)
        #: whether sequences take each other's room in the KV cache
        self.shares = model.capacity < model.max_sequences * model.max_positions
        self._spare = model.capacity // FOR_OTHERS  # tokens
        #: the tickets that wait
        self.waiting: FairQueue[Ticket] = FairQueue()
        self._running: set[Ticket] = set()
        self._owners: dict[str, int] = {}  # running tickets of each owner
        self._requests: dict[object, int] = {}  # running tickets of each request with several outputs
        self._first: str | None = None  # the owner of the first ticket
        self._has_others = False  # whether another owner has ever asked
        self._ahead = 0  # tokens reserved by tickets that began before one whose turn it was

    def has_place(self, owner: str, queue_size: int) -> bool:
        """Whether the owner may add a ticket to a queue of that size; free lanes count too."""
        return self.waiting.has_place(owner, queue_size + self.most - len(self._running))

    def add(self, ticket: Ticket) -> None:
        """Let a ticket wait."""
        self._first = ticket.owner if self._first is None else self._first
        self._has_others |= ticket.owner != self._first
        self.waiting.add(ticket)

    def begin_next(self) -> Ticket | None:
        """The next ticket that may begin now, with its room reserved; None if there is none."""
        ticket = self._next()
        if ticket is None or not self._room.take(ticket.size, ticket.sequences):
            return None
        self.waiting.remove(ticket)
        self._running.add(ticket)
        _add(self._owners, ticket.owner, 1)
        if ticket.request is not None:
            _add(self._requests, ticket.request, 1)
        self._ahead += ticket.ahead
        return ticket

    def end(self, ticket: Ticket) -> None:
        """A running ticket has ended: give its room back."""
        self._running.remove(ticket)
        _add(self._owners, ticket.owner, -1)
        if ticket.request is not None:
            _add(self._requests, ticket.request, -1)
        self._ahead -= ticket.ahead
        self._room.give_back(ticket.size, ticket.sequences)

    def _next(self) -> Ticket | None:
        """The next ticket in fair order that fits. No ticket overtakes the next in turn, but into lanes that are not
        for that one, or a small one into room that is too little for it. Without fairness: the first, where a lane is
        free."""
        ticket = self.waiting.next(self._owners)
        if not self._is_fair:
            return ticket if len(self._running) < self.most else None
        if ticket is None or self._fits(ticket):
            return ticket
        if len(self._running) >= self._lanes_for(ticket):  # the last lanes are for others
            return self.waiting.next(self._owners, lambda other: other.owner == ticket.owner and self._fits(other))
        if all(running.ahead for running in self._running):
            return None  # whoever has overtaken ends first, so the next in turn does not wait forever
        small = self.waiting.next(self._owners, lambda other: self._may_overtake(other, ticket) and self._fits(other))
        if small is not None:
            small.ahead = small.size
        return small

    def _may_overtake(self, ticket: Ticket, large: Ticket) -> bool:
        """Whether a ticket is so small that it takes half at most of what is left of the spare room."""
        return ticket.size < large.size and self._ahead + 2 * ticket.size <= self._spare

    def _lanes_for(self, ticket: Ticket) -> int:
        """How many lanes may run for this ticket to begin."""
        left = 0
        if ticket.owner in self._owners:
            left = self.most // (2 * FOR_OTHERS)
            if not (left or self.shares) and self._has_others and self.most >= FEWEST:
                left = 1  # no room in the cache is left to others, so a lane is
        if ticket.request in self._requests:
            left = self.most // FOR_OTHERS
        return self.most - left

    def _fits(self, ticket: Ticket) -> bool:
        """Whether there is room for everything the ticket can grow to, so that no running plan runs out, and for a
        smaller one beside it. A ticket that would run alone always fits. Kept prefixes do not count: they are
        dropped."""
        if not self._running:
            return self._room.fits(ticket.size, ticket.sequences)
        spare = 0
        if self.shares:
            spare = self._spare if ticket.request in self._requests else min(ticket.size, self._spare)
        has_lane = len(self._running) < self._lanes_for(ticket)
        return has_lane and self._room.fits(ticket.size, ticket.sequences, spare=spare)


def _add(counts: dict[Key, int], key: Key, change: int) -> None:
    """Change a count; one that becomes 0 goes."""
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]
