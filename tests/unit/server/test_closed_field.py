"""The field `closed` over HTTP and the flag on the command line: every way to state a schema takes it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient
from typer.testing import CliRunner

from espalier.chat.wire.formats import OPENAI
from espalier.chat.wire.render import render_calls
from espalier.cli.main import app
from tests.server_app import client

WISH = '{"a": 1, "b": 2}'
SCHEMA = {"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"]}
MESSAGES = [{"role": "user", "content": "hi"}]


@pytest.fixture(scope="module")
def c() -> Iterator[TestClient]:
    with client(WISH) as found:
        yield found


def content(c: TestClient, **fields: Any) -> Any:
    reply = c.post("/v1/chat/completions", json={"messages": MESSAGES, "temperature": 0, **fields})
    assert reply.status_code == 200, reply.text
    return json.loads(reply.json()["choices"][0]["message"]["content"])


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}},
        {"structured_outputs": {"json": SCHEMA}},
        {"guided_json": SCHEMA},
        {"json_schema": SCHEMA},
        {"espalier": {"constraint": {"kind": "json_schema", "schema": SCHEMA}}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_every_schema_of_a_chat_is_closed_by_the_field(c: TestClient, fields: dict[str, Any]) -> None:
    assert content(c, **fields) == {"a": 1, "b": 2}
    ours = fields.get("espalier", {})
    assert content(c, **fields | {"espalier": {**ours, "closed": True}}) == {"a": 1}


def test_a_constraint_states_it_itself_and_vllms_field_means_it(c: TestClient) -> None:
    own = {"kind": "json_schema", "schema": SCHEMA, "closed": True}
    assert content(c, espalier={"constraint": own}) == {"a": 1}
    assert content(c, espalier={"constraint": {**own, "closed": False}, "closed": True}) == {"a": 1, "b": 2}
    assert content(c, structured_outputs={"json": SCHEMA, "disable_additional_properties": True}) == {"a": 1}


def test_text_completions_and_llama_servers_route_take_it(c: TestClient) -> None:
    asked = {"prompt": "hi", "json_schema": SCHEMA, "temperature": 0}
    reply = c.post("/v1/completions", json={**asked, "espalier": {"closed": True}})
    assert json.loads(reply.json()["choices"][0]["text"]) == {"a": 1}
    assert json.loads(c.post("/completion", json={**asked, "closed": True}).json()["content"]) == {"a": 1}


@pytest.mark.parametrize(
    ("route", "body", "param"),
    [
        ("/v1/chat/completions", {"messages": MESSAGES, "espalier": {"closed": True}}, "espalier.closed"),
        ("/v1/chat/completions", {"messages": MESSAGES, "espalier": {"closed": "x"}}, "espalier.closed"),
        ("/completion", {"prompt": "hi", "closed": True}, "closed"),
    ],
)
def test_without_a_schema_it_is_refused_by_name(c: TestClient, route: str, body: Any, param: str) -> None:
    reply = c.post(route, json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param)


def test_tools_are_closed_and_the_field_opens_them() -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMA}}
    body = {"messages": MESSAGES, "temperature": 0, "tools": [tool], "tool_choice": "required", "espalier": {}}
    with client(render_calls(OPENAI, [("f", {"a": 1, "b": 2})])) as started:
        closed = started.post("/v1/chat/completions", json=body).json()
        opened = started.post("/v1/chat/completions", json=body | {"espalier": {"closed": False}}).json()
    calls = [reply["choices"][0]["message"]["tool_calls"][0] for reply in (closed, opened)]
    assert [json.loads(call["function"]["arguments"]) for call in calls] == [{"a": 1}, {"a": 1, "b": 2}]
    assert [entry["keyword"] for entry in closed["espalier"]["contract"]] == ["closed"]
    assert opened["espalier"]["contract"] is None


def test_the_command_line_writes_and_checks_closed_grammars() -> None:
    run = CliRunner().invoke
    text = run(app, ["grammar", "convert", json.dumps(SCHEMA), "--closed"]).stdout
    assert "string" not in text  # no further names
    assert "string" in run(app, ["grammar", "convert", json.dumps(SCHEMA)]).stdout
    shown = json.loads(run(app, ["check", json.dumps(SCHEMA), "--closed", "--json"]).stdout)
    assert [one["verdict"] for one in shown["contract"] if one["keyword"] == "closed"] == ["enforced"]
    for engine in ("openai", "llama-server"):
        report = json.loads(run(app, ["check", json.dumps(SCHEMA), "--closed", "--json", "--engine", engine]).stdout)
        assert any(one["pointer"] == "/additionalProperties" for one in report["contract"]), engine
