"""The head of a request: too large, too slow, in pieces, pipelined. Over a real loopback connection."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")

import uvicorn
from uvicorn.server import ServerState

from espalier.server.http import protocol
from espalier.server.http.protocol import HEAD_BYTES, GuardedProtocol
from espalier.server.http.wire import JsonResponse

GET = b"GET / HTTP/1.1\r\nhost: a\r\n"


async def _app(scope: Any, receive: Any, send: Any) -> None:
    if scope["path"] == "/large":
        await JsonResponse("x" * 20_000_000, limit_seconds=0.05)(scope, receive, send)
        return
    while (await receive()).get("more_body"):
        pass
    await JsonResponse("ok")(scope, receive, send)


@asynccontextmanager
async def connected(
    made: type[GuardedProtocol] = GuardedProtocol, **limits: Any
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    config = uvicorn.Config(_app, log_config=None, lifespan="off", **limits)
    config.load()
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: made(config, ServerState(), {}), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        yield reader, writer
    finally:
        writer.close()
        server.close()


def said(*pieces: bytes) -> bytes:
    """All that comes back until the connection is closed."""

    async def ask() -> bytes:
        async with connected() as (reader, writer):
            for one in pieces:
                writer.write(one)
                await asyncio.sleep(0)
            heard = b""
            try:
                while piece := await reader.read(65_536):
                    heard += piece
            except ConnectionError:  # also after a whole reply, where not all that was sent had come when it closed
                return heard or b"cut"
            return heard

    return asyncio.run(asyncio.wait_for(ask(), 60))


def close(*headers: bytes) -> bytes:
    return GET + b"".join(one + b"\r\n" for one in headers) + b"connection: close\r\n\r\n"


def test_a_head_within_the_limit_is_answered() -> None:
    assert said(close()).startswith(b"HTTP/1.1 200")
    assert said(close(b"x: " + b"a" * (HEAD_BYTES - 200))).startswith(b"HTTP/1.1 200")
    assert said(*[bytes([one]) for one in close()]).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize(
    "sent",
    [
        close(b"x: " + b"a" * HEAD_BYTES),
        close(*[b"x-%d: a" % one for one in range(10_000)]),
        b"GET /" + b"a" * HEAD_BYTES + b" HTTP/1.1\r\n\r\n",
        GET + b"x: " + b"a" * 70_000,  # and never ends
    ],
)
def test_a_head_that_is_too_large_is_answered_with_431(sent: bytes) -> None:
    assert b"HTTP/1.1 431 " in said(sent)[:20]


def test_a_large_body_is_no_large_head() -> None:
    body = b"x" * 200_000
    post = b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: %d\r\n\r\n" % len(body)
    assert said(post + body + post + body + close()).count(b"HTTP/1.1 200") == 3


@pytest.mark.parametrize("first", [b"", b"G", GET])
def test_a_head_that_does_not_come_ends_its_connection(monkeypatch: pytest.MonkeyPatch, first: bytes) -> None:
    monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)
    assert said(first) in (b"", b"cut")


def test_the_next_head_that_does_not_come_ends_its_connection_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def ask() -> None:
        async with connected(timeout_keep_alive=1000) as (reader, writer):
            writer.write(GET + b"\r\n")
            assert b'"ok"' in await reader.readuntil(b'"ok"')
            monkeypatch.setattr(protocol, "HEAD_SECONDS", 0.05)  # not for the first one, which is to be in time
            writer.write(GET)
            with suppress(ConnectionError):
                assert await reader.read() == b""

    asyncio.run(asyncio.wait_for(ask(), 60))


def test_a_large_reply_that_is_not_read_ends_its_connection() -> None:
    async def ask() -> None:
        lost = asyncio.Event()

        class Told(GuardedProtocol):
            def connection_lost(self, exc: Exception | None) -> None:
                super().connection_lost(exc)
                lost.set()

        async with connected(Told) as (_, writer):
            writer.write(GET.replace(b"/ ", b"/large ") + b"\r\n")
            await lost.wait()  # though nobody takes what was already written

    asyncio.run(asyncio.wait_for(ask(), 60))


def test_connections_above_the_limit_are_told_to_come_again() -> None:
    async def ask() -> bytes:
        async with connected(limit_concurrency=1) as (reader, writer):
            writer.write(close())
            return await reader.read()

    assert asyncio.run(asyncio.wait_for(ask(), 60)).startswith(b"HTTP/1.1 503")


def test_a_client_that_closes_its_half_gets_its_reply() -> None:
    async def ask() -> bytes:
        async with connected() as (reader, writer):
            writer.write(GET + b"\r\n")
            writer.write_eof()
            return await reader.read()

    answer = asyncio.run(asyncio.wait_for(ask(), 60))
    assert b"HTTP/1.1 200" in answer
    assert answer.endswith(b'"ok"')


def test_a_client_that_is_gone_is_noticed_although_it_could_have_closed_its_half() -> None:
    gone = []

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        while True:
            if (await receive())["type"] == "http.disconnect":
                gone.append(scope["path"])
                return

    async def ask() -> None:
        config = uvicorn.Config(waits, log_config=None, lifespan="off")
        config.load()
        state = ServerState()
        server = await asyncio.get_running_loop().create_server(
            lambda: GuardedProtocol(config, state, {}), "127.0.0.1", 0
        )
        _, writer = await asyncio.open_connection("127.0.0.1", server.sockets[0].getsockname()[1])
        writer.write(GET + b"\r\n")
        while not state.tasks:
            await asyncio.sleep(0)
        writer.close()
        await writer.wait_closed()
        while not gone:
            await asyncio.sleep(0)
        server.close()

    asyncio.run(asyncio.wait_for(ask(), 60))
