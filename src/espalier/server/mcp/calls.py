"""Runs one call of a tool on the process: admitted, within time limits, with progress, ended when nobody waits.

It knows no message of the protocol. Generations are run as those of every route (`answering/`).
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Awaitable, Callable, MutableMapping
from concurrent.futures import Future
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import anyio
import anyio.to_thread

from espalier.agents.runs import Runs, Share
from espalier.agents.table import VerbCall, read_call
from espalier.agents.verb import Answer, Desk, Question
from espalier.decoding.options import OPTIONS
from espalier.engines.base import FinishEvent, Result
from espalier.engines.request_options import REASONING, SCHEMA_ORDER
from espalier.errors import Cancelled, DeadlineExceeded, EspalierError, GenerationError, InputError, NotAvailable
from espalier.server.answering.submitting import generating
from espalier.server.asking.assemble import SHOWN_CANDIDATES, assemble
from espalier.server.asking.decoding import DecodingFields
from espalier.server.asking.draft import ParsedRequest, RequestDraft
from espalier.server.http.errors import BadRequest, TooCostly
from espalier.server.http.wire import to_bytes_by_parts
from espalier.server.ports import Caller
from espalier.server.process.state import Process
from espalier.time_limit import time_limit

ROUTE = "/mcp"
PROGRESS_SECONDS = 0.05
"""The least time between two notes of progress."""
TESTS_AT_ONCE = 4
"""Calls that generate many times and run at once; others wait."""

Tell = Callable[[float, float | None], Awaitable[None]]
"""Tells the client how much is done, and of how much."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """Who calls, under which id, and where fields of the log line go. tests: how many test runs there are at once."""

    process: Process
    caller: Caller
    request_id: str
    tests: anyio.CapacityLimiter
    log_state: MutableMapping[str, Any] = field(default_factory=dict)

    @property
    def desk(self) -> Desk:
        """What verbs are given, for what this caller may see."""
        process = self.process
        return Desk(
            engine=process.engine,
            presets=process.presets,
            traces=process.store,
            caller=self.caller.sees,
            order=process.app.settings.default_of(SCHEMA_ORDER),
            reasoning=process.app.settings.default_of(REASONING),
            runs=Runs(process.engine, lambda: process.scheduler),
        )


async def answered(visit: Visit, name: str, arguments: Any, tell: Tell) -> Answer:
    """The answer to a call. Raises EspalierError, its field an argument of the tool."""
    began = time.monotonic()
    call = read_call(name, arguments)
    try:
        _check_size(visit.process, call)
        if call.verb.asks is not None:
            answer = await _generate_answer(visit, call, tell, began)
        elif call.verb.runs is not None:
            answer = await _run_often(visit, call, tell)
        else:
            answer = await _looked_up(visit, call)
    except EspalierError as error:
        raise call.blamed(error) from error.__cause__
    return await visit.process.pools.replies.run(lambda: _plain(call.shape(answer)), owner=visit.caller.name)


def _plain(answer: Answer) -> Answer:
    """As the client reads it: no lone surrogates, which UTF-8 cannot encode."""
    plain: Answer = json.loads(to_bytes_by_parts(answer))
    return plain


def _check_size(process: Process, call: VerbCall) -> None:
    """Raises BadRequest for a schema, grammar or pattern that is larger than a request may send."""
    limit = process.settings.max_schema_bytes
    for name in ("json_schema", "grammar", "regex", "choices", "constraint", "safety", "available_tools"):
        value = call.arguments.get(name)
        if value is not None:
            size = len(value if isinstance(value, str) else json.dumps(value))
            if size > limit:
                raise BadRequest(f"{name} has {size} characters; the limit is {limit}", field=name)
    tools = call.arguments.get("available_tools", ())
    if len(tools) > process.settings.max_tools:
        raise BadRequest(f"{len(tools)} tools; the limit is {process.settings.max_tools}", field="available_tools")


async def _generate_answer(visit: Visit, call: VerbCall, tell: Tell, began: float) -> Answer:
    process, caller = visit.process, visit.caller

    def ask() -> tuple[Question, ParsedRequest]:
        assert call.verb.asks is not None
        with time_limit(process.settings.compile_seconds):
            question = call.verb.asks(call.arguments, visit.desk)
            return question, _parse_question(question, process)

    question, asked = await process.pools.preparing.run(ask, owner=caller.name)
    with process.spans.request(
        operation="text_completion", model=asked.model, headers={}, request_id=visit.request_id
    ) as span:
        async with generating(
            process,
            asked,
            caller=caller,
            route=ROUTE,
            request_id=visit.request_id,
            began=began,
            span=span,
            log_state=visit.log_state,
        ) as running:
            result = await _follow_run(running, asked.requests[0].sampling.max_tokens, tell)
            running.ended(visit.request_id, [result])
            trace_id = running.outputs[0].trace_id
    if question.keeps_trace and trace_id is None:
        raise NotAvailable("the trace could not be stored", hint="the server's log says why", field="trace")
    return question.read(result, trace_id)


async def _follow_run(running: Any, most: int, tell: Tell) -> Result:
    """Read the events to the end; tell how many tokens there are."""
    tokens, told_at = 0, -PROGRESS_SECONDS
    async with aclosing(running.events()) as events:
        async for burst in events:
            _, last = burst[-1]
            tokens += len(burst) - isinstance(last, FinishEvent)
            if isinstance(last, FinishEvent):
                await tell(tokens, float(max(tokens, most)))
                result: Result = last.result
                return result
            if time.monotonic() - told_at >= PROGRESS_SECONDS:
                told_at = time.monotonic()
                await tell(tokens, float(max(tokens, most)))
    raise GenerationError("the run ended without a result")


def _parse_question(question: Question, process: Process) -> ParsedRequest:
    """The engine's request. Raises InputError and its kin."""
    settings, options = process.settings, dict(question.options)
    if question.keeps_trace and (process.store is None or settings.trace_level == "off"):
        raise NotAvailable("no traces are stored here", hint="TRACE_LEVEL=asked", field="trace")
    level = options.pop("trace")
    decoding = {name: options.pop(name) for name in OPTIONS if name in options}
    if level == "steps":
        options["trace_top_k"] = SHOWN_CANDIDATES
    draft = RequestDraft(
        model=None,
        prompts=(question.prompt,),
        ids=(None,),
        options=options,
        decoded=DecodingFields(fields=decoding),
        trace=level,
        shown_trace="steps" if question.keeps_trace else "none",
    )
    asked = assemble(draft, process, ParsedRequest)
    if len(asked.requests) > 1:
        raise InputError("a call has one answer: n is 1", field="preset")
    return asked


