"""Log mode: links each reply that passes with its rejections in the log of a patched llama-server.

The log is followed and never read again. A whole reply is traced before it is passed on; a stream passes as it comes,
and only its end waits for the trace, which is made also if the client has left. A file says first what is known then,
and is written again when other requests that ran at the same time tell more, or have not ended for a minute.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path

import httpx2

from espalier.errors import Cancelled, EspalierError
from espalier.server.http.errors import BadGateway
from espalier.server.proxy.exchange import ProxyExchange
from espalier.server.proxy.forward import ReplySize, pieces_of, read_whole
from espalier.server.proxy.headers import passed_on, value_of
from espalier.server.proxy.log.linking import LinkDecision, Linking, Passing
from espalier.server.proxy.log.window import Window
from espalier.server.proxy.outliving import Outliving
from espalier.server.proxy.state import ProxyProcess
from espalier.trace.foreign.follow import LogFollower
from espalier.trace.foreign.merge import ReplySide
from espalier.trace.foreign.read import trace_of_combined
from espalier.trace.foreign.responses import ResponseError, read_response
from espalier.upstream.xray.wire.request import PATHS

log = logging.getLogger(__name__)
HEADER = b"x-combined-data-available"
MOST_REPLY = 32 * 2**20
SETTLING_SECONDS = 0.5
"""How long a log may lag behind the reply; as long as the tracer's own proxy waits."""
LOOKS = 5
LATEST_SECONDS = 60.0
"""How long a reply waits for the requests that ran at the same time. There may always be one that still runs."""


