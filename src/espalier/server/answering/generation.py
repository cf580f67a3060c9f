"""Follows the outputs of one HTTP request: merges their events, counts them, stores traces, logs generations.

It knows no shape of a reply. `submitting.py` starts and ends the outputs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

from espalier.api.log_rows import log_row
from espalier.decoding.options import BRANCHES
from espalier.decoding.plan import Strategy
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.base import Event, FinishEvent, Request, Result, TokenEvent
from espalier.engines.protocols import Running
from espalier.errors import Cancelled, DeadEnd, EspalierError, LimitExceeded, Stranded, Unavailable
from espalier.server.answering.counts import timings_of
from espalier.server.answering.replies import result_lines
from espalier.server.asking.draft import ParsedRequest
from espalier.server.http.errors import TooCostly, code_of
from espalier.server.observe import logs
from espalier.server.observe.telemetry import ReplyCosts, RequestSpan
from espalier.server.ports import Caller, Finish
from espalier.server.process.state import Process
from espalier.store.trace_columns import identify_constraint
from espalier.store.writer import SLOW_SECONDS

ASKED_SECONDS = 10.0
"""How long a reply waits for a trace that its request asked for."""
VERDICT_WORDS = {True: "valid", False: "invalid", None: "unknown"}
log = logging.getLogger(__name__)
Burst: TypeAlias = list[tuple[int, Event]]
"""Events that have come, in order, each with the index of its output."""


@dataclass(slots=True)
class GenerationOutput:
    """One output. Times are of `time.monotonic`. submitted: when the engine had taken it. first, last: its first and
    latest token; without one, last is its end. gaps: seconds between tokens. finish: the finish reason, or the code of
    an error."""

    running: Running | None = None
    submitted: float | None = None
    first: float | None = None
    last: float = 0.0
    gaps: list[float] = field(default_factory=list)
    is_counted: bool = False
    #: The id that its trace will have, None if no trace is kept.
    promised_id: str | None = None
    #: The same once the store has the trace.
    trace_id: str | None = None
    result: Result | None = None
    finish: str | None = None

    @property
    def tokens(self) -> int:
        return 0 if self.first is None else len(self.gaps) + 1


@dataclass(slots=True, kw_only=True)
class Generation:
    """The outputs of one HTTP request. began: when the request arrived. submitted: when the engine had taken all
    outputs. compiled: seconds for compiling the constraint. code: the error that outputs which have not ended are
    counted with; `cancelled` means that nobody waited for them."""

    process: Process
    asked: ParsedRequest
    caller: Caller
    route: str
    request_id: str
    began: float
    span: RequestSpan
    outputs: list[GenerationOutput]
    submitted: float | None = None
    compiled: float = 0.0
    contract: list[dict[str, str]] | None = None
    code: str = "cancelled"

    def failed(self, error: Exception) -> None:
        """Set the error with which outputs that have not ended are counted."""
        if isinstance(error, EspalierError):
            self.code = code_of(self.asked.named(error))
            self.span.failed(error)
        else:
            self.code = "internal_error"

    @property
    def kind(self) -> str | None:
        """The kind of the constraint, None without one."""
        if self.asked.constraint is None and self.asked.requests[0].tools:
            return "tool_calls"
        return None if self.asked.constraint is None else self.asked.constraint.kind

    def waited(self, output: GenerationOutput) -> tuple[float, float]:
        """Seconds of preparing (from arrival until the engine had taken the output) and of queueing (from then until it
        ran)."""
        now = time.monotonic()
        submitted = now if output.submitted is None else output.submitted
        queued = None if output.running is None else output.running.progress.queued
        return submitted - self.began, now - submitted if queued is None else queued

    def line(self) -> dict[str, Any]:
        """Fields of the request's log line: token counts and finish reasons."""
        prompts = [
            output.result.usage.prompt_tokens for output in self.outputs[:: self.asked.n] if output.result is not None
        ]
        return {
            "prompt_tokens": sum(prompts),
            "completion_tokens": sum(
                output.tokens if output.result is None else completion_tokens(output.result) for output in self.outputs
            ),
            "finish_reason": ",".join(output.finish or self.code for output in self.outputs),
        }

    async def events(self) -> AsyncGenerator[Burst]:
        """The events of all outputs as they come, those at once that have come. Raises the error of any output."""
        runs = [output.running for output in self.outputs if output.running is not None]
        bursts = _alone(runs[0]) if len(runs) == 1 else _merge_bursts(runs)
        try:
            async with aclosing(bursts):
                async for burst in bursts:
                    for index, happened in burst:
                        self._note(index, happened)
                        if isinstance(happened, FinishEvent):
                            await self._keep(index, happened.result)
                    yield burst
        except EspalierError as error:
            told = self._reword_error(error)
            self.failed(told)
            raise told from told.__cause__
        except Exception as error:
            self.failed(error)
            raise

    def _reword_error(self, error: EspalierError) -> EspalierError:
        """The error in the words that the client reads."""
        if isinstance(error, Cancelled):  # not by us: nobody would read this any more
            return Unavailable("the server is closing", hint="send the request again")
        if isinstance(error, LimitExceeded) and _may_cost(self.asked):
            return too_costly(self.asked, error)  # a step is over its limit: the request is at fault
        if isinstance(error, DeadEnd) and error.http_status == 500 and _may_cost(self.asked):
            fields = {"request_id": self.request_id, "constraint": self.kind}
            log.warning("%s", error, extra={"fields": fields})
            return impasse(self.asked, error)
        return error

    def _note(self, index: int, happened: Event) -> None:
        output = self.outputs[index]
        if isinstance(happened, TokenEvent):
            read = now = time.monotonic()
            if happened.after is not None and output.submitted is not None:  # it came before it is read
                now = output.submitted + happened.after
            if output.first is None:
                output.first = now
                self.span.first_token(ago=read - now)
            else:
                output.gaps.append(now - output.last)
            output.last = now
        if isinstance(happened, FinishEvent):
            if output.first is None:
                output.last = time.monotonic()
            self.count(index, happened.result, None)

    def count(self, index: int, result: Result | None, error: str | None) -> None:
        """Count an output that has ended, once."""
        output = self.outputs[index]
        if output.is_counted:
            return
        output.is_counted = True
        output.result, output.finish = result, error if result is None else result.finish_reason
        if result is None:
            self._log(index, None, error)
        else:
            self._tell_breaches(index, result)
        preparing, queued = self.waited(output)
        self.process.meter.finished(
            Finish(
                route=self.route,
                model=self.process.names[0],
                result=result,
                error=error,
                queued=queued,
                to_first_token=None if output.first is None else output.first - self.began,
                total=time.monotonic() - self.began,
                constraint=self.kind,
                streamed=self.asked.stream,
                gaps=tuple(output.gaps),
                preparing=preparing,
                is_first=index % self.asked.n == 0,
            )
        )

    @property
    def told(self) -> tuple[str, ...]:
        """What a reply says of texts that break what was called enforced or that a stop text cut, and of properties
        that were lost, each sentence once."""
        return result_lines([output.result for output in self.outputs if output.result is not None])

    def _tell_breaches(self, index: int, result: Result) -> None:
        """Log each text that breaks what was called enforced, so that an operator hears of it. The line quotes no
        text."""
        for breach in result.breaches:
            fields = {
                "request_id": self.request_id,
                "route": self.route,
                "output": index,
                "constraint": breach.kind,
                "schema": breach.fingerprint,
                "judge": breach.judge,
            }
            log.error("a text breaks its constraint, which was called enforced", extra={"fields": fields})

    def timings(self, indices: Sequence[int] | None = None) -> dict[str, Any]:
        """llama-server's `timings` under this key, of outputs that have ended. indices: of which; None is all."""
        began = self.began if self.submitted is None else self.submitted
        if indices is None:
            return {"timings": timings_of(self.outputs, began=began, n=self.asked.n)}
        return {"timings": timings_of([self.outputs[index] for index in indices], began=began)}

    def ended(self, reply_id: str, results: Sequence[Result]) -> None:
        """Report a finished reply to telemetry and the content log. results: one of each run."""
        shown = [output for result in results for output in (result, *result.others)]
        self.span.finished(
            response_id=reply_id,
            input_tokens=sum(result.usage.prompt_tokens for result in results[:: self.asked.n]),
            output_tokens=sum(output.usage.completion_tokens for output in shown),
            finish_reasons=[output.finish_reason for output in shown],
        )
        if self.span.is_recording:
            self._tell_costs(shown)
        texts = [output.text for output in shown]
        logs.content(
            self.request_id, prompt=self.asked.requests[0].messages or self.asked.requests[0].prompt, texts=texts
        )

    def _tell_costs(self, results: Sequence[Result]) -> None:
        """Report to telemetry what the constraint cost, as far as it was measured."""
        traces = [result.trace for result in results if result.trace is not None]
        constraint = next((trace.constraint for trace in traces if trace.constraint is not None), None)
        fingerprint, title = identify_constraint(constraint)
        valid = [None if result.verdict is None else result.verdict.valid for result in results]
        self.span.constrained(
            ReplyCosts(
                fingerprint=fingerprint,
                title=title,
                tax_nats=sum(trace.total_tax_nats for trace in traces) if traces else None,
                verdicts=[VERDICT_WORDS[verdict] for verdict in valid],
                traces=[output.trace_id for output in self.outputs if output.trace_id is not None],
            )
        )

    async def _keep(self, index: int, result: Result) -> None:
        """Store the trace and the hidden states of an output, if wanted, and log the output. A failing store is told
        and ends no generation."""
        await self._keep_trace(index, result)
        self._log(index, result, None)
        states = self.asked.states or self.process.activations
        if states is not None and result.activations is not None:
            taken = partial(states.put, result, request_id=self.request_id, trace_id=self.outputs[index].trace_id)
            try:
                saving = asyncio.ensure_future(self.process.pools.saving.run(taken, owner=self.caller.name))
                await asyncio.shield(saving)
            except EspalierError as error:
                log.warning("not stored: %s", error, extra={"fields": {"request_id": self.request_id}})

    async def _keep_trace(self, index: int, result: Result) -> None:
        """Have the trace stored, and wait until it is, so that a reply which names it tells the truth; not for long,
        where the database is slow."""
        writer, output, trace = self.process.traces, self.outputs[index], result.trace
        if writer is None or output.promised_id is None or trace is None:
            return
        columns = {
            "request_id": self.request_id,
            "caller": self.caller.name,
            "index": index,
            "route": self.route,
            "trace_id": output.promised_id,
            "texts": self.process.settings.trace_texts,
            "template": system_text(self.asked.requests[index]),
            "to_first_token": None if output.first is None else output.first - self.began,
            "total": time.monotonic() - self.began,
        }
        written = writer.put(lambda: {"trace": trace.packed(), **columns})
        is_asked = self.asked.shown_trace != "none"
        if writer.is_slow and not is_asked:
            return
        # A client that leaves now does not take back what is finished.
        waiting = asyncio.wrap_future(written)
        waiting.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            async with asyncio.timeout(ASKED_SECONDS if is_asked else SLOW_SECONDS):
                output.trace_id = await asyncio.shield(waiting)
        except TimeoutError:
            fields = {"fields": {"request_id": self.request_id, "trace": output.promised_id}}
            log.warning("the database is slow: a reply does not wait for its trace", extra=fields)
        except EspalierError:
            return  # the writer has told it

    def _log(self, index: int, result: Result | None, error: str | None) -> None:
        """Have the output logged; nobody waits for that."""
        writer = self.process.log
        if writer is None:
            return
        output, request = self.outputs[index], self.asked.requests[index]
        first = None if output.first is None else output.first - self.began
        columns = {
            "request_id": self.request_id,
            "route": self.route,
            "engine": self.process.engine.kind,
            "constraint_kind": self.kind,
            "streamed": self.asked.stream,
            "queued": self.waited(output)[1],
            "to_first_token": first,
            "total": time.monotonic() - self.began,
            "trace_id": output.trace_id,
            "error": error,
        }
        writer.put(
            lambda: log_row(
                request,
                result,
                model=self.process.names[0],
                caller=self.caller.name,
                with_content=writer.with_content,
                compiler=self.process.engine.engine.compiler,
                **columns,
            )
        )


