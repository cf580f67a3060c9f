"""Every field of every body with values at the borders: no answer is a 500, each error is in its shape.

The fields come from the OpenAPI document. schemathesis draws bodies that fit the document or break it once; here each
field gets the values that break servers, written as JSON text, so that NaN, 1e400 and lone surrogates arrive as such.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any

import pytest

from tests.examples import examples

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from espalier.decoding.strategies import STRATEGIES
from tests.server_app import MemoryStore, make_app
from tests.server_app import settings as server_settings

TRIED = int(os.environ.get("ESPALIER_BOUNDARY_EXAMPLES", "160"))
"""Requests for each route; all pairs of a field and a value are some thousands."""
APP = make_app(
    config=server_settings(compile_seconds="2", request_seconds="300", allowed_max_new_tokens="8", max_outputs="4"),
    store=MemoryStore(),
)
DOCUMENT = APP.openapi()
LONG = json.dumps("x" * 1_000_000)
VALUES = (
    "NaN",
    "Infinity",
    "-Infinity",
    "1e400",
    "-1e400",
    "-0.0",
    "0",
    "-1",
    "1e308",
    "5e-324",
    "9223372036854775808",
    "-9223372036854775809",
    "1" + "0" * 400,
    "9" * 5000,
    "0.1",
    "null",
    "true",
    "false",
    '""',
    '" "',
    '"\\u0000"',
    '"\\ud800"',
    '"\\udc00\\ud800"',
    '"\\uffff"',
    '"é"',
    '"a"',
    LONG,
    "[]",
    "{}",
    "[[]]",
    '[""]',
    "[null]",
    "[1e400]",
    '{"": ""}',
    '{"a": null}',
    "[" + "0," * 1000 + "0]",
    "[" * 100 + "]" * 100,
    '"1"',
    '"nan"',
    '"{}"',
    '"../../x"',
)
BEGIN: Mapping[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 3},
    "/v1/completions": {"prompt": "hi", "max_tokens": 3},
    "/completion": {"prompt": "hi", "n_predict": 3},
    "/tokenize": {"content": "hi"},
    "/detokenize": {"tokens": [1]},
    "/apply-template": {"messages": [{"role": "user", "content": "hi"}]},
}


def bodies() -> dict[str, Any]:
    """The schema of the JSON body of each POST route."""
    found = {}
    for path, item in DOCUMENT["paths"].items():
        content = resolved(item.get("post", {}).get("requestBody", {}), "requestBodies").get("content", {})
        if "application/json" in content and "{" not in path:
            found[path] = content["application/json"]["schema"]
    return found


def resolved(found: Mapping[str, Any], where: str = "schemas") -> Mapping[str, Any]:
    while "$ref" in found:
        found = DOCUMENT["components"][where][found["$ref"].rpartition("/")[2]]
    return found


def fields(schema: Mapping[str, Any], depth: int = 2) -> Iterator[tuple[str, ...]]:
    """The paths of the fields, also within objects and the first items of lists."""
    schema = resolved(schema)
    for part in (schema, *schema.get("anyOf", ()), *schema.get("oneOf", ())):
        part = resolved(part)
        for name, inner in part.get("properties", {}).items():
            yield (name,)
            if depth:
                yield from ((name, *rest) for rest in fields(inner, depth - 1))
        if depth and isinstance(part.get("items"), Mapping):
            yield from (("0", *rest) for rest in fields(part["items"], depth - 1))


def body(base: Mapping[str, Any], path: tuple[str, ...], value: str) -> bytes:
    """The base with a value, JSON text, at a path."""
    marker = "@@the value@@"
    found = json.loads(json.dumps(base))
    inner: Any = found
    for place, name in enumerate(path[:-1]):
        following = [] if path[place + 1] == "0" else {}
        if isinstance(inner, list):
            if not inner or not isinstance(inner[0], type(following)):
                inner[:1] = [following]
            inner = inner[0]
        else:
            if not isinstance(inner.get(name), type(following)):
                inner[name] = following
            inner = inner[name]
    if isinstance(inner, list):
        inner[:1] = [marker]
    else:
        inner[path[-1]] = marker
    return json.dumps(found).replace(json.dumps(marker), value).encode()


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(APP, raise_server_exceptions=False) as found:
        yield found


def says(answer: Any, key: str) -> str:
    """A part of an error; of an error that is one text, as in Ollama's API, that text."""
    error = answer.json().get("error")
    return error if isinstance(error, str) else (error or {}).get(key, "")


