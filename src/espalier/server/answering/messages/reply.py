"""Builds messages as JSON: whole ones, and the events of a stream. `content.py` makes their blocks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from espalier.engines.base import Event, FinishEvent, Result, TokenEvent, Usage
from espalier.errors import EspalierError
from espalier.server.answering.deltas import deltas_of
from espalier.server.answering.messages.content import Content
from espalier.server.answering.messages.errors import messages_error
from espalier.server.answering.replies import Head, NamedChunks, fault_report, report, reports
from espalier.server.asgi import new_id
from espalier.server.asking.draft import ParsedRequest
from espalier.server.asking.messages.ask import ParsedMessagesRequest

Json = dict[str, Any]
BROKEN = "refusal"
"""Of Anthropic's stop reasons, the one that says not to use the text."""
REASONS = {"tool_calls": "tool_use", "length": "max_tokens", "stop": "end_turn"}


def messages_head(parsed: ParsedRequest, fingerprint: str) -> Head:
    return Head(
        id=new_id("msg_"), kind="message", created=int(time.time()), model=parsed.model, fingerprint=fingerprint
    )


def whole_message(parsed: ParsedRequest, head: Head, results: Sequence[Result]) -> Json:
    """A `message`."""
    (result,) = results
    content = _content(parsed)
    for delta in deltas_of(result):
        for _ in content.of(delta):
            pass
    for _ in content.end():
        pass
    return _message(head, content.blocks, ending(parsed, result), usage(result.usage))


def _content(parsed: ParsedRequest) -> Content:
    assert isinstance(parsed, ParsedMessagesRequest)
    return Content(hides_thinking=parsed.hides_thinking)


def _message(head: Head, blocks: Sequence[Json], stop: Json, used: Json) -> Json:
    return {
        "id": head.id,
        "type": "message",
        "role": "assistant",
        "model": head.model,
        "content": list(blocks),
        **stop,
        "usage": used,
    }


def ending(parsed: ParsedRequest, result: Result) -> Json:
    """`stop_reason` and `stop_sequence`. A text that breaks what was called enforced says so, and one that the context
    ended, not `max_tokens`."""
    assert isinstance(parsed, ParsedMessagesRequest)
    if result.breach is not None:
        return {"stop_reason": BROKEN, "stop_sequence": None}
    reason, text = REASONS[result.finish_reason], result.stop_reason
    if reason == "end_turn" and isinstance(text, str) and text in parsed.stops:
        return {"stop_reason": "stop_sequence", "stop_sequence": text}
    most = 0 if parsed.requests[0].only_prompt else parsed.requests[0].sampling.max_tokens
    if reason == "max_tokens" and result.usage.completion_tokens < most:
        reason = "model_context_window_exceeded"
    return {"stop_reason": reason, "stop_sequence": None}


def usage(used: Usage) -> Json:
    """Anthropic counts what the prefix cache spared apart from the input."""
    return {
        "input_tokens": used.prompt_tokens - used.cached_tokens,
        "cache_read_input_tokens": used.cached_tokens,
        "cache_creation_input_tokens": 0,
        "output_tokens": used.completion_tokens,
    }


@dataclass(slots=True)
class MessagesChunks(NamedChunks):
    """The events of one message. It begins when the prompt has been read, for `message_start` has its tokens."""

    _blocks: Content = field(init=False)
    _has_begun: bool = False
    _report: Json | None = None

    def __post_init__(self) -> None:
        self._blocks = _content(self.asked)

    def first(self) -> list[Json]:
        """Nothing yet."""
        return []

    def _start(self, happened: Event) -> list[Json]:
        """`message_start`, and a ping as Anthropic sends one."""
        if isinstance(happened, FinishEvent):
            begun = usage(replace(happened.result.usage, completion_tokens=0))
        else:  # an engine elsewhere may know the tokens only at the end
            total, cached = happened.prompt_tokens or 0, happened.cached_tokens or 0
            begun = usage(Usage(prompt_tokens=total, completion_tokens=0, cached_tokens=cached))
        message = _message(self.head, [], {"stop_reason": None, "stop_sequence": None}, begun)
        return [{"type": "message_start", "message": message}, {"type": "ping"}]

    def of(self, run: int, happened: Event, trace_id: str | None) -> list[Json]:
        """The events of a token or of the end."""
        begin = [] if self._has_begun else self._start(happened)
        self._has_begun = True
        objects: list[Json] = []
        for delta in happened.deltas:
            objects += self._blocks.of(delta)
        record = happened.record if isinstance(happened, TokenEvent) else None
        if self.asked.stream_steps and record is not None and objects:
            objects[0]["espalier"] = {"steps": [{"index": 0, **record.to_json()}]}
        if isinstance(happened, FinishEvent):
            self.results[run] = happened.result
            objects += self._blocks.end()
            if self.asked.report:
                outputs = [report(self.asked, 0, run, happened.result, trace_id)]
                self._report = {"espalier": reports(self.contract, outputs, self.asked, [happened.result])}
            else:
                self._report = fault_report(happened.result)
        return begin + objects

    def last(self) -> list[Json]:
        """`message_delta` and `message_stop`."""
        (result,) = self.results.values()
        delta = {"type": "message_delta", "delta": ending(self.asked, result), "usage": usage(result.usage)}
        return [{**delta, **(self._report or {})}, {"type": "message_stop"}]

    def failed(self, error: EspalierError) -> list[Json]:
        """`error`."""
        return [messages_error(error)]
