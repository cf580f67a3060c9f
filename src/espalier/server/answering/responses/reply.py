"""Builds responses as JSON: whole ones, and the events of a stream. `output.py` makes their items."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from espalier.engines.base import Event, FinishEvent, Result, TokenEvent
from espalier.errors import EspalierError
from espalier.server.answering.deltas import deltas_of
from espalier.server.answering.endings import BROKEN
from espalier.server.answering.logprobs import ChatLogprobsLog
from espalier.server.answering.replies import Head, NamedChunks, report, reports, result_report, steps_of
from espalier.server.answering.responses.output import Logprobs, ResponsesOutput
from espalier.server.asking.draft import ParsedRequest
from espalier.server.asking.responses.ask import ParsedResponsesRequest, summary_of
from espalier.server.http.errors import code_of, error_body
from espalier.store.ids import Ids
from espalier.trace.records import StepRecord

Json = dict[str, Any]
PREFIX = "resp"
IDS = Ids(time.time)
UNNAMED = "schema"
"""The name of a schema that was sent without one, as OpenAI's SDK needs it in a reply."""


def responses_head(parsed: ParsedRequest, fingerprint: str) -> Head:
    """A head with an id that the store takes."""
    made, created = IDS.new(PREFIX)
    return Head(id=made, kind="response", created=int(created), model=parsed.model, fingerprint=fingerprint)


def whole_response(parsed: ParsedRequest, head: Head, results: Sequence[Result]) -> Json:
    """A `response`."""
    assert isinstance(parsed, ParsedResponsesRequest)
    (result,) = results
    output = _output(parsed, head, lambda: steps_of(parsed, result))
    for delta in deltas_of(result):
        for _ in output.of(delta):
            pass
    for _ in output.end(is_complete=incomplete_details(result) is None):
        pass
    return finished(parsed, head, output.items, result)


def finished(parsed: ParsedResponsesRequest, head: Head, items: Sequence[Json], result: Result) -> Json:
    """The response of a run that has ended."""
    details = incomplete_details(result)
    return {
        **begun(parsed, head),
        "status": "completed" if details is None else "incomplete",
        "completed_at": int(time.time()),
        "incomplete_details": details,
        "output": list(items),
        "usage": usage_of(result),
    }


def incomplete_details(result: Result) -> Json | None:
    """Why the output is not whole: it breaks what was called enforced, or the token limit or a stop text cut it."""
    if result.breach is not None:
        return {"reason": BROKEN}
    is_cut = result.finish_reason == "length" or result.is_cut_by_stop
    return {"reason": "max_output_tokens"} if is_cut else None


def begun(parsed: ParsedResponsesRequest, head: Head) -> Json:
    """The response before there is any output."""
    body, sampling = parsed.body, parsed.requests[0].sampling
    thinking = body.reasoning
    shape = None if body.text is None else body.text.format
    shown = {"type": "text"} if shape is None else shape.model_dump(exclude_unset=True, by_alias=True)
    if shape is not None and shape.type == "json_schema":
        shown["name"] = shape.name or UNNAMED
    text: Json = {"format": shown}
    if body.text is not None and body.text.verbosity is not None:
        text["verbosity"] = body.text.verbosity
    return {
        "id": head.id,
        "object": "response",
        "created_at": head.created,
        "status": "in_progress",
        "background": False,
        "completed_at": None,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "max_tool_calls": None,
        "metadata": body.metadata or {},
        "model": head.model,
        "output": [],
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": body.previous_response_id,
        "reasoning": {"effort": None if thinking is None else thinking.effort, "summary": summary_of(body)},
        "service_tier": "default",
        "store": parsed.kept,
        "temperature": sampling.temperature,
        "text": text,
        "tool_choice": parsed.tools.shown_choice,
        "tools": parsed.tools.shown,
        "top_logprobs": parsed.top_logprobs,
        "top_p": sampling.top_p,
        "truncation": body.truncation or "disabled",
        "usage": None,
        **head.named(),
    }


def usage_of(result: Result) -> Json:
    """Token counts, in the names of the Responses API."""
    usage = result.usage
    return {
        "input_tokens": usage.prompt_tokens,
        "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
        "output_tokens": usage.completion_tokens,
        "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
        "total_tokens": usage.total_tokens,
    }


