"""Decides which waiting ticket begins next: owners take turns, and room is left for small requests and for others.

It knows no plans and runs nothing. It is not thread-safe: the scheduler calls it under its lock.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from espalier.decoding.ports import StepModel
from espalier.engines.scheduling.fair_queue import FairQueue
from espalier.engines.scheduling.lanes import Ticket
from espalier.engines.scheduling.room import FOR_OTHERS, Room, run_sequences
from espalier.engines.scheduling.service_counters import ServiceCounters

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
        self._spare_sequences = model.max_sequences - run_sequences(model)
        #: the tickets that wait
        self.waiting: FairQueue[Ticket] = FairQueue()
        self._running: set[Ticket] = set()
        self._owners: dict[str, int] = {}  # sequences of the running tickets of each owner
        self._served = ServiceCounters()
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
        self._served.arrive(ticket.owner)
        self.waiting.add(ticket)

    def leave(self, ticket: Ticket) -> None:
        """A waiting ticket waits no more."""
        self.waiting.remove(ticket)
        self._served.leave(ticket.owner)

    def begin_next(self) -> Ticket | None:
        """The next ticket that may begin now, with its room reserved; None if there is none."""
        ticket = self._next()
        if ticket is None or not self._room.take(ticket.size, ticket.sequences):
            return None
        self.waiting.remove(ticket)
        self._running.add(ticket)
        _add(self._owners, ticket.owner, ticket.sequences)
        if ticket.request is not None:
            _add(self._requests, ticket.request, 1)
        self._ahead += ticket.ahead
        return ticket

    def end(self, ticket: Ticket, passes: int) -> None:
        """A running ticket has ended: give its room back. passes: how often the model ran while it did."""
        self._running.remove(ticket)
        _add(self._owners, ticket.owner, -ticket.sequences)
        self._served.charge(ticket.owner, passes * ticket.sequences + len(ticket.prompt))
        self._served.leave(ticket.owner)
        if ticket.request is not None:
            _add(self._requests, ticket.request, -1)
        self._ahead -= ticket.ahead
        self._room.give_back(ticket.size, ticket.sequences)

    def _next(self) -> Ticket | None:
        """The next ticket in fair order that fits. No ticket overtakes the next in turn, but into lanes that are not
        for that one, or a small one into room that is too little for it. Without fairness: the first, where a lane is
        free."""
        ticket = self._first_in_turn()
        if not self._is_fair:
            return ticket if len(self._running) < self.most else None
        if ticket is None or self._fits(ticket):
            return ticket
        if len(self._running) >= self._lanes_for(ticket):  # the last lanes are for others
            return self._first_in_turn(lambda other: other.owner == ticket.owner and self._fits(other))
        if all(running.ahead for running in self._running):
            return None  # whoever has overtaken ends first, so the next in turn does not wait forever
        small = self._first_in_turn(lambda other: self._may_overtake(other, ticket) and self._fits(other))
        if small is not None:
            small.ahead = small.size
        return small

    def _first_in_turn(self, may: Callable[[Ticket], bool] | None = None) -> Ticket | None:
        return self.waiting.next(self._owners, may, served=self._served.counts)

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
        is_first_text = ticket.sequences == 1 and ticket.owner not in self._owners
        left = 0 if is_first_text else self._spare_sequences
        return has_lane and self._room.fits(ticket.size, ticket.sequences + left, spare=spare)


def _add(counts: dict[Key, int], key: Key, change: int) -> None:
    """Change a count; one that becomes 0 goes."""
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]
