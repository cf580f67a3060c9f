"""Handles every generating route: identify, read, convert, run, and reply whole or as a stream.

It knows neither body nor reply; a `Dialect` does.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Generic, TypeVar

from fastapi import Request
from starlette.responses import Response

from espalier.engines.base import FinishEvent, Result
from espalier.errors import EspalierError, LimitExceeded
from espalier.sampling.presets.catalogue import BUILTIN
from espalier.server.answering.generation import Generation
from espalier.server.answering.reasoning_place import place_reasoning
from espalier.server.answering.replies import Head, ReplyChunks, outputs, report, reports
from espalier.server.answering.submitting import generating
from espalier.server.asking.draft import ParsedRequest
from espalier.server.bodies.base import Body, FieldWarnings, read_body
from espalier.server.http.body import in_thread_if_large, read_object
from espalier.server.http.browsers import TRACE_HEADER
from espalier.server.http.errors import TooCostly, code_of, internal_error
from espalier.server.http.sse import DONE, EventStream
from espalier.server.http.warnings import warning_header
from espalier.server.http.wire import JsonResponse, to_bytes_by_parts
from espalier.server.observe.telemetry import Operation
from espalier.server.ports import Caller
from espalier.server.process.deps import caller_of, process_of, request_id_of, while_connected
from espalier.server.process.state import Process
from espalier.server.settings import ServerSettings

log = logging.getLogger(__name__)
B = TypeVar("B", bound=Body)
FEW_TOKENS = 256
"""Tokens of a reply that takes a few milliseconds at most to make, and to diagnose."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect(Generic[B]):
    """What differs between the generating routes. ask: from the body to engine requests. head: id, model and time of
    the reply. whole, chunks: make the reply, whole and as a stream.

    read: reads the body as JSON. adapt: the part of it that changes a body which was read elsewhere, as a line of a
    batch. finish: adds to a whole reply what only the run knows. writes: whether `finish` writes to the store. ended:
    called in a thread before the last chunks of a stream. done: the last event of a stream. stream: how chunks are
    sent. remedy: what a server's setting would do about a refusal of this body; None for nothing.
    """

    route: str
    operation: Operation
    body: type[B]
    ask: Callable[[B, Process], ParsedRequest]
    head: Callable[[ParsedRequest, str], Head]
    whole: Callable[[ParsedRequest, Head, Sequence[Result]], dict[str, Any]]
    chunks: type[ReplyChunks]
    read: Callable[[Request, ServerSettings], Awaitable[dict[str, Any]]] = read_object
    finish: Callable[[dict[str, Any], Generation], Any] | None = None
    writes: bool = False
    adapt: Callable[[dict[str, Any], Process], dict[str, Any]] | None = None
    ended: Callable[[Any, Generation], None] | None = None
    done: bytes = DONE
    stream: type[EventStream] = EventStream
    remedy: Callable[[dict[str, Any], Process, EspalierError], str | None] | None = None

    def explain(self, error: EspalierError, data: dict[str, Any], process: Process) -> None:
        """Add to the hint of a refusal which setting of the server would take the body."""
        more = None if self.remedy is None or error.http_status >= 500 else self.remedy(data, process, error)
        if more is not None:
            error.hint = error.hint + f"; {more}" if error.hint else more

    def asked(self, data: dict[str, Any], process: Process) -> ParsedRequest:
        """What a body asks for, told of its own fields. Raises what is wrong with it."""
        body = read_body(self.body, data, strict=process.settings.strict_fields)
        asked = self.ask(body, process)
        told = body.told + FieldWarnings(hints=asked.hints, warnings=asked.warnings)
        hints, warnings = tuple(dict.fromkeys(told.hints)), tuple(dict.fromkeys(told.warnings))
        return replace(asked, hints=hints, warnings=warnings)


async def read_ahead(
    request: Request, route: str, read: Callable[[Request, ServerSettings], Awaitable[dict[str, Any]]]
) -> dict[str, Any]:
    """The body of an identified caller, for a route that looks at it before it answers; the meter counts what is
    refused. Raises what `read` raises."""
    process = process_of(request)
    caller_of(request)
    try:
        return await read(request, process.settings)
    except EspalierError as error:
        process.meter.refused(route=route, code=code_of(error))
        raise