async def _looked_up(visit: Visit, call: VerbCall) -> Answer:
    """The answer of a verb that generates nothing, in a thread."""
    process, caller = visit.process, visit.caller

    def work() -> Answer:
        assert call.verb.answers is not None
        with time_limit(process.settings.compile_seconds):
            return call.verb.answers(call.arguments, visit.desk)

    pool = process.pools.reading if call.verb.reads_store else process.pools.preparing
    async with process.gate.admit(caller):
        try:
            return await pool.run(work, owner=caller.name)
        except EspalierError as error:
            if error.code == "limit_exceeded":
                raise TooCostly(error.message, hint=error.hint, field=error.field) from error
            raise


async def _run_often(visit: Visit, call: VerbCall, tell: Tell) -> Answer:
    """The answer of a verb that generates many times: it shares the model with everybody else's requests."""
    process, caller = visit.process, visit.caller
    loop = asyncio.get_running_loop()
    share = Share(process.scheduler, owner=caller.name, seconds=process.settings.request_seconds)
    is_off = threading.Event()
    notes: list[Future[None]] = []

    def told(done: int, total: int) -> None:
        if is_off.is_set():
            raise Cancelled
        notes.append(asyncio.run_coroutine_threadsafe(_tell(tell, done, total), loop))

    desk = replace(visit.desk, runs=Runs(process.engine, lambda: share), told=told)
    assert call.verb.answers is not None
    assert call.verb.runs is not None
    count = await process.pools.preparing.run(partial(call.verb.runs, call.arguments), owner=caller.name)
    async with process.gate.admit(caller, requests=count):
        try:
            async with asyncio.timeout(process.settings.request_seconds):
                answer: Answer = await anyio.to_thread.run_sync(
                    partial(call.verb.answers, call.arguments, desk), abandon_on_cancel=True, limiter=visit.tests
                )
                for note in notes:  # the client forgets the call with its answer: what is told later is lost
                    await asyncio.wrap_future(note)
                return answer
        except TimeoutError:
            raise DeadlineExceeded from None
        finally:
            is_off.set()
            share.close()


async def _tell(tell: Tell, done: int, total: int) -> None:
    await tell(done, total)
