"""Mailboxes from one producing thread to many readers, in threads and on event loops. Each loop is woken once a round.

It does not know what it carries. A slow or absent reader makes nobody wait.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """The unread items of one reader. lost: called if the reader's event loop is closed, so that nobody will read."""

    def __init__(self, lost: Callable[[], None]) -> None:
        self.lost = lost
        self._items: list[T] = []
        self._changed = threading.Condition(threading.Lock())
        self._is_awaited = False  # by a thread
        self._loop: asyncio.AbstractEventLoop | None = None
        self._future: asyncio.Future[None] | None = None

    def put(self, items: Iterable[T], *, wakes: bool = True) -> asyncio.AbstractEventLoop | None:
        """From any thread. Returns the event loop on which to call `wake`, if a reader sleeps there. wakes: whether a
        reader that sleeps on an event loop is to read the items now."""
        with self._changed:
            self._items.extend(items)
            if self._is_awaited:
                self._changed.notify_all()
            if not wakes:
                return None
            loop, self._loop = self._loop, None
            return loop

    def take(self) -> list[T]:
        """All unread items, waiting for the first. For a reader in a thread."""
        with self._changed:
            self._is_awaited = True
            while not self._items:
                self._changed.wait()
            self._is_awaited = False
            return self._all()

    async def take_async(self) -> list[T]:
        """All unread items, waiting for the first on the running event loop."""
        loop = asyncio.get_running_loop()
        while True:
            with self._changed:
                if self._items:
                    return self._all()
                future = self._future = loop.create_future()
                self._loop = loop
            try:
                await future
            finally:
                with self._changed:
                    self._loop = self._future = None

    def wake(self) -> None:
        """Call on the reader's event loop."""
        if self._future is not None and not self._future.done():
            self._future.set_result(None)

    def _all(self) -> list[T]:
        items, self._items = self._items, []
        return items


def hand_out(batch: Sequence[tuple[Mailbox[T], Sequence[T], bool]]) -> None:
    """Fill mailboxes, then wake every event loop once on which a reader waits for any of them. batch: mailboxes, items,
    and whether the items wake a reader."""
    asleep: dict[asyncio.AbstractEventLoop, list[Mailbox[T]]] = {}
    for mailbox, items, wakes in batch:
        loop = mailbox.put(items, wakes=wakes)
        if loop is not None:
            asleep.setdefault(loop, []).append(mailbox)
    for loop, mailboxes in asleep.items():
        try:
            loop.call_soon_threadsafe(_wake, mailboxes)
        except RuntimeError:  # the loop is closed
            for mailbox in mailboxes:
                mailbox.lost()


def _wake(mailboxes: Sequence[Mailbox[T]]) -> None:
    for mailbox in mailboxes:
        mailbox.wake()
