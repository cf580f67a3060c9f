"""A stored response as the events of a stream, as they would have come whole. It knows no store."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, CallEnded, ContentDelta, Delta, ReasoningDelta
from espalier.server.answering.responses.output import ResponsesOutput
from espalier.server.answering.responses.reply import PREFIX

Json = dict[str, Any]
CUSTOM = "custom_tool_call"


def events_of(response: Mapping[str, Any]) -> Iterator[Json]:
    """The numbered events of a response that has ended; each text comes in one piece."""
    for number, event in enumerate(_events(response)):
        yield {**event, "sequence_number": number}


def _events(response: Mapping[str, Any]) -> Iterator[Json]:
    status = response["status"]
    ended: Json = {"completed_at": None, "incomplete_details": None, "output": [], "usage": None}
    begun = {**response, **ended, "status": "in_progress"}
    begun.pop("espalier", None)
    for name in ("created", "in_progress"):
        yield {"type": f"response.{name}", "response": begun}
    items = response["output"]
    logprobs = [
        item["content"][0].get("logprobs", []) for item in items if item["type"] == "message" and item["content"]
    ]
    custom = frozenset(item["name"] for item in items if item["type"] == CUSTOM)
    output = ResponsesOutput(
        response["id"].removeprefix(f"{PREFIX}_"),
        custom=custom,
        has_summary=any(item.get("summary") for item in items),
        logprobs=lambda _reasoning, _text: logprobs[0],
    )
    for place, item in enumerate(items):
        shown = logprobs[0] if item["type"] == "message" and logprobs else ()
        for delta in _deltas(item, place):
            yield from output.of(delta, shown)
    yield from output.end(is_complete=status == "completed")
    yield {"type": f"response.{status}", "response": response}


def _deltas(item: Mapping[str, Any], place: int) -> Iterator[Delta]:
    kind = item["type"]
    if kind == "message":
        yield from (ContentDelta(part["text"]) for part in item["content"])
    elif kind == "reasoning":
        yield from (ReasoningDelta(part["text"]) for part in item.get("summary") or item.get("content") or ())
    else:
        yield CallBegun(place, item["name"], item["call_id"])
        yield ArgumentsDelta(place, json.dumps({"input": item["input"]}) if kind == CUSTOM else item["arguments"])
        if item["status"] == "completed":
            yield CallEnded(place)
