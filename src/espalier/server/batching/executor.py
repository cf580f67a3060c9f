"""Executes items of batches as the routes would: the same bodies, checks, limits, verdicts, traces and replies.

An item enters the continuous batch beside all other requests, and shares compiled constraints and kept prefixes with
them. It takes none of its caller's requests per minute: batches have limits of their own. It knows no queue.
"""

from __future__ import annotations

import contextlib
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager
from dataclasses import replace
from functools import partial
from typing import Any

from espalier.constraints.words.spec import Wordlist
from espalier.errors import Cancelled, EspalierError, Overloaded, TooManyRequests, Unavailable, UpstreamBusy
from espalier.jobs.values import InputFault, ItemAnswer, WorkItem
from espalier.server.answering.generation import Generation
from espalier.server.answering.route import FEW_TOKENS, Dialect, whole_reply
from espalier.server.asgi import new_id
from espalier.server.asking.draft import ParsedRequest
from espalier.server.asking.responses.ask import ask_responses
from espalier.server.asking.words import known_words
from espalier.server.batching.embedding_items import ROUTE as EMBEDDINGS
from espalier.server.batching.embedding_items import answer_embeddings
from espalier.server.batching.figures import figures_of, valid_of
from espalier.server.batching.wordlist_items import wordlist_item_body
from espalier.server.http.body import IN_A_THREAD
from espalier.server.http.errors import NotFound, TooCostly, error_body, internal_error
from espalier.server.ports import Caller, Gate
from espalier.server.process.state import Process
from espalier.server.routes.chat import CHAT, WORDLIST_CHAT
from espalier.server.routes.completions import TEXT
from espalier.server.routes.embeddings import parse_embeddings
from espalier.server.routes.llama import LLAMA
from espalier.server.routes.messages import MESSAGES
from espalier.server.routes.responses import RESPONSES, history_of

log = logging.getLogger(__name__)
DIALECTS: Mapping[str, Dialect[Any]] = {dialect.route: dialect for dialect in (CHAT, TEXT, RESPONSES, MESSAGES, LLAMA)}
"""The generating routes that a batch can name."""
ROUTES = frozenset({*DIALECTS, EMBEDDINGS})
"""All routes that a batch can name."""
COSTLY_SECONDS = 60.0
"""Before an item whose constraint took too long is tried again: the machine may have been busy, and the engine refuses
all that have the same constraint for that long, so that one slow step would fail a whole batch."""


