"""`/v1/messages` over the fake model: replies, events, fields, errors by field and in Anthropic's shape."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from starlette.testclient import TestClient

from espalier.errors import Unavailable
from espalier.server.asking.messages.blocks import talk_of
from tests.messages_api import content, error_of, gathered, streamed, text_of, whole
from tests.server_app import OneKeyGate, Stuck, client, settings

TOOL = {
    "name": "look_up",
    "description": "Finds a place.",
    "cache_control": {"type": "ephemeral"},
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada", "Bob"]}},
    "required": ["name"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "schema": SCHEMA}
HI = [{"role": "user", "content": "Hi"}]
BASE: dict[str, Any] = {"model": "fake", "messages": HI, "max_tokens": 80, "seed": 1}


@pytest.fixture(scope="module")
def api() -> Iterator[TestClient]:
    with client("Hello there.") as found:
        yield found


def test_a_text_is_answered_with_one_block(api: TestClient) -> None:
    found = whole(api, {**BASE, "temperature": 0, "system": [{"type": "text", "text": "Be short."}]})
    assert found["content"] == [{"type": "text", "text": "Hello there."}]
    assert (found["stop_reason"], found["model"]) == ("end_turn", "fake")
    assert found["usage"]["output_tokens"] == len("Hello there.") + 1


REQUESTS: dict[str, dict[str, Any]] = {
    "a text": {},
    "a system text": {"system": "Be short."},
    "cut": {"max_tokens": 4},
    "a stop text": {"stop_sequences": ["e", "l"], "temperature": 0},
    "a format": {"output_config": {"format": FORMAT}},
    "a format under its old name": {"output_format": FORMAT},
    "a tool": {"tools": [TOOL], "tool_choice": {"type": "any"}},
    "a named tool": {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "look_up"}},
    "one call": {"tools": [TOOL], "tool_choice": {"type": "any", "disable_parallel_tool_use": True}},
    "a call that is cut": {"tools": [TOOL], "tool_choice": {"type": "any"}, "max_tokens": 30},
    "no tool": {"tools": [TOOL], "tool_choice": {"type": "none"}},
    "our key": {"espalier": {"trace": "summary"}},
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_events_of_a_stream_make_the_whole_reply(api: TestClient, name: str) -> None:
    body = {**BASE, **REQUESTS[name]}
    assert content(gathered(streamed(api, body))) == content(whole(api, body))


@pytest.mark.slow
def test_why_a_text_ended_is_said(api: TestClient) -> None:
    def ending(**more: Any) -> tuple[Any, Any]:
        found = whole(api, {**BASE, "temperature": 0, **more})
        return found["stop_reason"], found["stop_sequence"]

    assert ending() == ("end_turn", None)
    assert ending(max_tokens=3) == ("max_tokens", None)
    assert ending(stop_sequences=["the"]) == ("stop_sequence", "the")
    assert ending(tools=[TOOL], tool_choice={"type": "any", "disable_parallel_tool_use": True}) == ("tool_use", None)
    assert ending(max_tokens=100_000, ignore_eos=True) == ("model_context_window_exceeded", None)


def test_a_format_and_the_schema_of_a_tool_are_enforced(api: TestClient) -> None:
    assert json.loads(text_of(whole(api, {**BASE, "output_config": {"format": FORMAT}})))["name"] in ("Ada", "Bob")
    choice = {"type": "tool", "name": "look_up"}
    (call,) = whole(api, {**BASE, "tools": [TOOL], "tool_choice": choice})["content"]
    assert (call["name"], call["input"]["city"] in ("Rome", "Oslo")) == ("look_up", True)


def test_what_of_a_tool_cannot_be_enforced_is_refused_only_if_it_is_strict(api: TestClient) -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string", "pattern": "^(a*)b\\1$"}}}
    tool = {"name": "f", "input_schema": schema}
    body = {**BASE, "tools": [tool], "tool_choice": {"type": "none"}}
    assert api.post("/v1/messages", json=body).status_code == 200
    body = {**body, "tools": [{**tool, "strict": True}], "tool_choice": {"type": "any"}}
    assert api.post("/v1/messages", json=body).status_code == 400


def test_a_tool_loop(api: TestClient) -> None:
    talk: list[Any] = [*HI]
    first = whole(api, {**BASE, "tools": [TOOL], "tool_choice": {"type": "any"}, "max_tokens": 200})
    talk.append({"role": "assistant", "content": first["content"]})
    results = [{"type": "tool_result", "tool_use_id": one["id"], "content": "sun"} for one in first["content"]]
    talk.append({"role": "user", "content": [*results, {"type": "text", "text": "Well?"}]})
    assert whole(api, {**BASE, "messages": talk, "tools": [TOOL]})["content"]


def test_blocks_become_chat_messages() -> None:
    talk = talk_of(
        [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
        [
            {"role": "user", "content": "c"},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "d", "signature": "x"},
                    {"type": "redacted_thinking", "data": "y"},
                    {"type": "text", "text": "e"},
                    {"type": "tool_use", "id": "1", "name": "f", "input": {"g": 1}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "text", "text": "h"},
                    {
                        "type": "tool_result",
                        "tool_use_id": "1",
                        "is_error": True,
                        "content": [{"type": "text", "text": "i"}],
                    },
                    {"type": "tool_result", "tool_use_id": "2"},
                    {"type": "text", "text": "j"},
                    {"type": "text", "text": "k"},
                ],
            },
        ],
    )
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"g": 1}'}}
    assert talk.messages == [
        {"role": "system", "content": "a\n\nb"},
        {"role": "user", "content": "c"},
        {"role": "assistant", "content": "e", "reasoning_content": "d", "tool_calls": [call]},
        {"role": "user", "content": "h"},
        {"role": "tool", "tool_call_id": "1", "content": "Error: i"},
        {"role": "tool", "tool_call_id": "2", "content": ""},
        {"role": "user", "content": "j\n\nk"},
    ]
    assert len(talk.warnings) == 1


def user(*blocks: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": list(blocks)}]}


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no messages": ({"messages": []}, "messages"),
    "no max_tokens": ({"max_tokens": None}, "max_tokens"),
    "an image": (user({"type": "image", "source": {}}), "messages[0].content[0].type"),
    "a document": (user({"type": "text", "text": "a"}, {"type": "document"}), "messages[0].content[1].type"),
    "a block that is none": (user("a"), "messages[0].content[0]"),
    "a block of an odd type": (user({"type": {}}), "messages[0].content[0]"),
    "a role": ({"messages": [{"role": "tool", "content": "a"}]}, "messages[0].role"),
    "a content": ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content"),
    "a name of a call": (
        {
            "messages": [
                {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b c", "input": {}}]},
                *HI,
            ],
            "system": "s",
        },
        "messages[0].content[0].name",
    ),
    "a system block": ({"system": [{"type": "image"}]}, "system[0].type"),
    "a container": ({"container": "c"}, "container"),
    "MCP servers": ({"mcp_servers": [{"type": "url"}]}, "mcp_servers"),
    "a tool of Anthropic's that must be called": (
        {"tools": [{"type": "bash_20250124", "name": "bash"}], "tool_choice": {"type": "any"}},
        "tool_choice",
    ),
    "a schema that is none": ({"tools": [{"name": "f", "input_schema": 3}]}, "tools[0].input_schema"),
    "a tool without a name": ({"tools": [{"input_schema": {}}]}, "tools[0].name"),
    "a choice of no tool": ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "x"}}, "tool_choice"),
    "no thinking budget": ({"thinking": {"type": "enabled"}}, "thinking.budget_tokens"),
    "two formats": ({"output_format": FORMAT, "output_config": {"format": FORMAT}}, "output_format"),
    "a schema": (
        {"output_config": {"format": {"type": "json_schema", "schema": {"type": "strin"}}}},
        "output_config.format.schema",
    ),
    "an unknown field": ({"message": [], "espalier": {"strict": True}}, "message"),
}


NOT_COUNTED = ("no max_tokens", "a choice of no tool", "a schema")
"""Faults that counting does not meet: nothing is generated, so nothing is compiled."""


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_names_its_field(api: TestClient, name: str) -> None:
    more, field = FAULTS[name]
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        reply = api.post(path, json={**BASE, **more})
        if path.endswith("tokens") and name in NOT_COUNTED:
            continue
        assert reply.status_code == 400, (path, reply.text)
        assert error_of(reply)["type"] == "invalid_request_error"
        assert error_of(reply)["param"] == field, reply.text


def test_an_unknown_model_and_a_long_body_have_their_own_types(api: TestClient) -> None:
    reply = api.post("/v1/messages", json={**BASE, "model": "claude"})
    if reply.status_code != 200:  # as the server is set up
        assert (reply.status_code, error_of(reply)["type"]) == (404, "not_found_error")
    with client(config=settings(max_body_bytes="1000")) as small:
        reply = small.post("/v1/messages", json={**BASE, "system": "a" * 2000})
        assert (reply.status_code, error_of(reply)["type"]) == (413, "request_too_large")


def test_the_key_comes_as_x_api_key() -> None:
    with client(gate=OneKeyGate()) as api:
        reply = api.post("/v1/messages", json=BASE)
        assert (reply.status_code, error_of(reply)["type"]) == (401, "authentication_error")
        headers = {"x-api-key": "sk-good", "anthropic-version": "2023-06-01", "anthropic-beta": "a,b"}
        assert whole(api, BASE, headers=headers)["content"]
        assert api.get("/v1/models", headers=headers).status_code == 200
        assert api.get("/v1/models", headers={"x-api-key": "sk-bad"}).status_code == 401


def test_no_tokens_only_read_the_prompt(api: TestClient) -> None:
    found = whole(api, {**BASE, "max_tokens": 0})
    assert (found["content"], found["stop_reason"]) == ([], "max_tokens")


def test_a_last_message_of_the_assistant_is_continued(api: TestClient) -> None:
    body = {**BASE, "temperature": 0, "messages": [*HI, {"role": "assistant", "content": "Hello the"}]}
    assert text_of(gathered(streamed(api, body))) == text_of(whole(api, body))


def test_tokens_are_counted_as_a_message_counts_them(api: TestClient) -> None:
    body = {**BASE, "tools": [TOOL], "system": "Be short."}
    counted = api.post("/v1/messages/count_tokens", json={**body, "max_tokens": None})
    assert counted.status_code == 200, counted.text
    used = whole(api, body)["usage"]
    assert counted.json() == {"input_tokens": used["input_tokens"] + used["cache_read_input_tokens"]}


def test_hints_are_taken_and_those_that_could_matter_are_told(api: TestClient) -> None:
    assert (
        "warning"
        not in api.post(
            "/v1/messages", json={**BASE, "mcp_servers": [], "tool_choice": {"type": "auto"}, "stop_sequences": []}
        ).headers
    )
    hints = {"metadata": {"user_id": "a"}, "service_tier": "auto", "cache_control": {"type": "ephemeral"}}
    reply = api.post("/v1/messages", json={**BASE, **hints})
    assert reply.status_code == 200
    assert all(name in reply.headers["warning"] for name in hints)
    told = {"thinking": {"type": "adaptive"}, "context_management": {"edits": []}}
    reply = api.post("/v1/messages", json={**BASE, **told})
    assert reply.status_code == 200
    assert "thinking has no effect" in reply.headers["warning"]
    assert "nothing is cleared" in reply.headers["warning"]


def test_a_stream_that_fails_ends_with_an_error() -> None:
    with client(serve=lambda engine: Stuck(engine, fails=Unavailable("gone"))) as api:
        found = streamed(api, BASE)
    assert found[-1]["type"] == "error"
    assert (found[-1]["error"]["type"], found[-1]["error"]["message"]) == ("overloaded_error", "gone")
