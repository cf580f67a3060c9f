"""Chats with tools in the formats of other models over HTTP, two turns each: calls, their results, and an answer."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("transformers")

from starlette.testclient import TestClient

import espalier
from tests.server_app import make_app, settings

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 8},
                "days": {"type": "integer", "minimum": 1, "maximum": 9},
            },
            "required": ["city"],
            "additionalProperties": False,
        },
    },
}
ASKED = {"role": "user", "content": "What is the weather in Madrid?"}


@pytest.fixture(scope="module")
def api(demo_engine: espalier.LoadedEngine) -> Iterator[TestClient]:
    with TestClient(make_app(engine=demo_engine, config=settings()), raise_server_exceptions=False) as found:
        yield found


def asked(api: TestClient, **more: Any) -> Any:
    body = {"messages": [ASKED], "tools": [TOOL], "seed": 3, "max_tokens": 250} | more
    reply = api.post("/v1/chat/completions", json=body)
    assert reply.status_code == 200, reply.text
    return reply


@pytest.mark.parametrize(
    "name", ["qwen_coder", *(pytest.param(one, marks=pytest.mark.slow) for one in ("deepseek_v3", "kimi", "gemma4"))]
)
def test_a_call_and_then_its_result(api, name):
    format_ = {"espalier": {"tool_format": name}}
    more = format_ | {"tool_choice": "required", "parallel_tool_calls": False}
    choice = asked(api, **more).json()["choices"][0]
    assert choice["finish_reason"] == "tool_calls", choice
    (call,) = choice["message"]["tool_calls"]
    jsonschema.validate(json.loads(call["function"]["arguments"]), TOOL["function"]["parameters"])
    chunks = [
        json.loads(line[6:]) for line in asked(api, stream=True, **more).text.splitlines() if line.startswith("data: {")
    ]
    pieces = [
        piece["function"].get("arguments", "")
        for chunk in chunks
        for one in chunk["choices"]
        for piece in one["delta"].get("tool_calls", [])
    ]
    assert "".join(pieces) == call["function"]["arguments"]
    result = {"role": "tool", "tool_call_id": call["id"], "content": "18 degrees"}
    then = asked(api, messages=[ASKED, choice["message"], result], tool_choice="none", **format_).json()
    assert then["choices"][0]["message"]["content"]
    assert not then["choices"][0]["message"].get("tool_calls")
