"""WORDLIST_SERVER_COMPAT: the word-list server's statuses and bodies on its two routes, without its faults."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from tests.server_app import client, events, settings

ROUTE = "/v1/chat/completions"
KEY = "a-good-long-secret"
AUTH = {"authorization": f"Bearer {KEY}"}
ASK: dict[str, Any] = {"model": "google/gemma-3-27b-it", "messages": [{"role": "user", "content": "hola"}]}
WORDS = {"vocab_lang": "es", "vocab_n_words": 3000}


@pytest.fixture(scope="module")
def c() -> Iterator[TestClient]:
    config = settings(wordlist_server_compat="true", secret_token=KEY, allow_query_token="true")
    with client("Hola amigo.", config=config) as found:
        yield found


def detail(reply: Any) -> tuple[int, Any]:
    assert set(reply.json()) == {"detail"}
    return reply.status_code, reply.json()["detail"]


def test_a_reply_is_as_it_was(c: TestClient) -> None:
    reply = c.post(
        ROUTE, json=ASK | WORDS | {"max_tokens": 128, "length_penalty": 1.0, "num_beams": None}, headers=AUTH
    )
    assert reply.status_code == 200, reply.text
    found = reply.json()
    assert set(found) == {"id", "object", "created", "model", "choices", "usage"}
    assert found["id"].startswith("chatcmpl-")
    assert found["model"] == ASK["model"]  # echoed, never checked
    assert found["choices"] == [
        {"index": 0, "message": {"role": "assistant", "content": "Hola amigo."}, "finish_reason": "stop"}
    ]
    assert set(found["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens"}


def test_it_is_greedy_where_nothing_is_said(c: TestClient) -> None:
    texts = {c.post(ROUTE, json=ASK, headers=AUTH).json()["choices"][0]["message"]["content"] for _ in range(3)}
    assert texts == {"Hola amigo."}


def test_the_models(c: TestClient) -> None:
    reply = c.get("/v1/models", headers=AUTH)
    assert reply.json() == {"object": "list", "data": [{"id": "fake", "object": "model", "owned_by": "owner"}]}


@pytest.mark.parametrize("path", ["/v1/models", ROUTE])
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": f"Basic {KEY}"}])
def test_without_a_good_token_it_is_403_forbidden(c: TestClient, path: str, headers: dict[str, str]) -> None:
    reply = c.get(path, headers=headers) if path == "/v1/models" else c.post(path, json=ASK, headers=headers)
    assert detail(reply) == (403, "Forbidden")
    assert "www-authenticate" not in reply.headers


def test_a_token_in_the_query_counts_before_the_header(c: TestClient) -> None:
    assert c.get(f"/v1/models?token={KEY}").status_code == 200
    assert c.get(f"/v1/models?token={KEY}", headers={"authorization": "Bearer wrong"}).status_code == 200
    assert detail(c.get("/v1/models?token=wrong", headers=AUTH)) == (403, "Forbidden")
    assert c.get("/v1/models", headers={"authorization": f"bEaReR {KEY}"}).status_code == 200


@pytest.mark.parametrize(
    ("body", "loc"),
    [
        ({"messages": ASK["messages"]}, ["body", "model"]),
        ({"model": "m"}, ["body", "messages"]),
        ({"model": "m", "messages": [{"role": "user"}]}, ["body", "messages", 0, "content"]),
        (ASK | {"max_tokens": "many"}, ["body", "max_tokens"]),
        (ASK | {"vocab_n_words": [1]}, ["body", "vocab_n_words"]),
        (ASK | {"temperature": -1}, ["body", "temperature"]),
    ],
)
def test_a_body_that_is_wrong_is_a_422_with_fastapis_list(c: TestClient, body: Any, loc: list[Any]) -> None:
    status, found = detail(c.post(ROUTE, json=body, headers=AUTH))
    assert status == 422
    assert found[0]["loc"] == loc
    assert {"type", "loc", "msg"} <= set(found[0])


@pytest.mark.parametrize("kind", ["application/json", "text/plain"])
def test_a_body_that_is_no_json_is_a_422_too(c: TestClient, kind: str) -> None:
    status, found = detail(c.post(ROUTE, content=b"{", headers=AUTH | {"content-type": kind}))
    assert (status, found[0]["loc"][0]) == (422, "body")


@pytest.mark.parametrize(
    ("changed", "lang"),
    [
        ({"vocab_lang": "xx"}, "xx"),
        ({"vocab_lang": "../es"}, "../es"),
        ({"vocab_n_words": 0}, "es"),
        ({"vocab_n_words": -1}, "es"),
    ],
)
def test_a_list_that_cannot_be_had_is_a_500_with_its_language(c: TestClient, changed: Any, lang: str) -> None:
    reply = c.post(ROUTE, json=ASK | WORDS | changed, headers=AUTH)
    assert detail(reply) == (500, f"Constrained vocabulary configuration failed for language '{lang}'.")


def test_soft_mode_that_is_asked_for_wrongly_is_a_400_with_a_text(c: TestClient) -> None:
    soft = {"vocab_constraint_mode": "soft", "vocab_soft_tier3_penalty": 0}
    status, found = detail(c.post(ROUTE, json=ASK | WORDS | soft, headers=AUTH))
    assert status == 400
    assert "tier3_penalty" in found


@pytest.mark.parametrize("name", ["vocab_lang", "vocab_n_words"])
def test_fault_4_half_of_the_pair_is_refused_here_too(c: TestClient, name: str) -> None:
    status, found = detail(c.post(ROUTE, json=ASK | {name: WORDS[name]}, headers=AUTH))
    assert status == 400
    assert "vocab_" in found


@pytest.mark.parametrize("changed", [{"num_beams": 4}, {"num_beams": 10, "length_penalty": 0.5}, {"num_beams": None}])
def test_its_beams_are_searched(c: TestClient, changed: Any) -> None:
    reply = c.post(ROUTE, json=ASK | WORDS | changed | {"max_tokens": 16}, headers=AUTH)
    assert reply.status_code == 200, reply.text
    assert reply.json()["choices"][0]["message"]["content"] == "Hola amigo."


def test_a_length_penalty_with_one_beam_is_refused_with_the_reason(c: TestClient) -> None:
    status, found = detail(c.post(ROUTE, json=ASK | {"length_penalty": 0.5, "num_beams": 1}, headers=AUTH))
    assert (status, "length_penalty needs beam search" in found) == (400, True)


def test_unknown_fields_are_ignored_and_logged_by_name_alone(c: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING, logger="espalier.server.routes.wordlist_server")
    assert c.post(ROUTE, json=ASK | {"best_of": 3, "whatever": "a secret"}, headers=AUTH).status_code == 200
    said = [record.getMessage() for record in caplog.records if record.name == "espalier.server.routes.wordlist_server"]
    assert said == ["ignored fields: best_of, whatever"]


def test_texts_that_spell_numbers_are_numbers_as_there(c: TestClient) -> None:
    reply = c.post(ROUTE, json=ASK | {"vocab_lang": "es", "vocab_n_words": "3000", "max_tokens": "64"}, headers=AUTH)
    assert reply.status_code == 200, reply.text


@pytest.mark.parametrize(("asked", "given"), [(None, 512), (100, 128), (0, 64), (-5, 64), (10_000, 512)])
def test_max_tokens_goes_up_to_the_next_bucket(asked: int | None, given: int) -> None:
    with client("x" * 600, config=settings(wordlist_server_compat="true")) as c:
        found = c.post(ROUTE, json=ASK | {"max_tokens": asked}).json()
    assert found["usage"]["completion_tokens"] == given
    assert found["choices"][0]["finish_reason"] == "length"


def test_it_streams_which_it_never_did(c: TestClient) -> None:
    reply = c.post(ROUTE, json=ASK | WORDS | {"stream": True}, headers=AUTH)
    data = events(reply.text)
    assert data[-1] == "[DONE]"
    deltas = [json.loads(one)["choices"][0]["delta"].get("content", "") for one in data[:-1]]
    assert "".join(deltas) == "Hola amigo."


def test_fault_14_content_in_parts_is_read(c: TestClient) -> None:
    parts = [{"role": "user", "content": [{"type": "text", "text": "hola"}]}]
    assert c.post(ROUTE, json=ASK | {"messages": parts}, headers=AUTH).status_code == 200


def test_what_it_never_had_answers_as_everywhere(c: TestClient) -> None:
    assert c.post("/v1/completions", json={"prompt": "x"}).json()["error"]["type"] == "authentication_error"
    assert detail(c.get(ROUTE, headers=AUTH)) == (405, "Method Not Allowed")
