"""Admits the caller of a request and submits its outputs from a worker thread, within time limits.

It reads no events and knows no shape of a reply.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Iterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from espalier.constraints.json_schema.compile import contract_of
from espalier.constraints.spec import JsonSchema
from espalier.constraints.tools.schemas import closed_entries
from espalier.decoding.plan import Strategy
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.base import Request
from espalier.engines.protocols import Running
from espalier.errors import DeadlineExceeded, EspalierError, LimitExceeded
from espalier.owners import one_request, working_for
from espalier.schema.contract import Contract, ContractEntry
from espalier.server.answering.generation import Generation, GenerationOutput, too_costly
from espalier.server.asking.draft import ParsedRequest
from espalier.server.asking.thinking import may_reason
from espalier.server.asking.truncate import cut_prompts
from espalier.server.http.body import BODY_BYTES
from espalier.server.observe import logs
from espalier.server.observe.telemetry import RequestSpan
from espalier.server.ports import Caller
from espalier.server.process.state import Process
from espalier.time_limit import time_limit
from espalier.trace.records import LEVELS

CANDIDATES = 10
"""Candidates of each stage that recorders get, if MAX_CANDIDATES leaves room."""
SMALL = 16_384
"""Bytes of a body."""
REASONS_FIRST = ContractEntry(
    pointer="", keyword="reasoning", verdict="enforced", note="the schema holds for what follows the reasoning"
)
"""The entry of a contract whose model may reason first."""


@asynccontextmanager
async def generating(
    process: Process,
    parsed: ParsedRequest,
    *,
    caller: Caller,
    route: str,
    request_id: str,
    began: float,
    span: RequestSpan,
    log_state: MutableMapping[str, Any],
) -> AsyncIterator[Generation]:
    """Admit the caller and submit every output. At the end, cancel what still runs, count outputs that have not ended
    with the error, and add fields to the log line. log_state: `scope["state"]`. Raises TooManyRequests, Overloaded,
    DeadlineExceeded, and what `submit` raises."""
    generation = Generation(
        process=process,
        asked=parsed,
        caller=caller,
        route=route,
        request_id=request_id,
        began=began,
        span=span,
        outputs=[GenerationOutput(promised_id=_new_trace_id(process, parsed, run)) for run in parsed.requests],
    )
    sampling = parsed.requests[0].sampling
    span.parameters(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_p=sampling.top_p,
        top_k=sampling.top_k,
        seed=sampling.seed,
        frequency_penalty=sampling.frequency_penalty,
        presence_penalty=sampling.presence_penalty,
        n=parsed.n * parsed.returned,
        constraint=generation.kind,
        stream=parsed.stream,
    )
    outputs = len(parsed.requests) * parsed.returned
    async with process.gate.admit(caller, requests=outputs, sequences=sum(map(_sequences, parsed.requests))):
        await _submit(generation, is_small=log_state.get(BODY_BYTES, SMALL) < SMALL)
        process.meter.started(route=route, max_tokens=sampling.max_tokens, outputs=outputs)
        process.running[caller.name] += len(generation.outputs)
        try:
            yield generation
        except Exception as error:
            generation.failed(error)
            raise
        finally:
            process.running[caller.name] -= len(generation.outputs)
            if not process.running[caller.name]:
                del process.running[caller.name]
            for index, output in enumerate(generation.outputs):
                if output.running is not None:
                    output.running.cancel()
                generation.count(index, None, generation.code)
            logs.add_fields(log_state, **generation.line())


def _new_trace_id(process: Process, parsed: ParsedRequest, request: Request) -> str | None:
    """The id for the trace of a run, None if none is kept."""
    if process.store is None or process.traces is None or not parsed.keep_trace or request.trace == "off":
        return None
    return process.store.new_trace_id()


def _sequences(request: Request) -> int:
    """How many sequences of the model an output takes."""
    strategy: Strategy = STRATEGIES.load(request.strategy)
    return strategy.sequences(request.decoding)


async def _submit(generation: Generation, *, is_small: bool) -> None:
    """Submit every output from a worker thread. On an error, all of them are cancelled. is_small: the body is, so that
    looking up whether its constraint is known takes no time to speak of."""
    process, asked = generation.process, generation.asked
    limit = process.settings.request_seconds
    is_off = threading.Event()

    def submit() -> list[Running]:
        runs: list[Running] = []
        try:
            with time_limit(process.settings.compile_seconds, cancelled=is_off.is_set):
                began = time.monotonic()
                with working_for(generation.caller.name):
                    generation.contract = _contract(generation)
                if generation.contract is not None:  # the contract needs the schema compiled
                    generation.compiled = time.monotonic() - began
                requests = with_recorders(_cut(generation), process, request_id=generation.request_id)
            with one_request():
                for output, request in zip(generation.outputs, requests, strict=True):
                    left = limit - (time.monotonic() - generation.began)
                    if is_off.is_set() or left <= 0:
                        raise DeadlineExceeded
                    with time_limit(process.settings.compile_seconds, cancelled=is_off.is_set):
                        runs.append(process.scheduler.submit(request, owner=generation.caller.name, deadline=left))
                    output.submitted = time.monotonic()
        except LimitExceeded as error:  # nothing is generated yet, so the request itself is too costly
            _cancel(runs)
            raise too_costly(asked, error) from error
        except BaseException:
            _cancel(runs)
            raise
        return runs

    try:
        async with asyncio.timeout(max(0.0, limit - (time.monotonic() - generation.began))):
            pool = process.pools.known if is_small and _is_known(generation) else process.pools.preparing
            runs = await pool.run(submit, abandoned=_cancel, owner=generation.caller.name)
    except TimeoutError:
        raise DeadlineExceeded(f"preparing the request took longer than {limit:g} s") from None
    except EspalierError as error:
        raise asked.named(error) from None
    finally:
        is_off.set()
    for run_output, running in zip(generation.outputs, runs, strict=True):
        run_output.running = running
    generation.submitted = time.monotonic()
    if generation.kind is not None:  # the first output compiled it, the others found it in the cache
        generation.compiled += runs[0].progress.compiled
        process.meter.compiled(constraint=generation.kind, seconds=generation.compiled)


def _is_known(generation: Generation) -> bool:
    """Whether nothing has to be compiled: then the request does not wait behind those that compile for seconds."""
    request, compiler = generation.asked.requests[0], generation.process.engine.engine.compiler
    if request.tools or request.soft or request.filters:
        return False
    if request.constraint is None or compiler is None:
        return request.constraint is None
    with working_for(generation.caller.name):
        return compiler.has(request.constraint)


def _cut(generation: Generation) -> tuple[Request, ...]:
    """The requests with prompts cut to max_input_tokens and the body's own limit; `made.asked` gets how much was
    cut."""
    engine = generation.process.engine.engine
    given = (generation.process.settings.max_input_tokens, generation.asked.input_limit)
    limits = [limit for limit in given if limit is not None]
    if limits:
        requests, lost = cut_prompts(engine, generation.asked.requests, min(limits))
        generation.asked = replace(generation.asked, requests=requests, truncated=lost)
    if generation.asked.shows_prompt_ids and generation.process.engine.capabilities.token_ids:
        generation.asked = replace(generation.asked, prompt_ids=tuple(_prompt_ids(generation)))
    return generation.asked.requests


def _prompt_ids(generation: Generation) -> Iterator[tuple[int, ...]]:
    """The token ids of each run's prompt, encoded once for all runs of it."""
    asked, engine = generation.asked, generation.process.engine.engine
    for first in asked.requests[:: asked.n]:
        yield from [tuple(engine.prompt_ids(first))] * asked.n