def system_text(request: Request) -> str | None:
    """The part of a chat that is the same in all requests of an application: its system messages. None without any."""
    roles = ("system", "developer")
    texts = [str(message.get("content")) for message in request.messages or () if message.get("role") in roles]
    return "\n".join(texts) if texts else None


def with_timings(reply: dict[str, Any], running: Generation) -> dict[str, Any]:
    """A whole reply with `timings`, as llama-server has them on every route."""
    return reply | running.timings()


def completion_tokens(result: Result) -> int:
    """Completion tokens of all outputs of a run."""
    return sum(output.usage.completion_tokens for output in (result, *result.others))


def branches_field(parsed: ParsedRequest) -> str | None:
    """The body's field for the number of sequences of a run, None if a run has one sequence."""
    decoding = parsed.requests[0].decoding
    strategy: Strategy = STRATEGIES.load(decoding.strategy)
    if strategy.sequences(decoding) < 2:
        return None
    stated = (name for name in BRANCHES if getattr(decoding, name) is not None)
    return next((parsed.names.get(name, name) for name in stated), None) or (
        parsed.names.get("strategy", "espalier.strategy")
    )


def _may_cost(parsed: ParsedRequest) -> bool:
    """Whether something that the request asks for can exceed a limit: without any of it, the engine has failed."""
    request = parsed.requests[0]
    asks = (request.constraint, request.tools, request.filters, request.soft, request.sampling.bad_words)
    return any(part is not None and part != () for part in asks) or branches_field(parsed) is not None


