"""No key learns from the time to a first token what another has sent: neither from our prefix cache, nor from that of a
server behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi", reason="the extra [server] is not installed")

from starlette.testclient import TestClient

import espalier
from espalier.server.settings import ServerSettings
from tests.scripted_server import STREAM, Asked, Hang, event, reply, scripted_server
from tests.server_app import make_app, settings
from tests.unit.upstream.test_hostile_llama_server import sound

ONE, TWO = ({"authorization": f"Bearer {key}"} for key in ("first-secret", "second-secret"))
BODY: dict[str, Any] = {"prompt": "The quick brown fox jumps over the lazy dog.", "max_tokens": 2, "temperature": 0}


@pytest.fixture
def keyed(tmp_path: Path) -> ServerSettings:
    keys = tmp_path / "keys.toml"
    keys.write_text('[[key]]\nname = "one"\nkey = "first-secret"\n[[key]]\nname = "two"\nkey = "second-secret"\n')
    return settings(api_keys_file=str(keys), database_url=f"sqlite:///{tmp_path}/e.db")


def post(client: TestClient, key: dict[str, str]) -> Any:
    answer = client.post("/v1/completions", json=BODY, headers=key)
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_prompt_is_cached_for_the_key_that_sent_it_alone(keyed: ServerSettings) -> None:
    with TestClient(make_app(config=keyed, engine=espalier.load("fake"))) as client:

        def cached(key: dict[str, str]) -> int:
            return int((post(client, key)["usage"].get("prompt_tokens_details") or {}).get("cached_tokens", 0))

        assert cached(ONE) == 0
        assert cached(ONE) > 20
        assert cached(TWO) == 0
        assert cached(TWO) > 20


@contextmanager
def behind(owner: str, sent: list[dict[str, Any]]) -> Iterator[espalier.LoadedEngine]:
    def answer(asked: Asked) -> list[bytes | Hang]:
        if asked.path == "/v1/models":
            return [reply({"data": [{"id": "toy", "owned_by": owner}]})]
        if asked.path == "/version":
            return [reply({"version": "0.12"})]
        if not asked.body.get("stream"):  # whether our processor is there
            return [reply({"choices": []})]
        sent.append(asked.body)
        choice = {"index": 0, "text": "a", "finish_reason": "stop"}
        return [STREAM, event({"choices": [choice]}), event("[DONE]")]

    with scripted_server(answer) as server, espalier.load(engine="openai", url=server.address) as engine:
        yield engine


def test_each_key_has_a_salt_of_its_own_at_vllm_which_nobody_can_guess(keyed: ServerSettings) -> None:
    runs = []
    for _ in range(2):
        sent: list[dict[str, Any]] = []
        with behind("vllm", sent) as engine, TestClient(make_app(config=keyed, engine=engine)) as client:
            for key in (ONE, TWO, ONE):
                post(client, key)
        runs.append([body["cache_salt"] for body in sent])
    first, second, again = runs[0]
    assert first == again != second
    assert not {*runs[0]} & {*runs[1]}
    assert "one" not in first


def test_other_servers_are_not_sent_a_field_that_they_may_refuse(keyed: ServerSettings) -> None:
    sent: list[dict[str, Any]] = []
    with behind("someone", sent) as engine, TestClient(make_app(config=keyed, engine=engine)) as client:
        post(client, ONE)
    assert "cache_salt" not in sent[0]


def test_a_llama_server_uses_its_prefix_cache_until_a_second_key_asks(keyed: ServerSettings) -> None:
    with (
        scripted_server(sound) as server,
        espalier.load(server.address) as engine,
        TestClient(make_app(config=keyed, engine=engine)) as client,
    ):
        for key in (ONE, ONE, TWO, ONE):
            post(client, key)
        sent = [asked.body for asked in server.asked if asked.path == "/completion" and asked.body.get("stream")]
    assert [body.get("cache_prompt", True) for body in sent] == [True, True, False, False]


def test_outside_a_server_nothing_is_salted_or_turned_off() -> None:
    sent: list[dict[str, Any]] = []
    with behind("vllm", sent) as engine:
        engine.generate("hello", trace="off", max_tokens=2)
    assert "cache_salt" not in sent[0]
