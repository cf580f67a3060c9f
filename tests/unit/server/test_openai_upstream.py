"""Our server in front of an OpenAI-compatible one: calls, log probabilities and the contract reach the client."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

import espalier
from tests.scripted_server import STREAM, Asked, Hang, event, reply, scripted_server
from tests.server_app import events, make_app

CALL = {"index": 0, "function": {"name": "f", "arguments": '{"a": 1}'}}
INNER = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = {"type": "function", "function": {"name": "f", "parameters": INNER}}
STEP = {"token": '{"a": 1}', "bytes": None, "logprob": -0.5, "top_logprobs": [{"token": "x", "logprob": -1.0}]}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}]}


def theirs(asked: Asked) -> list[bytes | Hang]:
    if asked.path == "/v1/models":
        return [reply({"data": [{"id": "toy"}]})]
    body = asked.body
    choice: dict[str, Any] = {"index": 0, "delta": {"content": '{"a": 1}'}, "finish_reason": None}
    if body.get("tools"):
        choice["delta"] = {"tool_calls": [CALL]}
    elif body.get("logprobs"):
        choice["logprobs"] = {"content": [STEP]}
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if body.get("tools") else "stop"}
    return [STREAM, event({"choices": [choice]}), event({"choices": [end]}), event("[DONE]")]


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with scripted_server(theirs) as server:
        engine = espalier.load(engine="openai", url=server.address)
        with TestClient(make_app(engine=engine)) as found:
            yield found


def test_calls_reach_the_client_streamed_or_not(client: TestClient) -> None:
    body = CHAT | {"tools": [TOOL]}
    choice = client.post("/v1/chat/completions", json=body).json()["choices"][0]
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], choice["message"]["content"]) == ("tool_calls", None)
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("f", {"a": 1})
    text = client.post("/v1/chat/completions", json=body | {"stream": True}).text
    chunks = [json.loads(one)["choices"] for one in events(text) if one != "[DONE]"]
    pieces = [one for (choice,) in chunks for one in choice["delta"].get("tool_calls") or ()]
    assert "".join(one["function"].get("arguments") or "" for one in pieces) == '{"a": 1}'


def test_log_probabilities_and_a_contract_that_says_checked_reach_the_client(client: TestClient) -> None:
    form = {"type": "json_schema", "json_schema": {"name": "a", "schema": INNER}}
    body = CHAT | {"response_format": form, "logprobs": True, "top_logprobs": 1, "max_tokens": 9, "espalier": {}}
    found = client.post("/v1/chat/completions", json=body).json()
    (entry,) = found["choices"][0]["logprobs"]["content"]
    assert entry == {
        "token": '{"a": 1}',
        "bytes": list(b'{"a": 1}'),
        "logprob": -0.5,
        "top_logprobs": [{"token": "x", "bytes": [120], "logprob": -1.0}],
    }
    assert {one["verdict"] for one in found["espalier"]["contract"]} == {"checked"}
    assert found["espalier"]["outputs"][0]["verdict"]["valid"] is True


@pytest.mark.parametrize(
    ("path", "asked_path", "body"),
    [
        ("/v1/embeddings", "/v1/embeddings", {"model": "fake", "input": ["a", "b"], "dimensions": 2}),
        ("/v1/rerank", "/v1/rerank", {"query": "a", "documents": ["b", "c"], "top_n": 1}),
        ("/rerank", "/v1/rerank", {"query": "a", "documents": ["b", "c"]}),
        ("/v1/score", "/v1/score", {"text_1": "a", "text_2": "b"}),
    ],
)
def test_embeddings_and_rerank_are_passed_on(path: str, asked_path: str, body: dict[str, Any]) -> None:
    answer = {"object": "list", "data": [{"index": 0, "embedding": [0.5, 1.0]}]}
    passed, asked = ask_in_front(answer, path, body)
    assert (passed.status_code, passed.json()) == (200, answer)
    assert (asked[-1].path, asked[-1].body) == (asked_path, {**body, "model": "toy"})


def vectors(*data: dict[str, Any]) -> dict[str, Any]:
    return {"object": "list", "data": [*data], "usage": {"prompt_tokens": 7, "total_tokens": 7}}


def ask_in_front(answer: Any, path: str, body: dict[str, Any]) -> tuple[Any, list[Asked]]:
    """Our reply in front of a server that gives this answer, and all that the server was asked."""

    def embeds(asked: Asked) -> list[bytes | Hang]:
        return [reply({"data": [{"id": "toy"}]} if asked.path == "/v1/models" else answer)]

    with scripted_server(embeds) as server:
        engine = espalier.load(engine="openai", url=server.address)
        with TestClient(make_app(engine=engine)) as api:
            passed = api.post(path, json=body)
    return passed, server.asked


def ask_embeddings_server(answer: Any, path: str, body: dict[str, Any]) -> tuple[Any, list[Asked]]:
    """As `ask_in_front`, with what `/v1/embeddings` was asked."""
    passed, asked = ask_in_front(answer, path, body)
    return passed, [one for one in asked if one.path == "/v1/embeddings"]


def test_ollamas_texts_get_the_other_servers_vectors_in_their_order() -> None:
    answer = vectors({"index": 1, "embedding": [0, 1]}, {"index": 0, "embedding": [0.5, 1.0]})
    body = {"model": "fake", "input": ["a", "b"], "dimensions": 2, "truncate": True}
    passed, asked = ask_embeddings_server(answer, "/api/embed", body)
    assert passed.status_code == 200
    shown = passed.json()
    assert shown["embeddings"] == [[0.5, 1.0], [0.0, 1.0]]
    assert (shown["model"], shown["prompt_eval_count"]) == ("fake", 7)
    assert [one.body for one in asked] == [{"model": "toy", "input": ["a", "b"], "dimensions": 2}]
    assert "truncate" in passed.headers["warning"]


def test_the_older_route_of_ollamas_gets_one_vector() -> None:
    answer = vectors({"index": 0, "embedding": [0.5, 1.0]})
    passed, asked = ask_embeddings_server(answer, "/api/embeddings", {"model": "fake", "prompt": "a"})
    assert (passed.status_code, passed.json()) == (200, {"embedding": [0.5, 1.0]})
    assert [one.body for one in asked] == [{"model": "toy", "input": "a"}]


@pytest.mark.parametrize(
    ("path", "empty"), [("/api/embed", {"embeddings": []}), ("/api/embeddings", {"embedding": []})]
)
def test_without_a_text_no_server_is_asked(path: str, empty: dict[str, Any]) -> None:
    passed, asked = ask_embeddings_server(vectors(), path, {"model": "fake"})
    assert (passed.status_code, asked) == (200, [])
    assert passed.json().items() >= empty.items()


@pytest.mark.parametrize(
    "answer", [{}, [], {"data": [{"index": 0}]}, {"data": [{"index": 0, "embedding": "AAAA"}]}, vectors()]
)
def test_a_reply_without_the_vectors_is_the_other_servers_fault(answer: Any) -> None:
    passed, _ = ask_embeddings_server(answer, "/api/embed", {"model": "fake", "input": "a"})
    assert passed.status_code == 502
    assert "/v1/embeddings" in passed.json()["error"]


@pytest.mark.parametrize(
    ("status", "ours"),
    [("404 Not Found", 501), ("405 No", 501), ("501 Not Implemented", 501), ("400 Bad Request", 400), ("500 Oh", 502)],
)
def test_a_server_that_embeds_nothing_is_told(status: str, ours: int) -> None:
    def embeds(asked: Asked) -> list[bytes | Hang]:
        if asked.path == "/v1/models":
            return [reply({"data": [{"id": "toy"}]})]
        return [reply({"error": {"message": "no embeddings here"}}, status)]

    with scripted_server(embeds) as server:
        engine = espalier.load(engine="openai", url=server.address)
        with TestClient(make_app(engine=engine)) as api:
            refusal = api.post("/v1/embeddings", json={"input": "a"})
    assert refusal.status_code == ours
    assert "no embeddings here" in refusal.json()["error"]["message"]


ECHO = {"echo": True, "logprobs": 1, "max_tokens": 1, "temperature": 0, "seed": 1}
MEASURED = {"tokens": ["a", " b"], "token_logprobs": [None, -1.5], "top_logprobs": [None, {}], "text_offset": [0, 1]}


def ask_measuring_server(body: dict[str, Any], *choices: dict[str, Any], path: str = "/v1/completions") -> Any:
    """Our reply in front of a server that answers every text completion with these choices."""
    answer = {"object": "text_completion", "choices": [{"index": at, **choice} for at, choice in enumerate(choices)]}

    def measures(asked: Asked) -> list[bytes | Hang]:
        return [reply({"data": [{"id": "toy"}]} if asked.path == "/v1/models" else answer)]

    with scripted_server(measures) as server:
        engine = espalier.load(engine="openai", url=server.address)
        with TestClient(make_app(engine=engine)) as api:
            passed = api.post(path, json=body)
    if passed.status_code == 200:
        assert passed.json() == answer
        assert server.asked[-1].body == {**body, "model": "toy"}
    return passed


@pytest.mark.parametrize("path", ["/v1/completions", "/completions"])
@pytest.mark.parametrize(("prompt", "count"), [("a b", 1), (["a b", "a"], 2), ([5, 6], 1), ([[5, 6], [5]], 2)])
def test_log_probabilities_of_a_prompt_are_passed_on(path: str, prompt: Any, count: int) -> None:
    choices = [{"text": "a b", "logprobs": MEASURED}] * count
    passed = ask_measuring_server({"model": "fake", "prompt": prompt, **ECHO}, *choices, path=path)
    assert passed.status_code == 200, passed.text


@pytest.mark.parametrize(
    "choices",
    [
        [],
        [{"text": "c", "logprobs": {**MEASURED, "tokens": ["c"], "token_logprobs": [-1.0]}}],  # without the prompt
        [{"text": "a b", "logprobs": {"content": [STEP]}}],  # as llama-server, which ignores echo
        [{"text": "a b", "logprobs": None}],
        [{"text": "a b", "logprobs": MEASURED}] * 2,
    ],
)
def test_a_server_that_measures_no_prompt_is_told(choices: list[dict[str, Any]]) -> None:
    refusal = ask_measuring_server({"model": "fake", "prompt": "a b", **ECHO}, *choices)
    assert refusal.status_code == 400
    assert refusal.json()["error"]["param"] == "echo"


@pytest.mark.parametrize("more", [{"max_tokens": 20}, {"guided_json": INNER}, {"stream": True}, {"espalier": {}}])
def test_a_text_that_is_held_to_something_is_not_left_to_the_other_server(more: dict[str, Any]) -> None:
    refusal = ask_measuring_server({"model": "fake", "prompt": "a b", **ECHO, **more})
    assert refusal.status_code == 400
    assert "log probabilities" in refusal.json()["error"]["message"]
