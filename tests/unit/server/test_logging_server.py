"""WORDLIST_SERVER_COMPAT: the logging server's routes and extras, whose paths lead nowhere but beside
ACTIVATIONS_STORE."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("lmdb", reason="lmdb is not installed")

import espalier
from espalier.activations.store.base import ActivationStore
from espalier.errors import InputError, LimitExceeded
from espalier.server.process.hidden_states import HiddenStates
from espalier.server.process.named_stores import MOST_STORES, NamedStores
from espalier.wiring import demo_model
from tests.server_app import client, settings

TEXT: dict[str, Any] = {"prompt": "Berlin", "max_tokens": 3, "seed": 1}
CHAT: dict[str, Any] = {"model": "m", "messages": [{"role": "user", "content": "Berlin"}], "max_tokens": 3}


@pytest.mark.slow
def test_requests_are_logged_in_the_store_that_they_or_an_overwrite_name(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="transformers is not installed")
    config = settings(activations_store=str(tmp_path / "states"), wordlist_server_compat="true")
    with espalier.load(str(demo_model())) as engine, client(engine=engine, config=config) as c:
        assert c.get("/health").json()["status"] == "ok"
        asked = TEXT | {"lmdb_path": "logs/one.lmdb", "auth_token": "hf_x", "espalier": {}}
        text = c.post("/v1/completions", json=asked)
        assert text.status_code == 200, text.text
        chat = c.post("/v1/chat/completions", json=CHAT | {"lmdb_path": str(tmp_path / "logs/one.lmdb")})
        assert chat.status_code == 200, chat.text
        plain = c.post("/v1/completions", json=TEXT).json()
        assert plain["id"].startswith("cmpl-")  # not logged
        reply = c.post("/set_overwrite_lmdb_path", json={"lmdb_path": "two"}).json()
        assert reply["success"] is True
        assert (reply["previous_value"], reply["current_value"]) == (None, "two")
        assert c.post("/v1/completions", json=TEXT | {"lmdb_path": "logs/one.lmdb"}).status_code == 200
        refused = c.post("/v1/completions", json=TEXT | {"lmdb_path": "../elsewhere"})
        assert refused.status_code == 200  # the overwrite counts, so the path is not looked at
        back = c.post("/set_overwrite_lmdb_path", json={"lmdb_path": None}).json()
        assert (back["previous_value"], back["current_value"]) == ("two", None)
        wrong = c.post("/v1/completions", json=TEXT | {"lmdb_path": "../elsewhere"})
        assert (wrong.status_code, wrong.json()["error"]["param"]) == (400, "lmdb_path")
    with ActivationStore(tmp_path / "logs/one.lmdb") as store:
        records = [store.record(key) for key in [*store.keys()]]
    digest = hashlib.sha256(b"Berlin").hexdigest()
    assert [one.prompt_hash for one in records] == [text.json()["id"], chat.json()["id"]]
    assert text.json()["id"] == text.json()["espalier"]["outputs"][0]["prompt_hash"] == digest
    with ActivationStore(tmp_path / "two") as store:
        assert store.size().requests == 2
    with ActivationStore(tmp_path / "states") as store:
        assert store.size().requests == 0
    assert not (tmp_path.parent / "elsewhere").exists()


def test_an_overwrite_of_the_sampling_counts_for_all_requests_until_it_is_taken_back() -> None:
    with client(config=settings(wordlist_server_compat="true", trace_level="off")) as c:
        for route, name, first, second in (
            ("/set_overwrite_temperature", "temperature", 0.5, 1),
            ("/set_overwrite_top_p", "top_p", 0.9, 0.5),
        ):
            process = c.app.state.process  # type: ignore[attr-defined]
            assert c.post(route, json={name: first}).json()["previous_value"] is None
            reply = c.post(route, json={name: second}).json()
            assert (reply["previous_value"], reply["current_value"]) == (first, second)
            assert process.overwrites.sampling()[name] == second
            traced = {"prompt": "a", "max_tokens": 2, name: 0.7, "espalier": {"trace": "steps"}}
            body = c.post("/v1/completions", json=traced).json()
            assert body["espalier"]["outputs"][0]["trace"]["metadata"]["sampling"][name] == second
            for bad in (-1, True, "hot", [1]):
                assert c.post(route, json={name: bad}).status_code == 400, bad
            for wrong in ({}, {"value": 1}, {name: 1, "more": 1}):
                assert c.post(route, json=wrong).status_code == 400, wrong
            assert process.overwrites.sampling()[name] == second  # what was refused changed nothing
            assert c.post(route, json={name: None}).json()["previous_value"] == second
        body = c.post("/v1/completions", json=traced).json()
        assert body["espalier"]["outputs"][0]["trace"]["metadata"]["sampling"]["top_p"] == 0.7


def test_overwrites_need_a_key_that_may_change_what_others_get(tmp_path: Path) -> None:
    path = tmp_path / "keys.toml"
    path.write_text('[[key]]\nname = "guest"\nkey = "sk-a-guest-of-this-server"\n')
    with client(config=settings(wordlist_server_compat="true", api_keys_file=str(path))) as c:
        guest = {"authorization": "Bearer sk-a-guest-of-this-server"}
        for name in ("lmdb_path", "temperature", "top_p"):
            assert c.post(f"/set_overwrite_{name}", json={name: None}).status_code == 401
            assert c.post(f"/set_overwrite_{name}", json={name: None}, headers=guest).status_code == 403


def test_without_seed_compat_there_are_no_such_routes_and_paths_are_refused(tmp_path: Path) -> None:
    with client(config=settings(activations_store=str(tmp_path / "states"))) as c:
        assert c.post("/set_overwrite_top_p", json={"top_p": 0.5}).status_code == 404
        reply = c.post("/v1/completions", json=TEXT | {"lmdb_path": "x"})
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, "lmdb_path")


def test_an_engine_without_hidden_states_logs_nothing_and_says_so(tmp_path: Path) -> None:
    for config in (
        settings(wordlist_server_compat="true"),
        settings(wordlist_server_compat="true", activations_store=str(tmp_path / "states")),
    ):
        with client(config=config) as c:
            for reply in (
                c.post("/v1/completions", json=TEXT | {"lmdb_path": "x"}),
                c.post("/set_overwrite_lmdb_path", json={"lmdb_path": "x"}),
            ):
                assert (reply.status_code, reply.json()["error"]["param"]) == (400, "lmdb_path"), reply.text
    assert not (tmp_path / "x").exists()


def test_a_path_leads_nowhere_but_beside_the_configured_store(tmp_path: Path) -> None:
    base, outside = tmp_path / "base", tmp_path / "outside"
    for one in (base, outside, base / "full"):
        one.mkdir()
    (base / "full" / "notes.txt").write_text("mine")
    (base / "link").symlink_to(outside)
    config = settings(activations_store=str(base / "states"))
    first = HiddenStates(config)
    stores = NamedStores(config, first)
    try:
        assert stores.get("states") is stores.get(str(base / "states")) is first
        for name in (
            "",
            ".",
            "..",
            "../outside/x",
            "a/../../x",
            "/",
            "/etc/x",
            str(outside / "x"),
            str(base),
            "link",
            "link/x",
            "full",
            ".hidden",
            "a/.git",
            "states/x",
            "a\0b",
            "a b",
            "a/b/c/d/e",
            "x" * 200,
            "~/x",
            "C:\\x",
        ):
            with pytest.raises(InputError):
                stores.get(name)
        assert not [*outside.iterdir()]
        assert sorted(one.name for one in base.iterdir()) == ["full", "link", "states"]
        for number in range(MOST_STORES):
            assert stores.get(f"s{number}") is stores.get(str(base / f"s{number}"))
        with pytest.raises(LimitExceeded):
            stores.get("one-more")
        assert not (base / "one-more").exists()
    finally:
        stores.close()
        first.close()
