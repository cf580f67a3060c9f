"""Routes under other addresses: OpenAI's without `/v1`, and the two that are llama-server's as well."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import openai
import pytest
from starlette.testclient import TestClient

from espalier.server.apps import ROUTERS
from espalier.server.routes.aliases import ALIASES
from tests.server_app import client, make_app, served, settings

CHAT = {"messages": [{"role": "user", "content": "a"}], "max_tokens": 5, "seed": 1}


@pytest.fixture(scope="module")
def http() -> Iterator[TestClient]:
    with client() as http:
        yield http


@pytest.fixture(scope="module")
def sdk() -> Iterator[openai.OpenAI]:
    """OpenAI's SDK with a base URL without /v1."""
    app = make_app(config=settings(max_embedding_inputs="4"))
    with served(app) as url, openai.OpenAI(base_url=url, api_key="none", max_retries=0) as sdk:
        yield sdk


def test_openais_sdk_works_without_v1(sdk: openai.OpenAI) -> None:
    chat = sdk.chat.completions.create(
        model="fake", messages=[{"role": "user", "content": "a"}], max_tokens=50, temperature=0
    )
    assert chat.choices[0].message.content == "Hello there."
    text = sdk.completions.create(model="fake", prompt="a", max_tokens=50, temperature=0)
    assert (text.object, text.choices[0].text) == ("text_completion", "Hello there.")
    streamed = sdk.completions.create(model="fake", prompt="a", max_tokens=50, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in streamed) == "Hello there."
    assert sdk.responses.create(model="fake", input="a", temperature=0).output_text == "Hello there."
    assert [model.id for model in sdk.models.list()] == ["fake"]
    assert sdk.models.retrieve("fake").id == "fake"
    vectors = sdk.embeddings.create(model="fake", input=["a", "b"])
    assert [len(vector.embedding) for vector in vectors.data] == [8, 8]


@pytest.mark.parametrize(
    "body", [{"prompt": "a"}, {"prompt": "a", "model": "fake", "n_predict": 50}, {"prompt": "a", "cache_prompt": True}]
)
def test_completions_without_a_model_or_with_a_field_of_llama_servers_alone_is_llama_servers(
    http: TestClient, body: dict[str, Any]
) -> None:
    assert http.post("/completions", json={"temperature": 0, **body}).json()["content"] == "Hello there."


@pytest.mark.parametrize(
    ("body", "is_openai"),
    [
        ({"input": "a"}, False),
        ({"content": "a", "model": "fake"}, False),
        ({"input": "a", "model": "fake", "embd_normalize": -1}, False),
        ({"input": "a", "model": "fake"}, True),
    ],
)
def test_embeddings_are_openais_if_the_body_is(http: TestClient, body: dict[str, Any], is_openai: bool) -> None:
    assert isinstance(http.post("/embeddings", json=body).json(), dict) == is_openai


def test_every_alias_has_the_routes_of_its_own(http: TestClient) -> None:
    paths = {(route.path, method) for router in ROUTERS for route in router.routes for method in route.methods}  # type: ignore[attr-defined]
    for address, path in ALIASES.items():
        below = [(own, method) for own, method in paths if own == path or own.startswith(path + "/")]
        assert below, f"{path} is no route"
        for own, method in below:
            concrete = own.replace("{model:path}", "fake")
            direct = http.request(method, concrete, json={})
            other = http.request(method, address + concrete[len(path) :], json={})
            assert other.status_code == direct.status_code, (method, concrete)
    assert (
        http.post("/chat/completions", json=CHAT).json()["choices"]
        == (http.post("/v1/chat/completions", json=CHAT).json()["choices"])
    )


def test_an_alias_stands_in_no_document(http: TestClient) -> None:
    documented = http.get("/openapi.json").json()["paths"]
    assert not ({*ALIASES, "/completions", "/embeddings"} & documented.keys())
