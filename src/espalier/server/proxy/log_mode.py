"""Log mode: links each reply that passes with its rejections in the log of a patched llama-server.

The log is followed and never read again. `trace/foreign` links a reply, with the evidence that it asks for; what it
cannot link is unknown. A reply without log probabilities is passed on and not traced.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import httpx2

from espalier.errors import Cancelled, EspalierError
from espalier.server.proxy.exchange import Exchange
from espalier.server.proxy.headers import passed_on, value_of
from espalier.server.proxy.state import ProxyProcess
from espalier.trace.foreign.follow import LogFollower, News
from espalier.trace.foreign.matching import Link, MatchError
from espalier.trace.foreign.merge import Combined, Sides, combined
from espalier.trace.foreign.read import trace_of_combined
from espalier.trace.foreign.responses import Response, ResponseError, read_response
from espalier.upstream.xray.wire.request import PATHS

log = logging.getLogger(__name__)
HEADER = b"x-combined-data-available"
MOST_EVENTS = 20_000
"""Events that are remembered for requests that run."""
MOST_REPLY = 32 * 2**20
SETTLING_SECONDS = 0.5
"""How long a log may lag behind the reply; as long as the tracer's own proxy waits."""
LOOKS = 5


class Window:
    """The latest events of a log, by how many came before."""

    def __init__(self, follower: LogFollower) -> None:
        self._follower = follower
        self._events: deque[Mapping[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._count = 0
        self._news = News()
        self._lock = threading.Lock()

    def poll(self) -> int:
        """Read what is new, and return how many events there were so far. Raises what `LogFollower.poll` raises."""
        with self._lock:
            self._news = self._follower.poll()
            self._events.extend(self._news.events)
            self._count += len(self._news.events)
            return self._count

    def since(self, count: int) -> tuple[list[Mapping[str, Any]], bool, News]:
        """The events after the first `count`, and whether none of them is forgotten."""
        with self._lock:
            first = self._count - len(self._events)
            return list(self._events)[max(0, count - first) :], count >= first, self._news

    def close(self) -> None:
        self._follower.close()


class LogMode:
    """The Tracer of log mode."""

    def __init__(self, process: ProxyProcess, window: Window) -> None:
        self._process, self._window = process, window
        self._running = 0

    async def serve(self, exchange: Exchange) -> None:
        scope = exchange.scope
        if scope["method"] != "POST" or (scope["path"].removesuffix("/") or "/") not in PATHS:
            await exchange.pass_through()
            return
        body, is_whole = await exchange.incoming.read(self._process.proxy.body_bytes)
        if not is_whole:
            await exchange.pass_through(body)
            return
        self._running += 1
        is_alone = self._running == 1
        try:
            await exchange.incoming.while_there(self._exchanged(exchange, body, is_alone=is_alone))
        finally:
            self._running -= 1

    async def _exchanged(self, exchange: Exchange, body: bytes, *, is_alone: bool) -> None:
        start = await self._polled(exchange)
        headers = passed_on(exchange.scope["headers"], without=(b"expect", b"transfer-encoding", b"content-length"))
        answer = await exchange.upstream.open(exchange.upstream.request(exchange.scope, body, headers))
        outgoing = exchange.outgoing
        kept = bytearray()
        raw = answer.headers.raw
        is_plain = value_of(raw, b"content-encoding") in (None, b"identity") and answer.status_code == 200
        is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
        path = self._process.keeper.path_of(exchange.request_id)
        try:
            if is_plain and not is_stream:
                await self._whole(exchange, answer, start, is_alone=is_alone)
                return
            shown = passed_on(raw)
            if is_plain and path is not None:
                shown.append((HEADER, str(path).encode()))
            await outgoing.begin(answer.status_code, shown)
            try:
                async for piece in answer.aiter_raw():
                    await outgoing.body(piece)
                    if len(kept) <= MOST_REPLY:
                        kept += piece
            except httpx2.HTTPError:
                await self._trace(exchange, bytes(kept), start, path, is_alone=is_alone)
                await outgoing.cut()
                raise Cancelled("the server behind the proxy has ended its reply early") from None
            await outgoing.body(b"", more=False)
        finally:
            await answer.aclose()
        if is_plain:
            await self._trace(exchange, bytes(kept), start, path, is_alone=is_alone)

    async def _whole(self, exchange: Exchange, answer: httpx2.Response, start: int, *, is_alone: bool) -> None:
        """A reply that is no stream is traced before it is passed on, so that its header names a file that is there."""
        try:
            raw = b"".join([piece async for piece in answer.aiter_raw()])
        except httpx2.HTTPError as error:
            raise exchange.upstream.broken() from error
        path = self._process.keeper.path_of(exchange.request_id)
        is_kept = await self._trace(exchange, raw, start, path, is_alone=is_alone)
        headers = passed_on(answer.headers.raw, without=(b"content-length",))
        headers.append((b"content-length", str(len(raw)).encode()))
        if is_kept and path is not None:
            headers.append((HEADER, str(path).encode()))
        await exchange.outgoing.begin(answer.status_code, headers)
        await exchange.outgoing.body(raw, more=False)

    async def _polled(self, exchange: Exchange) -> int:
        try:
            return await asyncio.to_thread(self._window.poll)
        except EspalierError as error:
            log.warning("the rejection log cannot be read: %s", error,
                        extra={"fields": {"request_id": exchange.request_id}})  # fmt: skip
            return 0

    async def _trace(self, exchange: Exchange, raw: bytes, start: int, path: Any, *, is_alone: bool) -> bool:
        """Link the reply and keep its trace; returns whether there is a file. Nothing that goes wrong reaches the
        client."""
        fields = {"fields": {"request_id": exchange.request_id}}
        try:
            response = await asyncio.to_thread(read_response, raw)
            sides = Sides.of(response)
        except ResponseError as error:
            log.info("a reply is not traced: %s", error, extra=fields)
            return False
        try:
            found = await self._linked(exchange, response, sides, start, is_alone=is_alone)
            stamp = datetime.now().isoformat(timespec="seconds")
            found.data["metadata"]["timestamp"] = stamp
            trace = await asyncio.to_thread(lambda: trace_of_combined(found.data, "the reply").to_json())
            return await self._process.keeper.keep(
                trace, lambda: found.data, request_id=exchange.request_id, caller=exchange.caller,
                route=exchange.scope["path"], path=path,
            )  # fmt: skip
        except EspalierError as error:
            log.warning("a reply could not be traced: %s", error, extra=fields)
        except Exception:
            log.exception("a reply could not be traced", extra=fields)
        return False

    async def _linked(
        self, exchange: Exchange, response: Response, sides: Sides, start: int, *, is_alone: bool
    ) -> Combined:
        """The reply with its events, looked for again while the log may still lag behind."""
        for look in range(LOOKS):
            await self._polled(exchange)
            found = await asyncio.to_thread(self._combined, response, sides, start, is_alone=is_alone)
            if found.is_matched and found.data["summary"]["rejected_steps"]:
                return found
            if look + 1 < LOOKS:
                await asyncio.sleep(SETTLING_SECONDS / LOOKS)
        return found

    def _combined(self, response: Response, sides: Sides, start: int, *, is_alone: bool) -> Combined:
        events, is_complete, news = self._window.since(start)
        survey = sides.survey(log_version=news.log_version, keep=True, is_alone=is_alone)
        for event in events:
            survey.add(event)
        survey.close(is_closed=news.is_closed, is_late=not is_complete, header=news.header)
        try:
            link = survey.choose(own=response.request, task=response.task, reported_slot=response.slot)
        except MatchError as error:
            link = Link(how="none", reason=error.message)  # several fit: none is shown, rather than a wrong one
        mine = [] if link.key is None or link.how == "none" else list(survey.events(link.key))
        return combined(sides, link, mine, log_version=news.log_version, timestamp=news.timestamp)


@asynccontextmanager
async def log_mode(process: ProxyProcess) -> AsyncIterator[LogMode]:
    """The tracer of log mode. What is in the log already belongs to requests that have gone elsewhere."""
    name = process.proxy.rejection_log
    assert name is not None, "ProxySettings demands one"
    window = Window(LogFollower(name))
    try:
        await asyncio.to_thread(window.poll)
    except EspalierError as error:
        log.warning("the rejection log cannot be read yet: %s", error)
    try:
        yield LogMode(process, window)
    finally:
        await asyncio.to_thread(window.close)
