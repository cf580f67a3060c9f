"""`/health`, `/ready`, `/version` and `/metrics`: their replies by state and by key."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

pytest.importorskip("fastapi", reason="the extra [server] is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

from fastapi import FastAPI
from starlette.testclient import TestClient

import espalier
from espalier.engines.base import Load
from espalier.server.admit.auth import Key, Keyring, _digest
from espalier.server.admit.gate import KeyGate
from espalier.server.admit.limits import LocalCounters
from espalier.server.http import errors
from espalier.server.observe.metrics import PrometheusMeter
from espalier.server.process.pools import make_pools
from espalier.server.routes.health import router
from espalier.server.settings import settings_of


@pytest.fixture(scope="module")
def engine():
    with espalier.load("fake") as opened:
        yield opened


def client_of(engine=None, load: Load | None = None, **given: str) -> TestClient:
    app = FastAPI()
    app.include_router(router)
    errors.install(app)
    if engine is not None:
        settings = settings_of({"QUEUE_SIZE": "4", **given})
        keys = [
            Key(name="probe", digest=_digest("probe-key"), may_read_metrics=True),
            Key(name="team", digest=_digest("team-key")),
        ]
        app.state.process = SimpleNamespace(
            settings=settings,
            prebuild=None,
            names=("m", "other"),
            engine=engine,
            scheduler=SimpleNamespace(load=lambda: load or Load()),
            gate=KeyGate(settings, Keyring(keys), LocalCounters()),
            meter=PrometheusMeter(model="m", load=lambda: load or Load(), queue_size=4),
            pools=make_pools(waiting=4),
            batches=None,
            replicas=None,
        )
    return TestClient(app)


def test_while_the_model_is_loaded_health_says_what_llama_server_says():
    client = client_of()
    for path in ("/health", "/ready"):
        answer = client.get(path)
        assert answer.status_code == 503
        assert answer.json() == {"error": {"code": 503, "message": "Loading model", "type": "unavailable_error"}}
    assert client.get("/version").json() == {"version": espalier.__version__, "engine": None, "model": None}
    assert client.get("/metrics").status_code == 503


def test_health_ready_and_version_are_public(engine):
    client = client_of(engine, Load(running=1, waiting=2))
    assert client.get("/health").json() == {"status": "ok"}
    ready = client.get("/ready")
    assert (ready.status_code, ready.json()) == (200, {"status": "ok", "running": 1, "waiting": 2})
    assert client.get("/version").json() == {"version": espalier.__version__, "engine": "fake", "model": "m"}


def test_a_server_that_is_full_or_closing_lives_and_is_not_ready(engine):
    client = client_of(engine, Load(waiting=4))
    assert (client.get("/ready").status_code, client.get("/ready").json()["status"]) == (503, "full")
    assert client.get("/health").status_code == 200
    client = client_of(engine)
    client.app.state.closing = True
    assert (client.get("/ready").status_code, client.get("/ready").json()["status"]) == (503, "closing")
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize(
    ("headers", "status", "code"),
    [
        ({}, 401, "invalid_api_key"),
        ({"Authorization": "Bearer wrong"}, 401, "invalid_api_key"),
        ({"Authorization": "Bearer team-key"}, 403, "forbidden"),
    ],
)
def test_metrics_need_a_key_that_may_read_them(engine, headers, status, code):
    answer = client_of(engine).get("/metrics", headers=headers)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert answer.headers.get("www-authenticate") == ("Bearer" if status == 401 else None)


def test_metrics_are_prometheus_text(engine):
    answer = client_of(engine).get("/metrics", headers={"Authorization": "Bearer probe-key"})
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "\nvllm:num_requests_running{" in answer.text
    assert client_of(engine, METRICS_PUBLIC="true").get("/metrics").status_code == 200


@pytest.mark.parametrize("path", ["/health", "/ready"])
def test_head_is_answered_as_get(engine, path):
    client = client_of(engine)
    answer = client.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert client_of().head(path).status_code == 503
    assert "head" not in client.app.openapi()["paths"][path]
