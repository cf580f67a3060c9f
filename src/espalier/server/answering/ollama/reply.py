"""Builds replies of `/api/chat` and `/api/generate` as JSON: whole ones, and the lines of a stream.

A call is one piece of a line: its arguments are an object, so it is sent when it is complete.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, CallEnded, ContentDelta, Delta, ReasoningDelta
from espalier.chat.tools import ToolCall
from espalier.engines.base import Event, FinishEvent, Result, TokenEvent
from espalier.errors import EspalierError
from espalier.server.answering.endings import plain_reason
from espalier.server.answering.generation import Generation
from espalier.server.answering.logprobs import ChatLogprobsLog
from espalier.server.answering.ollama.errors import ollama_error
from espalier.server.answering.replies import Head, ReplyChunks, report, reports, result_report, steps_of
from espalier.server.asgi import new_id
from espalier.server.asking.draft import ParsedRequest
from espalier.server.asking.ollama.ask import ParsedOllamaRequest
from espalier.server.http.wire import to_bytes, to_bytes_by_parts
from espalier.trace.records import StepRecord

Json = dict[str, Any]
CUT_CALL = "the text ends inside a call of {name}, which is left out"


def ollama_head(parsed: ParsedRequest, fingerprint: str) -> Head:
    return Head(
        id=new_id("ollama-"), kind="ollama", created=int(time.time()), model=parsed.model, fingerprint=fingerprint
    )


def written_now() -> str:
    """The time as Ollama writes it."""
    return datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def nanoseconds(seconds: float) -> int:
    """A duration as Ollama writes it; never 0, for clients divide by durations."""
    return max(1, round(seconds * 1e9))


@dataclass(slots=True)
class OllamaTurn:
    """The pieces of a reply as they come. A call waits for its end."""

    has_message: bool
    # By the index of the call, with its arguments so far.
    _open: dict[int, tuple[CallBegun, list[str]]] = field(default_factory=dict)

    def of(self, delta: Delta) -> Json | None:
        """The piece that a delta gives, if it gives one."""
        if isinstance(delta, ContentDelta):
            return self.piece(delta.text) if delta.text else None
        if isinstance(delta, ReasoningDelta):
            return self.piece("", thinking=delta.text) if delta.text else None
        if isinstance(delta, CallBegun):
            self._open[delta.index] = (delta, [])
        elif isinstance(delta, ArgumentsDelta):
            self._open[delta.index][1].append(delta.text)
        elif isinstance(delta, CallEnded):
            begun, texts = self._open.pop(delta.index)
            call = ToolCall(index=begun.index, name=begun.name, arguments="".join(texts), id=begun.id)
            return None if call.parsed is None else self.piece("", tool_calls=[_call(call)])
        return None

    def piece(self, content: str, **more: Any) -> Json:
        """The fields of a line that hold text. more: what stands beside the text."""
        if self.has_message:
            return {"message": {"role": "assistant", "content": content, **more}}
        return {"response": content, **more}


def _call(call: ToolCall) -> Json:
    """A call, whose arguments are an object."""
    return {"id": call.id, "function": {"index": call.index, "name": call.name, "arguments": call.parsed}}


def whole_ollama(parsed: ParsedRequest, head: Head, results: Sequence[Result]) -> Json:
    """A reply without its durations and its context, which `finish_ollama` adds."""
    assert isinstance(parsed, ParsedOllamaRequest)
    (result,) = results
    more: Json = {}
    if parsed.has_turn:
        calls = [_call(call) for call in result.tool_calls if call.parsed is not None]
        held = {"thinking": result.reasoning, "tool_calls": calls}
        more = {name: value for name, value in held.items() if value}
    content = result.content if parsed.has_turn else result.text
    piece = OllamaTurn(parsed.has_message).piece(content, **more)
    reply = {"model": head.model, "created_at": written_now(), **piece}
    if parsed.top_logprobs is not None:
        reply["logprobs"] = _logprobs(parsed, steps_of(parsed, result))
    return reply | _ending(result) | _told(result, {})


def _logprobs(parsed: ParsedRequest, steps: Sequence[StepRecord]) -> list[Json]:
    return ChatLogprobsLog(parsed).of(steps)["content"]  # type: ignore[no-any-return]


def _ending(result: Result) -> Json:
    """The fields that say that a reply is complete."""
    used = result.usage
    return {
        "done": True,
        "done_reason": plain_reason(result),
        "prompt_eval_count": used.prompt_tokens,
        "eval_count": used.completion_tokens,
    }


def _told(result: Result, breach: Mapping[str, Any]) -> Json:
    """The key `espalier` where nobody asks for it: what the client must hear of all the same. breach: what is said of
    a text that breaks what was called enforced, where no header can say it."""
    cut = [CUT_CALL.format(name=call.name) for call in result.tool_calls if call.parsed is None]
    lines = [*breach.get("espalier", {}).get("warnings", ()), *cut]
    return {"espalier": {"warnings": lines}} if lines else {}


def finish_ollama(reply: Json, running: Generation) -> Json:
    """The whole reply with what only the run knows."""
    (output,) = running.outputs
    assert output.result is not None
    return reply | _of_run(running, output.result)


def end_ollama(chunks: OllamaChunks, running: Generation) -> None:
    """Give the last line of a stream what only the run knows."""
    (result,) = chunks.results.values()
    chunks.of_run = _of_run(running, result)


def _of_run(running: Generation, result: Result) -> Json:
    parsed = running.asked
    assert isinstance(parsed, ParsedOllamaRequest)
    (output,) = running.outputs
    submitted = running.began if running.submitted is None else running.submitted
    first = output.last if output.first is None else output.first
    first = max(first, submitted)
    durations: Json = {
        "total_duration": time.monotonic() - running.began,
        "load_duration": submitted - running.began,
        "prompt_eval_duration": first - submitted,
        "eval_duration": max(output.last - first, 0.0),
    }
    fields: Json = {name: nanoseconds(seconds) for name, seconds in durations.items()}
    if parsed.has_context:
        prompt = running.process.engine.engine.prompt_ids(parsed.requests[0])
        fields["context"] = [*prompt, *result.token_ids]
    return fields


@dataclass(slots=True)
class OllamaChunks(ReplyChunks):
    """The lines of one reply: one for each piece, and a last one with everything else. of_run: set by `end_ollama`."""

    of_run: Json = field(default_factory=dict)
    _turn: OllamaTurn = field(init=False)
    _last: Json = field(default_factory=dict)

    def __post_init__(self) -> None:
        assert isinstance(self.asked, ParsedOllamaRequest)
        self._turn = OllamaTurn(self.asked.has_message)

    def first(self) -> list[Json]:
        """Nothing: a line is text, or the end."""
        return []

    def of(self, run: int, happened: Event, trace_id: str | None) -> list[Json]:
        """The lines of a token or of the end."""
        record = happened.record if isinstance(happened, TokenEvent) else None
        if record is not None and record.token_id not in self.asked.ends:
            self._steps.setdefault(run, []).append(record)
        lines = [self._line(piece) for piece in self._pieces(happened)]
        if self.asked.stream_steps and record is not None:
            lines = lines or [self._line(self._turn.piece(""))]
            lines[0]["espalier"] = {"steps": [{"index": 0, **record.to_json()}]}
        if self.asked.top_logprobs is not None and lines and (steps := self._steps.pop(run, None)):
            lines[0]["logprobs"] = _logprobs(self.asked, steps)
        if isinstance(happened, FinishEvent):
            result = happened.result
            self.results[run] = result
            self._last = self._turn.piece("") | _ending(result) | _told(result, result_report(result))
            if self.asked.top_logprobs is not None and (steps := self._steps.pop(run, None)):
                self._last["logprobs"] = _logprobs(self.asked, steps)
            if self.asked.report:
                entry = report(self.asked, 0, run, result, trace_id)
                self._last["espalier"] = reports(self.contract, [entry], self.asked, [result])
        return lines

    def _pieces(self, happened: Event) -> Iterator[Json]:
        assert isinstance(self.asked, ParsedOllamaRequest)
        if self.asked.has_turn:
            yield from filter(None, map(self._turn.of, happened.deltas))
        elif happened.text:
            yield self._turn.piece(happened.text)

    def _line(self, piece: Json, *, done: bool = False) -> Json:
        return {"model": self.head.model, "created_at": written_now(), **piece, "done": done}

    def last(self) -> list[Json]:
        """The end, with the counts and the durations."""
        return [self._line(self._last | self.of_run, done=True)]

    def failed(self, error: EspalierError) -> list[Json]:
        """The error."""
        return [ollama_error(error)]

    def encoded(self, chunk: Json, *, by_parts: bool = False) -> bytes:
        """A line."""
        return (to_bytes_by_parts if by_parts else to_bytes)(chunk) + b"\n"
