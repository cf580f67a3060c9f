"""Work that goes on after the request that began it: traces are made also when the client has left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


class Outliving:
    """Tasks that end by themselves. Use from one event loop."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin the work, which goes on to its end."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def finish(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work to its end, also if whoever waits for it is cancelled; returns its result."""
        return await asyncio.shield(self.begin(work))

    async def close(self) -> None:
        """Wait for the work that was begun, and for what that begins."""
        while self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
