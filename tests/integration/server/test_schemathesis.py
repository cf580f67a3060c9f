"""Every route against the OpenAPI document: documented statuses, media types and schemas only, never a 5xx."""

from __future__ import annotations

import json
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from tests.examples import examples

pytest.importorskip("fastapi")
pytest.importorskip("schemathesis")

import jsonschema
import schemathesis
from fastapi import FastAPI
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import GenerationMode
from schemathesis.specs.openapi import checks as openapi_checks
from starlette.testclient import TestClient

from espalier.decoding.strategies import STRATEGIES
from espalier.server.routes.chat import ROUTE as CHAT
from espalier.server.routes.completions import ROUTE as COMPLETIONS
from tests.server_app import MemoryStore, events, make_app
from tests.server_app import settings as server_settings

EXAMPLES = int(os.environ.get("ESPALIER_SCHEMATHESIS_EXAMPLES", "40"))
"""Per route and way of making them; more by this variable."""
CHECKS = [
    schemathesis.checks.not_a_server_error,
    openapi_checks.status_code_conformance,
    openapi_checks.content_type_conformance,
    openapi_checks.response_schema_conformance,
    openapi_checks.response_headers_conformance,
]


def make_server(**more: str) -> FastAPI:
    limits = {"compile_seconds": "2", "request_seconds": "300"}
    sizes = {"allowed_max_new_tokens": "8", "max_outputs": "4"}
    return make_app(config=server_settings(**limits, **sizes, **more), store=MemoryStore())


APP = make_server()
SCHEMA = schemathesis.openapi.from_dict(APP.openapi())
OPERATIONS = {f"{found.ok().method.upper()} {found.ok().path}": found.ok() for found in SCHEMA.get_all_operations()}
BODIES = {CHAT: {"messages": [{"role": "user", "content": "hi"}]}, COMPLETIONS: {"prompt": "hi"}}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(APP, raise_server_exceptions=False) as found:
        yield found


@pytest.fixture(scope="module")
def strict_client() -> Iterator[TestClient]:
    app = make_server(strict_fields="true", strict_model="true")
    with TestClient(app, raise_server_exceptions=False) as strict:
        yield strict


def sent(client: TestClient, case: Any) -> Any:
    """The answer to a generated request."""
    made = case.as_transport_kwargs(base_url="http://testserver")
    known = ("method", "url", "params", "headers", "cookies", "json", "content")
    options = {name: made[name] for name in known if made.get(name) is not None}
    if made.get("data") is not None:
        options["content"] = made["data"]
    options["headers"] = dict(options.get("headers") or {})
    cookies = options.pop("cookies", None)
    assert not cookies, "no route takes cookies"
    return client.request(**options, follow_redirects=False)


ABSENT = {"POST /v1/rerank", "POST /v1/score", "POST /infill", "POST /slots/{id_slot}", "POST /lora-adapters"} | {
    f"{method} /api/{name}"
    for method, name in (("POST", "create"), ("POST", "copy"), ("POST", "push"), ("DELETE", "delete"))
}
"""Routes that say 501 with a reason, for this model cannot do what they do."""
STRICT = {
    f"POST {route}"
    for route in (
        CHAT,
        COMPLETIONS,
        "/completion",
        "/v1/responses",
        "/v1/messages",
        "/v1/messages/count_tokens",
        "/api/chat",
        "/api/generate",
        "/tokenize",
        "/detokenize",
        "/apply-template",
    )
}
"""Routes that a server with strict fields is asked by the same requests too."""
TEXT_ERRORS = ("/v1/batch/", "/api/", "/generate")
"""Routes whose error is a text: those of the word-list server, Ollama and TGI."""
RIGHT, WRONG = GenerationMode.POSITIVE, GenerationMode.NEGATIVE
TRIED = [
    pytest.param(name, mode, id=f"{name}-{'right' if mode is RIGHT else 'wrong'}")
    for name, operation in sorted(OPERATIONS.items())
    # Without a body or a query there is nothing wrong to send: any text is a path parameter.
    for mode in ((RIGHT, WRONG) if operation.body or operation.query else (RIGHT,))
]


