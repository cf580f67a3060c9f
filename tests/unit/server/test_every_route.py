"""Every route passes the gate, those that only read as well; liveness alone does not."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator

import pytest

pytest.importorskip("fastapi", reason="the extra [server] is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

import httpx2
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import BaseRoute, Route
from starlette.testclient import TestClient

from espalier.server.bodies import openapi
from tests.server_app import OneKeyGate, make_app, settings

FREE = {"/health", "/v1/health", "/ready"}
KEY = {"authorization": "Bearer sk-good"}
VALUES = {
    "{model:path}": "fake",
    "{trace_id}": "a",
    "{fingerprint}": "a",
    "{name}": "playground.js",
    "{file_id}": "a",
    "{upload_id}": "a",
    "{batch_id}": "a",
    "{job_id}": "a",
    "{log_id}": "a",
    "{response_id}": "a",
    "{id_slot}": "0",
}
BODIES = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    "/v1/completions": {"prompt": "a"},
    "/v1/responses": {"input": "a"},
    "/v1/messages": {"messages": [{"role": "user", "content": "a"}], "max_tokens": 5},
    "/completion": {"prompt": "a"},
    "/v1/feedback": {"request_id": "r", "score": 1},
    "/api/chat": {"messages": [{"role": "user", "content": "a"}]},
    "/api/generate": {"prompt": "a"},
    "/completions": {"prompt": "a"},
    "/chat/completions": {"messages": [{"role": "user", "content": "a"}]},
    "/responses": {"input": "a"},
    "/v1/responses/compact": {"input": "a"},
    "/responses/compact": {"input": "a"},
    "/embeddings": {"content": "a"},
    "/generate": {"inputs": "a"},
    "/generate_stream": {"inputs": "a"},
    "/": {"inputs": "a"},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
}


def declared(routes: list[BaseRoute]) -> Iterator[tuple[str, str]]:
    """Method and path of each route, with something for its parameters."""
    for route in routes:
        included = getattr(route, "original_router", None)  # as FastAPI keeps the routers of `include_router`
        if included is not None:
            yield from declared(included.routes)
            continue
        assert isinstance(route, Route | APIRoute), f"a route of another kind: {route}"
        path = re.sub(r"\{.*?\}", lambda found: VALUES[found[0]], route.path)
        for method in sorted(route.methods or ()):
            yield method, path


@pytest.mark.parametrize("metrics_public", ["true", "false"])
def test_every_route_is_refused_by_a_gate_that_is_full(metrics_public: str) -> None:
    app: FastAPI = make_app(gate=OneKeyGate(is_full=True), config=settings(metrics_public=metrics_public))
    found = list(declared(app.routes))
    assert {path for _, path in found} >= FREE | {
        "/v1/models",
        "/props",
        "/espalier/presets",
        "/metrics",
        "/version",
        "/openapi.json",
        "/docs",
        "/",
        "/traces",
        "/tokenize",
    }
    with TestClient(app, raise_server_exceptions=False) as client:
        for method, path in found:
            reply = client.request(method, path, headers=KEY, json=BODIES.get(path))
            assert reply.status_code == (200 if path in FREE else 429), (method, path, reply.text)
            if reply.status_code == 429:
                assert reply.headers["retry-after"] == "7"


def test_public_routes_need_no_key_and_count_those_who_have_none_together() -> None:
    seen: list[str] = []

    class Counting(OneKeyGate):
        def admit_cheap(self, caller: object) -> None:
            seen.append(caller.name)  # type: ignore[attr-defined]

    with TestClient(make_app(gate=Counting()), raise_server_exceptions=False) as client:
        for path in ("/", "/playground/form.js", "/favicon.ico", "/version", "/api/version", "/openapi.json", "/docs"):
            for headers in ({}, {"authorization": "Bearer sk-wrong"}, KEY):
                assert client.get(path, headers=headers).status_code == 200
            assert seen[-3:] == ["anonymous", "anonymous", "tester"], path
        for path in ("/v1/models", "/props", "/espalier/presets", "/metrics"):
            assert client.get(path).status_code == 401
            assert client.get(path, headers=KEY).status_code == 200
            assert seen[-1] == "tester"


def test_the_cpu_time_of_a_request_is_charged_to_its_key() -> None:
    gate = OneKeyGate()
    schema = {"type": "object", "properties": {f"p{i}": {"type": "string"} for i in range(200)}}
    body = {"prompt": "a", "max_tokens": 5, "json_schema": schema}
    with TestClient(make_app(gate=gate), raise_server_exceptions=False) as client:
        assert client.post("/v1/completions", json=body, headers=KEY).status_code == 200
    assert set(gate.charged) <= {"tester", ""}
    assert gate.charged["tester"] > 0.001


def test_others_are_served_while_the_document_of_all_routes_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stream waited for a third of a second, and each of ten who asked at once had it made again."""
    made: list[str] = []

    async def run() -> list[int]:
        going, done = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def get_openapi(**about: object) -> dict[str, object]:
            made.append(str(about["title"]))
            loop.call_soon_threadsafe(going.set)
            assert done.wait(60)
            return real(**about)

        real = openapi.get_openapi
        monkeypatch.setattr(openapi, "get_openapi", get_openapi)
        app = make_app()
        transport = httpx2.ASGITransport(app=app)
        async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=transport, base_url="http://x") as c:
            asked = [asyncio.create_task(c.get(path)) for path in ("/openapi.json", "/docs", "/openapi.json")]
            await going.wait()
            other = await c.get("/health")
            done.set()
            return [other.status_code, *[(await reply).status_code for reply in asked]]

    assert asyncio.run(run()) == [200, 200, 200, 200]
    assert len(made) == 1
