"""`/v1/embeddings`, `/embedding`, `/v1/rerank` and `/v1/score` over the fake model: replies, errors, the gate."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from starlette.testclient import TestClient

from espalier.engines.fake import FakeHidden, open_engine
from tests.server_app import client, settings

IDS = [*b"ab"]
BORDER = open_engine().encode("", add_special=True)


@pytest.fixture(scope="module")
def http() -> Iterator[TestClient]:
    with client() as found:
        yield found


def mean(ids: list[int], length: int = 8) -> Any:
    """By hand: the mean of the states, cut, with length 1."""
    vector = np.mean([FakeHidden().read(ids[: end + 1])[-1] for end in range(len(ids))], axis=0)[:length]
    return vector / np.sqrt(np.sum(vector.astype(np.float64) ** 2))


def test_a_text_gives_the_mean_of_its_states_with_length_1(http: TestClient) -> None:
    found = http.post("/v1/embeddings", json={"input": "ab", "user": "me", "dimensions": None}).json()
    assert (found["object"], found["model"]) == ("list", "fake")
    assert found["usage"] == {"prompt_tokens": 3, "total_tokens": 3}
    (one,) = found["data"]
    assert (one["object"], one["index"]) == ("embedding", 0)
    assert np.allclose(one["embedding"], mean([*IDS, *BORDER]), atol=1e-6)


def test_texts_ids_and_mixtures_are_a_batch_in_order(http: TestClient) -> None:
    body = {"input": ["ab", [*IDS, *BORDER], ["a", 98]]}
    data = http.post("/v1/embeddings", json=body).json()["data"]
    assert [one["index"] for one in data] == [0, 1, 2]
    assert data[0]["embedding"] == data[1]["embedding"]
    assert np.allclose(data[2]["embedding"], mean([97, *BORDER, 98]), atol=1e-6)
    alone = http.post("/v1/embeddings", json={"input": [*IDS, *BORDER]}).json()["data"]
    assert alone[0]["embedding"] == data[0]["embedding"]


def test_base64_holds_the_same_float32(http: TestClient) -> None:
    plain = http.post("/v1/embeddings", json={"input": "ab"}).json()["data"][0]["embedding"]
    coded = http.post("/v1/embeddings", json={"input": "ab", "encoding_format": "base64"}).json()["data"][0]
    assert np.frombuffer(base64.b64decode(coded["embedding"]), dtype="<f4").tolist() == plain


def test_dimensions_are_those_the_model_is_made_for(http: TestClient) -> None:
    short = http.post("/v1/embeddings", json={"input": "ab", "dimensions": 4}).json()["data"][0]["embedding"]
    assert np.allclose(short, mean([*IDS, *BORDER], 4), atol=1e-6)
    assert http.post("/v1/embeddings", json={"input": "ab", "dimensions": 8}).status_code == 200
    refused = http.post("/v1/embeddings", json={"input": "ab", "dimensions": 9})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "dimensions")


def test_other_dimensions_are_the_first_values_and_the_reply_says_so(http: TestClient) -> None:
    reply = http.post("/v1/embeddings", json={"input": "ab", "dimensions": 3})
    assert np.allclose(reply.json()["data"][0]["embedding"], mean([*IDS, *BORDER], 3), atol=1e-6)
    assert "first 3 of 8" in reply.json()["espalier"]["warnings"][0]
    assert "first 3 of 8" in reply.headers["warning"]


@pytest.mark.parametrize("path", ["/embedding", "/embeddings"])
def test_llama_servers_reply_is_a_list_of_vectors_for_each_text(http: TestClient, path: str) -> None:
    found = http.post(path, json={"content": ["ab", "c"]}).json()
    assert [one["index"] for one in found] == [0, 1]
    assert np.allclose(found[0]["embedding"], [mean([*IDS, *BORDER])], atol=1e-6)
    raw = http.post(path, json={"content": "ab", "embd_normalize": -1}).json()[0]["embedding"][0]
    assert np.allclose(raw, FakeHidden().read([*IDS, *BORDER]).mean(axis=0), atol=1e-6)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "input"),
        ({"input": ""}, "input"),
        ({"input": []}, "input"),
        ({"input": ["a", ""]}, "input[1]"),
        ({"input": [[]]}, "input[0]"),
        ({"input": [97, 10**6]}, "input[1]"),
        ({"input": [[97], [10**6]]}, "input[1][0]"),
        ({"input": "a", "content": "b"}, "input"),
        ({"input": "a", "encoding_format": "x"}, "encoding_format"),
        ({"input": "x" * 5000}, "input"),
        ({"input": 5}, "input"),
        ({"input": [True]}, "input"),
        ({"input": ["a"] * 3}, "input"),
        ({"input": "a", "dimensions": 0}, "dimensions"),
    ],
)
def test_what_is_wrong_is_named(body: dict[str, Any], param: str) -> None:
    with client(config=settings(max_embedding_inputs="2")) as http:
        found = http.post("/v1/embeddings", json=body)
    assert (found.status_code, found.json()["error"]["param"]) == (400, param), found.text


def test_another_model_is_told_and_refused_where_the_server_is_strict(http: TestClient) -> None:
    found = http.post("/v1/embeddings", json={"input": "a", "model": "other"})
    assert (found.status_code, found.json()["model"]) == (200, "fake")
    assert "other" in found.headers["warning"]
    with client(config=settings(strict_model="true")) as strict:
        assert strict.post("/v1/embeddings", json={"input": "a", "model": "other"}).status_code == 404


def test_the_setting_comes_before_what_the_model_says() -> None:
    states = FakeHidden().read([*IDS, *BORDER])
    for pooling, row in (("last", -1), ("cls", 0)):
        with client(config=settings(embedding_pooling=pooling)) as http:
            found = http.post("/embedding", json={"input": "ab", "embd_normalize": -1}).json()[0]["embedding"][0]
        assert np.allclose(found, states[row])


def test_without_a_pooling_there_is_a_vector_for_each_token_and_the_mean_for_a_text_which_is_told(
    http: TestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FakeHidden, "pooling", None)
    reply = http.post("/v1/embeddings", json={"input": "ab"})
    assert np.allclose(reply.json()["data"][0]["embedding"], mean([*IDS, *BORDER]), atol=1e-6)
    assert "EMBEDDING_POOLING" in reply.json()["espalier"]["warnings"][0]
    assert "EMBEDDING_POOLING" in reply.headers["warning"]
    with client(config=settings(embedding_pooling="mean")) as stated:
        assert "espalier" not in stated.post("/v1/embeddings", json={"input": "ab"}).json()
    found = http.post("/embedding", json={"input": "ab"}).json()[0]["embedding"]
    assert np.allclose(found, FakeHidden().read([*IDS, *BORDER]))


def test_an_engine_without_hidden_states_says_so() -> None:
    engine = open_engine()
    engine._hidden = None
    import espalier

    with client(engine=espalier.LoadedEngine(engine)) as http:
        found = http.post("/v1/embeddings", json={"input": "ab"})
    assert (found.status_code, found.json()["error"]["type"]) == (501, "not_supported_error")


@pytest.mark.parametrize("path", ["/v1/rerank", "/rerank", "/reranking", "/v1/reranking"])
def test_a_model_that_generates_is_no_reranker(http: TestClient, path: str) -> None:
    found = http.post(path, json={"query": "a", "documents": ["b"]})
    assert (found.status_code, found.json()["error"]["type"]) == (501, "not_supported_error")


@pytest.mark.parametrize("more", [{}, {"task": "embed"}, {"task": "token_embed"}, {"encoding_format": "base64"}])
def test_vllms_pooling_gives_the_pooled_states(http: TestClient, more: dict[str, Any]) -> None:
    reply = http.post("/pooling", json={"input": ["ab", "c"], "model": "fake", **more}).json()
    assert [item["object"] for item in reply["data"]] == ["pooling", "pooling"]
    shown = reply["data"][0]["data"]
    if more.get("task") == "token_embed":
        assert np.allclose(shown, FakeHidden().read([*IDS, *BORDER]))
    else:
        vector = np.frombuffer(base64.b64decode(shown), dtype="<f4") if isinstance(shown, str) else shown
        assert np.allclose(vector, mean([*IDS, *BORDER]), atol=1e-6)


@pytest.mark.parametrize("path", ["/v1/score", "/score"])
def test_vllms_score_is_the_cosine_of_the_vectors(http: TestClient, path: str) -> None:
    cosine = float(np.dot(mean([*IDS, *BORDER]), mean([99, *BORDER])))
    for first, second in (("text_1", "text_2"), ("queries", "documents")):
        scores = http.post(path, json={first: "ab", second: ["c", "ab"]}).json()["data"]
        assert [item["score"] for item in scores] == [pytest.approx(cosine, abs=1e-5), pytest.approx(1.0, abs=1e-5)]
    pairs = http.post(path, json={"text_1": ["ab", "c"], "text_2": ["ab", "c"]}).json()["data"]
    assert [item["score"] for item in pairs] == [pytest.approx(1.0, abs=1e-5)] * 2


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"text_2": "a"}, "text_1"),
        ({"text_1": "a"}, "text_2"),
        ({"text_1": ["a", "b"], "text_2": ["a"]}, "text_1"),
        ({"text_1": 5, "text_2": "a"}, "text_1"),
    ],
)
def test_what_is_wrong_with_pairs_is_named(http: TestClient, body: dict[str, Any], param: str) -> None:
    reply = http.post("/v1/score", json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), reply.text


def test_a_model_that_names_no_pooling_scores_nothing(http: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeHidden, "pooling", None)
    reply = http.post("/v1/score", json={"text_1": "a", "text_2": "b"})
    assert (reply.status_code, reply.json()["error"]["type"]) == (501, "not_supported_error")


@pytest.mark.parametrize("path", ["/v1/embeddings", "/embedding", "/v1/rerank", "/pooling"])
def test_each_needs_the_key(path: str) -> None:
    with client(config=settings(secret_token="a" * 32)) as http:
        assert http.post(path, json={"input": "a"}).status_code == 401
        answer = http.post(path, json={"input": "a"}, headers={"authorization": f"Bearer {'a' * 32}"})
        assert answer.status_code in (200, 501)
