"""Builds TGI's replies: whole ones, the events of a stream, errors. It waits for nothing and runs nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from espalier.engines.base import Event, FinishEvent, Result, TokenEvent
from espalier.errors import EspalierError
from espalier.server.answering.endings import BROKEN
from espalier.server.answering.logprobs import finite, of_probability
from espalier.server.answering.replies import Head, ReplyChunks, result_report
from espalier.server.asking.draft import ParsedRequest
from espalier.server.asking.tgi import ParsedTgiRequest
from espalier.server.http.errors import code_of, error_body
from espalier.trace.records import StepRecord

Json = dict[str, Any]
ERROR_TYPES = {429: "overloaded", 503: "overloaded"}
"""`error_type` by status; others are `validation` below 500 and `generation` above."""


def whole_tgi(parsed: ParsedRequest, _head: Head, results: Sequence[Result]) -> Json:
    """The reply of `/generate`."""
    assert isinstance(parsed, ParsedTgiRequest)
    (result,) = results
    reply: Json = {"generated_text": parsed.echo[0] + result.text}
    if parsed.has_details:
        steps = result.records
        tops = {"top_tokens": [_top(parsed, step) for step in steps]} if parsed.top_logprobs else {}
        tokens = [_token(parsed, step.token_id, step.text, step) for step in steps]
        reply["details"] = {**_details(result), "prefill": [], "tokens": tokens, **tops}
    return reply


def _details(result: Result) -> Json:
    return {
        "finish_reason": _finish_reason(result),
        "generated_tokens": result.usage.completion_tokens,
        "seed": result.seed,
    }


def _finish_reason(result: Result) -> str:
    if result.breach is not None:
        return BROKEN
    if isinstance(result.stop_reason, str):
        return "stop_sequence"
    return "length" if result.finish_reason == "length" else "eos_token"


def _token(parsed: ParsedRequest, token: int, text: str, step: StepRecord | None) -> Json:
    """A token; one that ends the text is special and has an empty text."""
    is_end = token in parsed.ends
    logprob = None if step is None or parsed.top_logprobs is None else finite(step.logprob)
    return {"id": token, "text": "" if is_end else text, "logprob": logprob, "special": is_end}


def _top(parsed: ParsedRequest, step: StepRecord) -> list[Json]:
    """The most probable tokens of a step."""
    return [
        {
            "id": candidate.id,
            "text": candidate.text,
            "logprob": of_probability(candidate.prob),
            "special": candidate.id in parsed.ends,
        }
        for candidate in step.pre_masking[: parsed.top_logprobs]
    ]


@dataclass(slots=True)
class TgiChunks(ReplyChunks):
    """An event for each token; the last one has the whole text too, so each is sent when the next one comes."""

    _waiting: Json | None = None
    _count: int = 0

    def first(self) -> list[Json]:
        """Nothing: an event is a token."""
        return []

    def last(self) -> list[Json]:
        """Nothing: the last token has come with the end."""
        return []

    def of(self, run: int, happened: Event, trace_id: str | None) -> list[Json]:
        """The token before this one; at the end, the last token."""
        waiting = [] if self._waiting is None else [self._waiting]
        if isinstance(happened, TokenEvent):
            self._waiting = self._event(happened)
            return waiting
        assert isinstance(happened, FinishEvent)
        result = self.results[run] = happened.result
        if self._waiting is None:
            return []
        token = self._waiting["token"]
        ended = {
            "token": {**token, "text": token["text"] + happened.text},
            "generated_text": self.asked.echo[run] + result.text,
            "details": {**_details(result), "input_length": result.usage.prompt_tokens},
        }
        return [self._waiting | ended | result_report(result)]

    def _event(self, happened: TokenEvent) -> Json:
        self._count += 1
        step = happened.record
        token = _token(self.asked, happened.token_id, happened.text, step)
        tops = {"top_tokens": _top(self.asked, step)} if step is not None and self.asked.top_logprobs else {}
        return {"index": self._count, "token": token, **tops, "generated_text": None, "details": None}

    def failed(self, error: EspalierError) -> list[Json]:
        """The error."""
        return [tgi_error(error)]


def tgi_error(error: EspalierError) -> Json:
    """`{"error": message, "error_type"}`; `param` and `code` are ours."""
    kind = ERROR_TYPES.get(error.http_status, "validation" if error.http_status < 500 else "generation")
    message = error_body(error)["error"]["message"]
    return {"error": message, "error_type": kind, "param": error.field, "code": code_of(error)}
