"""`/v1/models`: OpenAI's entries with what llama-server, vLLM and Anthropic say of a model."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from espalier.server.bodies.replies import Model, ModelList
from tests.server_app import client, settings


@pytest.fixture(scope="module")
def http() -> Iterator[TestClient]:
    with client(config=settings(model_alias="fake,other")) as http:
        yield http


def test_the_list_has_an_entry_for_each_name_and_fits_the_document(http: TestClient) -> None:
    models = TypeAdapter(ModelList).validate_python(http.get("/v1/models").json())
    assert [model.id for model in models.data] == ["fake", "other"]
    assert (models.first_id, models.last_id, models.has_more) == ("fake", "other", False)
    for model in models.data:
        one = http.get(f"/v1/models/{model.id}").json()
        assert TypeAdapter(Model).validate_python(one) == model


def test_the_context_is_what_each_client_calls_it(http: TestClient) -> None:
    context = http.get("/props").json()["default_generation_settings"]["n_ctx"]
    [model, _] = http.get("/v1/models").json()["data"]
    assert context > 0
    assert model["meta"]["n_ctx"] == context  # llama-server
    assert model["max_model_len"] == context  # vLLM
    assert model["max_input_tokens"] == context  # Anthropic
    assert model["meta"]["n_vocab"] == 257
    assert model["meta"]["n_embd"] == 8


def test_props_say_how_many_slots_there_are_and_whether_they_share_one_kv_cache(http: TestClient) -> None:
    props = http.get("/props").json()
    assert props["total_slots"] == len(http.get("/slots").json())
    assert props["kv_unified"] is None, "only llama.cpp has the choice"


def test_abilities_are_those_of_ollamas_card(http: TestClient) -> None:
    card = http.post("/api/show", json={"model": "fake"}).json()["capabilities"]
    listed = http.get("/v1/models").json()["models"]
    assert [entry["capabilities"] for entry in listed] == [card, card]


def test_anthropics_capabilities_are_what_messages_takes(http: TestClient) -> None:
    able = http.get("/v1/models/fake").json()["capabilities"]
    ask = {"max_tokens": 30, "messages": [{"role": "user", "content": "a"}]}
    shape = {"type": "json_schema", "schema": {"type": "object", "additionalProperties": False}}
    assert able["structured_outputs"]["supported"]
    assert able["batch"]["supported"] == (http.get("/v1/messages/batches").status_code == 200)
    assert http.post("/v1/messages", json={**ask, "output_config": {"format": shape}}).status_code == 200
    for kind, more in (("enabled", {"budget_tokens": 1024}), ("disabled", {}), ("between_tools", {})):
        reply = http.post("/v1/messages", json={**ask, "thinking": {"type": kind, **more}})
        takes = reply.status_code == 200 and "thinking" not in reply.headers.get("warning", "")
        assert able["thinking"]["types"][kind]["supported"] == takes, kind
