"""Replies of `/v1/responses` held to the types of the openai SDK, and put together from their events."""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from functools import cache
from typing import Any

from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from tests.server_app import events

Json = dict[str, Any]
PART_KINDS = {"output_text": "output_text", "reasoning_text": "reasoning_text"}
OWN = {"function_call_arguments": "arguments", "custom_tool_call_input": "input"}


@cache
def _event() -> TypeAdapter[Any]:
    return TypeAdapter(ResponseStreamEvent)


def checked(reply: Json) -> Json:
    """The reply, which fits the SDK's type. Its items fit the types that they say, not just any."""
    found = Response.model_validate(reply)
    for given, read in zip(reply["output"], found.output, strict=True):
        assert given["type"] == read.type
    return reply


def whole(client: TestClient, body: Json, **options: Any) -> Json:
    reply = client.post("/v1/responses", json=body, **options)
    assert reply.status_code == 200, reply.text
    return checked(reply.json())


def streamed(client: TestClient, body: Json, **options: Any) -> list[Json]:
    return _events(client.post("/v1/responses", json={**body, "stream": True}, **options))


def again(client: TestClient, path: str, **options: Any) -> list[Json]:
    """The events of a stored response."""
    return _events(client.get(path if "?" in path else f"{path}?stream=true", **options))


def _events(reply: Any) -> list[Json]:
    assert reply.status_code == 200, reply.text
    assert reply.headers["content-type"].startswith("text/event-stream")
    names = [line.removeprefix("event: ") for line in reply.text.splitlines() if line.startswith("event: ")]
    found = [json.loads(block.partition("data: ")[2]) for block in reply.text.split("\n\n") if "data: " in block]
    assert names == [one["type"] for one in found]
    assert not events(reply.text), "an event without a name"
    return found


def gathered(found: Sequence[Json]) -> Json:
    """The response that a client puts together from the deltas of a stream, which is also what the events of its end
    say. The order of the events is checked."""
    for number, one in enumerate(found):
        assert one["sequence_number"] == number
        read = _event().validate_python(one)
        assert read.type == one["type"]
    assert [one["type"] for one in found[:2]] == ["response.created", "response.in_progress"]
    assert found[0]["response"] == found[1]["response"]
    assert checked(found[0]["response"])["status"] == "in_progress"
    items: list[Json] = []
    opened: Json | None = None
    for one in found[2:-1]:
        kind = one["type"].removeprefix("response.")
        if kind == "output_item.added":
            assert opened is None
            assert one["output_index"] == len(items)
            opened = copy.deepcopy(one["item"])
            assert opened["status"] == "in_progress"
            continue
        assert opened is not None, one
        assert one["output_index"] == len(items)
        if kind == "output_item.done":
            assert one["item"].items() >= {k: v for k, v in opened.items() if k != "status"}.items()
            assert one["item"]["status"] in ("completed", "incomplete")
            items.append(one["item"])
            opened = None
            continue
        assert one["item_id"] == opened["id"]
        _grow(opened, kind, one)
    assert opened is None
    last = found[-1]
    assert last["type"] == f"response.{last['response']['status']}"
    checked(last["response"])
    assert last["response"]["output"] == items
    assert last["response"]["id"] == found[0]["response"]["id"]
    return last["response"]


def _grow(item: Json, kind: str, one: Json) -> None:
    name, _, what = kind.rpartition(".")
    if name in ("content_part", "reasoning_summary_part"):
        parts = item["content" if name == "content_part" else "summary"]
        place = one["content_index" if name == "content_part" else "summary_index"]
        if what == "added":
            assert place == len(parts)
            assert one["part"]["text"] == ""
            parts.append(copy.deepcopy(one["part"]))
        else:
            assert parts[place]["text"] == one["part"]["text"]
            parts[place] = one["part"]
        return
    if name in OWN:
        own = OWN[name]
        if what == "delta":
            assert one["delta"]
            item[own] += one["delta"]
        else:
            assert item[own] == one[own]
        return
    part = item["summary"][one["summary_index"]] if "summary_index" in one else item["content"][one["content_index"]]
    if what == "delta":
        assert one["delta"]
        part["text"] += one["delta"]
        if one.get("logprobs"):
            part["logprobs"] += one["logprobs"]
    else:
        assert part["text"] == one["text"]
        if part.get("logprobs"):
            assert part["logprobs"] == one["logprobs"]


def content(response: Json) -> Json:
    """What two replies to one request share: all but ids, times and what the prefix cache spared."""
    found = copy.deepcopy(response)
    for name in ("id", "created_at", "completed_at", "request_id"):
        found.pop(name, None)
    for item in found["output"]:
        item.pop("id")
        item.pop("call_id", None)
    if found["usage"]:
        found["usage"]["input_tokens_details"].pop("cached_tokens")
    if "espalier" in found:
        for output in found["espalier"]["outputs"]:
            output.pop("trace_id", None)
            output.pop("summary", None)
    return found


def text_of(response: Json) -> str:
    return "".join(part["text"] for item in response["output"] if item["type"] == "message" for part in item["content"])


def calls_of(response: Json) -> list[Json]:
    return [item for item in response["output"] if item["type"].endswith("_call")]