def as_read(data: dict[str, Any]) -> Callable[[Request, ServerSettings], Awaitable[dict[str, Any]]]:
    """What gives a body that has been read ahead."""

    async def read(_request: Request, _settings: ServerSettings) -> dict[str, Any]:
        return data

    return read


async def answer(request: Request, dialect: Dialect[B]) -> Response:
    """The reply to one request. The meter counts a refused request, and every output that was started. Raises what is
    wrong with the request."""
    process = process_of(request)
    async with AsyncExitStack() as stack:
        try:
            running, head = await _begin(request, dialect, process, stack)
        except EspalierError as error:
            process.meter.refused(route=dialect.route, code=code_of(error))
            raise
        headers = _headers(running.asked, running.request_id)
        if not running.asked.stream:
            reply = await while_connected(request, _whole(running, dialect, head))
            headers |= warning_header((*running.asked.lines, *running.told))
            headers |= _trace_header(output.trace_id for output in running.outputs)
            return JsonResponse(reply, headers=headers, limit_seconds=process.settings.request_seconds)
        return dialect.stream(
            _stream(running, dialect.chunks(running.asked, head, running.contract, running.timings), dialect),
            close=stack.pop_all().aclose,
            ping_seconds=process.settings.sse_ping_seconds,
            # The engine itself keeps the first limit; the second is for a client that reads slowly.
            limit_seconds=process.settings.request_seconds + process.settings.body_seconds,
            headers=headers | _trace_header(output.promised_id for output in running.outputs),
        )
    raise AssertionError("the exit stack suppresses no exception")


async def whole_reply(
    process: Process, dialect: Dialect[B], parsed: ParsedRequest, *, caller: Caller, request_id: str
) -> tuple[bytes, Generation]:
    """The whole reply as JSON to what came by no request, such as an item of a batch, and what ran. Raises what
    `generating` raises."""
    with process.spans.request(
        operation=dialect.operation, model=parsed.model, headers={}, request_id=request_id
    ) as span:
        async with generating(
            process,
            parsed,
            caller=caller,
            route=dialect.route,
            request_id=request_id,
            began=time.monotonic(),
            span=span,
            log_state={},
        ) as running:
            return await _whole(running, dialect, dialect.head(parsed, process.fingerprint)), running


async def _begin(
    request: Request, dialect: Dialect[B], process: Process, stack: AsyncExitStack
) -> tuple[Generation, Head]:
    """Start the outputs of the request; the stack ends them."""
    began = time.monotonic()
    request_id = request_id_of(request)
    caller = caller_of(request)
    data = await dialect.read(request, process.settings)
    try:
        asked = await in_thread_if_large(request, lambda: dialect.asked(data, process), may_block=_reads_files(data))
    except LimitExceeded as error:  # a limit on what a body may hold, so the body is wrong, not the server
        raise TooCostly(error.message, hint=error.hint, field=error.field) from error
    except EspalierError as error:
        dialect.explain(error, data, process)
        raise
    span = stack.enter_context(
        process.spans.request(
            operation=dialect.operation, model=asked.model, headers=request.headers, request_id=request_id
        )
    )
    begin = generating(
        process,
        asked,
        caller=caller,
        route=dialect.route,
        request_id=request_id,
        began=began,
        span=span,
        log_state=request.scope["state"],
    )
    try:
        running = await while_connected(request, stack.enter_async_context(begin))
    except EspalierError as error:
        dialect.explain(error, data, process)
        raise
    head = dialect.head(asked, process.fingerprint)
    return running, head if asked.top_logprobs is None else replace(head, request_id=request_id)


def _reads_files(data: Mapping[str, Any]) -> bool:
    """Whether the body names a word list, or a preset that may be in the store."""
    if data.get("vocab_lang") is not None:
        return True
    ours = data.get("espalier")
    named = ours.get("preset") if isinstance(ours, Mapping) else None
    return isinstance(named, str) and named not in BUILTIN