@pytest.mark.parametrize(("name", "mode"), TRIED)
def test_a_route_answers_as_it_is_documented(
    client: TestClient, strict_client: TestClient, name: str, mode: GenerationMode
) -> None:
    operation, servers = OPERATIONS[name], (client, strict_client) if name in STRICT else (client,)
    strategy = operation.as_strategy(generation_mode=mode)
    statuses: Counter[int] = Counter()

    @settings(
        max_examples=examples(EXAMPLES),
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(case=strategy)
    def check(case: Any) -> None:
        for server in servers:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of the tool about itself
                answer = sent(server, case)
                case.validate_response(answer, checks=CHECKS[1:] if name in ABSENT else CHECKS)
            statuses[answer.status_code] += 1
            if answer.status_code >= 400 and name.split()[1] not in ("/health", "/ready"):
                said, path = answer.json(), name.split()[1]
                told = said["detail"] if path.startswith("/v1/batch/") else said["error"]
                assert told if path.startswith(TEXT_ERRORS) else told["message"]

    check()
    assert not any(status >= 500 and not (status == 501 and name in ABSENT) for status in statuses)


@pytest.mark.parametrize("route", sorted(BODIES))
def test_streams_have_the_documented_shape(client: TestClient, route: str) -> None:
    """The document cannot say what is in an event; what it says of the reply holds for the whole and the stream."""
    for more in (
        {},
        {"stream_options": {"include_usage": True}},
        {"n": 2, "temperature": 0.5},
        {"grammar": 'root ::= "a"+'},
    ):
        body = {**BODIES[route], "stream": True, "max_tokens": 6, **more}
        case = OPERATIONS[f"POST {route}"].Case(body=body, media_type="application/json")
        answer = sent(client, case)
        case.validate_response(answer, checks=CHECKS)
        assert answer.headers["content-type"].startswith("text/event-stream")
        *chunks, last = events(answer.text)
        assert last == "[DONE]"
        assert all(json.loads(chunk)["object"].endswith(("chunk", "text_completion")) for chunk in chunks)


CONSTRAINTS: list[dict[str, Any]] = [
    {},
    {"grammar": 'root ::= "a"+'},
    {"structured_outputs": {"choice": ["yes", "no"]}},
    {"response_format": {"type": "json_object"}},
    {"json_schema": {"type": "string", "maxLength": 2}},
]


@pytest.mark.parametrize("name", STRATEGIES.names())
@pytest.mark.parametrize("route", sorted(BODIES))
def test_every_strategy_answers_as_it_is_documented(client: TestClient, route: str, name: str) -> None:
    """With texts that are cut and complete ones, whole and in a stream: a weight that is no number is null."""
    for constraint in CONSTRAINTS:
        for more in ({"seed": 7}, {"stream": True, "temperature": 1.3}):
            for tokens in (1, 6):
                asked = {"strategy": name, "trace": True}
                body = {**BODIES[route], **constraint, **more, "max_tokens": tokens, "espalier": asked}
                case = OPERATIONS[f"POST {route}"].Case(body=body, media_type="application/json")
                answer = sent(client, case)
                case.validate_response(answer, checks=CHECKS)
                assert answer.status_code < 500, answer.text
                assert "NaN" not in answer.text
                assert "Infinity" not in answer.text


@pytest.mark.slow
def test_the_document_is_openapi_and_its_schemas_are_schemas() -> None:
    document = APP.openapi()
    assert document["openapi"].startswith("3.1")
    assert OPERATIONS.keys() >= STRICT
    for schema in document["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for path, item in document["paths"].items():
        for method, route in item.items():
            assert ("422" in route["responses"]) == path.startswith("/v1/batch/"), (path, method)
