"""Passes requests on to the server behind the proxy, and its replies back, as they come and byte by byte.

Bodies and streams are never held. A client that leaves ends the request behind the proxy; a server that does not answer
is an error of ours (502, 504). It knows no route and no body.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import httpx2
from starlette.types import Message, Receive, Scope, Send

from espalier.errors import Cancelled, EspalierError
from espalier.server.answering.stream_errors import write_error_event
from espalier.server.http.errors import BadGateway, GatewayTimeout
from espalier.server.http.leaving import unless_gone
from espalier.server.http.wire import READ_SECONDS, cut
from espalier.server.proxy.headers import Headers, passed_on, value_of

T = TypeVar("T")
log = logging.getLogger(__name__)
CONNECTING = 3
"""How often a connection is tried that is not there in time."""
MOST_REPLY = 256 * 2**20
"""Bytes of a reply that is held to be traced."""
MOST_HELD = 512 * 2**20
"""The same of all replies at once."""
MOST_EVENT = 64 * 2**20
EVENTS = b"text/event-stream"


class IncomingRequest:
    """A client's request: its body as it arrives, and whether the client is still there."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._has_ended = asyncio.Event()
        self._is_gone = False

    async def chunks(self) -> AsyncIterator[bytes]:
        """The pieces of the body. Raises Cancelled if the client leaves."""
        while not self._has_ended.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                self._is_gone = True
                self._has_ended.set()
                raise Cancelled("the client has gone")
            if not message.get("more_body", False):
                self._has_ended.set()
            if body := message.get("body", b""):
                yield body

    async def read(self, most: int) -> tuple[bytes, bool]:
        """The body, and whether that is all of it: of a longer one than `most` bytes, what has arrived by then."""
        body = bytearray()
        async for piece in self.chunks():
            body += piece
            if len(body) > most:
                return bytes(body), self._has_ended.is_set()
        return bytes(body), True

    async def gone(self) -> None:
        """Returns when the client has left, after its whole body was read."""
        await self._has_ended.wait()
        while not self._is_gone:
            self._is_gone = (await self._receive())["type"] == "http.disconnect"

    async def while_there(self, work: Coroutine[Any, Any, T]) -> T:
        """Await the work. If the client leaves first, cancel it and raise Cancelled."""
        return await unless_gone(work, self.gone())


class Heard:
    """The reply that passes to a client. is_reply: whether it is no error. body: its bytes; None for an error, for one
    that is encoded, and for one of more than `most` bytes."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.is_reply = False
        self.body: bytearray | None = None

    def begins(self, status: int, headers: Headers) -> None:
        self.is_reply = status == 200
        if self.is_reply and value_of(headers, b"content-encoding") in (None, b"identity"):
            self.body = bytearray()

    def takes(self, piece: bytes) -> None:
        if self.body is not None:
            self.body += piece
            if len(self.body) > self._most:
                self.body = None


class ReplySize:
    """How much is held of one reply."""

    def __init__(self, budget: ReplyBudget) -> None:
        self._budget, self.size = budget, 0

    def take(self, size: int) -> None:
        """So many bytes more are held. Raises BadGateway beyond a limit."""
        self.size += size
        self._budget.held += size
        if self.size > self._budget.most:
            raise BadGateway(f"the reply has more than {self._budget.most:,} bytes", hint="a smaller --n-probs")
        if self._budget.held > self._budget.total:
            raise BadGateway(f"replies of more than {self._budget.total:,} bytes are traced at once", hint="try again")


class ReplyBudget:
    """Bytes of replies that the proxy holds: at most `most` of one, and `total` of all. Use from one event loop."""

    def __init__(self, most: int = MOST_REPLY, total: int = MOST_HELD) -> None:
        self.most, self.total, self.held = most, total, 0

    @contextmanager
    def reply(self) -> Iterator[ReplySize]:
        """While open, what is held of a reply counts."""
        held = ReplySize(self)
        try:
            yield held
        finally:
            self.held -= held.size


class Outgoing:
    """What is sent to the client. has_begun: whether the head of the reply is out; has_ended: its last byte. heard:
    takes it too."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send = scope, send
        self.has_begun = self.has_ended = False
        self.heard: Heard | None = None
        self._is_stream, self._tail = False, b""

    async def begin(self, status: int, headers: Headers) -> None:
        self.has_begun = True
        is_plain = value_of(headers, b"content-encoding") in (None, b"identity")
        is_open = is_plain and value_of(headers, b"content-length") is None
        self._is_stream = is_open and (value_of(headers, b"content-type") or b"").startswith(EVENTS)
        if self.heard is not None:
            self.heard.begins(status, headers)
        await self._sent({"type": "http.response.start", "status": status, "headers": headers})

    async def body(self, piece: bytes, *, more: bool = True) -> None:
        if self.heard is not None:
            self.heard.takes(piece)
        self._tail, self.has_ended = (self._tail + piece[-2:])[-2:], not more
        await self._sent({"type": "http.response.body", "body": piece, "more_body": more})

    async def fail(self, error: EspalierError) -> None:
        """End a reply that has begun and cannot be finished: a stream by an error event, in the shape of its route; any
        other, in which no error can stand, by the end of the connection."""
        if not self._is_stream:
            await self.cut()
            return
        gap = b"" if self._tail in (b"", b"\n\n") else b"\n\n"
        await self.body(gap + write_error_event(error, self._scope["path"]), more=False)

    async def cut(self) -> None:
        """End the connection, so that the client sees that the reply is not whole."""
        await cut(self._scope)

    async def _sent(self, message: Message) -> None:
        """Waits while the client does not read; raises Cancelled when that takes too long."""
        try:
            async with asyncio.timeout(READ_SECONDS):
                await self._send(message)
        except TimeoutError as error:
            await self.cut()
            raise Cancelled("the client does not read") from error


