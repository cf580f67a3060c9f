"""Our server and the `llama-server` program on one GGUF file, asked the same: what their clients read is alike."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from starlette.testclient import TestClient

import espalier
from espalier.wiring import demo_model
from tests.llama_tools import llama_server_program
from tests.server_app import client, events, settings

MODEL = demo_model() / "demo.gguf"
pytestmark = pytest.mark.slow
ASK: dict[str, Any] = {"prompt": "Once upon a time", "temperature": 0, "n_predict": 24, "cache_prompt": False}
ONLY_OURS = {"request_id"}  # beside log probabilities: the name under which a rejection log has the request


@pytest.fixture(scope="module")
def theirs() -> Iterator[httpx2.Client]:
    with llama_server_program(MODEL, "--slots") as address, httpx2.Client(base_url=address, timeout=60) as found:
        yield found


@pytest.fixture(scope="module")
def ours() -> Iterator[TestClient]:
    with (
        espalier.load(str(MODEL), kv_type="f16") as engine,
        client(engine=engine, config=settings(embedding_pooling="mean")) as found,
    ):
        yield found


def chunks(http: Any, **more: Any) -> list[dict[str, Any]]:
    reply = http.post("/completion", json={**ASK, "stream": True, **more})
    assert reply.status_code == 200, reply.text
    return [json.loads(one) for one in events(reply.text)]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"timings_per_token": True},
        {"return_progress": True},
        {"n_probs": 2},
        {"return_tokens": True},
        {"response_fields": ["content", "timings/predicted_n"]},
        {"n_probs": 2, "post_sampling_probs": True},
    ],
)
def test_chunks_have_the_same_fields(ours: TestClient, theirs: httpx2.Client, more: dict[str, Any]) -> None:
    mine, real = chunks(ours, **more), chunks(theirs, **more)
    assert "".join(one.get("content", "") for one in mine) == "".join(one.get("content", "") for one in real)
    assert mine[-1].keys() - ONLY_OURS == real[-1].keys()
    pieces, wanted = mine[:-1], [one for one in real[:-1] if one.get("content")]
    assert {frozenset(one) for one in pieces if one["content"]} == {frozenset(one) for one in wanted}
    for one, other in zip([one for one in pieces if one["content"]], wanted, strict=True):
        for name in ("index", "content", "tokens", "stop", "id_slot", "tokens_predicted", "tokens_evaluated"):
            assert one[name] == other[name], name
        if more.get("timings_per_token"):
            assert one["timings"].keys() == other["timings"].keys()
    if more.get("return_progress"):
        told = [one for one in real if "prompt_progress" in one]
        assert mine[0].keys() == told[-1].keys()
        for name in ("total", "processed"):
            assert mine[0]["prompt_progress"][name] == told[-1]["prompt_progress"][name]


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"n_probs": 3},
        {"n_probs": 3, "post_sampling_probs": True},
        {"return_tokens": True},
        {"response_fields": ["content", "timings/predicted_n", "nothing/here"]},
        {"n_indent": 1},
        {"n_indent": 4},
        {"tfs_z": 0.5},
        {"penalize_nl": True},
        {"t_max_predict_ms": 60_000},
    ],
)
def test_whole_replies_are_alike(ours: TestClient, theirs: httpx2.Client, more: dict[str, Any]) -> None:
    for prompt in ("Hello", "Once upon a time", "Write a list.\n- one\n", "def f(x):\n    "):
        body = {**ASK, **more, "prompt": prompt}
        mine, real = (http.post("/completion", json=body).json() for http in (ours, theirs))
        assert mine.keys() - ONLY_OURS == real.keys()
        for name in ("content", "tokens", "stop", "stop_type", "tokens_evaluated", "has_new_line", "truncated"):
            if name in real:
                assert mine[name] == real[name], (name, prompt)
        for one, other in zip(
            mine.get("completion_probabilities", []), real.get("completion_probabilities", []), strict=True
        ):
            assert one.keys() == other.keys()
            assert (one["id"], one["token"], one["bytes"]) == (other["id"], other["token"], other["bytes"])


@pytest.mark.parametrize(
    ("method", "path", "body", "mine", "real"),
    [
        ("GET", "/health", None, 200, 200),
        ("GET", "/v1/health", None, 200, 200),
        ("GET", "/slots", None, 200, 200),
        ("POST", "/slots/0?action=save", {}, 501, 501),
        ("GET", "/lora-adapters", None, 200, 200),
        ("POST", "/lora-adapters", [], 501, 200),  # nothing to change there; here the route changes nothing
        ("POST", "/infill", {"input_prefix": "a", "input_suffix": "b"}, 501, 501),
        ("POST", "/v1/rerank", {"query": "a", "documents": ["b"]}, 501, 501),
        ("POST", "/v1/score", {}, 400, 404),  # a route of vLLM's
        ("POST", "/v1/embeddings", {"input": "a"}, 200, 501),  # one program for both here
    ],
)
def test_routes_have_the_same_status(
    ours: TestClient, theirs: httpx2.Client, method: str, path: str, body: Any, mine: int, real: int
) -> None:
    replies = [http.request(method, path, json=body) for http in (ours, theirs)]
    assert [one.status_code for one in replies] == [mine, real]
    if mine == real == 501:
        assert replies[0].json()["error"]["type"] == replies[1].json()["error"]["type"] == "not_supported_error"
    if path == "/slots":
        assert replies[0].json()[0].keys() <= replies[1].json()[0].keys()  # which has more once it has run a task
