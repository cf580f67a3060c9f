"""Event streams: their bytes, and that they end in every case."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from espalier.server.http.sse import DONE, EventStream, event

SCOPE: dict[str, Any] = {"type": "http"}


class Reader:
    """What a server gives an application; `stuck`: it takes nothing but the head."""

    def __init__(self, *, stuck: bool = False, breaks: bool = False) -> None:
        self.leave = asyncio.Event()
        self.sent: list[Any] = []
        self._stuck, self._breaks = stuck, breaks

    async def receive(self) -> Any:
        await self.leave.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        if message["type"] == "http.response.body" and self._stuck:
            await asyncio.Event().wait()
        if message["type"] == "http.response.body" and self._breaks:
            raise OSError("the connection is gone")
        self.sent.append(message)

    @property
    def body(self) -> bytes:
        return b"".join(one.get("body", b"") for one in self.sent)


class Source:
    """Chunks, and whether the iterator was ended and the stream closed."""

    def __init__(self, *chunks: bytes, waits: bool = False) -> None:
        self._chunks, self._waits = chunks, waits
        self.has_ended = self.is_closed = False

    async def chunks(self) -> AsyncIterator[bytes]:
        try:
            for one in self._chunks:
                yield one
            if self._waits:
                await asyncio.Event().wait()
        finally:
            self.has_ended = True

    async def close(self) -> None:
        self.is_closed = True


async def run(source: Source, reader: Reader, *, limit: float = 60.0, ping: float = 60.0) -> None:
    stream = EventStream(source.chunks(), close=source.close, ping_seconds=ping, limit_seconds=limit)
    await stream(SCOPE, reader.receive, reader.send)


def test_an_event_is_one_line_whatever_is_in_it() -> None:
    made = event({"text": "a\nb\r\nc\u2028é"})
    assert made.startswith(b"data: {")
    assert made.endswith(b"}\n\n")
    assert made.count(b"\n") == 2
    assert b"\r" not in made


def test_all_chunks_are_sent_and_the_stream_ends() -> None:
    async def check() -> None:
        source, reader = Source(event({}), DONE), Reader()
        await run(source, reader)
        assert reader.body == event({}) + DONE
        assert reader.sent[-1] == {"type": "http.response.body", "body": b"", "more_body": False}
        assert source.is_closed
        headers = dict(reader.sent[0]["headers"])
        assert headers[b"content-type"].startswith(b"text/event-stream")
        assert b"content-length" not in headers

    asyncio.run(check())


def test_a_reader_that_leaves_ends_the_source() -> None:
    async def check() -> None:
        source, reader = Source(b"data: 1\n\n", waits=True), Reader()
        reader.leave.set()
        await run(source, reader)
        assert source.is_closed
        assert reader.sent[-1].get("more_body") is not False  # nobody takes it for a whole answer

    asyncio.run(check())


@pytest.mark.parametrize("how", ["stuck", "breaks"])
def test_a_reader_that_takes_nothing_is_cut_off(how: str) -> None:
    async def check() -> None:
        source, reader = Source(b"data: 1\n\n", waits=True), Reader(**{how: True})
        await run(source, reader, limit=0.01)
        assert source.is_closed
        assert source.has_ended

    asyncio.run(check())


def test_a_source_that_fails_is_still_closed() -> None:
    class Failing(Source):
        async def chunks(self) -> AsyncIterator[bytes]:
            raise RuntimeError("broken")
            yield b""

    async def check() -> None:
        source = Failing()
        with pytest.raises(RuntimeError, match="broken"):
            await run(source, Reader())
        assert source.is_closed

    asyncio.run(check())


def test_a_server_that_stops_closes_its_streams() -> None:
    async def check() -> None:
        source, reader = Source(b"data: 1\n\n", waits=True), Reader()
        task = asyncio.create_task(run(source, reader))
        while not reader.body:
            await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert source.is_closed
        assert source.has_ended

    asyncio.run(check())


def test_while_nothing_comes_pings_are_sent_and_none_while_a_chunk_waits() -> None:
    class Counting(Reader):
        tries = 0

        async def send(self, message: Any) -> None:
            self.tries += 1
            await super().send(message)
            if self.body.count(b": ping\n\n") == 2:
                self.leave.set()
                await asyncio.Event().wait()  # nor does it take another one until that is noticed

    async def check() -> None:
        source, reader = Source(b"data: 1\n\n", waits=True), Counting()
        await run(source, reader, ping=0.001)
        assert reader.body == b"data: 1\n\n: ping\n\n: ping\n\n"
        assert source.is_closed
        source, reader = Source(b"data: 1\n\n"), Counting(stuck=True)
        await run(source, reader, ping=0.001, limit=0.02)
        assert reader.tries == 2  # the head, and the chunk that nobody takes
        assert source.is_closed

    asyncio.run(check())
