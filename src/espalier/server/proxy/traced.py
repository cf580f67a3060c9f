"""One traced request: the server is asked for more than the client did, that is taken out of the reply again, and each
output has its trace kept.

Bytes reach the client as they come; only the last piece of a stream waits, where something is left to be asked for.
Whatever fails here is logged, and the client still gets its reply. What is asked for, and what a reply tells, is each
server's own: `xray.py` for a llama-server, `vllm.py` for a vLLM.
"""

from __future__ import annotations

import asyncio
import logging
import time
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import httpx2

from espalier.errors import Cancelled, EspalierError, UpstreamError
from espalier.server.http.errors import BadGateway
from espalier.server.proxy.exchange import ProxyExchange
from espalier.server.proxy.forward import Heard, ReplySize, events_of, read_whole, relay_reply
from espalier.server.proxy.headers import passed_on, value_of
from espalier.server.proxy.keeping import TraceKeeper
from espalier.server.proxy.outliving import Outliving
from espalier.server.proxy.state import ProxyProcess
from espalier.trace.records import Trace
from espalier.upstream.xray.record import combined_of
from espalier.upstream.xray.untraceable import untraceable
from espalier.upstream.xray.wire.request import ClientRequest, UntracedRequest

T = TypeVar("T")
log = logging.getLogger(__name__)
FOLLOWING = 8
"""Replies that are followed at once; the others wait."""
HEADER = b"x-combined-data-available"
MOST_HEARD = 4 * 2**20
"""Of a reply that cannot be traced, whose text its trace says."""


class OutputTrace(NamedTuple):
    """The trace of one output. text: as the reply spells it. reply_id: the server's name of the reply, "" without."""

    trace: Trace
    text: str
    reply_id: str = ""


class Followers:
    """The threads in which replies are followed, and the work that outlives its request."""

    def __init__(self) -> None:
        self.outliving = Outliving()
        # Of their own, since they wait for the server: names of hosts are looked up, and replies read, in the loop's.
        self._threads = ThreadPoolExecutor(FOLLOWING, thread_name_prefix="x-ray")

    async def in_thread(self, work: Callable[[], T]) -> T:
        """The result of work that may wait for the server."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, work)

    async def close(self) -> None:
        """Wait for the traces of replies that have been sent."""
        await self.outliving.close()
        self._threads.shutdown(wait=False)

    async def read(
        self, exchange: ProxyExchange, process: ProxyProcess, understand: Callable[[bytes], Awaitable[T]]
    ) -> T | None:
        """Read the request's body, and return what is understood of it. None where that raises UntracedRequest: then
        the request has been passed on, and the log and its traces say why nothing was traced."""
        body, is_whole = await exchange.incoming.read(process.proxy.body_bytes)
        try:
            if not is_whole:
                raise UntracedRequest("its body is too long")
            return await understand(body)
        except UntracedRequest as why:
            log.info("a request is not traced: %s", why, extra={"fields": {"request_id": exchange.request_id}})
            await self._pass_untraceable(exchange, process.keeper, body, why)
            return None

    async def _pass_untraceable(
        self, exchange: ProxyExchange, keeper: TraceKeeper, body: bytes, why: UntracedRequest
    ) -> None:
        """Pass a request on. If something constrains it, each output gets a trace that says why nothing was traced."""
        parsed = why.asked
        if parsed is None:
            await exchange.pass_through(body)
            return
        exchange.outgoing.heard = heard = Heard(MOST_HEARD)
        try:
            await exchange.pass_through(body)
        except (Cancelled, BadGateway):  # the client has left, or the server ended its reply early
            if heard.is_reply:
                self.outliving.begin(
                    self._keep_untraceable(exchange, keeper, parsed, str(why), heard.body, is_cut=True)
                )
            raise
        if heard.is_reply:
            await self.outliving.finish(self._keep_untraceable(exchange, keeper, parsed, str(why), heard.body))

    async def _keep_untraceable(
        self,
        exchange: ProxyExchange,
        keeper: TraceKeeper,
        parsed: ClientRequest,
        why: str,
        raw: bytearray | None,
        *,
        is_cut: bool = False,
    ) -> None:
        fields = {"fields": {"request_id": exchange.request_id}}
        heard = None if raw is None else bytes(raw)
        try:
            traces = await self.in_thread(lambda: untraceable(parsed, why, heard, is_cut=is_cut))
            for index, trace in traces:
                path = keeper.path_of(exchange.request_id, index=index)
                made = OutputTrace(trace, trace.text)
                data, combined = await self.in_thread(partial(combined_trace, made, exchange.request_id))
                await keep_trace(keeper, exchange, data, combined, path=path, index=index)
        except EspalierError as error:
            log.warning("a request that cannot be traced has no trace that says so: %s", error, extra=fields)
        except Exception:
            log.exception("a request that cannot be traced has no trace that says so", extra=fields)


def combined_trace(made: OutputTrace, request_id: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The trace as JSON, and in its combined form."""
    data = made.trace.to_json()
    return data, combined_of(
        made.trace,
        data,
        text=made.text,
        request_id=made.reply_id or request_id,
        created=int(time.time()),
        timestamp=datetime.now().isoformat(timespec="seconds"),
    )


