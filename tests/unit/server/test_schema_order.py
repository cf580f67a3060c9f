"""The order of properties over HTTP: in each dialect, for schemas wherever they stand, and from the environment."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from espalier.settings import KernelSettings
from espalier.wiring import App
from tests.server_app import client, create_app, fake_engine, make_app, settings

WISH = '{"b": true, "a": 12}'
IN_ORDER = '{"a": 12, "b": true}'
SCHEMA = {
    "type": "object",
    "properties": {"a": {"const": 12}, "b": {"type": "boolean"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
CALL = '{"name": "f", "args": {"b": true, "a": 12}}'
TOOL = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def c() -> Iterator[TestClient]:
    with client(WISH) as found:
        yield found


def content(c: TestClient, **fields: Any) -> str:
    reply = c.post("/v1/chat/completions", json={"messages": MESSAGES, "temperature": 0, **fields})
    assert reply.status_code == 200, reply.text
    return str(reply.json()["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        {"response_format": {"type": "json_object", "schema": SCHEMA}},
        {"structured_outputs": {"json": SCHEMA}},
        {"guided_json": SCHEMA},
        {"json_schema": SCHEMA},
        {"espalier": {"constraint": {"kind": "json_schema", "schema": SCHEMA}}},
        {"espalier": {"constraint": {"kind": "all_of", "members": [{"kind": "json_schema", "schema": SCHEMA}]}}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_every_schema_of_a_chat_takes_the_order_of_the_body(c: TestClient, fields: dict[str, Any]) -> None:
    ours = fields.get("espalier", {})
    assert content(c, **fields | {"espalier": {**ours, "schema_order": "schema"}}).startswith('{"a')
    assert (content(c, **fields) == WISH) == ("response_format" in fields)
    assert content(c, **fields | {"espalier": {**ours, "schema_order": "any"}}) == WISH
    assert content(c, **fields | {"espalier": {**ours, "schema_order": ["b"]}}) == WISH


@pytest.mark.parametrize("strict", [None, False, True])
def test_a_response_format_takes_every_order_where_it_is_not_strict(c: TestClient, strict: bool | None) -> None:
    """OpenAI promises the order of the schema for strict ones."""
    named = {"name": "x", "schema": SCHEMA} | ({} if strict is None else {"strict": strict})
    first = '{"a' if strict else '{"b'
    assert content(c, response_format={"type": "json_schema", "json_schema": named}).startswith(first)
    text = {"format": {"type": "json_schema", **named}}
    reply = c.post("/v1/responses", json={"input": "hi", "temperature": 0, "text": text})
    assert reply.json()["output"][0]["content"][0]["text"].startswith(first)
    preset = {"format": {"type": "json_schema", "schema": SCHEMA}}
    body = {"messages": MESSAGES, "max_tokens": 99, "temperature": 0, "output_config": preset}
    assert c.post("/v1/messages", json=body).json()["content"][0]["text"] == WISH


def test_a_constraint_that_states_its_order_keeps_it(c: TestClient) -> None:
    own = {"kind": "json_schema", "schema": SCHEMA, "order": "any"}
    assert content(c, espalier={"constraint": own, "schema_order": "schema"}) == WISH


def test_completions_and_llama_servers_route_take_it_too(c: TestClient) -> None:
    asked = {"prompt": "hi", "temperature": 0, "max_tokens": 99, "json_schema": SCHEMA}
    reply = c.post("/v1/completions", json={**asked, "espalier": {"schema_order": "any"}})
    assert reply.json()["choices"][0]["text"] == WISH
    assert c.post("/completion", json={**asked, "schema_order": "any"}).json()["content"] == WISH
    assert c.post("/completion", json=asked).json()["content"].startswith('{"a')


@pytest.mark.parametrize("order", ["alphabet", "", ["a", 3], 7])
def test_what_is_no_order_is_refused_by_name(c: TestClient, order: Any) -> None:
    body = {"messages": MESSAGES, "json_schema": SCHEMA, "espalier": {"schema_order": order}}
    error = c.post("/v1/chat/completions", json=body).json()["error"]
    assert error["param"].startswith("espalier.schema_order")
    reply = c.post("/completion", json={"prompt": "hi", "json_schema": SCHEMA, "schema_order": order})
    assert (reply.status_code, reply.json()["error"]["param"][:12]) == (400, "schema_order")
    own = {"kind": "json_schema", "schema": SCHEMA, "order": order}
    reply = c.post("/v1/chat/completions", json={"messages": MESSAGES, "espalier": {"constraint": own}})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "espalier.constraint.order")


def test_an_order_without_a_schema_is_refused(c: TestClient) -> None:
    reply = c.post("/v1/chat/completions", json={"messages": MESSAGES, "espalier": {"schema_order": "any"}})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "espalier.schema_order")


def test_the_environment_says_the_order_of_bodies_that_say_none() -> None:
    app = App(KernelSettings(request_defaults={"schema_order": "any"}))
    with TestClient(create_app(settings(), app=app, engine=fake_engine(WISH))) as c:
        assert content(c, json_schema=SCHEMA) == WISH
        assert content(c, json_schema=SCHEMA, espalier={"schema_order": "schema"}).startswith('{"a')


def test_the_arguments_of_tools_take_the_order_of_the_body() -> None:
    with TestClient(make_app(CALL)) as c:
        for order, first in ((None, "b"), ("any", "b"), ("schema", "a")):
            body = {"messages": MESSAGES, "temperature": 0, "tools": [TOOL], "tool_choice": "required"}
            ours = {"tool_format": "args"} | ({"schema_order": order} if order else {})
            reply = c.post("/v1/chat/completions", json=body | {"espalier": ours})
            assert reply.status_code == 200, reply.text
            (call,) = reply.json()["choices"][0]["message"]["tool_calls"]
            assert next(iter(json.loads(call["function"]["arguments"]))) == first
