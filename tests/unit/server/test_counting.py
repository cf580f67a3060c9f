"""`…/input_tokens` of chat and responses: the tokens that the generating route then reads."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from openai.types.responses import InputTokenCountResponse
from starlette.testclient import TestClient

from tests.server_app import client, make_app, served, settings

TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {"type": "object", "properties": {}}}}
HI = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
CHATS: list[dict[str, Any]] = [
    {"messages": HI},
    {"messages": HI, "tools": [TOOL], "tool_choice": "none"},
    {"messages": HI, "response_format": {"type": "json_object"}},
    {"messages": [*HI, {"role": "assistant", "content": "I"}]},
]
INPUTS: list[dict[str, Any]] = [
    {"input": "Hi"},
    {"input": [{"role": "user", "content": "Hi"}], "instructions": "Be brief."},
    {"input": "Hi", "tools": [{"type": "custom", "name": "run"}], "tool_choice": "none"},
]


@pytest.fixture(scope="module")
def http() -> Iterator[TestClient]:
    with client() as http:
        yield http


@pytest.mark.parametrize("body", CHATS)
def test_a_chat_has_as_many_tokens_as_were_counted(http: TestClient, body: dict[str, Any]) -> None:
    counted = http.post("/v1/chat/completions/input_tokens", json=body).json()
    reply = http.post("/v1/chat/completions", json={**body, "max_tokens": 1}).json()
    assert counted == {"input_tokens": reply["usage"]["prompt_tokens"], "object": "response.input_tokens"}


@pytest.mark.parametrize("body", INPUTS)
def test_a_response_has_as_many_tokens_as_were_counted(http: TestClient, body: dict[str, Any]) -> None:
    counted = InputTokenCountResponse.model_validate(http.post("/v1/responses/input_tokens", json=body).json())
    reply = http.post("/v1/responses", json={**body, "max_output_tokens": 1}).json()
    assert counted.input_tokens == reply["usage"]["input_tokens"]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/chat/completions/input_tokens", {}, "messages"),
        ("/v1/chat/completions/input_tokens", {"messages": HI, "gramar": "x"}, "gramar"),
        ("/v1/responses/input_tokens", {}, "input"),
        ("/v1/responses/input_tokens", {"input": [{"type": "image"}]}, "input[0].type"),
        ("/v1/responses/compact", {}, "input"),
        ("/v1/responses/compact", {"input": "a", "stream": True}, "stream"),
        ("/v1/responses/compact", {"input": [{"type": "image"}]}, "input[0].type"),
        ("/v1/responses/compact", {"previous_response_id": "resp_a"}, "previous_response_id"),
    ],
)
def test_what_is_wrong_is_named(http: TestClient, path: str, body: dict[str, Any], param: str) -> None:
    reply = http.post(path, json=body)
    assert (reply.status_code in (400, 404), reply.json()["error"]["param"]) == (True, param), reply.text


def test_a_compacted_conversation_goes_on() -> None:
    """OpenAI's SDK reads the reply; its output is an input, and the summary reaches the model."""
    talk: list[Any] = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello."}, *HI[1:]]
    app = make_app("It went well.")
    with served(app) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as sdk:
        compacted = sdk.responses.compact(model="fake", input=talk, extra_body={"temperature": 0})
        assert [item.type for item in compacted.output] == ["message", "message", "compaction"]
        assert compacted.object == "response.compaction"
        output: list[Any] = [item.model_dump(exclude_unset=True, warnings=False) for item in compacted.output]
        assert output[-1]["encrypted_content"].endswith("It went well.")
        assert compacted.usage.output_tokens == len("It went well.") + 1
        more = {"role": "user", "content": "And now?"}
        with_summary, without = (
            sdk.responses.input_tokens.count(model="fake", input=[*items, more]).input_tokens
            for items in (output, output[:-1])
        )
        assert with_summary > without + len("It went well.")
        reply = sdk.responses.create(model="fake", input=[*output, more], temperature=0)
        assert reply.output_text == "It went well."


def test_a_summary_of_another_server_is_left_out_and_told(http: TestClient) -> None:
    items = [{"type": "compaction", "encrypted_content": "gAAAA"}, {"role": "user", "content": "Hi"}]
    reply = http.post("/v1/responses/input_tokens", json={"input": items})
    assert reply.json() == http.post("/v1/responses/input_tokens", json={"input": "Hi"}).json()
    assert "input[0]" in reply.headers["warning"]


def test_a_stored_response_is_compacted_and_a_stored_summary_listed(tmp_path: Path) -> None:
    with client(config=settings(store_responses="true", database_url=f"sqlite:///{tmp_path}/e.db")) as http:
        first = http.post("/v1/responses", json={"input": "Hi", "temperature": 0}).json()
        after = {"previous_response_id": first["id"]}
        counted = http.post("/v1/responses/input_tokens", json={**after, "input": "And?"}).json()["input_tokens"]
        assert counted > http.post("/v1/responses/input_tokens", json={"input": "And?"}).json()["input_tokens"]
        output = http.post("/v1/responses/compact", json=after).json()["output"]
        assert [item["type"] for item in output] == ["message", "compaction"]
        second = http.post("/v1/responses", json={"input": output, "temperature": 0}).json()
        listed = http.get(f"/v1/responses/{second['id']}/input_items?order=asc").json()["data"]
        assert listed[1]["type"] == "compaction"
        assert listed[1]["id"].startswith("cmp_")