class NoLimits:
    """A Gate for items that were let in as part of their batch."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    @property
    def is_open(self) -> bool:
        return self._gate.is_open

    def identify(self, authorization: str | None, query_token: str | None) -> Caller:
        return self._gate.identify(authorization, query_token)

    def admit_cheap(self, caller: Caller) -> None:
        pass

    def charge(self, name: str, seconds: float) -> None:
        self._gate.charge(name, seconds)

    def admit(self, caller: Caller, *, requests: int = 1) -> AbstractAsyncContextManager[None]:
        return self._free()

    @contextlib.asynccontextmanager
    async def _free(self) -> AsyncIterator[None]:
        yield


class ServerExecutor:
    """An `Executor` of `jobs/ports.py` over a Process."""

    def __init__(self, process: Process) -> None:
        self._process = replace(process, gate=NoLimits(process.gate), reports_items=True)
        compat = replace(process.settings, wordlist_server_compat=True)
        self._seed = replace(self._process, settings=compat)

    def check(self, endpoint: str, body: Mapping[str, Any], options: Mapping[str, Any], kind: str) -> ItemAnswer | None:
        request_id = new_id("req-")
        try:
            if endpoint == EMBEDDINGS:
                parse_embeddings(dict(body), self._process)
            else:
                self._parse_body(endpoint, body, options, kind)
        except EspalierError as error:
            return _refuse_item(error, request_id)
        except Exception:
            # As a route does: the log gets the traceback, with the id that the result shows.
            log.exception("an item could not be checked", extra={"fields": {"request_id": request_id}})
            return _refuse_item(internal_error(request_id), request_id)
        return None

    def check_job(self, endpoint: str, options: Mapping[str, Any], kind: str) -> InputFault | None:
        if kind != "seed":
            known = endpoint in ROUTES
            return (
                None if known else InputFault(code="invalid_endpoint", message=f"no route {endpoint}", param="endpoint")
            )
        lang, top = options.get("vocab_lang"), options.get("vocab_n_words")
        compiler = self._process.engine.engine.compiler
        if lang is None or top is None or compiler is None:
            return None
        try:
            compiler.compile(Wordlist(lang=lang, top=known_words(lang, top, compiler, as_there=True)[0]))
        except EspalierError as error:
            message = f"Constrained vocabulary config failed for lang '{lang}'."
            log.warning("%s %s", message, error)
            return InputFault(code=error.code, message=f"{message} {error}", param="vocab_lang")
        return None

    async def execute(self, item: WorkItem) -> ItemAnswer:
        request_id, caller = new_id("req-"), Caller(name=item.caller)
        try:
            if item.endpoint == EMBEDDINGS:
                process, data = self._process, dict(item.body)
                return await answer_embeddings(data, process, caller=caller.name, request_id=request_id)
            previous = item.body.get("previous_response_id") if item.endpoint == RESPONSES.route else None
            read = partial(self._parse_body, item.endpoint, item.body, item.options, item.kind, previous, caller.name)
            if item.size < IN_A_THREAD and previous is None:
                dialect, process, asked = read()
            else:
                dialect, process, asked = await self._process.pools.bodies.run(read, owner=caller.name)
            raw, running = await whole_reply(process, dialect, asked, caller=caller, request_id=request_id)
        except UpstreamBusy as error:  # another server, whose pauses count as tries: it may never be ready
            return _refuse_item(error, request_id)
        except (Overloaded, Unavailable):
            raise
        except Cancelled as error:
            raise Unavailable("the engine is closing") from error
        except EspalierError as error:
            return _refuse_item(error, request_id)
        except Exception:
            log.exception("an item failed", extra={"fields": {"request_id": request_id, "batch": item.lease.batch}})
            return _refuse_item(internal_error(request_id), request_id)
        work = partial(_answer, raw, running, request_id, is_told=item.kind != "seed")
        if len(raw) < IN_A_THREAD and sum(output.tokens for output in running.outputs) < FEW_TOKENS:
            return work()  # a thread takes longer than this does
        return await self._process.pools.replies.run(work, owner=caller.name)

    def _parse_body(
        self,
        endpoint: str,
        body: Mapping[str, Any],
        options: Mapping[str, Any],
        kind: str,
        previous: Any = None,
        caller: str = "",
    ) -> tuple[Dialect[Any], Process, ParsedRequest]:
        """What a body asks for, and which route's reply it gets. previous: the id of the response that it goes on from,
        of this caller. Raises what the route raises."""
        process, dialect = self._process, DIALECTS.get(endpoint)
        data = dict(body)
        if kind == "seed":
            process, dialect, data = self._seed, WORDLIST_CHAT, wordlist_item_body(body["item"], options)
        elif dialect is CHAT and process.settings.wordlist_server_compat:
            dialect = WORDLIST_CHAT
        if dialect is None:
            raise NotFound(f"no route {endpoint} takes batches", field="url")
        if previous is not None:
            dialect = replace(dialect, ask=partial(ask_responses, history=history_of(previous, process, caller)))
        if dialect.adapt is not None:
            data = dialect.adapt(data, process)
        return dialect, process, dialect.asked(data, process)


def _answer(raw: bytes, running: Generation, request_id: str, *, is_told: bool) -> ItemAnswer:
    """is_told: whether warnings stand in the body, since an item has no headers."""
    body = json.loads(raw)
    lines = [*running.asked.lines, *running.told]
    if is_told and lines:
        body["espalier"] = {**body.get("espalier", {}), "warnings": lines}
    results = [output.result for output in running.outputs if output.result is not None]
    outputs = [two for result in results for two in (result, *result.others)]
    traces = [output.trace_id for output in running.outputs if output.trace_id is not None]
    return ItemAnswer(
        status=200,
        body=body,
        request_id=request_id,
        model=running.asked.model,
        prompt_tokens=sum(result.usage.prompt_tokens for result in results[:: running.asked.n]),
        completion_tokens=sum(output.usage.completion_tokens for output in outputs),
        valid=valid_of(outputs),
        trace_id=traces[0] if traces else None,
        figures=figures_of(outputs),
    )


def _refuse_item(error: EspalierError, request_id: str) -> ItemAnswer:
    passes = COSTLY_SECONDS if isinstance(error, TooCostly) else None
    if isinstance(error, UpstreamBusy | TooManyRequests):
        passes = float(error.retry_after)
    return ItemAnswer(status=error.http_status, body=error_body(error), request_id=request_id, passes=passes)