def send(client: TestClient, route: str, content: bytes) -> str:
    """What is wrong with the answer, "" if nothing is."""
    answer = client.post(route, content=content, headers={"content-type": "application/json"})
    shown = f"{answer.status_code} for {route} {content[:300]!r}: {answer.text[:300]}"
    if answer.status_code == 501 and says(answer, "code") == "not_here":
        return ""  # the model has no tokens for it, which is said for every body
    if answer.status_code >= 500:
        return shown
    if answer.status_code >= 400 and not says(answer, "message"):
        return f"no error in {shown}"
    if len(answer.text) > 20_000 and answer.status_code >= 400:
        return f"an error of {len(answer.text):,} characters: {shown}"
    return ""


@pytest.mark.parametrize("route", sorted(bodies()))
def test_no_field_with_a_value_at_the_border_is_a_500(client: TestClient, route: str) -> None:
    paths = sorted(set(fields(bodies()[route])))
    assert paths
    pairs = [(path, value) for path in paths for value in VALUES]
    Random(route).shuffle(pairs)
    faults = [send(client, route, body(BEGIN.get(route, {}), *pair)) for pair in pairs[: examples(TRIED)]]
    assert [fault for fault in faults if fault] == []


@pytest.mark.parametrize("strategy", STRATEGIES.names())
def test_every_strategy_answers_values_at_the_border(client: TestClient, strategy: str) -> None:
    route = "/v1/chat/completions"
    names = [path for path in sorted(set(fields(bodies()[route], 0))) if path[0] not in ("messages", "strategy")]
    base = {**BEGIN[route], "strategy": strategy, "seed": 1}
    assert send(client, route, json.dumps(base).encode()) == ""
    pairs = [(path, value) for path in names for value in VALUES]
    Random(strategy).shuffle(pairs)
    constraints: tuple[dict[str, Any], ...] = ({}, {"regex": "[ab]{2}"}, {"response_format": {"type": "json_object"}})
    faults = []
    for place, (path, value) in enumerate(pairs[: examples(TRIED // 2)]):
        faults.append(send(client, route, body({**base, **constraints[place % 3]}, path, value)))
    assert [fault for fault in faults if fault] == []


@pytest.mark.parametrize(
    "more",
    [
        {"safety": {"kind": "regex", "pattern": "a" * 3000}},
        {"safety": {"kind": "regex", "pattern": "a"}},
        {"safety": {"patterns": [{"regex": "a" * 3000}]}},
        {"safety": {"patterns": ["x" * 2000]}},
        {"safety": {"patterns": [{"regex": "(a+)+$"}]}},
        {"vocab_lang": "e" * 5000},
        {"vocab_lang": "../../etc"},
        {"logit_bias": {"9" * 30: 1}},
        {"stop": ["x" * 100_000]},
        {"regex": "(" * 3000},
        {"grammar": "root ::= " + "(" * 3000},
        {"grammar": 'root ::= "a"\x00'},
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x" * 5000, "schema": {"pattern": "("}}}},
        {"strategy": "smc", "particles": 2, "regex": "[^a]*"},
    ],
    ids=lambda more: json.dumps(more)[:40],
)
def test_what_was_a_500_is_a_400_with_its_field(client: TestClient, more: dict[str, Any]) -> None:
    content = json.dumps({**BEGIN["/v1/chat/completions"], **more}).encode()
    assert send(client, "/v1/chat/completions", content) == ""
