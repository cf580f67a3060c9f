"""Which connections of a process wait for a request, and which of them make room for others.

A connection that has sent a valid key stays. Of the others, the address that holds most gives its oldest one away. It
knows no protocol: a connection is any object that can be closed.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol


class Connection(Protocol):
    """What the table closes."""

    def make_room(self) -> None:
        """Close it: it waits for a request."""


class IdleConnections:
    """The connections of one process. most: how many there may be before the idle ones make room; of one address, half
    of that may be idle without a key. Use from one event loop."""

    def __init__(self, most: int) -> None:
        self._most, self._for_one = max(1, most), max(1, most // 2)
        self._all: set[Connection] = set()
        self._idle: dict[Hashable, dict[Connection, None]] = {}  # by address, oldest first, without those with a key

    def opened(self, connection: Connection, address: Hashable) -> None:
        """A new one, which is idle."""
        self._all.add(connection)
        self.waits(connection, address)
        if len(self._idle[address]) > self._for_one:
            self._close_oldest(address)
        while len(self._all) > self._most and any(self._idle.values()):
            self._close_oldest(max(self._idle, key=lambda one: len(self._idle[one])))

    def waits(self, connection: Connection, address: Hashable, *, has_key: bool = False) -> None:
        """It waits for a request from now on."""
        if not has_key and connection in self._all:
            self._idle.setdefault(address, {})[connection] = None

    def works(self, connection: Connection, address: Hashable) -> None:
        """A whole head of a request has come."""
        idle = self._idle.get(address)
        if idle is not None:
            idle.pop(connection, None)
            if not idle:
                del self._idle[address]

    def closed(self, connection: Connection, address: Hashable) -> None:
        self._all.discard(connection)
        self.works(connection, address)

    def _close_oldest(self, address: Hashable) -> None:
        oldest = next(iter(self._idle[address]))
        self.closed(oldest, address)
        oldest.make_room()
