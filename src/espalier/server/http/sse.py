"""Server-sent events and streams of lines: sends chunks as they come, with keep-alive comments between events, and
stops when the client disconnects.

It knows neither the content nor its source. docs/dependencies.md says why it is not sse-starlette.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any, ClassVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from espalier.server.http.wire import PIECE, cut, to_bytes, to_bytes_by_parts

PING = b": ping\n\n"
DONE = b"data: [DONE]\n\n"
HEADERS = {"cache-control": "no-cache, no-transform", "x-accel-buffering": "no"}
"""Proxies must neither cache nor buffer the stream."""


def event(data: Any, *, name: str | None = None, by_parts: bool = False) -> bytes:
    """One event with JSON data. name: of the event. by_parts: encode in small parts, for large data in a thread."""
    named = b"" if name is None else b"event: " + name.encode() + b"\n"
    return named + b"data: " + (to_bytes_by_parts if by_parts else to_bytes)(data) + b"\n\n"


class EventStream(Response):
    """Sends chunks as they come. When the client disconnects, the iterator is closed at once. `close` runs in every
    case, even if nothing could be sent."""

    media_type = "text/event-stream"
    has_pings: ClassVar[bool] = True

    def __init__(
        self,
        chunks: AsyncGenerator[bytes],
        *,
        close: Callable[[], Awaitable[None]],
        ping_seconds: float,
        limit_seconds: float,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """limit_seconds: then the connection is cut, so that a client that does not read cannot hold resources."""
        super().__init__(headers={**HEADERS, **(headers or {})})
        del self.headers["content-length"]  # unknown in advance
        self._chunks, self._close = chunks, close
        self._ping_seconds, self._limit_seconds = ping_seconds, limit_seconds
        self._is_sending, self._last = False, time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        tasks: list[asyncio.Task[None]] = []
        try:
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            writing = asyncio.create_task(self._write(send))
            pinging = [asyncio.create_task(self._ping(send))] if self.has_pings else []
            tasks = [writing, *pinging, asyncio.create_task(_wait_for_disconnect(receive))]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED, timeout=self._limit_seconds)
            for task in (writing, *pinging):
                if task.done():
                    task.result()
            if not any(task.done() for task in tasks):
                await cut(scope)
        except OSError:
            pass  # how servers report that the client has disconnected
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
        """Send a comment whenever no chunk was sent for ping_seconds, but not while a chunk waits to be read. In a task
        of its own, since waiting for each chunk with a timeout would need a task per chunk."""
        while True:
            await asyncio.sleep(max(0.0, self._last + self._ping_seconds - time.monotonic()))
            if time.monotonic() - self._last >= self._ping_seconds:
                self._last = time.monotonic()
                if not self._is_sending:
                    await send({"type": "http.response.body", "body": PING, "more_body": True})


class LineStream(EventStream):
    """JSON objects, one a line, as Ollama streams them. There are no pings: clients parse every line."""

    media_type = "application/x-ndjson"
    has_pings = False


async def _wait_for_disconnect(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