async def keep_trace(
    keeper: TraceKeeper,
    exchange: ProxyExchange,
    data: dict[str, Any],
    combined: dict[str, Any],
    *,
    path: Path | None,
    index: int,
) -> bool:
    """Whether there is a file."""
    return await keeper.keep(
        data,
        lambda: combined,
        request_id=exchange.request_id,
        caller=exchange.caller,
        route=exchange.scope["path"],
        path=path,
        index=index,
        ids=exchange.trace_ids,
    )


class TracedExchange(ABC):
    """One traced request. outputs: how many the reply has."""

    def __init__(self, followers: Followers, process: ProxyProcess, exchange: ProxyExchange, *, outputs: int) -> None:
        self._followers, self._process, self._exchange = followers, process, exchange
        self._outputs = outputs
        self._path = process.keeper.path_of(exchange.request_id)
        self._is_kept = False
        self._rest: bool | None = None  # whether a reply was cut that is sent and has no traces yet
        self._fields = {"fields": {"request_id": exchange.request_id}}

    @abstractmethod
    def content(self) -> bytes:
        """The body for the server."""

    @abstractmethod
    def strip(self, raw: bytes) -> tuple[bytes, int]:
        """One JSON object of the reply as the client gets it, and how many outputs it ends; an empty one is left out
        of a stream. Learns what it tells. Raises UpstreamError for anything else."""

    @abstractmethod
    def told(self, *, is_cut: bool) -> Iterable[int]:
        """The outputs of which something was told. is_cut: whether the reply ended before its end."""

    @abstractmethod
    def trace(self, index: int) -> OutputTrace:
        """The trace of an output. It may ask the server for more. Raises EspalierError."""

    def has_gaps(self) -> bool:
        """Whether the end of a stream waits for what the server is asked for."""
        return False

    @abstractmethod
    def doubt(self) -> None:
        """A reply did not fit what is known of the server."""

    async def serve(self) -> None:
        """Answer the client, and keep the traces. Raises as `pass_through`."""
        await self._exchange.incoming.while_there(self._answer())
        if self._rest is not None:  # not before: a client that leaves after its whole reply has not left it
            await self._trace(is_cut=self._rest)

    async def _answer(self) -> None:
        exchange = self._exchange
        without = (b"content-length", b"transfer-encoding", b"accept-encoding", b"expect")
        headers = [*passed_on(exchange.scope["headers"], without=without), (b"accept-encoding", b"identity")]
        upstream = exchange.upstream
        answer = await upstream.open(upstream.request(exchange.scope, self.content(), headers))
        try:
            kind = answer.headers.get("content-type", "")
            if answer.status_code != 200 or answer.headers.get("content-encoding", "identity") != "identity":
                await relay_reply(answer, exchange.outgoing, upstream)
            elif kind.startswith("text/event-stream"):
                with upstream.budget.reply() as held:
                    await self._stream(answer, held)
            elif kind.startswith("application/json"):
                with upstream.budget.reply() as held:
                    await self._whole(answer, held)
            else:
                await relay_reply(answer, exchange.outgoing, upstream)
        finally:
            await answer.aclose()

    async def _whole(self, answer: httpx2.Response, held: ReplySize) -> None:
        outgoing = self._exchange.outgoing
        raw = await read_whole(answer, self._exchange.upstream, held)
        try:
            raw, _ = await asyncio.to_thread(self.strip, raw)
        except UpstreamError as error:
            log.warning("a reply could not be read, so it is passed on with what was added: %s", error)
        else:
            await self._trace()
        headers = passed_on(answer.headers.raw, without=(b"content-length",))
        headers.append((b"content-length", str(len(raw)).encode()))
        if self._is_kept and self._path is not None:
            headers.append((HEADER, str(self._path).encode()))
        headers += self._exchange.trace_header()
        await outgoing.begin(answer.status_code, headers)
        await outgoing.body(raw, more=False)

    async def _stream(self, answer: httpx2.Response, reply: ReplySize) -> None:
        outgoing = self._exchange.outgoing
        headers = passed_on(answer.headers.raw)
        if self._path is not None:
            headers.append((HEADER, str(self._path).encode()))
        self._exchange.trace_ids.update(self._process.keeper.promise(self._outputs))
        headers += self._exchange.trace_header()
        await outgoing.begin(answer.status_code, headers)
        held: list[bytes] = []
        ended = 0
        try:
            async for event in events_of(answer, self._exchange.upstream, reply):
                made, ends = self._event(event)
                ended += ends
                if ended >= self._outputs:
                    held.append(made)
                elif made:
                    await outgoing.body(made)
        except BadGateway:
            for made in held:
                await outgoing.body(made)
            await self._trace(is_cut=ended < self._outputs)
            raise
        except (asyncio.CancelledError, Cancelled):  # the client has left, or does not read
            self._followers.outliving.begin(self._keep_traces(is_cut=True))
            raise
        has_all = ended >= self._outputs
        waits = has_all and self._process.proxy.refill and self.has_gaps()
        if waits:
            await self._trace()
        await outgoing.body(b"".join(held), more=False)
        if not waits:
            self._rest = not has_all

    def _event(self, event: bytes) -> tuple[bytes, int]:
        """An event as the client gets it, empty for none, and of how many outputs it says why they ended."""
        body = event.strip(b"\r\n")
        if not body.startswith(b"data: {"):
            return event, 0
        start = event.index(b"{")
        end = start + len(body) - len(b"data: ")
        try:
            made, ends = self.strip(event[start:end])
        except UpstreamError as error:
            log.warning("an event could not be read: %s", error, extra=self._fields)
            return event, 0
        return (event[:start] + made + event[end:] if made else b""), ends

    async def _trace(self, *, is_cut: bool = False) -> None:
        """Follow the reply and keep its traces. Nothing that goes wrong reaches the client."""
        await self._followers.outliving.finish(self._keep_traces(is_cut=is_cut))

    async def _keep_traces(self, *, is_cut: bool = False) -> None:
        for index in self.told(is_cut=is_cut):
            try:
                await self._keep_trace(index)
            except EspalierError as error:
                self.doubt()
                log.warning("a reply could not be traced: %s", error, extra=self._fields)
            except Exception:
                log.exception("a reply could not be traced", extra=self._fields)

    async def _keep_trace(self, index: int) -> None:
        exchange, keeper = self._exchange, self._process.keeper
        data, combined = await self._followers.in_thread(lambda: combined_trace(self.trace(index), exchange.request_id))
        path = keeper.path_of(exchange.request_id, index=index) if index else self._path
        is_kept = await keep_trace(keeper, exchange, data, combined, path=path, index=index)
        self._is_kept = self._is_kept or (is_kept and path == self._path)


class Looking(Protocol):
    """A Tracer that learns something of its server beforehand."""

    async def look(self) -> None: ...

    async def close(self) -> None: ...


L = TypeVar("L", bound=Looking)


@asynccontextmanager
async def opened(tracer: L, process: ProxyProcess) -> AsyncIterator[L]:
    """The tracer, which looks at its server meanwhile, unless its settings say no; then it is closed."""
    look = asyncio.ensure_future(tracer.look()) if process.proxy.self_test else None
    try:
        yield tracer
    finally:
        if look is not None:
            look.cancel()
            await asyncio.wait({look})
        await tracer.close()


def has_encoding(exchange: ProxyExchange) -> bool:
    """Whether the body of the request is encoded, and so cannot be read."""
    return value_of(exchange.scope["headers"], b"content-encoding") not in (None, b"identity")
