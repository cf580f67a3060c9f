"""Unknown keywords of schemas over HTTP: told in the reply and in `warning`, refused where a request is strict."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from tests.server_app import client

TYPO = {"type": "object", "properties": {"maxLenght": {"const": 1}}, "requried": ["maxLenght"]}
SAID = "/requried is no keyword of JSON Schema and asserts nothing: did you mean `required`?"
MESSAGES = [{"role": "user", "content": "hi"}]
TOOL = {"type": "function", "function": {"name": "f", "parameters": TYPO}}


@pytest.fixture(scope="module")
def c() -> Iterator[TestClient]:
    with client('{"maxLenght": 1}') as found:
        yield found


def ask(c: TestClient, **fields: Any) -> Any:
    return c.post("/v1/chat/completions", json={"messages": MESSAGES, "temperature": 0, **fields})


FORMS = [
    {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": TYPO}}},
    {"structured_outputs": {"json": TYPO}},
    {"json_schema": TYPO},
    {"espalier": {"constraint": {"kind": "json_schema", "schema": TYPO}}},
]


@pytest.mark.parametrize("fields", FORMS, ids=lambda one: next(iter(one)))
def test_a_typo_is_told_in_the_header_and_in_the_report(c: TestClient, fields: dict[str, Any]) -> None:
    reply = ask(c, **fields | {"espalier": fields.get("espalier", {})})
    assert reply.status_code == 200, reply.text
    assert SAID in reply.headers["warning"]
    assert f"schema: {SAID}" in reply.json()["espalier"]["warnings"]
    assert any("did you mean `required`?" in one["note"] for one in reply.json()["espalier"]["contract"])


def test_a_typo_in_a_tool_is_told(c: TestClient) -> None:
    reply = ask(c, tools=[TOOL])
    assert f"tool f: {SAID}" in reply.headers["warning"]


@pytest.mark.parametrize("fields", FORMS, ids=lambda one: next(iter(one)))
def test_a_strict_request_refuses_it(c: TestClient, fields: dict[str, Any]) -> None:
    ours = fields.get("espalier", {})
    reply = ask(c, **fields | {"espalier": {**ours, "strict": True}})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert "`requried` is no keyword of JSON Schema" in error["message"]
    assert "/requried" in error["message"]
    assert error["param"] not in (None, "schema")


def test_a_strict_format_and_a_strict_tool_refuse_it(c: TestClient) -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "a", "strict": True, "schema": TYPO}}
    reply = ask(c, response_format=shape)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "response_format.json_schema.schema")
    strict = {"type": "function", "function": {**TOOL["function"], "strict": True}}
    reply = ask(c, tools=[strict])
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "tools[0].parameters")


def test_a_wrong_type_is_refused_with_the_right_one(c: TestClient) -> None:
    reply = ask(c, json_schema={"type": "intger"})
    assert reply.status_code == 400
    assert 'did you mean "integer"?' in reply.text.replace("\\", "")
