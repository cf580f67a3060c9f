"""Replies of `/v1/messages` held to the shapes of Anthropic's API, and put together from their events.

The shapes are written out here, since the SDK `anthropic` is not installed beside the tests; `tests/clients/programs`
has what the SDK itself does.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Sequence
from typing import Any

from starlette.testclient import TestClient

from tests.server_app import events

Json = dict[str, Any]
USAGE = {"input_tokens", "output_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"}
REASONS = {"end_turn", "max_tokens", "stop_sequence", "tool_use", "model_context_window_exceeded"}
ERRORS = {
    "invalid_request_error",
    "authentication_error",
    "permission_error",
    "not_found_error",
    "request_too_large",
    "rate_limit_error",
    "api_error",
    "overloaded_error",
    "timeout_error",
}
FIELDS: dict[str, dict[str, type]] = {
    "text": {"text": str},
    "thinking": {"thinking": str, "signature": str},
    "tool_use": {"id": str, "name": str, "input": dict},
}
DELTAS = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}


def checked(message: Json, *, begins: bool = False) -> Json:
    """The message, which has the shape of one; or of one that begins."""
    assert (message["type"], message["role"]) == ("message", "assistant")
    assert message["id"].startswith("msg_")
    assert isinstance(message["model"], str)
    assert set(message["usage"]) == USAGE
    assert all(isinstance(one, int) and one >= 0 for one in message["usage"].values())
    for block in message["content"]:
        fields = FIELDS[block["type"]]
        assert set(block) == {"type", *fields}
        assert all(isinstance(block[name], kind) for name, kind in fields.items())
    if begins:
        assert (message["content"], message["stop_reason"], message["stop_sequence"]) == ([], None, None)
    else:
        assert message["stop_reason"] in REASONS
        assert (message["stop_sequence"] is not None) == (message["stop_reason"] == "stop_sequence")
    return message


def error_of(reply: Any) -> Json:
    """The error of a refused request, which has Anthropic's shape."""
    body = reply.json()
    assert body["type"] == "error"
    assert body["error"]["type"] in ERRORS
    assert body["error"]["message"]
    assert body["request_id"] == reply.headers["x-request-id"]
    found: Json = body["error"]
    return found


def whole(client: TestClient, body: Json, **options: Any) -> Json:
    reply = client.post("/v1/messages", json=body, **options)
    assert reply.status_code == 200, reply.text
    return checked(reply.json())


def streamed(client: TestClient, body: Json, **options: Any) -> list[Json]:
    reply = client.post("/v1/messages", json={**body, "stream": True}, **options)
    assert reply.status_code == 200, reply.text
    names = [line.removeprefix("event: ") for line in reply.text.splitlines() if line.startswith("event: ")]
    found = [json.loads(block.partition("data: ")[2]) for block in reply.text.split("\n\n") if "data: " in block]
    assert names == [one["type"] for one in found]
    assert not events(reply.text), "an event without a name"
    return found


def gathered(found: Sequence[Json]) -> Json:
    """The message that a client puts together from a stream. The order of the events is checked."""
    assert [one["type"] for one in found[:2]] == ["message_start", "ping"]
    message = copy.deepcopy(checked(found[0]["message"], begins=True))
    text: str | None = None
    for one in found[2:-2]:
        blocks = message["content"]
        if one["type"] == "content_block_start":
            assert text is None
            assert one["index"] == len(blocks)
            blocks.append(copy.deepcopy(one["content_block"]))
            text = ""
            continue
        assert text is not None
        assert one["index"] == len(blocks) - 1
        block = blocks[-1]
        if one["type"] == "content_block_stop":
            if block["type"] == "tool_use" and text:
                block["input"] = parsed(text)
            text = None
            continue
        assert one["type"] == "content_block_delta"
        kind, name = DELTAS[one["delta"]["type"]]
        assert block["type"] == kind
        if name == "partial_json":
            text += one["delta"][name]
        else:
            block[name] += one["delta"][name]
    assert text is None
    assert [one["type"] for one in found[-2:]] == ["message_delta", "message_stop"]
    message |= found[-2]["delta"]
    begun, used = found[0]["message"]["usage"], found[-2]["usage"]
    assert begun == {**used, "output_tokens": 0}, "the tokens of the prompt are right from the start"
    message["usage"] |= used
    if "espalier" in found[-2]:
        message["espalier"] = found[-2]["espalier"]
    return checked(message)


def parsed(text: str) -> Json:
    try:
        found = json.loads(text)
    except ValueError:  # a call that was cut off
        return {}
    return found if isinstance(found, dict) else {}


def content(message: Json) -> Json:
    """What two replies to one request share: all but ids, and what the prefix cache spared."""
    found = copy.deepcopy(message)
    found.pop("id")
    used = found["usage"]
    used["input_tokens"] += used.pop("cache_read_input_tokens")
    for block in found["content"]:
        block.pop("id", None)
    if "espalier" in found:
        for output in found["espalier"]["outputs"]:
            output.pop("summary", None)
    return found


def text_of(message: Json) -> str:
    return "".join(block["text"] for block in message["content"] if block["type"] == "text")
