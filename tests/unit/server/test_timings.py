"""`timings` in the replies of OpenAI's routes, as llama-server has them: whole, and in the last chunk of a stream."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from espalier.server.bodies.replies import Timings
from tests.server_app import client, events, settings

CHAT = ("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]})
TEXT = ("/v1/completions", {"prompt": "a"})
ROUTES = pytest.mark.parametrize(("path", "body"), [CHAT, TEXT])
ASK = {"temperature": 0, "max_tokens": 30}


@pytest.fixture(scope="module")
def http() -> Iterator[TestClient]:
    with client() as http:
        yield http


def chunks(http: TestClient, path: str, body: dict[str, Any]) -> list[dict[str, Any]]:
    *data, done = events(http.post(path, json={**body, "stream": True}).text)
    assert done == "[DONE]"
    return [json.loads(chunk) for chunk in data]


def checked(timings: dict[str, Any], usage: dict[str, Any]) -> None:
    """Every field of llama-server's, which agree with one another and with the usage."""
    timings = TypeAdapter(Timings).validate_python(timings).model_dump()
    assert timings["cache_n"] + timings["prompt_n"] == usage["prompt_tokens"]
    assert timings["cache_n"] == usage["prompt_tokens_details"]["cached_tokens"]
    assert timings["predicted_n"] == usage["completion_tokens"]
    assert timings["prompt_ms"] > 0
    assert timings["predicted_ms"] >= 0
    assert timings["predicted_per_token_ms"] == pytest.approx(timings["predicted_ms"] / timings["predicted_n"])


@ROUTES
@pytest.mark.parametrize("more", [{}, {"n": 3, "seed": 1, "temperature": 1}])
def test_a_whole_reply_has_the_timings_of_all_outputs(
    http: TestClient, path: str, body: dict[str, Any], more: dict[str, Any]
) -> None:
    reply = http.post(path, json={**body, **ASK, **more}).json()
    checked(reply["timings"], reply["usage"])


@ROUTES
def test_the_last_chunk_of_a_stream_has_them(http: TestClient, path: str, body: dict[str, Any]) -> None:
    *before, last = chunks(http, path, {**body, **ASK})
    usage = http.post(path, json={**body, **ASK}).json()["usage"]
    assert last["choices"][0]["finish_reason"] == "stop"
    assert last["timings"]["predicted_n"] == usage["completion_tokens"]
    assert not [chunk for chunk in before if "timings" in chunk]


@ROUTES
def test_with_the_usage_they_stand_beside_it(http: TestClient, path: str, body: dict[str, Any]) -> None:
    *before, last = chunks(http, path, {**body, **ASK, "stream_options": {"include_usage": True}})
    checked(last["timings"], last["usage"])
    assert not [chunk for chunk in before if "timings" in chunk]


@ROUTES
def test_each_output_of_a_stream_has_its_own(http: TestClient, path: str, body: dict[str, Any]) -> None:
    told = [chunk for chunk in chunks(http, path, {**body, **ASK, "n": 2}) if "timings" in chunk]
    assert sorted(chunk["choices"][0]["index"] for chunk in told) == [0, 1]


def test_a_reply_that_only_reads_the_prompt_has_no_speed_of_generating(http: TestClient) -> None:
    timings = http.post(TEXT[0], json={**TEXT[1], "max_tokens": 0}).json()["timings"]
    assert (timings["predicted_n"], timings["predicted_per_second"]) == (0, 0)
    assert timings["prompt_ms"] >= 0


def test_the_word_list_servers_replies_have_none() -> None:
    with client(config=settings(wordlist_server_compat="true")) as http:
        reply = http.post(CHAT[0], json={"model": "fake", **CHAT[1], "max_tokens": 5})
    assert reply.status_code == 200, reply.text
    assert "timings" not in reply.json()


@ROUTES
@pytest.mark.parametrize("more", [{}, {"n": 2, "seed": 1, "temperature": 1}, {"logprobs": 1}])
def test_each_chunk_of_a_token_has_them_on_request(
    http: TestClient, path: str, body: dict[str, Any], more: dict[str, Any]
) -> None:
    told = chunks(http, path, {**body, **ASK, **more, "timings_per_token": True})
    for index in range(more.get("n", 1)):
        mine = [chunk for chunk in told if chunk["choices"][0]["index"] == index]
        *pieces, last = [
            chunk for chunk in mine if chunk["choices"][0].get("delta") != {"role": "assistant", "content": ""}
        ]
        counts = [chunk["timings"]["predicted_n"] for chunk in pieces]
        assert counts == sorted(set(counts))
        assert counts[0] > 0
        assert counts[-1] <= last["timings"]["predicted_n"]
        assert all(chunk["timings"].keys() >= {"predicted_ms", "predicted_per_second"} for chunk in pieces)