async def _whole(running: Generation, dialect: Dialect[B], head: Head) -> bytes:
    """The whole reply as JSON. One that is not small is made in a thread: with a full trace it may have millions of
    numbers."""
    parsed = running.asked
    results: dict[int, Result] = {}
    placing = place_reasoning(running)
    async with aclosing(running.events()) as events:
        async for burst in events:
            shown = placing.all_of(burst)
            results |= {index: happened.result for index, happened in shown if isinstance(happened, FinishEvent)}
    ordered = [results[index] for index in range(len(parsed.requests))]
    if running.process.settings.wordlist_server_compat and (logged := ordered[0].activations) is not None:
        head = replace(head, id=logged.record.prompt_hash)  # the logging server's key of the entry
    running.ended(head.id, ordered)

    def make() -> bytes:
        reply = dialect.whole(parsed, head, ordered)
        if parsed.report:
            ids = [output.trace_id for output in running.outputs]
            paired = (
                report(parsed, choice, run, result, ids[run] if place == 0 else None)
                for choice, run, place, result in outputs(parsed, ordered)
            )
            reply["espalier"] = reports(running.contract, paired, parsed, ordered)
        return to_bytes_by_parts(reply if dialect.finish is None else dialect.finish(reply, running))

    if not dialect.writes and _is_small(parsed, ordered):
        return make()  # a thread takes longer than this does
    return await running.process.pools.replies.run(make, owner=running.caller.name)


def _is_small(parsed: ParsedRequest, results: Sequence[Result]) -> bool:
    """Whether a whole reply has few tokens, and neither steps, log probabilities nor prompts."""
    if parsed.shown_trace == "steps" or parsed.top_logprobs is not None or any(parsed.echo):
        return False
    return sum(len(output.token_ids) for result in results for output in (result, *result.others)) < FEW_TOKENS


async def _stream(running: Generation, chunks: ReplyChunks, dialect: Dialect[B]) -> AsyncGenerator[bytes]:
    """The events of a stream. An error after the start is sent as the last event, after all that came before
    it."""
    ready, placing = b"", place_reasoning(running)
    try:
        for chunk in chunks.first():
            yield chunks.encoded(chunk)
        async with aclosing(running.events()) as events:
            async for burst in events:  # what has come at once is sent at once
                for index, happened in placing.all_of(burst):
                    trace_id = running.outputs[index].trace_id
                    if isinstance(happened, FinishEvent) and running.asked.shown_trace == "steps":
                        if ready:
                            sent, ready = ready, b""
                            yield sent
                        # The whole trace: encode it in a thread.
                        work = partial(chunks.sent, index, happened, trace_id, by_parts=True)
                        yield await running.process.pools.replies.run(work, owner=running.caller.name)
                    else:
                        ready += chunks.sent(index, happened, trace_id)
                if ready:
                    sent, ready = ready, b""
                    yield sent
        running.ended(chunks.head.id, [chunks.results[index] for index in sorted(chunks.results)])
        if dialect.ended is not None:
            keep = partial(dialect.ended, chunks, running)
            saving = asyncio.ensure_future(running.process.pools.saving.run(keep, owner=running.caller.name))
            await asyncio.shield(saving)  # a client that leaves now does not take back what is finished
        for chunk in chunks.last():
            yield chunks.encoded(chunk)
        if dialect.done:
            yield dialect.done
    except EspalierError as error:
        if ready:
            yield ready
        for chunk in chunks.failed(running.asked.named(error)):
            yield chunks.encoded(chunk)
    except (asyncio.CancelledError, GeneratorExit):
        raise
    except Exception as error:
        log.exception("stream failed", extra={"fields": {"request_id": running.request_id}})
        running.failed(error)
        if ready:
            yield ready
        for chunk in chunks.failed(internal_error(running.request_id)):
            yield chunks.encoded(chunk)


def _trace_header(ids: Iterable[str | None]) -> dict[str, str]:
    """The ids of the traces, in the order of the outputs: of a whole reply those that are stored, of a stream those
    under which they will be."""
    named = [trace_id for trace_id in ids if trace_id is not None]
    return {TRACE_HEADER: ", ".join(named)} if named else {}


def _headers(parsed: ParsedRequest, request_id: str) -> dict[str, str]:
    """Warn a client of old and unknown fields and of hints, which are logged too, and of prompts that were cut."""
    fields = {"fields": {"request_id": request_id}}
    for warning in parsed.warnings:
        log.warning("%s", warning, extra=fields)
    if parsed.hints:
        log.debug("without effect: %s", ", ".join(parsed.hints), extra=fields)
    lost = sum(parsed.truncated[:: parsed.n])
    return warning_header(parsed.lines) | ({"x-espalier-truncated": str(lost)} if lost else {})