def too_costly(parsed: ParsedRequest, error: LimitExceeded) -> TooCostly:
    """The error of a request that exceeds a limit by itself; it names the field that is most likely the cause."""
    too_costly = TooCostly(error.message, hint=error.hint, field=error.field or _likely_field(parsed))
    too_costly.__cause__ = error
    return too_costly


def impasse(parsed: ParsedRequest, error: DeadEnd) -> Stranded:
    """The error of a request whose constraint, filters or bans leave no token on the way that its text took."""
    hint = error.hint or "another seed may take another way; otherwise ask for less at once"
    stranded = Stranded(error.message, hint=hint, field=error.field or _likely_field(parsed))
    stranded.__cause__ = error
    return stranded


def _likely_field(parsed: ParsedRequest) -> str:
    part = "constraint" if parsed.constraint is not None else "tools" if parsed.requests[0].tools else None
    return part or branches_field(parsed) or "prompt"


async def _alone(running: Running) -> AsyncGenerator[Burst]:
    """The bursts of the only output, without a queue between."""
    async with aclosing(running.bursts()) as bursts:
        async for burst in bursts:
            yield [(0, happened) for happened in burst]


async def _merge_bursts(runs: Sequence[Running]) -> AsyncGenerator[Burst]:
    """The bursts of all outputs, in order of arrival. Raises the error of any."""
    queue: asyncio.Queue[Burst | Exception | None] = asyncio.Queue(maxsize=64)
    tasks = [asyncio.create_task(_read(i, run, queue)) for i, run in enumerate(runs)]
    left = len(tasks)
    try:
        while left:
            event = await queue.get()
            if isinstance(event, Exception):
                raise event
            if event is None:
                left -= 1
            else:
                yield event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _read(index: int, running: Running, queue: asyncio.Queue[Burst | Exception | None]) -> None:
    try:
        async for burst in running.bursts():
            await queue.put([(index, happened) for happened in burst])
    except Exception as error:  # noqa: BLE001  # `events` raises it
        await queue.put(error)
    else:
        await queue.put(None)
