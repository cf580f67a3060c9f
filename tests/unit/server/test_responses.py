"""`/v1/responses` over the fake model: replies, events, fields, errors by field."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
pytest.importorskip("openai")

from starlette.testclient import TestClient

from espalier.errors import OutputError, Unavailable
from espalier.server.ports import Caller
from espalier.store.open import Store
from tests.responses_api import again, calls_of, checked, content, gathered, streamed, text_of, whole
from tests.server_app import OneKeyGate, Stuck, client, settings

FUNCTION = {
    "type": "function",
    "name": "look_up",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
CUSTOM = {"type": "custom", "name": "run", "description": "Runs a line."}
DATED = {
    "type": "custom",
    "name": "when",
    "format": {"type": "grammar", "syntax": "regex", "definition": '[0-9]{4}\n"[a-f]"'},
}
LARK = {
    "type": "custom",
    "name": "add",
    "format": {
        "type": "grammar",
        "syntax": "lark",
        "definition": 'start: sum\nsum: D "+" D | "(" sum ")"\nD: /[0-9]/\n',
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"name": {"enum": ["Ada", "Bob"]}},
    "required": ["name"],
    "additionalProperties": False,
}
FORMAT = {"format": {"type": "json_schema", "name": "person", "schema": SCHEMA, "strict": True}}
BASE: dict[str, Any] = {"model": "fake", "input": "Hi", "seed": 1}


@pytest.fixture(scope="module")
def api() -> Iterator[TestClient]:
    with client("Hello there.") as found:
        yield found


def test_a_text_is_answered_with_one_message(api: TestClient) -> None:
    found = whole(api, {**BASE, "temperature": 0, "metadata": {"a": "b"}})
    assert text_of(found) == "Hello there."
    assert (found["status"], found["incomplete_details"], found["error"]) == ("completed", None, None)
    assert (found["metadata"], found["temperature"], found["tool_choice"]) == ({"a": "b"}, 0, "auto")
    assert found["usage"]["output_tokens"] == len("Hello there.") + 1
    assert found["id"].startswith("resp_")


REQUESTS: dict[str, dict[str, Any]] = {
    "a text": {},
    "instructions": {"instructions": "Be short."},
    "cut": {"max_output_tokens": 4},
    "a schema": {"text": FORMAT},
    "a schema without a name": {"text": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    "json": {"text": {"format": {"type": "json_object"}}, "max_output_tokens": 30},
    "log probabilities": {"include": ["message.output_text.logprobs"], "top_logprobs": 2, "max_output_tokens": 6},
    "a function": {"tools": [FUNCTION], "tool_choice": "required"},
    "a named function": {"tools": [FUNCTION, CUSTOM], "tool_choice": {"type": "function", "name": "look_up"}},
    "a custom tool": {
        "tools": [FUNCTION, CUSTOM],
        "tool_choice": {"type": "custom", "name": "run"},
        "max_output_tokens": 60,
    },
    "a custom tool with a regex": {"tools": [DATED], "tool_choice": "required"},
    "a custom tool with a Lark grammar": {"tools": [LARK, FUNCTION], "tool_choice": {"type": "custom", "name": "add"}},
    "some tools": {
        "tools": [FUNCTION, CUSTOM, DATED],
        "tool_choice": {"type": "allowed_tools", "mode": "required", "tools": [{"type": "custom", "name": "when"}]},
    },
    "a call that is cut": {"tools": [DATED], "tool_choice": "required", "max_output_tokens": 40},
    "no tool": {"tools": [FUNCTION], "tool_choice": "none", "include": ["message.output_text.logprobs"]},
    "one call": {"tools": [FUNCTION], "tool_choice": "required", "parallel_tool_calls": False},
    "our key": {"espalier": {"trace": "summary"}},
    "our constraint": {"structured_outputs": {"regex": "[a-c]{3}"}},
}


@pytest.mark.parametrize("name", REQUESTS)
def test_the_events_of_a_stream_make_the_whole_reply(api: TestClient, name: str) -> None:
    body = {**BASE, **REQUESTS[name]}
    assert content(gathered(streamed(api, body))) == content(whole(api, body))


def test_a_cut_text_is_incomplete_and_says_why(api: TestClient) -> None:
    found = whole(api, {**BASE, "temperature": 0, "max_output_tokens": 4})
    assert (found["status"], found["incomplete_details"]) == ("incomplete", {"reason": "max_output_tokens"})
    assert (text_of(found), found["output"][0]["status"]) == ("Hell", "incomplete")


def test_a_schema_is_enforced(api: TestClient) -> None:
    found = whole(api, {**BASE, "text": FORMAT})
    assert json.loads(text_of(found))["name"] in ("Ada", "Bob")
    assert found["text"]["format"] == FORMAT["format"]


def test_a_custom_tool_gets_a_text_of_its_grammar(api: TestClient) -> None:
    for choice in ("required", {"type": "custom", "name": "when"}):
        (call,) = calls_of(whole(api, {**BASE, "tools": [DATED], "tool_choice": choice, "parallel_tool_calls": False}))
        assert (call["type"], call["name"]) == ("custom_tool_call", "when")
        lines = call["input"].split("\n")
        assert len(lines) == 2
        assert lines[0].isdigit()
        assert lines[1] in [f'"{one}"' for one in "abcdef"]


def test_a_custom_tool_gets_a_text_of_its_lark_grammar(api: TestClient) -> None:
    seen = set()
    for seed in range(4):
        body = {**BASE, "seed": seed, "tools": [LARK], "tool_choice": "required", "parallel_tool_calls": False}
        (call,) = calls_of(found := whole(api, {**body, "espalier": {}}))
        if call["status"] == "completed":
            assert re.fullmatch(r"(\(*)[0-9]\+[0-9](\)*)", call["input"])
            assert call["input"].count("(") == call["input"].count(")")
            assert found["espalier"]["outputs"][0]["verdict"]["valid"] is None  # no independent judge reads grammars
            seen.add(call["input"])
    assert seen
    lark = {**LARK["format"], "definition": 'start: a\na.2: "b"'}  # type: ignore[dict-item]
    reply = api.post("/v1/responses", json={**BASE, "tools": [{**LARK, "format": lark}]})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "tools[0].format.definition")
    assert "priority" in reply.json()["error"]["message"]


def test_log_probabilities_are_of_the_text_alone(api: TestClient) -> None:
    asked = {"include": ["message.output_text.logprobs"], "top_logprobs": 3, "temperature": 0}
    for more in ({}, {"tools": [FUNCTION], "tool_choice": "none"}):
        found = whole(api, {**BASE, **asked, **more})
        (part,) = found["output"][0]["content"]
        assert "".join(one["token"] for one in part["logprobs"]) == part["text"]
        assert all(len(one["top_logprobs"]) == 3 for one in part["logprobs"])


def test_items_of_a_reply_go_back_unchanged(api: TestClient) -> None:
    talk: list[Any] = [{"role": "user", "content": "Where?"}]
    body = {**BASE, "tools": [FUNCTION, DATED], "tool_choice": "required"}
    first = whole(api, {**body, "input": talk})
    talk += first["output"]
    talk += [{"type": f"{one['type']}_output", "call_id": one["call_id"], "output": "sun"} for one in calls_of(first)]
    found = whole(api, {**body, "input": talk, "tool_choice": "auto"})
    assert found["usage"]["input_tokens"] > 5
    talk += found["output"]
    whole(api, {**body, "input": [*talk, {"role": "user", "content": [{"type": "input_text", "text": "Why?"}]}]})


def test_reasoning_items_go_back_before_what_they_led_to() -> None:
    from espalier.server.asking.responses.items import conversation_of

    thought = {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    call = {"type": "function_call", "call_id": "c1", "name": "f", "arguments": ""}
    talk = conversation_of(
        [
            {"role": "user", "content": "a"},
            thought,
            call,
            {**call, "call_id": "c2", "arguments": '{"a":1}'},
            {"type": "function_call_output", "call_id": "c1", "output": [{"type": "input_text", "text": "x"}]},
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
            {"role": "assistant", "content": "b"},
            {"type": "reasoning", "summary": [], "encrypted_content": "xyz"},
        ]
    )
    roles = [one["role"] for one in talk.messages]
    assert roles == ["user", "assistant", "tool", "assistant", "assistant"]
    assert talk.messages[1]["reasoning_content"] == "Hm."
    assert [one["function"]["arguments"] for one in talk.messages[1]["tool_calls"]] == ["{}", '{"a":1}']
    assert len(talk.warnings) == 1


FAULTS: dict[str, tuple[dict[str, Any], str]] = {
    "no input": ({"input": None}, "input"),
    "no items": ({"input": []}, "input"),
    "an image": ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content[0].type"),
    "an unknown item": ({"input": [{"type": "mcp_call"}]}, "input[0].type"),
    "an item that is none": ({"input": [{"role": "user", "content": "a"}, {"type": ["a"]}]}, "input[1].type"),
    "an unknown role": ({"input": [{"role": "boss", "content": "a"}]}, "input[0].role"),
    "arguments": (
        {"input": [{"type": "function_call", "call_id": "a", "name": "f", "arguments": "{"}], "instructions": "b"},
        "input[0].arguments",
    ),
    "a name": (
        {"input": [{"type": "function_call", "call_id": "a", "name": "f g", "arguments": "{}"}]},
        "input[0].name",
    ),
    "a reply without a call": ({"input": [{"type": "function_call_output", "output": "x"}]}, "input[0].call_id"),
    "background": ({"background": True}, "background"),
    "a conversation": ({"conversation": "conv_1"}, "conversation"),
    "a stored prompt": ({"prompt": {"id": "p"}}, "prompt"),
    "a built-in tool that must be called": ({"tools": [{"type": "mcp"}], "tool_choice": "required"}, "tool_choice"),
    "a misspelt type of a tool": ({"tools": [{**FUNCTION, "type": "functoin"}]}, "tools[0].type"),
    "a tool without a name": ({"tools": [{"type": "function"}]}, "tools[0].name"),
    "a bad schema of a tool": ({"tools": [{**FUNCTION, "parameters": 3}]}, "tools[0].parameters"),
    "a choice of a built-in tool": ({"tools": [FUNCTION], "tool_choice": {"type": "file_search"}}, "tool_choice.type"),
    "a choice of no tool": ({"tools": [FUNCTION], "tool_choice": {"type": "function", "name": "x"}}, "tool_choice"),
    "a format": ({"tools": [{**CUSTOM, "format": {"type": "xml"}}]}, "tools[0].format.type"),
    "a syntax": (
        {"tools": [{**CUSTOM, "format": {"type": "grammar", "syntax": "abnf", "definition": "a"}}]},
        "tools[0].format.syntax",
    ),
    "an include": ({"include": ["x"]}, "include[0]"),
    "a limit": ({"max_output_tokens": 0}, "max_output_tokens"),
    "candidates": ({"top_logprobs": 1000}, "top_logprobs"),
    "a schema": (
        {"text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "strin"}}}},
        "text.format.schema",
    ),
    "no schema": ({"text": {"format": {"type": "json_schema", "name": "a"}}}, "text.format"),
    "several outputs": ({"n": 2}, "n"),
    "beams": ({"num_beams": 2, "espalier": {"num_return_sequences": 2}}, "n"),
    "an unknown constraint": ({"response_fromat": {"type": "json_object"}}, "response_fromat"),
    "an unknown preset": ({"espalier": {"preset": "nope"}}, "espalier.preset"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_names_its_field(api: TestClient, name: str) -> None:
    more, field = FAULTS[name]
    reply = api.post(
        "/v1/responses", content=json.dumps({**BASE, **more}), headers={"content-type": "application/json"}
    )
    assert 400 <= reply.status_code < 500, reply.text
    assert reply.json()["error"]["param"] == field, reply.text


def test_hints_are_taken_and_those_that_could_matter_are_told(api: TestClient) -> None:
    idle = {"background": False, "parallel_tool_calls": True, "tool_choice": "auto"}
    reply = api.post("/v1/responses", json={**BASE, **idle})
    assert (reply.status_code, reply.headers.get("warning")) == (200, None)
    hints = {"user": "a", "service_tier": "auto", "max_tool_calls": 3, "prompt_cache_key": "k"}
    reply = api.post("/v1/responses", json={**BASE, **hints})
    assert reply.status_code == 200
    assert all(name in reply.headers["warning"] for name in hints)
    told = {"reasoning": {"effort": "high"}, "include": ["reasoning.encrypted_content"], "text": {"verbosity": "low"}}
    reply = api.post("/v1/responses", json={**BASE, **told})
    assert reply.status_code == 200
    assert [
        name
        for name in ("verbosity", "encrypted_content", "reasoning has no effect")
        if name not in reply.headers["warning"]
    ] == []


def test_a_stream_that_fails_ends_with_error_and_failed() -> None:
    stuck = lambda engine: Stuck(engine, fails=Unavailable("gone"))  # noqa: E731
    with client(serve=stuck) as api:
        found = streamed(api, BASE)
    assert [one["type"] for one in found[-2:]] == ["error", "response.failed"]
    assert found[-2]["message"] == "gone"
    assert checked(found[-1]["response"])["error"] == {"code": "server_error", "message": "gone"}
    assert [one["sequence_number"] for one in found] == list(range(len(found)))


def test_truncation_drops_the_oldest_turns() -> None:
    turns = [{"role": role, "content": "word " * 20} for role in ("user", "assistant") * 10]
    talk = [*turns, {"role": "user", "content": "Hi"}]
    with client(config=settings()) as api:
        context = 4096
        reply = api.post("/v1/responses", json={**BASE, "input": talk * 3, "truncation": "auto"})
        assert reply.status_code == 200, reply.text
        assert reply.json()["usage"]["input_tokens"] <= context - 256
        assert int(reply.headers["x-espalier-truncated"]) > 0


class NamedGate(OneKeyGate):
    """A caller for each key, named after it."""

    def identify(self, authorization: str | None, query_token: str | None) -> Caller:
        return Caller(name=(authorization or "").removeprefix("Bearer "))


def test_stored_responses_belong_to_their_key(tmp_path: Path) -> None:
    config = settings(store_responses="true", database_url=f"sqlite:///{tmp_path}/store.db")
    ann, bob = ({"authorization": f"Bearer {one}"} for one in ("ann", "bob"))
    with client(config=config, gate=NamedGate()) as api:
        made = whole(api, BASE, headers=ann)
        streams = gathered(streamed(api, {**BASE, "previous_response_id": made["id"]}, headers=ann))
        for one in (made, streams):
            path = f"/v1/responses/{one['id']}"
            assert one["store"] is True
            assert api.get(path, headers=ann).json() == one
            assert api.get(path, headers=ann).headers["cache-control"] == "private, no-store"
            for wrong in ("stream=1", "starting_after=1", "stream=true&starting_after=-1"):
                assert api.get(f"{path}?{wrong}", headers=ann).status_code == 400
            assert gathered(again(api, path, headers=ann)) == one
            assert again(api, f"{path}?stream=true&starting_after=1", headers=ann) == again(api, path, headers=ann)[2:]
            assert api.get(f"{path}?stream=true", headers=bob).status_code == 404
            for method, more in (("GET", ""), ("GET", "/input_items"), ("POST", "/cancel"), ("DELETE", "")):
                assert api.request(method, path + more, headers=bob).status_code == 404
            reply = api.post("/v1/responses", json={**BASE, "previous_response_id": one["id"]}, headers=bob)
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, "previous_response_id")
        items = api.get(f"/v1/responses/{streams['id']}/input_items", headers=ann).json()
        assert [one["role"] for one in items["data"]] == ["user", "assistant", "user"]
        assert api.get(f"/v1/responses/{streams['id']}/input_items?after=x", headers=ann).status_code == 400
        assert api.get(f"/v1/responses/{streams['id']}/input_items?order=up", headers=ann).status_code == 400


def test_a_store_that_fails_ends_no_response_and_the_reply_says_it(tmp_path: Path, monkeypatch: Any) -> None:
    def full(*_: Any, **__: Any) -> None:
        raise OutputError("the disk is full")

    monkeypatch.setattr(Store, "save_response", full)
    config = settings(store_responses="true", database_url=f"sqlite:///{tmp_path}/store.db")
    with client(config=config) as api:
        assert whole(api, BASE)["store"] is False
        assert gathered(streamed(api, BASE))["store"] is False


def test_a_server_without_a_store_says_so(api: TestClient) -> None:
    reply = api.post("/v1/responses", json={**BASE, "store": True})
    assert (reply.json()["store"], "not stored here" in reply.headers["warning"]) == (False, True)
    assert "warning" not in api.post("/v1/responses", json={**BASE, "store": False}).headers
    reply = api.post("/v1/responses", json={**BASE, "previous_response_id": "resp_1"})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "previous_response_not_found")
    for method, more in (("GET", ""), ("GET", "/input_items"), ("POST", "/cancel"), ("DELETE", "")):
        assert api.request(method, f"/v1/responses/resp_1{more}").status_code == 404


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_the_events_of_a_stored_response_make_it_again(tmp_path: Path, name: str) -> None:
    config = settings(store_responses="true", database_url=f"sqlite:///{tmp_path}/store.db")
    with client(config=config) as api:
        made = whole(api, {**BASE, **REQUESTS[name], "store": True})
        assert gathered(again(api, f"/v1/responses/{made['id']}")) == made