def _output(parsed: ParsedResponsesRequest, head: Head, steps: Any) -> ResponsesOutput:
    """steps: gives the steps so far."""

    def logprobs(reasoning: str, content: str) -> list[Json]:
        is_last = parsed.reasoning_place == "omitted"  # the reasoning may quote the content
        chosen = steps() if parsed.is_plain else _of_content(steps(), reasoning, content, is_last=is_last)
        return _logprobs(parsed, chosen)

    given: Logprobs | None = None if parsed.top_logprobs is None else logprobs
    suffix = head.id.removeprefix(f"{PREFIX}_")
    return ResponsesOutput(suffix, custom=parsed.tools.custom, has_summary=parsed.has_summary, logprobs=given)


def _logprobs(parsed: ParsedResponsesRequest, steps: Sequence[StepRecord]) -> list[Json]:
    objects: list[Json] = ChatLogprobsLog(parsed).of(steps)["content"]
    return objects


def _of_content(
    steps: Sequence[StepRecord], reasoning: str, content: str, *, is_last: bool = False
) -> list[StepRecord]:
    """The steps whose bytes are of the content, which comes after the reasoning. is_last: at its last occurrence."""
    joined, wanted = b"".join(step.bytes for step in steps), content.encode()
    start = max(0, joined.find(reasoning.encode())) + len(reasoning.encode()) if reasoning else 0
    start = max(0, joined.rfind(wanted) if is_last else joined.find(wanted, start))
    content_steps, place = [], 0
    for step in steps:
        end = place + len(step.bytes)
        if end > start and place < start + len(wanted):
            content_steps.append(step)
        place = end
    return content_steps


@dataclass(slots=True)
class ResponsesChunks(NamedChunks):
    """The events of one response, numbered."""

    _count: int = 0
    _output: ResponsesOutput = field(init=False)
    _all: list[StepRecord] = field(default_factory=list)
    _new: list[StepRecord] = field(default_factory=list)
    _ending: Json | None = None

    def __post_init__(self) -> None:
        assert isinstance(self.asked, ParsedResponsesRequest)
        self._output = _output(self.asked, self.head, lambda: self._all)

    @property
    def _ours(self) -> ParsedResponsesRequest:
        assert isinstance(self.asked, ParsedResponsesRequest)
        return self.asked

    def first(self) -> list[Json]:
        """`created` and `in_progress`."""
        names = ("created", "in_progress")
        return self._number_events(
            {"type": f"response.{name}", "response": begun(self._ours, self.head)} for name in names
        )

    def of(self, run: int, happened: Event, trace_id: str | None) -> list[Json]:
        """The events of a token or of the end."""
        record = happened.record if isinstance(happened, TokenEvent) else None
        if record is not None and record.token_id not in self.asked.ends:
            self._all.append(record)
            self._new.append(record)
        objects: list[Json] = []
        for delta in happened.deltas:
            objects += self._output.of(delta, self._take_logprobs())
        if self.asked.stream_steps and record is not None and objects:
            objects[0]["espalier"] = {"steps": [{"index": 0, **record.to_json()}]}
        if isinstance(happened, FinishEvent):
            result = self.results[run] = happened.result
            objects += self._output.end(is_complete=incomplete_details(result) is None)
            self._ending = finished(self._ours, self.head, self._output.items, result)
            if self.asked.report:
                entry = report(self.asked, 0, run, result, trace_id)
                self._ending["espalier"] = reports(self.contract, [entry], self.asked, [result])
            else:
                self._ending |= result_report(result)
        return self._number_events(objects)

    def last(self) -> list[Json]:
        """`completed` or `incomplete`."""
        assert self._ending is not None
        return self._number_events([{"type": f"response.{self._ending['status']}", "response": self._ending}])

    def failed(self, error: EspalierError) -> list[Json]:
        """`error`, then `failed` with what there is."""
        detail = error_body(error)["error"]
        code = {429: "rate_limit_exceeded"}.get(error.http_status, "server_error")
        response = {
            **begun(self._ours, self.head),
            "status": "failed",
            "output": list(self._output.items),
            "error": {"code": code, "message": detail["message"]},
        }
        return self._number_events(
            [
                {"type": "error", "code": code_of(error), "message": detail["message"], "param": error.field},
                {"type": "response.failed", "response": response},
            ]
        )

    @property
    def response(self) -> Json | None:
        """The response, None until it has ended."""
        return self._ending

    def _take_logprobs(self) -> list[Json]:
        """The log probabilities of tokens that no event had yet, if every token is one of the content."""
        if self.asked.top_logprobs is None or not self._ours.is_plain:
            return []
        taken, self._new = self._new, []
        return _logprobs(self._ours, taken)

    def _number_events(self, events: Iterable[Json]) -> list[Json]:
        numbered = []
        for event in events:
            numbered.append({**event, "sequence_number": self._count})
            self._count += 1
        return numbered
