"""uvicorn's httptools protocol with limits on a request's head, and with replies to clients that close their half.

It knows no route; `espalier serve` passes it to uvicorn. It extends private methods of uvicorn: pyproject.toml pins the
tested releases, and tests/unit/server/test_uvicorn.py names the methods.
"""

from __future__ import annotations

import asyncio
from typing import Any
from weakref import WeakKeyDictionary

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from espalier.server.http.connections import IdleConnections
from espalier.server.http.wire import ABORT

HEAD_BYTES = 65_536
"""The limit for the request line and the headers together; h11 has the same."""
HEAD_SECONDS = 30.0
"""The time limit from a new connection, or the first byte of its next request, to the end of the headers."""
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
FULL_SHARE = 0.9
"""The share of the connections that the server takes, from which on idle ones make room for new ones."""
MOST_CONNECTIONS = 1_000
"""Where the server has no limit of its own."""
PROBE_SECONDS = 5.0
"""The longest pause between two looks whether a client that closed its half is still there."""
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 25\r\nconnection: close\r\n\r\nThe headers are too long."
)


_TABLES: WeakKeyDictionary[Any, IdleConnections] = WeakKeyDictionary()
"""By the state of a server: its connections."""


class GuardedProtocol(HttpToolsProtocol):
    """Replies 431 to a head that is too large, and cuts a connection whose head is too slow. The scope of a request has
    a function that cuts its connection (`wire.ABORT`). Where there are too many connections, idle ones make room; those
    that have sent a valid key stay."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._is_in_head, self._is_refused = True, False
        self._waiting, self._parsed, self._heads = (
            0,
            0,
            0,
        )  # bytes received of the head; bytes parsed of it; finished heads
        self._timer: asyncio.TimerHandle | None = None
        self._has_key = False
        if self.server_state not in _TABLES:
            most = self.limit_concurrency or MOST_CONNECTIONS
            _TABLES[self.server_state] = IdleConnections(int(most * FULL_SHARE))
        self._table = _TABLES[self.server_state]

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._table.opened(self, self._address)
        self._start()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop()
        self._table.closed(self, self._address)
        super().connection_lost(exc)

    @property
    def _address(self) -> str:
        return self.client[0] if self.client else ""

    def make_room(self) -> None:
        """Close the connection, which waits for a request."""
        self.transport.abort()

    def data_received(self, data: bytes) -> None:
        was_in_head, heads = self._is_in_head, self._heads
        if was_in_head:
            self._start()
        super().data_received(data)
        if was_in_head and self._is_in_head and heads == self._heads:
            self._waiting += len(data)
            if self._waiting > HEAD_BYTES:
                self._refuse()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._start()
        scope: dict[str, Any] = self.scope  # type: ignore[assignment]
        scope["extensions"] = {ABORT: self.transport.abort}

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._count(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        super().on_header(name, value)
        self._count(len(name) + len(value) + 4)

    def on_headers_complete(self) -> None:
        self._is_in_head, self._waiting, self._parsed = False, 0, 0
        self._heads += 1
        self._stop()
        self._table.works(self, self._address)
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        self._is_in_head = True
        super().on_message_complete()

    def on_response_complete(self) -> None:
        caller = (self.cycle.scope.get("state") or {}).get("caller") if self.cycle is not None else None
        self._has_key = self._has_key or getattr(caller, "has_key", False)
        super().on_response_complete()
        if self._is_in_head and not self.pipeline and (self.cycle is None or self.cycle.response_complete):
            self._table.waits(self, self._address, has_key=self._has_key)

    def eof_received(self) -> bool | None:  # type: ignore[override]
        """A client that has sent its whole request may close its half of the connection and read on. One that is gone
        sends the same, so we write to it until its machine objects, or the reply begins."""
        last = self.pipeline[0][0] if self.pipeline else self.cycle
        if last is None or last.response_complete or last.more_body:
            return None
        last.keep_alive = False
        self._probe(last, 0.02)
        return True

    def _probe(self, last: RequestResponseCycle, pause: float) -> None:
        """Write an interim response, which every client skips; HTTP/1.0 has none."""
        if last.response_started or last.disconnected or self.transport.is_closing():
            return
        if last.scope["http_version"] == "1.1" and last is self.cycle and not self.pipeline:
            self.transport.write(CONTINUE)
        self.loop.call_later(pause, self._probe, last, min(2 * pause, PROBE_SECONDS))

    def send_400_response(self, msg: str) -> None:
        if self._parsed > HEAD_BYTES:
            self._refuse()
        else:
            super().send_400_response(msg)

    def _count(self, size: int) -> None:
        """Raises ValueError if the head is too large: it stops the parser, which then calls `send_400_response`."""
        self._parsed += size
        if self._parsed > HEAD_BYTES:
            raise ValueError("the headers are too long")

    def _refuse(self) -> None:
        if not self._is_refused and not self.transport.is_closing():
            self._is_refused = True
            self.transport.write(TOO_LARGE)
            self.transport.close()

    def _start(self) -> None:
        if self._timer is None:
            self._timer = self.loop.call_later(HEAD_SECONDS, self._too_slow)

    def _stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_slow(self) -> None:
        self._timer = None
        if self.cycle is not None and not self.cycle.response_complete:
            self._start()  # a pipelined request waits for the reply to the one before
        else:
            self.transport.abort()