class Upstream:
    """The server behind the proxy, with the client that asks it."""

    def __init__(
        self, client: httpx2.AsyncClient, url: str, *, key: str | None = None, hides_key: bool = False
    ) -> None:
        """url: such as http://127.0.0.1:8080; a path in it goes before every path. key: sent in place of the client's;
        None leaves the client's. hides_key: whether the client's key is ours, and stays here. client: the caller's, who
        closes it."""
        self.client, self.url = client, httpx2.URL(url.rstrip("/") + "/")
        self.budget = ReplyBudget()
        self._key, self._hides_key = key, hides_key or key is not None

    def request(self, scope: Scope, content: bytes | AsyncIterator[bytes] | None, headers: Headers) -> httpx2.Request:
        """The same request for the server. headers: the client's, without those of its connection."""
        path: bytes = scope.get("raw_path") or scope["path"].encode()
        query: bytes = scope.get("query_string", b"")
        target = self.url.raw_path.rstrip(b"/") + path + (b"?" + query if query else b"")
        kept = [(n, v) for n, v in headers if n != b"host" and not (self._hides_key and n == b"authorization")]
        return self._build_request(scope["method"], self.url.copy_with(raw_path=target), content, kept)

    def post(self, path: str, content: bytes) -> httpx2.Request:
        """A request of our own with a JSON body."""
        url = self.url.copy_with(raw_path=self.url.raw_path.rstrip(b"/") + path.encode())
        return self._build_request("POST", url, content, [(b"content-type", b"application/json")])

    def _build_request(
        self, method: str, url: httpx2.URL, content: bytes | AsyncIterator[bytes] | None, headers: Headers
    ) -> httpx2.Request:
        headers = [*headers, (b"connection", b"close")]
        if self._key is not None:
            headers.append((b"authorization", b"Bearer " + self._key.encode()))
        # Not by `build_request`, which adds headers of its own.
        limits = {"timeout": self.client.timeout.as_dict()}
        return httpx2.Request(method, url, content=content, headers=headers, extensions=limits)

    async def open(self, request: httpx2.Request) -> httpx2.Response:
        """The head of the reply. Raises BadGateway, GatewayTimeout, Cancelled."""
        try:
            return await self._sent(request)
        except httpx2.ConnectTimeout as error:
            seconds = CONNECTING * (self.client.timeout.connect or 0)
            raise GatewayTimeout(f"no connection to {self.name} within {seconds:g} seconds") from error
        except httpx2.TimeoutException as error:
            raise GatewayTimeout(
                f"{self.name} has sent nothing for {self.client.timeout.read:g} seconds", hint="a longer --timeout"
            ) from error
        except httpx2.HTTPError as error:
            if isinstance(error.__cause__, Cancelled):
                raise error.__cause__ from None
            raise BadGateway(f"{self.name} does not answer", hint="is the server behind the proxy running?") from error

    async def _sent(self, request: httpx2.Request) -> httpx2.Response:
        """The clock of a connection goes on while this process gets no CPU, and may run out although the server is
        there. Nothing has been sent by then, so that it is safe to connect again."""
        for _ in range(CONNECTING - 1):
            try:
                return await self.client.send(request, stream=True)
            except httpx2.ConnectTimeout:
                log.info("no connection to %s in time: once more", self.name)
        return await self.client.send(request, stream=True)

    def broken(self) -> BadGateway:
        """The error for a reply that ended early."""
        return BadGateway(f"{self.name} has ended its reply early")

    @property
    def name(self) -> str:
        """The address, without what may be secret in it."""
        return f"{self.url.scheme}://{self.url.netloc.decode()}"


