"""The openai SDK's `client.responses` against a real server over the demo model, with a store."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("openai")

import openai
from pydantic import BaseModel, ConfigDict

import espalier
from tests.responses_api import checked
from tests.server_app import make_app, served, settings

WEATHER = {
    "type": "function",
    "name": "get_weather",
    "description": "The weather of a city.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Oslo", "Rome"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class User(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Literal["Ada", "Bob"]
    admin: bool


@pytest.fixture(scope="module")
def client(demo_engine: espalier.LoadedEngine, tmp_path_factory: pytest.TempPathFactory) -> Iterator[openai.OpenAI]:
    place = tmp_path_factory.mktemp("store") / "store.db"
    config = settings(store_responses="true", database_url=f"sqlite:///{place}")
    with (
        served(make_app(engine=demo_engine, config=config)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as found,
    ):
        yield found


def test_create_retrieve_items_and_delete(client: openai.OpenAI) -> None:
    made = client.responses.create(model="fake", input="Who are you?", temperature=0)
    assert "demo model" in made.output_text
    found = client.responses.retrieve(made.id)
    assert found.model_dump() == made.model_dump()
    items = client.responses.input_items.list(made.id)
    assert [(one.type, one.content[0].text) for one in items.data] == [("message", "Who are you?")]
    with pytest.raises(openai.BadRequestError, match="background"):
        client.responses.cancel(made.id)
    client.responses.delete(made.id)
    for gone in (client.responses.retrieve, client.responses.delete, client.responses.cancel):
        with pytest.raises(openai.NotFoundError):
            gone(made.id)


def test_parse_gives_an_instance_of_the_model(client: openai.OpenAI) -> None:
    found = client.responses.parse(model="fake", input="Give me a user.", text_format=User)
    assert found.output_parsed is not None
    assert found.output_parsed.name in ("Ada", "Bob")


def test_the_stream_helper_gathers_the_stored_response(client: openai.OpenAI) -> None:
    with client.responses.stream(model="fake", input="Give me a user.", text_format=User) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert final.output_text == text
    assert final.output_parsed is not None
    assert client.responses.retrieve(final.id).output_text == text


def test_a_tool_loop_with_the_output_appended_unchanged(client: openai.OpenAI) -> None:
    talk: list[object] = [{"role": "user", "content": "What is the weather in Oslo?"}]
    first = client.responses.create(
        model="fake",
        input=talk,
        tools=[WEATHER],
        tool_choice="required",
        parallel_tool_calls=False,
        temperature=0,
        reasoning={"effort": "low", "summary": "auto"},
        include=["reasoning.encrypted_content"],
    )
    talk += first.output
    (call,) = [one for one in first.output if one.type == "function_call"]
    talk.append({"type": "function_call_output", "call_id": call.call_id, "output": '{"sky": "sunny"}'})
    second = client.responses.create(model="fake", input=talk, tools=[WEATHER], temperature=0)
    assert second.usage.input_tokens > first.usage.input_tokens
    talk += second.output
    client.responses.create(model="fake", input=[*talk, {"role": "user", "content": "Thanks!"}], temperature=0)


def test_a_tool_loop_through_the_store_is_the_same_conversation(client: openai.OpenAI) -> None:
    asked = {"model": "fake", "tools": [WEATHER], "temperature": 0, "parallel_tool_calls": False}
    question = {"role": "user", "content": "What is the weather in Oslo?"}
    first = client.responses.create(input=[question], tool_choice="required", **asked)
    (call,) = [one for one in first.output if one.type == "function_call"]
    told = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    by_id = client.responses.create(input=[told], previous_response_id=first.id, **asked)
    by_items = client.responses.create(input=[question, *first.output, told], store=False, **asked)
    assert by_id.output_text == by_items.output_text
    assert by_id.usage.input_tokens == by_items.usage.input_tokens
    assert by_items.store is False
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(by_items.id)
    listed = client.responses.input_items.list(by_id.id, order="asc", limit=2)
    assert [one.type for one in listed.data] == ["message", "function_call"]
    assert [one.type for one in listed] == ["message", "function_call", "function_call_output"]
    client.responses.delete(first.id)  # what goes on from it stays whole
    third = client.responses.create(input="Thanks!", previous_response_id=by_id.id, **asked)
    checked(third.model_dump(mode="json", exclude_unset=True))
    with pytest.raises(openai.BadRequestError) as gone:
        client.responses.create(input="a", previous_response_id=first.id, **asked)
    assert gone.value.code == "previous_response_not_found"
    assert gone.value.param == "previous_response_id"
