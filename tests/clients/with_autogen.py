"""autogen: its OpenAI client, and an assistant with a tool."""

from __future__ import annotations

from typing import Literal

from autogen_agentchat.agents import AssistantAgent
from autogen_core import CancellationToken
from autogen_core.models import UserMessage
from autogen_ext.models.openai import OpenAIChatCompletionClient
from checks import MODEL, V1, expect, run
from pydantic import BaseModel

ASK = [UserMessage(content="Generate user info", source="user")]


class Person(BaseModel):
    mood: Literal["calm", "glad"]
    age: int


async def look_up(city: Literal["Rome", "Oslo"]) -> str:
    """Finds a place."""
    return f"{city} is sunny"


def client(max_tokens: int = 100) -> OpenAIChatCompletionClient:
    info = {
        "vision": False,
        "function_calling": True,
        "json_output": True,
        "structured_output": True,
        "multiple_system_messages": True,
        "family": "unknown",
    }
    return OpenAIChatCompletionClient(
        model=MODEL, base_url=V1, api_key="none", max_retries=0, model_info=info, max_tokens=max_tokens, temperature=0.0
    )


async def chat() -> None:
    reply = await client(8).create(ASK)
    expect(reply.finish_reason in ("stop", "length") and reply.usage.completion_tokens, reply)


async def stream() -> None:
    pieces = [piece async for piece in client(8).create_stream(ASK)]
    expect(pieces[-1].content == "".join(piece for piece in pieces[:-1]), pieces)


async def structured() -> None:
    reply = await client().create(ASK, json_output=Person)
    expect(Person.model_validate_json(reply.content), reply)
    agent = AssistantAgent("a", model_client=client(), output_content_type=Person)
    result = await agent.run(task="Generate user info")
    expect(isinstance(result.messages[-1].content, Person), result)


async def tools() -> None:
    agent = AssistantAgent("a", model_client=client(), tools=[look_up], reflect_on_tool_use=True)
    result = await agent.run(task="What is the weather in Rome?")
    expect(result.messages, result)


async def errors() -> None:
    try:
        await client().create([UserMessage(content="x " * 9000, source="user")])
    except Exception as error:  # noqa: BLE001  # of the SDK below
        expect("maximum context length" in str(error), error)
    else:
        raise AssertionError("an overlong prompt is an error")


async def cancellation() -> None:
    token = CancellationToken()
    try:
        async for _ in client(400).create_stream(ASK, cancellation_token=token):
            token.cancel()
    except BaseException as error:  # noqa: BLE001  # how it ends is the SDK's
        expect(type(error).__name__ == "CancelledError", error)
    await chat()


run(chat, stream, structured, tools, errors, cancellation)
