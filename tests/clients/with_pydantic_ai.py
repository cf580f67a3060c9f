"""pydantic-ai: an agent with a tool, structured output, streams."""

from __future__ import annotations

from typing import Literal

from checks import MODEL, V1, expect, run
from pydantic import BaseModel
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.settings import ModelSettings

model = OpenAIChatModel(MODEL, provider=OpenAIProvider(base_url=V1, api_key="none"))
SHORT = ModelSettings(max_tokens=100, temperature=0.0)


class Person(BaseModel):
    mood: Literal["calm", "glad"]
    age: int


def chat() -> None:
    found = Agent(model, model_settings=SHORT).run_sync("Generate user info")
    expect(found.output is not None)
    again = Agent(model, model_settings=SHORT).run_sync("Again", message_history=found.all_messages())
    expect(again.output is not None)


async def stream() -> None:
    async with Agent(model, model_settings=SHORT).run_stream("Generate user info") as reply:
        expect([one async for one in reply.stream_text()])


def structured() -> None:
    for kind in (NativeOutput(Person), Person):
        found = Agent(model, output_type=kind, model_settings=SHORT).run_sync("Generate user info")
        expect(isinstance(found.output, Person), found)
        Agent(model, output_type=kind, model_settings=SHORT).run_sync("Again", message_history=found.all_messages())


def errors() -> None:
    try:
        Agent(model, model_settings=SHORT).run_sync("x " * 9000)
    except ModelHTTPError as error:
        expect(error.status_code == 400, error)
        return
    raise AssertionError("an overlong prompt is an error")


async def cancellation() -> None:
    async with Agent(model, model_settings=SHORT).run_stream("Generate user info") as reply:
        async for _ in reply.stream_text():
            break
    async with Agent(model, model_settings=SHORT).run_stream("Generate user info") as reply:
        expect(await reply.get_output() is not None)


run(chat, stream, structured, errors, cancellation)
