"""Passes requests on to the server behind the proxy, and its replies back, as they come and byte by byte.

Bodies and streams are never held. A client that leaves ends the request behind the proxy; a server that does not answer
is an error of ours (502, 504). It knows no route and no body.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

import httpx2
from starlette.types import Message, Receive, Scope, Send

from espalier.errors import Cancelled
from espalier.server.http.errors import BadGateway, GatewayTimeout
from espalier.server.http.leaving import unless_gone
from espalier.server.http.wire import READ_SECONDS, cut
from espalier.server.proxy.headers import Headers, passed_on, value_of

T = TypeVar("T")
log = logging.getLogger(__name__)
CONNECTING = 3
"""How often a connection is tried that is not there in time."""


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


class Outgoing:
    """What is sent to the client. has_begun: whether the head of the reply is out. heard: takes it too."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send = scope, send
        self.has_begun = False
        self.heard: Heard | None = None

    async def begin(self, status: int, headers: Headers) -> None:
        self.has_begun = True
        if self.heard is not None:
            self.heard.begins(status, headers)
        await self._sent({"type": "http.response.start", "status": status, "headers": headers})

    async def body(self, piece: bytes, *, more: bool = True) -> None:
        if self.heard is not None:
            self.heard.takes(piece)
        await self._sent({"type": "http.response.body", "body": piece, "more_body": more})

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
            await relay_reply(answer, outgoing)
        finally:
            await answer.aclose()

    await incoming.while_there(relay())


async def relay_reply(answer: httpx2.Response, outgoing: Outgoing) -> None:
    """Pass the reply on as it comes. If the server ends it early, the client's connection is cut."""
    await outgoing.begin(answer.status_code, passed_on(answer.headers.raw))
    try:
        async for piece in answer.aiter_raw():
            await outgoing.body(piece)
    except httpx2.HTTPError:
        await outgoing.cut()
        raise Cancelled("the server behind the proxy has ended its reply early") from None
    await outgoing.body(b"", more=False)