class LogMode:
    """The Tracer of log mode. needs_growth: whether nothing is traced until the log has grown, since it may be left
    over from another server."""

    def __init__(self, process: ProxyProcess, window: Window, *, needs_growth: bool = False) -> None:
        self._process, self._window, self._needs_growth = process, window, needs_growth
        self._linking = Linking(window)
        self._outliving = Outliving()
        self._ended = asyncio.Event()  # set, and replaced, whenever a request ends

    async def serve(self, exchange: ProxyExchange) -> None:
        if not is_generation(exchange):
            await exchange.pass_through()
            return
        body, is_whole = await exchange.incoming.read(self._process.proxy.body_bytes)
        if not is_whole:
            log.info("a request is not traced: its body is too long", extra=_fields(exchange))
            await exchange.pass_through(body)
            return
        proxied = _ProxyRequest(self, exchange, self._linking.begin(await self.poll(exchange)))
        try:
            await exchange.incoming.while_there(proxied.serve(body))
        finally:
            if not proxied.is_traced:
                self.end(proxied.passing, await self.poll(exchange))

    async def poll(self, exchange: ProxyExchange | None = None) -> int:
        """Read what is new in the log; returns how many events there were so far."""
        try:
            return await asyncio.to_thread(self._window.poll)
        except EspalierError as error:
            log.warning("the rejection log cannot be read: %s", error, extra=_fields(exchange))
            return self._window.count

    @property
    def is_proven(self) -> bool:
        """Whether the log is known to be this server's."""
        return self._window.has_grown or not self._needs_growth

    def end(self, passing: Passing, end: int) -> None:
        self._linking.end(passing, end)
        self._ended.set()
        self._ended = asyncio.Event()

    async def keep(self, exchange: ProxyExchange, raw: bytes, passing: Passing, path: Path | None) -> bool:
        """Link the reply with its events and keep its traces; returns whether the first has its file. Nothing that goes
        wrong reaches the client."""
        try:
            return await self._keep_all(exchange, raw, passing, path)
        except ResponseError as error:
            log.info("a reply is not traced: %s", error, extra=_fields(exchange))
        except EspalierError as error:
            log.warning("a reply could not be traced: %s", error, extra=_fields(exchange))
        except Exception:
            log.exception("a reply could not be traced", extra=_fields(exchange))
        finally:
            if passing.end is None:
                passing.is_void = True
                self.end(passing, await self.poll(exchange))
        return False

    async def _keep_all(self, exchange: ProxyExchange, raw: bytes, passing: Passing, path: Path | None) -> bool:
        response = await asyncio.to_thread(read_response, raw)
        outputs = [passing, *(self._linking.begin(passing.start) for _ in response.choices[1:])]
        try:
            for output, choice in zip(outputs, response.choices, strict=True):
                output.sides = await asyncio.to_thread(ReplySide.of, response, choice=choice.index)
            await self._settle(exchange, outputs)
        finally:
            for output in outputs:
                if output.end is None:
                    self.end(output, await self.poll(exchange))
        if not self.is_proven:
            log.info("a reply is not traced: %s has not grown", self._window.path, extra=_fields(exchange))
            return False
        kept = False
        for place, output in enumerate(outputs):
            target = path if place == 0 else self._process.keeper.path_of(exchange.request_id, index=place)
            decision = await asyncio.to_thread(self._linking.decide, output)
            is_written = await self._write(exchange, decision, target, place)
            kept = kept or (is_written and place == 0)
            if not decision.is_final:
                self._outliving.begin(self._keep_later(exchange, output, target, place))
        return kept

    async def _settle(self, exchange: ProxyExchange, outputs: Sequence[Passing]) -> None:
        """Wait while the log may still lag behind, and the events of the reply are not there."""
        for look in range(LOOKS):
            await self.poll(exchange)
            decisions = [await asyncio.to_thread(self._linking.decide, output) for output in outputs]
            has_all = all(decision.combined.data["summary"]["rejected_steps"] for decision in decisions)
            if look + 1 == LOOKS or (has_all and not self._window.news.is_cut):
                break
            await asyncio.sleep(SETTLING_SECONDS / LOOKS)

    async def _keep_later(self, exchange: ProxyExchange, output: Passing, path: Path | None, place: int) -> None:
        """Decide again as the requests end that ran at the same time, and write what is final: at the latest, what is
        known by then."""
        clock = asyncio.get_running_loop()
        latest = clock.time() + LATEST_SECONDS
        while True:
            ended, is_last = self._ended, clock.time() >= latest
            try:
                await self.poll(exchange)
                decision = await asyncio.to_thread(self._linking.decide, output, is_last=is_last)
                if decision.is_final:
                    await self._write(exchange, decision, path, place)
                    return
            except Exception:
                log.exception("a reply could not be traced again", extra=_fields(exchange))
                return
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(latest):
                    await ended.wait()

    async def _write(self, exchange: ProxyExchange, decision: LinkDecision, path: Path | None, place: int) -> bool:
        combined = decision.combined
        combined.data["metadata"]["timestamp"] = datetime.now().isoformat(timespec="seconds")
        if decision.is_final and combined.link is not None and combined.link.candidates:
            log.warning("a reply is linked to no task of the log: %s", combined.link.reason, extra=_fields(exchange))
        trace = await asyncio.to_thread(lambda: trace_of_combined(combined.data, "the reply").to_json())
        return await self._process.keeper.keep(
            trace,
            lambda: combined.data,
            request_id=exchange.request_id,
            caller=exchange.caller,
            route=exchange.scope["path"],
            path=path,
            index=place,
            is_stored=decision.is_final,
            ids=exchange.trace_ids,
        )

    def begin(self, exchange: ProxyExchange, raw: bytes, passing: Passing, path: Path | None) -> asyncio.Task[bool]:
        """Begin `keep`, which goes on to its end."""
        return self._outliving.begin(self.keep(exchange, raw, passing, path))

    async def close(self) -> None:
        self._linking.is_closing = True
        self._ended.set()
        await self._outliving.close()


