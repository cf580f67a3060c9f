"""`LogitTool`: the verbs for agents without MCP, as OpenAI's and Anthropic's tool definitions, and one call.

It runs generations on the engine that it is given, in the caller's thread; from several threads at once too.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from espalier.agents.arguments import told
from espalier.agents.runs import Runs
from espalier.agents.table import TOOLS, VerbCall, failure, read_call
from espalier.agents.verb import Answer, Desk, Question
from espalier.api.loaded import LoadedEngine
from espalier.api.use_cases import default_app
from espalier.engines.base import FinishEvent, Request, Result
from espalier.engines.serving.direct import DirectService
from espalier.errors import CapabilityError, EspalierError, GenerationError, InputError, NotAvailable
from espalier.trace.records import Trace

WAITING = 256
CALLER = "anonymous"
"""Whose traces these are in the store."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolReply:
    """The answer to a call. data: JSON values, valid under the tool's output schema; where it failed, `error` has the
    message, the hint and the field."""

    data: Answer
    is_error: bool = False
    error: EspalierError | None = field(default=None, compare=False)

    @property
    def text(self) -> str:
        """The data as JSON: what an agent puts into its tool message."""
        return json.dumps(self.data, ensure_ascii=False)


class LogitTool:
    """Tools over an engine.

    engine: what `espalier.load` gives; None answers that there is none. traces: where traces go and are looked up, such
    as a `Store` of `espalier.store`; without it none are kept. presets: by default those of the process.
    """

    def __init__(self, engine: LoadedEngine | None, *, traces: Any = None, presets: Any = None) -> None:
        self._engine, self._traces = engine, traces
        self._presets = presets if presets is not None else default_app().presets

    def openai(self) -> list[dict[str, Any]]:
        """The tools as OpenAI's `tools`."""
        return [
            {
                "type": "function",
                "function": {"name": verb.name, "description": verb.about, "parameters": verb.input_schema},
            }
            for verb in TOOLS.values()
        ]

    def anthropic(self) -> list[dict[str, Any]]:
        """The tools as Anthropic's `tools`."""
        return [
            {"name": verb.name, "description": verb.about, "input_schema": verb.input_schema} for verb in TOOLS.values()
        ]

    def call(self, name: str, arguments: Any) -> ToolReply:
        """Do what a model asks for. arguments: a mapping, or the JSON text in which OpenAI's models write them. Every
        error of ours is an answer, none is raised."""
        try:
            return ToolReply(data=self._call(name, arguments))
        except EspalierError as error:
            message = told(error)
            shaped = failure(name, message)
            if shaped is None:
                shaped = {
                    "error": {"message": error.message, "hint": error.hint, "field": error.field, "code": error.code}
                }
            return ToolReply(data=shaped, is_error=True, error=error)

    def _call(self, name: str, arguments: Any) -> Answer:
        call = read_call(name, _parse_arguments(arguments) if isinstance(arguments, str) else arguments)
        try:
            return call.shape(self._answer(call))
        except EspalierError as error:
            raise call.blamed(error) from error.__cause__

    def _answer(self, call: VerbCall) -> Answer:
        engine = self._engine
        if engine is None:
            raise CapabilityError(
                "logit backend not configured", hint="LogitTool(espalier.load(...))", field="arguments"
            )
        desk = Desk(
            engine=engine,
            presets=self._presets,
            traces=self._traces,
            runs=Runs(engine, lambda: _serve_directly(engine)),
        )
        if call.verb.asks is not None:
            return self._generate_answer(engine, call.verb.asks(call.arguments, desk))
        assert call.verb.answers is not None
        return call.verb.answers(call.arguments, desk)

    def _generate_answer(self, engine: LoadedEngine, question: Question) -> Answer:
        if question.keeps_trace and self._traces is None:
            raise NotAvailable("this tool keeps no traces", hint="LogitTool(engine, traces=...)", field="trace")
        requests, _ = LoadedEngine(engine.engine, self._presets).requests(question.prompt, **question.options)
        result = _finish_requests(engine, requests)
        kept = self._keep_trace(result.trace) if question.keeps_trace and result.trace is not None else None
        return question.read(result, kept)

    def _keep_trace(self, trace: Trace) -> str:
        trace_id: str = self._traces.save_trace(trace.to_json(), request_id="", caller=CALLER, index=0)
        return trace_id


def _serve_directly(engine: LoadedEngine) -> DirectService:
    """The engine, asked directly: other requests of it go on."""
    return DirectService(engine.engine, queue_size=WAITING)


def _finish_requests(engine: LoadedEngine, requests: list[Request]) -> Result:
    for event in engine.engine.run(requests):
        if isinstance(event, FinishEvent):
            return event.result
    raise GenerationError("the run ended without a result")


def _parse_arguments(arguments: str) -> Any:
    try:
        return json.loads(arguments) if arguments.strip() else {}
    except (ValueError, RecursionError) as error:
        raise InputError(f"the arguments are not JSON: {error}", field="arguments") from error
