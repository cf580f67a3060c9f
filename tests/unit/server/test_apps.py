"""The applications: what they open and close, which routes they document, whom they admit."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from html import unescape
from typing import Any

import pytest
from jsonschema import validate

pytest.importorskip("fastapi")

from espalier.server.apps import create_app, create_chat_app
from espalier.server.bodies.api_page import CHAT, EXAMPLES, REPLIES
from espalier.server.bodies.fields import HINTS, REFUSED
from tests.server_app import Stuck, client, fake_engine, make_app, settings

TARGETS = ("espalier.server.main", "espalier.server.app_chat")


@pytest.mark.slow
def test_importing_a_target_loads_no_model() -> None:
    code = f"import sys, {', '.join(TARGETS)}; print('torch' in sys.modules, 'transformers' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


def test_it_is_ready_once_the_model_is_there_and_no_longer_when_it_has_closed() -> None:
    async def run() -> list[Any]:
        app = make_app()
        before = hasattr(app.state, "process")
        async with app.router.lifespan_context(app):
            during = app.state.closing
        return [before, during, app.state.closing]

    assert asyncio.run(run()) == [False, False, True]


def test_the_scheduler_is_closed_with_its_time_to_drain() -> None:
    drained: list[float] = []

    class Closing(Stuck):
        def close(self, *, drain: float = 0.0) -> None:
            drained.append(drain)

    with client(serve=Closing, config=settings(drain_seconds="3")):
        assert drained == []
    assert drained == [3.0]


def test_a_brought_engine_stays_open() -> None:
    engine = fake_engine("Hi")
    with client(engine=engine):
        pass
    assert engine.generate("x", temperature=0).text == "Hi"


def test_the_model_has_its_aliases_first() -> None:
    with client(config=settings(model_alias="small,tiny")) as c:
        found = c.get("/v1/models").json()
        assert [one["id"] for one in found["data"]] == ["small", "tiny", "fake"]
        assert c.get("/v1/models/tiny").json()["id"] == "tiny"
        asked = {"model": "tiny", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        assert c.post("/v1/chat/completions", json=asked).json()["model"] == "tiny"


def test_a_server_without_keys_answers_to_its_own_machine_alone() -> None:
    with client() as c:
        assert c.get("/v1/models", headers={"host": "evil.example.org"}).status_code == 403
        assert c.get("/health", headers={"host": "probe.example.org"}).status_code == 200
        assert c.get("/v1/models", headers={"host": "localhost:8010"}).status_code == 200
    with client(config=settings(secret_token="sk-long-enough")) as c:
        found = c.get("/v1/models", headers={"host": "a.example.org", "authorization": "Bearer sk-long-enough"})
        assert found.status_code == 200


def test_other_origins_are_let_in_only_where_they_are_named() -> None:
    asks = {"origin": "https://a.example", "access-control-request-method": "POST"}
    with client() as c:
        assert "access-control-allow-origin" not in c.options("/v1/chat/completions", headers=asks).headers
    with client(config=settings(cors_origins="https://a.example")) as c:
        found = c.options("/v1/chat/completions", headers=asks)
        assert found.headers["access-control-allow-origin"] == "https://a.example"


def test_pages_of_named_origins_may_send_what_sdks_send() -> None:
    names = "authorization, content-type, X-Stainless-Lang, x-stainless-retry-count, anthropic-version"
    asks = {"access-control-request-method": "POST", "access-control-request-headers": names}
    with client(config=settings(cors_origins="https://a.example")) as c:
        found = c.options("/v1/chat/completions", headers=asks | {"origin": "https://a.example"})
        assert found.status_code == 200
        allowed = {one.strip().lower() for one in found.headers["access-control-allow-headers"].split(",")}
        assert {one.strip().lower() for one in names.split(",")} <= allowed
        other = c.options("/v1/chat/completions", headers=asks | {"origin": "https://b.example"})
        assert other.status_code == 403
        assert not any(name.startswith("access-control-") for name in other.headers)
        named = asks | {"origin": "https://a.example", "access-control-request-headers": "x-stainless-lang, x-other"}
        assert c.options("/v1/chat/completions", headers=named).status_code == 400


def test_the_document_is_whole_and_tells_of_422_at_the_word_list_servers_jobs_alone() -> None:
    document = make_app().openapi()
    parts = document["components"]

    def references(node: Any) -> set[str]:
        if isinstance(node, dict):
            own = {node["$ref"]} if isinstance(node.get("$ref"), str) else set()
            return own.union(*(references(one) for one in node.values()))
        return set().union(*(references(one) for one in node)) if isinstance(node, list) else set()

    for reference in references(document):
        _, _, kind, name = reference.split("/")
        assert name in parts[kind], reference
    for path, item in document["paths"].items():
        for route in item.values():
            assert ("422" in route["responses"]) == path.startswith("/v1/batch/")
    chat = document["paths"]["/v1/chat/completions"]["post"]["responses"]
    assert {"200", "400", "401", "404", "413", "415", "429", "500", "503", "504"} <= set(chat)
    assert set(chat["200"]["content"]) == {"application/json", "text/event-stream"}
    assert {"messages", "temperature", "vocab_lang", "espalier"} <= set(parts["schemas"]["ChatBody"]["properties"])


def test_the_documentation_needs_no_network() -> None:
    with client() as c:
        page = c.get("/docs")
    assert page.status_code == 200
    assert "/v1/chat/completions" in page.text
    assert "http://" not in page.text
    assert "https://" not in page.text


def test_the_documentation_begins_with_chat_its_response_format_and_a_reply() -> None:
    with client() as c:
        page = unescape(c.get("/docs").text)
    first = page[page.index("<article>") : page.index("</article>")]
    assert "<code>/v1/chat/completions</code>" in first
    assert '"response_format": {' in first
    schema = EXAMPLES[CHAT]["response_format"]["json_schema"]["schema"]
    validate(json.loads(REPLIES[CHAT]["choices"][0]["message"]["content"]), schema)
    assert json.dumps(REPLIES[CHAT], indent=1) in first
    assert 'data-path="v1/chat/completions" data-method="POST"' in first


def test_the_documentation_has_a_policy_and_is_not_sniffed() -> None:
    with client() as c:
        reply = c.get("/docs")
    policy = reply.headers["content-security-policy"]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert reply.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("path", EXAMPLES)
def test_every_example_of_the_documentation_is_taken_as_it_stands(path: str) -> None:
    with client() as c:
        assert json.dumps(EXAMPLES[path], indent=1).splitlines()[1] in unescape(c.get("/docs").text)
        reply = c.post(path, json=EXAMPLES[path])
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("127.0.0.1:8020", "127.0.0.1:8020"),
        ("[::1]:8020", "[::1]:8020"),
        ("$(reboot)", "localhost"),
        ("a;b", "localhost"),
    ],
)
def test_the_examples_of_the_documentation_name_the_address_that_the_reader_asked(host: str, shown: str) -> None:
    with client() as c:
        assert f"curl -s {shown}/health<" in c.get("/docs", headers={"host": host}).text


def test_the_documentation_is_laid_out_for_a_phone() -> None:
    with client() as c:
        page = c.get("/docs").text
    assert 'name="viewport" content="width=device-width' in page
    assert "<table" not in page


def test_no_field_is_both_without_effect_and_refused() -> None:
    assert not set(HINTS) & set(REFUSED)


def test_the_chat_server_has_the_same_routes() -> None:
    routes = [set(make(settings()).openapi()["paths"]) for make in (create_app, create_chat_app)]
    assert routes[1] <= routes[0]
    assert "/v1/chat/completions" in routes[1]


def test_a_request_with_two_host_headers_is_refused() -> None:
    with client() as http:
        answer = http.get("/version", headers=[("host", "localhost"), ("host", "evil.example")])
        assert answer.status_code == 400
        assert "more than one Host header" in answer.json()["error"]["message"]