class _ProxyRequest:
    """One request. is_traced: whether its reply is, or is about to be, looked for in the log."""

    def __init__(self, mode: LogMode, exchange: ProxyExchange, passing: Passing) -> None:
        self._mode, self._exchange, self.passing = mode, exchange, passing
        self._path = mode._process.keeper.path_of(exchange.request_id)
        self.is_traced = False

    async def serve(self, body: bytes) -> None:
        exchange = self._exchange
        without = (b"expect", b"transfer-encoding", b"content-length", b"accept-encoding")
        headers = [*passed_on(exchange.scope["headers"], without=without), (b"accept-encoding", b"identity")]
        upstream = exchange.upstream
        answer = await upstream.open(upstream.request(exchange.scope, body, headers))
        try:
            is_plain = value_of(answer.headers.raw, b"content-encoding") in (None, b"identity")
            if answer.status_code != 200 or not is_plain:
                self.passing.is_void = answer.status_code != 200
                if is_plain and answer.status_code == 200:
                    log.info("a reply is not traced: it is encoded", extra=_fields(exchange))
                await self._relay(answer, None)
            elif answer.headers.get("content-type", "").startswith("text/event-stream"):
                await self._relay(answer, bytearray())
            else:
                with upstream.budget.reply() as held:
                    await self._whole(answer, held)
        finally:
            await answer.aclose()

    async def _whole(self, answer: httpx2.Response, held: ReplySize) -> None:
        """A reply that is no stream is traced before it is passed on, so that its header names a file that is there."""
        exchange = self._exchange
        raw = await read_whole(answer, exchange.upstream, held)
        is_kept = await asyncio.shield(self._keep(raw))
        headers = passed_on(answer.headers.raw, without=(b"content-length",))
        headers.append((b"content-length", str(len(raw)).encode()))
        if is_kept and self._path is not None:
            headers.append((HEADER, str(self._path).encode()))
        headers += exchange.trace_header()
        await exchange.outgoing.begin(answer.status_code, headers)
        await exchange.outgoing.body(raw, more=False)

    async def _relay(self, answer: httpx2.Response, heard: bytearray | None) -> None:
        """Pass a reply on as it comes. heard: what has come, if it is to be traced; its end then waits for the trace,
        so that whoever reads to the end finds the file."""
        outgoing = self._exchange.outgoing
        headers = passed_on(answer.headers.raw)
        if heard is not None and self._path is not None and self._mode.is_proven:
            headers.append((HEADER, str(self._path).encode()))
        if heard is not None and self._mode.is_proven:
            self._exchange.trace_ids.update(self._mode._process.keeper.promise(1))
            headers += self._exchange.trace_header()
        await outgoing.begin(answer.status_code, headers)
        try:
            async for piece in pieces_of(answer, self._exchange.upstream):
                if heard is not None and len(heard) <= MOST_REPLY:
                    heard += piece
                await outgoing.body(piece)
        except BadGateway:
            if heard:
                await asyncio.shield(self._keep(bytes(heard)))
            raise
        except (asyncio.CancelledError, Cancelled):  # the client has left, or does not read
            if heard:
                self._keep(bytes(heard))
            raise
        if heard:
            await asyncio.shield(self._keep(bytes(heard)))
        await outgoing.body(b"", more=False)

    def _keep(self, raw: bytes) -> asyncio.Task[bool]:
        self.is_traced = True
        return self._mode.begin(self._exchange, raw, self.passing, self._path)


def is_generation(exchange: ProxyExchange) -> bool:
    """Whether the request asks for a text."""
    scope = exchange.scope
    return scope["method"] == "POST" and (scope["path"].removesuffix("/") or "/") in PATHS


def _fields(exchange: ProxyExchange | None) -> dict[str, dict[str, str]]:
    return {"fields": {} if exchange is None else {"request_id": exchange.request_id}}


@asynccontextmanager
async def opened_window(process: ProxyProcess) -> AsyncIterator[Window]:
    """The log that the settings name. What is in it already belongs to requests that have gone elsewhere."""
    name = process.proxy.rejection_log
    assert name is not None, "ProxySettings demands one"
    window = Window(LogFollower(name))
    try:
        await asyncio.to_thread(window.poll)
    except EspalierError as error:
        log.warning("the rejection log cannot be read yet: %s", error)
    try:
        yield window
    finally:
        await asyncio.to_thread(window.close)


@asynccontextmanager
async def log_mode(process: ProxyProcess) -> AsyncIterator[LogMode]:
    """The tracer of log mode."""
    async with opened_window(process) as window:
        mode = LogMode(process, window)
        try:
            yield mode
        finally:
            await mode.close()
