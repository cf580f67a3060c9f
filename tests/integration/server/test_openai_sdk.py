"""The openai SDK against a real server: the calls its users make, and the errors it raises."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Literal

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("openai")

import openai
from pydantic import BaseModel, ConfigDict

from espalier.errors import DeadEnd, Overloaded
from tests.server_app import OneKeyGate, Stuck, make_app, served

PERSON = '{"name": "Ada", "mood": "calm"}'
MESSAGES = [{"role": "user", "content": "Who?"}]
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "look_up",
            "description": "Finds a place.",
            "strict": True,
            "parameters": {
                "type": "object",
                "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}},
                "required": ["city"],
                "additionalProperties": False,
            },
        },
    }
]


class Person(BaseModel):
    model_config = ConfigDict(extra="forbid")
    name: Literal["Ada", "Bob"]
    mood: Literal["calm", "glad"]


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with served(make_app(PERSON)) as found:
        yield found


@pytest.fixture
def client(url: str) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as found:
        yield found


def test_create(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(model="fake", messages=MESSAGES, temperature=0)
    assert found.choices[0].message.content == PERSON
    assert found.usage.completion_tokens == len(PERSON) + 1
    assert found._request_id.startswith("req-")


def test_embeddings(client: openai.OpenAI) -> None:
    """The SDK asks for base64 unless told otherwise, and gives floats all the same."""
    found = client.embeddings.create(model="fake", input=["Hello", "Goodbye"])
    plain = client.embeddings.create(model="fake", input=["Hello", "Goodbye"], encoding_format="float")
    assert [one.embedding for one in found.data] == [one.embedding for one in plain.data]
    assert [len(one.embedding) for one in found.data] == [8, 8]
    assert found.usage.total_tokens == 6 + 8
    short = client.embeddings.create(model="fake", input="Hello", dimensions=3)
    assert len(short.data[0].embedding) == 3
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="fake", input="Hello", dimensions=9)
    assert caught.value.param == "dimensions"
    with pytest.raises(openai.BadRequestError) as caught:
        client.embeddings.create(model="fake", input="x" * 5000)
    assert caught.value.code == "context_length_exceeded"


def test_stream_with_usage(client: openai.OpenAI) -> None:
    stream = client.chat.completions.create(
        model="fake", messages=MESSAGES, temperature=0, stream=True, stream_options={"include_usage": True}
    )
    found = list(stream)
    assert "".join(one.choices[0].delta.content or "" for one in found if one.choices) == PERSON
    assert found[-1].usage.total_tokens > 0


def test_parse_gives_an_instance_of_the_model(client: openai.OpenAI) -> None:
    found = client.chat.completions.parse(model="fake", messages=MESSAGES, temperature=0, response_format=Person)
    assert found.choices[0].message.parsed == Person(name="Ada", mood="calm")


def test_parse_of_a_cut_output_raises(client: openai.OpenAI) -> None:
    with pytest.raises(openai.LengthFinishReasonError) as found:
        client.chat.completions.parse(
            model="fake", messages=MESSAGES, temperature=0, response_format=Person, max_completion_tokens=5
        )
    assert found.value.completion.usage.completion_tokens == 5


def test_the_stream_helper_parses_what_it_gathers(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="fake", messages=MESSAGES, temperature=0, response_format=Person, logprobs=True
    ) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done", "logprobs.content.done"} <= kinds
    assert final.choices[0].message.parsed == Person(name="Ada", mood="calm")
    assert final.choices[0].logprobs is not None
    assert "".join(one.token for one in final.choices[0].logprobs.content or []) == PERSON


def test_tools_streamed_and_gathered_are_the_whole_call(client: openai.OpenAI) -> None:
    with client.chat.completions.stream(
        model="fake", messages=MESSAGES, temperature=0, tools=TOOLS, tool_choice="required"
    ) as stream:
        kinds = [event.type for event in stream]
        call = stream.get_final_completion().choices[0].message.tool_calls[0]
    assert "tool_calls.function.arguments.done" in kinds
    assert call.function.name == "look_up"
    assert call.function.parsed_arguments["city"] in ("Rome", "Oslo")
    assert call.id


def test_a_named_tool_is_called(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(
        model="fake",
        messages=MESSAGES,
        temperature=0,
        tools=TOOLS,
        tool_choice={"type": "function", "function": {"name": "look_up"}},
    )
    calls = found.choices[0].message.tool_calls
    assert len(calls) == 1
    assert json.loads(calls[0].function.arguments)["city"] in ("Rome", "Oslo")


def test_logprobs_and_several_outputs(client: openai.OpenAI) -> None:
    found = client.chat.completions.create(
        model="fake", messages=MESSAGES, n=2, seed=1, logprobs=True, top_logprobs=3, max_tokens=4
    )
    assert [one.index for one in found.choices] == [0, 1]
    for one in found.choices:
        assert [len(token.top_logprobs) for token in one.logprobs.content] == [3] * 4


def test_completions(client: openai.OpenAI) -> None:
    found = client.completions.create(model="fake", prompt="Who? ", temperature=0, max_tokens=8, logprobs=1)
    assert found.choices[0].text == PERSON[:8]
    stream = client.completions.create(model="fake", prompt="Who? ", temperature=0, max_tokens=8, stream=True)
    assert "".join(one.choices[0].text for one in stream) == PERSON[:8]


def test_models(client: openai.OpenAI) -> None:
    assert [one.id for one in client.models.list()] == ["fake"]
    assert client.models.retrieve("fake").owned_by == "espalier"


def test_extra_fields_reach_the_server_and_its_key_comes_back(client: openai.OpenAI) -> None:
    extra = {"structured_outputs": {"regex": "[0-9]{4}"}, "espalier": {"trace": "summary"}}
    found = client.chat.completions.create(model="fake", messages=MESSAGES, temperature=0, extra_body=extra)
    assert len(found.choices[0].message.content) == 4
    assert found.model_extra["espalier"]["outputs"][0]["summary"]["total_steps"] == 5


def test_async_requests_run_together(url: str) -> None:
    async def run() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client:

            async def streamed() -> str:
                stream = await client.chat.completions.create(
                    model="fake", messages=MESSAGES, temperature=0, stream=True
                )
                return "".join([one.choices[0].delta.content or "" async for one in stream])

            async def whole() -> str:
                made = await client.chat.completions.create(model="fake", messages=MESSAGES, temperature=0)
                return made.choices[0].message.content

            return await asyncio.gather(*(one() for one in (streamed, whole) * 4))

    assert asyncio.run(run()) == [PERSON] * 8


def test_a_reader_that_leaves_a_stream_leaves_nothing_running(client: openai.OpenAI, url: str) -> None:
    with client.chat.completions.create(model="fake", messages=MESSAGES, temperature=0, stream=True) as stream:
        next(iter(stream))
    assert client.chat.completions.create(model="fake", messages=MESSAGES, temperature=0).choices


def test_wrong_requests_raise_by_their_kind(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("other")
    assert (missing.value.code, missing.value.param) == ("model_not_found", "model")
    assert client.chat.completions.create(model="other", messages=MESSAGES, temperature=0).model == "fake"
    with pytest.raises(openai.BadRequestError) as wrong:
        client.chat.completions.create(model="fake", messages=MESSAGES, temperature=-1)
    assert wrong.value.param == "temperature"


@pytest.mark.parametrize(
    ("options", "key", "raised"),
    [
        ({"gate": OneKeyGate()}, "sk-bad", openai.AuthenticationError),
        ({"gate": OneKeyGate(is_full=True)}, "sk-good", openai.RateLimitError),
        ({"serve": lambda engine: Stuck(engine, refuses=Overloaded())}, "none", openai.InternalServerError),
        ({"serve": lambda engine: Stuck(engine, fails=DeadEnd("stuck"))}, "none", openai.InternalServerError),
    ],
)
def test_what_the_server_cannot_do_raises_by_its_kind(options: dict, key: str, raised: type[Exception]) -> None:
    with (
        served(make_app(**options)) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key=key, max_retries=0) as client,
        pytest.raises(raised),
    ):
        client.chat.completions.create(model="fake", messages=MESSAGES)


def test_a_fault_within_a_stream_raises_with_its_words() -> None:
    with (
        served(make_app(serve=lambda engine: Stuck(engine, fails=DeadEnd("stuck")))) as url,
        openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as client,
        pytest.raises(openai.APIError, match="stuck"),
    ):
        list(client.chat.completions.create(model="fake", messages=MESSAGES, stream=True))
