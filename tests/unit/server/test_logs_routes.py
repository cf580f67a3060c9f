"""Generation logs of a server: a key's own alone, no texts unless they are kept, and nothing waits for the database."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

from espalier.errors import DeadEnd, OutputError
from espalier.server.ports import Caller
from espalier.settings import KernelSettings
from espalier.store.generations import GenerationFilter
from espalier.store.open import Store, open_store
from espalier.wiring import App
from tests.server_app import OneKeyGate, Stuck, client, settings

ASK = {"model": "fake", "messages": [{"role": "user", "content": "Name a zebra"}]}
ROUTE = "/v1/chat/completions"


class TwoKeys(OneKeyGate):
    """The token is the caller."""

    def identify(self, authorization: str | None, query_token: str | None) -> Caller:
        return Caller(name=(authorization or "").removeprefix("Bearer "))


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    opened = open_store(f"sqlite:///{tmp_path}/a.db")
    yield opened
    opened.close()


def served(store: Store, kept: str, **options: Any) -> Any:
    return client("Hi you", config=settings(store_generations=kept), store=store, gate=TwoKeys(), **options)


def key(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


def test_a_key_sees_and_searches_its_own_logs(store: Store) -> None:
    with served(store, "content") as c:
        c.post(ROUTE, json=ASK | {"structured_outputs": {"regex": "[a-z]{2}"}}, headers=key("anna"))
        c.post(ROUTE, json=ASK | {"stream": True, "n": 2, "temperature": 1}, headers=key("ben"))
    with served(store, "content") as c:
        annas, bens = (c.get("/logs", headers=key(name)).json() for name in ("anna", "ben"))
        (row,) = annas["data"]
        assert (row["object"], row["route"], row["constraint_kind"], row["model"]) == ("log", ROUTE, "regex", "fake")
        assert "caller" not in row
        assert len(bens["data"]) == 2
        assert all(one["streamed"] for one in bens["data"])
        whole = c.get(f"/logs/{row['id']}", headers=key("anna")).json()
        assert whole["content"]["messages"] == ASK["messages"]
        assert whole["request"]["constraint"]["pattern"] == "[a-z]{2}"
        assert c.get(f"/logs/{row['id']}", headers=key("ben")).status_code == 404
        assert len(c.get("/logs?q=zebra", headers=key("anna")).json()["data"]) == 1
        assert c.get("/logs?q=zebra -name", headers=key("anna")).json()["data"] == []
        page = c.get("/logs?limit=1", headers=key("ben")).json()
        assert (page["has_more"], page["last_id"]) == (True, bens["data"][0]["id"])
        assert c.get(f"/logs?after={page['last_id']}", headers=key("ben")).json()["data"] == bens["data"][1:]
        assert c.get("/logs?model=other&since=1", headers=key("ben")).json()["data"] == []
        for wrong, field in (("limit=0", "limit"), ("after=x", "after"), ("q=...", "query"), ("since=nan", "since")):
            reply = c.get(f"/logs?{wrong}", headers=key("ben"))
            assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)


def test_figures_hold_no_text_and_false_keeps_nothing(store: Store) -> None:
    with served(store, "true") as c:
        c.post(ROUTE, json=ASK, headers=key("anna"))
    (row,) = (store.generation(one, caller=None) for one in store.generation_ids("", limit=9))
    assert row is not None
    assert row["content"] is None
    assert "zebra" not in str(row)
    with served(store, "false") as c:
        c.post(ROUTE, json=ASK, headers=key("anna"))
        assert c.get("/logs", headers=key("anna")).status_code == 404
    assert store.count_generations() == (1, 0)


def test_a_schema_in_the_log_has_its_contract_and_the_reply_is_as_without_a_log(store: Store) -> None:
    body = ASK | {
        "response_format": {
            "type": "json_schema",
            "json_schema": {
                "name": "a",
                "schema": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]},
            },
        }
    }
    with served(store, "figures") as c:
        assert "espalier" not in c.post(ROUTE, json=body, headers=key("anna")).json()
    row = store.generation(store.generation_ids("", limit=1)[0], caller="anna")
    assert row is not None
    assert {"pointer": "/required", "keyword": "required", "verdict": "enforced", "note": ""} in row["request"][
        "contract"
    ]


def test_an_output_that_fails_is_logged_with_its_code(store: Store) -> None:
    with served(store, "figures", serve=lambda engine: Stuck(engine, fails=DeadEnd("nothing is left"))) as c:
        c.post(ROUTE, json=ASK | {"stream": True}, headers=key("anna"))
    (row,) = store.generations(GenerationFilter(caller="anna"), limit=9)
    assert (row["error"], row["finish_reason"], row["valid"]) == ("dead_end", None, None)


def test_a_locked_database_delays_no_reply(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = threading.Event()
    save = Store.save_generation

    def slow(self: Store, row: Any) -> str:
        gate.wait(60)
        return save(self, row)

    monkeypatch.setattr(Store, "save_generation", slow)
    with served(store, "figures") as c:
        assert c.post(ROUTE, json=ASK, headers=key("anna")).status_code == 200
        assert store.count_generations() == (0, 0)
        gate.set()
    assert store.count_generations() == (1, 0)


def test_a_row_that_cannot_be_written_is_told_each_time_and_breaks_no_reply(
    store: Store, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def full(self: Store, row: Any) -> str:
        raise OutputError("the disk is full")

    monkeypatch.setattr(Store, "save_generation", full)
    with served(store, "figures") as c:
        for _ in range(2):
            assert c.post(ROUTE, json=ASK, headers=key("anna")).status_code == 200
    assert caplog.text.count("not logged: the disk is full") == 2


def test_a_preset_in_the_store_is_listed_and_applied(store: Store, tmp_path: Path) -> None:
    store.save_preset({"name": "shared", "description": "Ours", "json_schema": '{"type": "boolean"}', "config": {}})
    app = App(KernelSettings(), database_url=lambda: f"sqlite:///{tmp_path}/a.db")
    with client("Hi", app=app) as c:
        listed = c.get("/espalier/presets").json()["data"]
        reply = c.post(ROUTE, json=ASK | {"espalier": {"preset": "shared"}})
        unknown = c.post(ROUTE, json=ASK | {"espalier": {"preset": "nobodys"}})
    assert {"id": "shared", "object": "preset", "description": "Ours", "problem": None} in listed
    assert reply.json()["choices"][0]["message"]["content"] in ("true", "false")
    assert unknown.status_code == 400
