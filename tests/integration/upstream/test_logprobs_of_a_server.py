"""Log probabilities through our server in front of a real llama-server: in OpenAI's form, and equal to what the
llama-server itself says of the same text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")

from starlette.testclient import TestClient

import espalier
from espalier.wiring import demo_model
from tests.llama_server import LlamaServer, llama_server
from tests.server_app import events, make_app

CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "Generate user info"}],
    "temperature": 0,
    "max_tokens": 12,
    "logprobs": True,
}
SCHEMA = {
    "type": "json_schema",
    "json_schema": {"name": "a", "schema": {"type": "object", "properties": {"age": {"type": "integer"}}}},
}


@pytest.fixture(scope="module")
def real() -> Iterator[LlamaServer]:
    with llama_server(demo_model() / "demo.gguf", sequences=2) as server:
        yield server


@pytest.fixture(scope="module")
def ours(real: LlamaServer) -> Iterator[TestClient]:
    engine = espalier.load(real.address)
    with TestClient(make_app(engine=engine)) as client:
        yield client


def alike(mine: dict[str, Any], theirs: dict[str, Any], names: tuple[str, str] = ("logprob", "top_logprobs")) -> None:
    own, tops = names
    assert (mine["token"], mine["bytes"]) == (theirs["token"], theirs["bytes"])
    assert mine[own] == pytest.approx(theirs[own], abs=1e-5)
    assert [(one["token"], one["bytes"]) for one in mine[tops]] == [
        (one["token"], one["bytes"]) for one in theirs[tops]
    ]
    assert [one[own] for one in mine[tops]] == pytest.approx([one[own] for one in theirs[tops]], abs=1e-5)


@pytest.mark.parametrize("form", [None, SCHEMA], ids=["free", "schema"])
def test_those_of_a_chat_are_the_servers_streamed_or_not(ours: TestClient, real: LlamaServer, form: Any) -> None:
    body = CHAT | {"top_logprobs": 3, "seed": 1} | ({} if form is None else {"response_format": form})
    said = ours.post("/v1/chat/completions", json=body).json()["choices"][0]
    entries = said["logprobs"]["content"]
    assert "".join(one["token"] for one in entries) == said["message"]["content"]
    assert said["logprobs"]["refusal"] is None
    assert set(entries[0]) == {"id", "token", "bytes", "logprob", "top_logprobs"}
    reply = ours.post("/v1/chat/completions", json={**body, "stream": True})
    streamed = [json.loads(one) for one in events(reply.text) if one != "[DONE]"]
    pieces = [one["choices"][0] for one in streamed if one["choices"]]
    assert [one for piece in pieces for one in (piece["logprobs"] or {"content": []})["content"]] == entries
    if form is None:  # under a schema its grammar is another than ours
        theirs = real.post("/v1/chat/completions", {**body, "repeat_penalty": 1.0})["choices"][0]
        for one, other in zip(entries, theirs["logprobs"]["content"], strict=True):
            alike(one, other)


def test_those_of_a_text_and_of_the_native_route_are_the_servers(ours: TestClient, real: LlamaServer) -> None:
    asked = {"prompt": "Once upon", "temperature": 0, "n_predict": 8, "n_probs": 4, "cache_prompt": False}
    theirs = real.post("/completion", asked)["completion_probabilities"]
    mine = ours.post("/completion", json=asked).json()["completion_probabilities"]
    for one, other in zip(mine, theirs, strict=True):
        assert one["id"] == other["id"]
        alike(one, other)
    body = {"prompt": "Once upon", "temperature": 0, "max_tokens": 8, "logprobs": 4}
    said = ours.post("/v1/completions", json=body).json()["choices"][0]["logprobs"]
    assert said["tokens"] == [one["token"] for one in theirs]
    assert said["token_logprobs"] == pytest.approx([one["logprob"] for one in theirs], abs=1e-5)
    for tops, other in zip(said["top_logprobs"], theirs, strict=True):
        listed = {one["token"]: one["logprob"] for one in other["top_logprobs"]}
        assert {name: tops[name] for name in listed} == pytest.approx(listed, abs=1e-5)


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/completion", {"prompt": "a", "n_probs": 2, "post_sampling_probs": True}, "post_sampling_probs"),
        ("/v1/completions", {"prompt": "a", "logprobs": 2, "echo": True}, "logprobs"),
    ],
)
def test_those_that_the_server_does_not_tell_are_refused_by_name(
    ours: TestClient, path: str, body: dict[str, Any], field: str
) -> None:
    refused = ours.post(path, json=body)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
