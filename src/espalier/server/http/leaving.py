"""Work for a client that may leave before it is done. It does not know how one sees that a client has left."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from espalier.errors import Cancelled

T = TypeVar("T")


async def unless_gone(work: Coroutine[Any, Any, T], gone: Coroutine[Any, Any, None]) -> T:
    """Await the work and return its result. If `gone` returns first, cancel the work and raise Cancelled."""
    task, watch = asyncio.ensure_future(work), asyncio.ensure_future(gone)
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Cancelled("the client has gone")
    finally:
        for pending in (task, watch):
            pending.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)