def _contract(generation: Generation) -> list[dict[str, str]] | None:
    """The contract of a schema (how each keyword is enforced) and of tools, if the reply reports it."""
    spec, compiler = generation.asked.constraint, generation.process.engine.engine.compiler
    if not generation.asked.report:
        return None
    request = generation.asked.requests[0]
    closed = closed_entries(request.tools)
    if not isinstance(spec, JsonSchema):
        return Contract(tuple(closed)).to_json() if closed else None
    contract = contract_of(spec, compiler, request=request)
    if not request.raw and may_reason(request, generation.process.engine.engine):
        contract = replace(contract, entries=(*contract.entries, REASONS_FIRST))
    return replace(contract, entries=(*contract.entries, *closed)).to_json()


def _cancel(runs: Sequence[Running]) -> None:
    for run in runs:
        run.cancel()


def with_recorders(requests: Sequence[Request], process: Process, *, request_id: str) -> tuple[Request, ...]:
    """The requests with the server's own recorders, such as the rejection log, and as many candidates as these need."""
    if not process.recorders:
        return tuple(requests)
    wants_steps = any(LEVELS.index(recorder.level) >= LEVELS.index("steps") for recorder in process.recorders)
    most = max(1, process.engine.capabilities.max_context)
    tokens = sum(min(request.sampling.max_tokens, most) * request.decoding.num_return_sequences for request in requests)
    room = min(CANDIDATES, process.settings.max_candidates // max(1, tokens)) if wants_steps else 0
    return tuple(
        replace(
            request,
            recorders=(*request.recorders, *process.recorders),
            request_id=request_id,
            trace_top_k=max(request.trace_top_k, room),
        )
        for request in requests
    )