def make_client(*, connect_seconds: float, read_seconds: float) -> httpx2.AsyncClient:
    """A client that opens a connection for each request: llama-server drops those that it has kept alive. It takes no
    proxy from the environment, follows no redirect, and keeps no cookie."""
    return httpx2.AsyncClient(
        limits=httpx2.Limits(max_connections=None, max_keepalive_connections=0),
        timeout=httpx2.Timeout(read_seconds, connect=connect_seconds, pool=None),
        trust_env=False,
        follow_redirects=False,
    )


async def pass_through(
    upstream: Upstream, scope: Scope, incoming: IncomingRequest, outgoing: Outgoing, *, begun: bytes | None = None
) -> None:
    """Pass one request on and its reply back. begun: the part of the body that was already read; None for none.
    Raises BadGateway, GatewayTimeout, Cancelled; only before the reply has begun."""

    async def body() -> AsyncIterator[bytes]:
        if begun:
            yield begun
        async for piece in incoming.chunks():
            yield piece

    async def relay() -> None:
        headers = passed_on(scope["headers"], without=(b"expect",))
        has_body = any(n.lower() in (b"content-length", b"transfer-encoding") for n, _ in scope["headers"])
        if not has_body:
            async for _ in incoming.chunks():  # an empty one: its end is awaited, so that `gone` can watch
                pass
        answer = await upstream.open(upstream.request(scope, body() if has_body else None, headers))
        try:
            await relay_reply(answer, outgoing, upstream)
        finally:
            await answer.aclose()

    await incoming.while_there(relay())


async def relay_reply(answer: httpx2.Response, outgoing: Outgoing, upstream: Upstream) -> None:
    """Pass the reply on as it comes. Raises BadGateway if the server ends it early."""
    await outgoing.begin(answer.status_code, passed_on(answer.headers.raw))
    async for piece in pieces_of(answer, upstream):
        await outgoing.body(piece)
    await outgoing.body(b"", more=False)


async def pieces_of(answer: httpx2.Response, upstream: Upstream) -> AsyncIterator[bytes]:
    """The reply as it comes. Raises BadGateway if the server ends it early."""
    try:
        async for piece in answer.aiter_raw():
            yield piece
    except httpx2.HTTPError as error:
        raise upstream.broken() from error


async def read_whole(answer: httpx2.Response, upstream: Upstream, held: ReplySize) -> bytes:
    """The whole reply. Raises BadGateway for one that is too long or ends early."""
    body = bytearray()
    async for piece in pieces_of(answer, upstream):
        held.take(len(piece))
        body += piece
    return bytes(body)


async def events_of(answer: httpx2.Response, upstream: Upstream, held: ReplySize) -> AsyncIterator[bytes]:
    """The events of a stream with their line ends, and what follows the last one. Raises BadGateway for an event, or a
    stream, that is too long, and if the server ends the reply early."""
    rest, looked = bytearray(), 0  # looked: bytes in which there is no end of an event
    async for piece in pieces_of(answer, upstream):
        held.take(len(piece))
        rest += piece
        while (end := rest.find(b"\n\n", looked)) >= 0:
            end += 2
            while rest[end : end + 1] == b"\n":
                end += 1
            yield bytes(rest[:end])
            del rest[:end]
            looked = 0
        looked = max(0, len(rest) - 1)
        if len(rest) > MOST_EVENT:
            raise BadGateway(f"an event of the stream has more than {MOST_EVENT:,} bytes", hint="a smaller --n-probs")
    if rest:
        yield bytes(rest)
