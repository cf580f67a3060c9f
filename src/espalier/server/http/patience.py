"""Limits how long a client is waited for. Only the client's silence counts: not a time in which this process stood
still, and never what came meanwhile and lies in the socket."""

from __future__ import annotations

import asyncio
from types import TracebackType

TICKS = 16
"""A limit is counted in so many ticks of the event loop, and a standstill, however long, is within one of them."""
ROUNDS = 16
"""Rounds of the event loop from the last tick to the end: it reads sockets after it has called timers, and some rounds
pass until the reader has what was read."""


class Patience:
    """A context that raises TimeoutError after these seconds of silence, all together."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds / TICKS
        self._ticks, self._rounds = TICKS, ROUNDS
        self._limit = asyncio.timeout(None)

    async def __aenter__(self) -> Patience:
        await self._limit.__aenter__()
        self._loop = asyncio.get_running_loop()
        self._next: asyncio.Handle = self._loop.call_later(self._seconds, self._tick)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._next.cancel()
        await self._limit.__aexit__(kind, error, trace)

    def heard(self) -> None:
        """Something came: if the time is over already, more may lie in the socket."""
        self._rounds = ROUNDS

    def _tick(self) -> None:
        self._ticks -= 1
        self._next = (
            self._loop.call_later(self._seconds, self._tick) if self._ticks else self._loop.call_soon(self._end)
        )

    def _end(self) -> None:
        self._rounds -= 1
        if self._rounds:
            self._next = self._loop.call_soon(self._end)
        else:
            self._limit.reschedule(self._loop.time())
