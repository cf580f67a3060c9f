"""TGI's formats with `type` and `value`, in `response_format` as Hugging Face's client sends them, and in `grammar`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from starlette.testclient import TestClient

from tests.server_app import client

SCHEMA = {
    "type": "object",
    "properties": {"a": {"enum": [1, 2]}, "b": {"type": "boolean"}},
    "required": ["a", "b"],
    "additionalProperties": False,
}
NAMED = {"name": "pair", "schema": SCHEMA}
FORMATS: dict[str, dict[str, Any]] = {
    "json": {"type": "json", "value": SCHEMA},
    "json_object": {"type": "json_object", "value": SCHEMA},
    "json_schema": {"type": "json_schema", "value": NAMED},
    "json_schema, the schema alone": {"type": "json_schema", "value": SCHEMA},
    "a schema as text": {"type": "json", "value": json.dumps(SCHEMA)},
    "OpenAI's": {"type": "json_schema", "json_schema": NAMED},
}
ROUTES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}]},
    "/v1/completions": {"prompt": "hi"},
}


@pytest.fixture(scope="module")
def api() -> Iterator[TestClient]:
    with client("Of course: 2020") as started:
        yield started


def text_of(api: TestClient, route: str, **fields: Any) -> str:
    reply = api.post(route, json=ROUTES[route] | {"max_tokens": 60, "temperature": 0} | fields)
    assert reply.status_code == 200, reply.text
    (choice,) = reply.json()["choices"]
    return str(choice["message"]["content"] if "message" in choice else choice["text"])


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("field", ["response_format", "grammar"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_schema_holds_however_it_is_sent(api: TestClient, route: str, field: str, name: str) -> None:
    parsed = json.loads(text_of(api, route, **{field: FORMATS[name]}))
    assert parsed.keys() == {"a", "b"}
    assert parsed["a"] in (1, 2)


@pytest.mark.parametrize("route", ROUTES)
@pytest.mark.parametrize("field", ["response_format", "grammar"])
def test_a_regular_expression_holds(api: TestClient, route: str, field: str) -> None:
    assert re.fullmatch("[0-9]{4}", text_of(api, route, **{field: {"type": "regex", "value": "[0-9]{4}"}}))


@pytest.mark.parametrize("field", ["response_format", "grammar"])
@pytest.mark.parametrize(
    ("given", "inside"),
    [
        ({"type": "json"}, ".value"),
        ({"type": "regex"}, ".value"),
        ({"type": "regex", "value": {"a": 1}}, ".value"),
        ({"type": "regex", "value": "("}, ".value"),
        ({"type": "json", "value": {"type": "nonsense"}}, ".value"),
        ({"type": "json", "value": "{"}, ".value"),
        ({"type": "json", "value": 3}, ".value"),
        ({"type": "text", "value": SCHEMA}, ".value"),
        ({"type": "json_object", "value": SCHEMA, "schema": SCHEMA}, None),
        ({"type": "regex", "schema": SCHEMA}, ".schema"),
        ({"type": "json_schema"}, ".json_schema"),
        ({"type": "yaml", "value": "a"}, None),
    ],
)
def test_what_is_wrong_is_named(api: TestClient, field: str, given: dict[str, Any], inside: str | None) -> None:
    reply = api.post("/v1/completions", json=ROUTES["/v1/completions"] | {field: given})
    assert reply.status_code == 400, reply.text
    param = reply.json()["error"]["param"]
    assert param == field + inside if inside is not None else param.startswith(field)
