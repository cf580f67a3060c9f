"""Server-sent events: one chunk a line, comments while nothing happens, and an end as soon as nobody listens.

It knows neither what is sent nor where it comes from.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from espalier.server.http.wire import PIECE, cut, to_bytes, to_bytes_by_parts

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
HEADERS = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}
"""Proxies must neither keep nor gather what is sent."""


def event(data: Any, *, by_parts: bool = False) -> bytes:
    """One event of JSON. by_parts: it is large, and made beside the event loop."""
    return b"data: " + (to_bytes_by_parts if by_parts else to_bytes)(data) + b"\n\n"


class EventStream(Response):
    """Sends chunks as they come. When the client leaves, the iterator is closed at once; `close` runs in every case,
    also where nothing could be sent."""

    media_type = "text/event-stream"

    def __init__(
        self,
        chunks: AsyncGenerator[bytes],
        *,
        close: Callable[[], Awaitable[None]],
        ping_seconds: float,
        limit_seconds: float,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """limit_seconds: after so long the connection is cut, so that a client that reads nothing holds nothing."""
        super().__init__(headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]  # nobody knows it
        self._chunks, self._close = chunks, close
        self._ping_seconds, self._limit_seconds = ping_seconds, limit_seconds
        self._is_sending, self._last = False, time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks: list[asyncio.Task[None]] = []
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            writing = asyncio.create_task(self._write(send))
            pinging = asyncio.create_task(self._ping(send))
            tasks = [writing, pinging, asyncio.create_task(_gone(receive))]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=self._limit_seconds)
            for task in (writing, pinging):
                if task.done():
                    task.result()
            if not any(task.done() for task in tasks):
                await cut(scope)
        except OSError:
            pass  # so do servers say that the client has gone
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close()

    async def _write(self, send: Send) -> None:
        async with aclosing(self._chunks):
            async for chunk in self._chunks:
                self._is_sending = True
                for start in range(0, len(chunk), PIECE):
                    piece = chunk[start : start + PIECE]
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                self._is_sending, self._last = False, time.monotonic()
        self._is_sending = True
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _ping(self, send: Send) -> None:
        """A ping whenever no chunk came for a while; none while a chunk waits for its reader. Beside the chunks, since
        to wait for each of them with a limit would take a task for each."""
        while True:
            await asyncio.sleep(max(0.0, self._last + self._ping_seconds - time.monotonic()))
            if time.monotonic() - self._last >= self._ping_seconds:
                self._last = time.monotonic()
                if not self._is_sending:
                    await send({"type": "http.response.body", "body": PING, "more_body": True})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
