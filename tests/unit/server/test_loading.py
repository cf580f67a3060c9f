"""A server that replies before its model is loaded."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from espalier.engines.fake import open_engine
from espalier.engines.protocols import Engine
from espalier.errors import UnknownModel
from espalier.server.apps import create_app
from espalier.server.observe import logs
from espalier.settings import KernelSettings
from espalier.wiring import App
from tests.server_app import settings

ASK = {"messages": [{"role": "user", "content": "x"}], "temperature": 0}


class Slow(App):
    """Opens its model when it is let."""

    def __init__(self, fails: Exception | None = None) -> None:
        super().__init__(KernelSettings())
        self.may, self.begun, self.ended, self._fails = threading.Event(), threading.Event(), threading.Event(), fails
        self.failures: list[Exception] = []

    def open(self, model: str | None = None) -> Engine:
        self.begun.set()
        assert self.may.wait(60)
        if self._fails is not None:
            raise self._fails
        return open_engine(wish="Hi")

    def failed(self, error: Exception) -> None:
        self.failures.append(error)
        self.ended.set()


@contextlib.contextmanager
def client_of(slow: Slow, monkeypatch: pytest.MonkeyPatch, **values: str) -> Iterator[TestClient]:
    monkeypatch.setattr(logs, "configure", lambda _: None)
    with TestClient(create_app(settings(**values), app=slow, failed=slow.failed)) as found:
        assert slow.begun.wait(60)
        yield found


@pytest.mark.slow
def test_until_the_model_is_there_only_health_ready_and_version_say_anything(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    with client_of(slow, monkeypatch) as c:
        for path in ("/health", "/ready"):
            reply = c.get(path)
            assert (reply.status_code, reply.json()["error"]["message"]) == (503, "Loading model")
        assert c.get("/version").json()["model"] is None
        asked = c.post("/v1/chat/completions", json=ASK)
        others = [asked, *(c.get(path) for path in ("/", "/docs", "/openapi.json", "/metrics", "/traces", "/nowhere"))]
        assert [(one.status_code, one.headers["retry-after"]) for one in others] == [(503, "1")] * len(others)
        assert asked.json()["error"]["code"] == "unavailable"
        assert asked.headers["x-request-id"]
        slow.may.set()
        while c.get("/health").status_code == 503 or c.get("/docs").status_code == 503:
            pass
        assert c.post("/v1/chat/completions", json=ASK).json()["choices"][0]["message"]["content"] == "Hi"
    assert slow.failures == []


def test_a_model_that_cannot_be_loaded_is_told_once_to_who_started_it_and_the_server_never_takes_anything(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    error = UnknownModel("there is no folder 'nowhere'")
    slow = Slow(error)
    with client_of(slow, monkeypatch) as c:
        slow.may.set()
        assert slow.ended.wait(60)
        assert c.get("/health").status_code == 503
    assert slow.failures == [error]
    assert not [record for record in caplog.records if record.name == "espalier.server.http.loading"]


@pytest.mark.slow
def test_a_server_that_is_stopped_while_it_loads_closes_what_it_has_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    with client_of(slow, monkeypatch) as c:
        state: Any = c.app.state  # type: ignore[attr-defined]
        threading.Thread(target=slow.may.set).start()
    assert state.closing
    with pytest.raises(Exception, match="closed"):
        state.process.engine.generate("x")


@pytest.mark.slow
def test_the_word_list_servers_shape_holds_while_it_loads(monkeypatch: pytest.MonkeyPatch) -> None:
    slow = Slow()
    with client_of(slow, monkeypatch, wordlist_server_compat="true") as c:
        reply = c.get("/v1/models")
        slow.may.set()
    assert (reply.status_code, list(reply.json())) == (503, ["detail"])
