"""X-ray mode: asks a stock llama-server for more than the client did, takes that out again, and traces the reply.

Bytes reach the client as they come; only the last piece of a stream waits while the server is asked for what the
stream left out. Whatever fails here is logged, and the client still gets its reply.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from contextvars import copy_context
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import httpx2

from espalier.errors import Cancelled, EspalierError, UpstreamError
from espalier.server.http.errors import BadGateway
from espalier.server.proxy.again import AsksAgain
from espalier.server.proxy.exchange import ProxyExchange
from espalier.server.proxy.forward import Heard, ReplySize, events_of, read_whole, relay_reply
from espalier.server.proxy.headers import passed_on, value_of
from espalier.server.proxy.learning import Learning
from espalier.server.proxy.outliving import Outliving
from espalier.server.proxy.state import ProxyProcess
from espalier.upstream.link import ServerLink
from espalier.upstream.llama_server.client import LlamaServer
from espalier.upstream.xray.follow import following, has_gaps
from espalier.upstream.xray.known import ServerTokens
from espalier.upstream.xray.record import combined_of, trace_of
from espalier.upstream.xray.sampler.settings import RANDOM_SEED
from espalier.upstream.xray.untraceable import untraceable
from espalier.upstream.xray.wire.reply import OutputSoFar, Tolds, stripped
from espalier.upstream.xray.wire.request import ClientRequest, UntracedRequest, read_request, rewritten

T = TypeVar("T")
log = logging.getLogger(__name__)
FOLLOWING = 8
"""Replies that are followed at once; the others wait."""
HEADER = b"x-combined-data-available"
SMALL = 1024
"""Up to so many tokens, the probabilities of all are asked for."""
MODEST = 16_384
"""The same for samplers that look at all of them."""
LEAST = 100
MARGIN = 64
UNTRUNCATED = 1000
MOST_HEARD = 4 * 2**20
"""Of a reply that cannot be traced, whose text its trace says."""


class XRay:
    """The Tracer of x-ray mode. learning: of the server's tokens, when a request needs them."""

    def __init__(self, process: ProxyProcess) -> None:
        self._process = process
        proxy = process.proxy
        self._server = LlamaServer(ServerLink(proxy.llama_url, key=proxy.upstream_key, silence=proxy.read_seconds))
        self.learning = Learning(self._server, has_self_test=proxy.self_test)
        self.outliving = Outliving()
        # Of their own, since they wait for the server: names of hosts are looked up, and replies read, in the loop's.
        self._threads = ThreadPoolExecutor(FOLLOWING, thread_name_prefix="x-ray")

    async def serve(self, exchange: ProxyExchange) -> None:
        scope = exchange.scope
        if scope["method"] != "POST" or _encoding(exchange) is not None:
            await exchange.pass_through()
            return
        path = scope["path"].removesuffix("/") or "/"
        try:
            read_request(path, b"{}")
        except UntracedRequest as why:
            if str(why) == "no generation":
                await exchange.pass_through()
                return
        body, is_whole = await exchange.incoming.read(self._process.proxy.body_bytes)
        try:
            if not is_whole:
                raise UntracedRequest("its body is too long")
            request = read_request(path, body)
            known = await self.learning.known()
        except UntracedRequest as why:
            log.info("a request is not traced: %s", why, extra={"fields": {"request_id": exchange.request_id}})
            await self._untraceable(exchange, body, why)
            return
        traced = _TracedRequest(self, self._process, self._server, exchange, request, known)
        await exchange.incoming.while_there(traced.serve(body))
        await traced.trace_rest()  # not before: a client that leaves after its whole reply has not left it

    async def _untraceable(self, exchange: ProxyExchange, body: bytes, why: UntracedRequest) -> None:
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
                self.outliving.begin(self._kept_untraceable(exchange, parsed, str(why), heard.body, is_cut=True))
            raise
        if heard.is_reply:
            await self.outliving.finish(self._kept_untraceable(exchange, parsed, str(why), heard.body))

    async def _kept_untraceable(
        self, exchange: ProxyExchange, parsed: ClientRequest, why: str, raw: bytearray | None, *, is_cut: bool = False
    ) -> None:
        fields = {"fields": {"request_id": exchange.request_id}}
        heard = None if raw is None else bytes(raw)
        try:
            traces = await self.in_thread(lambda: untraceable(parsed, why, heard, is_cut=is_cut))
            for index, trace in traces:
                data, path = trace.to_json(), self._process.keeper.path_of(exchange.request_id, index=index)
                made = combined_of(
                    trace,
                    data,
                    OutputSoFar(text=[trace.text]),
                    request_id=exchange.request_id,
                    created=int(time.time()),
                    timestamp=datetime.now().isoformat(timespec="seconds"),
                )
                await self._process.keeper.keep(
                    data,
                    partial(dict, made),
                    request_id=exchange.request_id,
                    caller=exchange.caller,
                    route=exchange.scope["path"],
                    path=path,
                    index=index,
                    ids=exchange.trace_ids,
                )
        except EspalierError as error:
            log.warning("a request that cannot be traced has no trace that says so: %s", error, extra=fields)
        except Exception:
            log.exception("a request that cannot be traced has no trace that says so", extra=fields)

    async def in_thread(self, work: Callable[[], T]) -> T:
        """The result of work that may wait for the server."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, copy_context().run, work)

    async def close(self) -> None:
        """Wait for the traces of replies that have been sent."""
        await self.outliving.close()
        self._threads.shutdown(wait=False)

    async def look(self) -> None:
        """Learn what there is to know before the first request, so that the log says at once what cannot be traced. A
        server that is not there yet is asked again when a request needs it."""
        with contextlib.suppress(UntracedRequest):
            await self.learning.known()


@asynccontextmanager
async def x_ray(process: ProxyProcess) -> AsyncIterator[XRay]:
    """The tracer of x-ray mode."""
    xray = XRay(process)
    look = asyncio.ensure_future(xray.look()) if process.proxy.self_test else None
    try:
        yield xray
    finally:
        if look is not None:
            look.cancel()
            await asyncio.wait({look})
        await xray.close()


class _TracedRequest:
    """One traced request."""

    def __init__(
        self,
        tracer: XRay,
        process: ProxyProcess,
        server: LlamaServer,
        exchange: ProxyExchange,
        parsed: ClientRequest,
        known: ServerTokens,
    ) -> None:
        self._tracer, self._process, self._server, self._exchange = tracer, process, server, exchange
        self._asked, self._known = parsed, known
        self._tolds: Tolds = {}
        self._count = count_of(parsed, known.vocab.width, process.proxy.n_probs)
        # The last digits of the server's numbers depend on how many are asked for, so that the client's wish stands.
        self._wanted = parsed.top if parsed.top and process.proxy.n_probs is None else self._count
        self._path = process.keeper.path_of(exchange.request_id)
        self._is_kept = False
        self._rest: bool | None = None  # whether a reply was cut that is sent and has no traces yet
        self._fields = {"fields": {"request_id": exchange.request_id}}

    async def serve(self, body: bytes) -> None:
        exchange = self._exchange
        content, _seed = rewritten(self._asked, self._wanted, new_seed)
        without = (b"content-length", b"transfer-encoding", b"accept-encoding", b"expect")
        headers = [*passed_on(exchange.scope["headers"], without=without), (b"accept-encoding", b"identity")]
        upstream = exchange.upstream
        answer = await upstream.open(upstream.request(exchange.scope, content, headers))
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

    async def trace_rest(self) -> None:
        """Trace a reply that was sent without waiting for its traces."""
        if self._rest is not None:
            await self._trace(is_cut=self._rest)

    async def _whole(self, answer: httpx2.Response, held: ReplySize) -> None:
        outgoing = self._exchange.outgoing
        raw = await read_whole(answer, self._exchange.upstream, held)
        try:
            raw, _ = await asyncio.to_thread(stripped, raw, self._asked, self._tolds)
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
        self._exchange.trace_ids.update(self._process.keeper.promise(self._asked.outputs))
        headers += self._exchange.trace_header()
        await outgoing.begin(answer.status_code, headers)
        held: list[bytes] = []
        ended = 0
        try:
            async for event in events_of(answer, self._exchange.upstream, reply):
                made, is_end = self._event(event)
                ended += is_end
                if ended >= self._asked.outputs:
                    held.append(made)
                else:
                    await outgoing.body(made)
        except BadGateway:
            for made in held:
                await outgoing.body(made)
            await self._trace(is_cut=ended < self._asked.outputs)
            raise
        except (asyncio.CancelledError, Cancelled):  # the client has left, or does not read
            self._tracer.outliving.begin(self._keep_trace(is_cut=True))
            raise
        has_all = ended >= self._asked.outputs
        waits = (
            has_all
            and self._process.proxy.refill
            and any(has_gaps(warning, self._known) for warning in self._tolds.values())
        )
        if waits:
            await self._trace()
        await outgoing.body(b"".join(held), more=False)
        if not waits:
            self._rest = not has_all

    def _event(self, event: bytes) -> tuple[bytes, bool]:
        """An event as the client gets it, and whether it says why the text ended."""
        body = event.strip(b"\r\n")
        if not body.startswith(b"data: {"):
            return event, False
        start = event.index(b"{")
        end = start + len(body) - len(b"data: ")
        try:
            made, is_end = stripped(event[start:end], self._asked, self._tolds)
        except UpstreamError as error:
            log.warning("an event could not be read: %s", error, extra=self._fields)
            return event, False
        return event[:start] + made + event[end:], is_end

    async def _trace(self, *, is_cut: bool = False) -> None:
        """Follow the reply and keep its traces. Nothing that goes wrong reaches the client."""
        await self._tracer.outliving.finish(self._keep_trace(is_cut=is_cut))

    async def _keep_trace(self, *, is_cut: bool = False) -> None:
        for index, told in sorted(self._tolds.items()):
            told.is_cut = is_cut and told.finish is None
            try:
                await self._kept_one(index, told)
            except EspalierError as error:
                self._tracer.learning.doubt()
                log.warning("a reply could not be traced: %s", error, extra=self._fields)
            except Exception:
                log.exception("a reply could not be traced", extra=self._fields)

    async def _kept_one(self, index: int, output: OutputSoFar) -> None:
        exchange = self._exchange
        again = AsksAgain(self._server, self._asked) if self._process.proxy.refill else None

        def made() -> tuple[Any, Any]:
            with following(output, self._known, again, count=self._count) as followed:
                trace = trace_of(followed, output, self._asked, self._known, index=index)
                if followed.is_lost:
                    self._tracer.learning.doubt()
            data = trace.to_json()
            combined = combined_of(
                trace,
                data,
                output,
                request_id=exchange.request_id,
                created=int(time.time()),
                timestamp=datetime.now().isoformat(timespec="seconds"),
            )
            return data, combined

        trace, combined = await self._tracer.in_thread(made)
        path = self._process.keeper.path_of(exchange.request_id, index=index) if index else self._path
        is_kept = await self._process.keeper.keep(
            trace,
            lambda: combined,
            request_id=exchange.request_id,
            caller=exchange.caller,
            route=exchange.scope["path"],
            path=path,
            index=index,
            ids=exchange.trace_ids,
        )
        self._is_kept = self._is_kept or (is_kept and path == self._path)


def count_of(parsed: ClientRequest, width: int, wanted: int | None) -> int:
    """How many probabilities to ask for: as many as decide nearly every step, and no more."""
    if wanted is not None:
        return width if wanted == 0 else min(wanted, width)
    body = parsed.body
    if width <= (MODEST if _needs_all(body) else SMALL):
        return width
    top_k = body.get("top_k")
    top_k = top_k if isinstance(top_k, int | float) and not isinstance(top_k, bool) else 40
    if top_k <= 0 or body.get("logit_bias"):
        return min(width, UNTRUNCATED)
    has_penalties = any(body.get(name) for name in ("presence_penalty", "frequency_penalty", "dry_multiplier"))
    has_penalties = has_penalties or body.get("repeat_penalty") not in (None, 1)
    return min(width, max(LEAST, int(top_k) + (MARGIN if has_penalties else 0)))


def _needs_all(body: Mapping[str, Any]) -> bool:
    """Whether a draw depends on all tokens, so that each would be asked for again."""
    given = {name: body.get(name) for name in ("mirostat", "top_n_sigma", "dynatemp_range")}
    return any(isinstance(setting, int | float) and setting > 0 for setting in given.values())


def new_seed() -> int:
    """A random seed that is not llama-server's word for one."""
    return secrets.randbelow(RANDOM_SEED)


def _encoding(exchange: ProxyExchange) -> bytes | None:
    encoding = value_of(exchange.scope["headers"], b"content-encoding")
    return None if encoding in (None, b"identity") else encoding
