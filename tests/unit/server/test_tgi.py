"""TGI's routes as Hugging Face's client asks them, and by themselves."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.server_app import client, events, make_app, served, settings

huggingface_hub = pytest.importorskip("huggingface_hub")
from huggingface_hub import InferenceClient  # noqa: E402
from huggingface_hub.errors import HfHubHTTPError, ValidationError  # noqa: E402

SCHEMA = {"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"], "additionalProperties": False}


@pytest.fixture(scope="module")
def http() -> Iterator[TestClient]:
    with client() as http:
        yield http


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with served(make_app()) as address:
        yield address


@pytest.fixture(params=["", "/generate"])
def hub(request: pytest.FixtureRequest, address: str, monkeypatch: pytest.MonkeyPatch) -> InferenceClient:
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", False)  # tests set it; this server is our own
    return InferenceClient(address + request.param, token="none")


def test_hugging_faces_client_generates_text(hub: InferenceClient) -> None:
    assert hub.text_generation("a") == "Hello there."
    assert "".join(hub.text_generation("a", stream=True)) == "Hello there."
    assert hub.text_generation("a", max_new_tokens=5) == "Hello"
    assert hub.text_generation("a", stop=["th"]) == "Hello th"[:6]
    assert hub.text_generation("a", return_full_text=True) == "aHello there."


def test_hugging_faces_client_reads_details(hub: InferenceClient) -> None:
    whole = hub.text_generation("a", details=True, max_new_tokens=5, top_n_tokens=2)
    assert (whole.details.finish_reason, whole.details.generated_tokens) == ("length", 5)
    assert "".join(token.text for token in whole.details.tokens) == whole.generated_text == "Hello"
    assert all(token.logprob <= 0 for token in whole.details.tokens)
    assert [len(tops) for tops in whole.details.top_tokens] == [2] * 5
    streamed = list(hub.text_generation("a", details=True, stream=True))
    assert [output.index for output in streamed] == list(range(1, len(streamed) + 1))
    assert "".join(output.token.text for output in streamed) == "Hello there."
    assert all(output.generated_text is None for output in streamed[:-1])
    assert streamed[-1].generated_text == "Hello there."
    assert streamed[-1].details.finish_reason == "eos_token"
    assert streamed[-1].token.special


def test_a_grammar_holds(hub: InferenceClient) -> None:
    text = hub.text_generation("a", grammar={"type": "regex", "value": "[0-9]{3}"}, do_sample=True, seed=1)
    assert re.fullmatch("[0-9]{3}", text)
    for value, kind in ((SCHEMA, "json"), ({"name": "x", "schema": SCHEMA}, "json_schema")):
        assert json.loads(hub.text_generation("a", grammar={"type": kind, "value": value}))["a"] in (1, 2)


def test_errors_are_those_of_the_client(hub: InferenceClient) -> None:
    with pytest.raises((ValidationError, HfHubHTTPError), match="best_of"):
        hub.text_generation("a", best_of=3)
    with pytest.raises((ValidationError, HfHubHTTPError)):
        hub.text_generation("a", temperature=-1.0)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "inputs"),
        ({"inputs": 5}, "inputs"),
        ({"inputs": "a", "parameters": {"temperature": -1}}, "parameters.temperature"),
        ({"inputs": "a", "parameters": {"max_new_tokens": 0}}, "parameters.max_new_tokens"),
        ({"inputs": "a", "parameters": {"watermark": True}}, "parameters.watermark"),
        ({"inputs": "a", "parameters": {"adapter_id": "x"}}, "parameters.adapter_id"),
        ({"inputs": "a", "parameters": {"grammar": {"type": "x", "value": ""}}}, "parameters.grammar.type"),
        ({"inputs": "a", "parameters": {"grammar": {"type": "regex", "value": {}}}}, "parameters.grammar.value"),
        ({"inputs": "a", "parameters": {"grammar": {"type": "regex", "value": "("}}}, "parameters.grammar.value"),
        ({"inputs": "x" * 5000}, "inputs"),
    ],
)
@pytest.mark.parametrize("path", ["/generate", "/generate_stream", "/"])
def test_what_is_wrong_is_named(http: TestClient, path: str, body: dict[str, Any], param: str) -> None:
    reply = http.post(path, json=body)
    found = reply.json()
    assert (reply.status_code, found["param"], found["error_type"]) == (400, param, "validation"), reply.text
    assert isinstance(found["error"], str)


def test_a_prompt_is_truncated_to_its_last_tokens(http: TestClient) -> None:
    reply = http.post("/generate", json={"inputs": "x" * 3000, "parameters": {"truncate": 100}})
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-espalier-truncated"]


def test_without_sampling_parameters_nothing_is_random(http: TestClient) -> None:
    texts = {http.post("/generate", json={"inputs": "a"}).json()["generated_text"] for _ in range(3)}
    assert texts == {"Hello there."}
    sampled = http.post("/generate", json={"inputs": "a", "parameters": {"do_sample": True, "seed": 1}}).json()
    assert sampled["generated_text"] != "Hello there."


def test_a_stream_is_a_stream_on_both_routes_and_has_no_done(http: TestClient) -> None:
    for path, body in (("/generate_stream", {}), ("/generate", {"stream": True}), ("/", {"stream": True})):
        told = events(http.post(path, json={"inputs": "a", **body}).text)
        assert json.loads(told[-1])["generated_text"] == "Hello there."


def test_info_says_what_the_model_takes(http: TestClient) -> None:
    info = http.get("/info").json()
    assert (info["model_id"], info["model_pipeline_tag"]) == ("fake", "text-generation")
    assert info["max_total_tokens"] == http.get("/v1/models").json()["data"][0]["max_model_len"]


def test_errors_before_the_body_have_tgis_shape() -> None:
    with client(config=settings(secret_token="a" * 32)) as http:
        assert set(http.post("/generate", json={"inputs": "a"}).json()) == {"error", "error_type", "param", "code"}
        assert "detail" not in http.get("/info").json()
