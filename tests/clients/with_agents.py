"""openai-agents: its default path, the Responses API, and chat completions."""

from __future__ import annotations

from typing import Literal

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from checks import MODEL, V1, expect, run
from openai import AsyncOpenAI
from pydantic import BaseModel

set_tracing_disabled(True)

KINDS = (OpenAIResponsesModel, OpenAIChatCompletionsModel)


class Person(BaseModel):
    mood: Literal["calm", "glad"]
    age: int


@function_tool
def look_up(city: Literal["Rome", "Oslo"]) -> str:
    """Finds a place."""
    return f"{city} is sunny"


def agent(kind: type, **more: object) -> Agent:
    made = AsyncOpenAI(base_url=V1, api_key="none", max_retries=0)  # its connections belong to one event loop
    settings = ModelSettings(max_tokens=100, temperature=0.0, **more.pop("settings", {}))
    return Agent(name="a", instructions="Be short.", model=kind(MODEL, made), model_settings=settings, **more)


async def chat() -> None:
    for kind in KINDS:
        expect((await Runner.run(agent(kind), "Generate user info")).final_output is not None, kind)


async def structured() -> None:
    for kind in KINDS:
        found = await Runner.run(agent(kind, output_type=Person), "Generate user info")
        expect(isinstance(found.final_output, Person), kind, found)


async def tools() -> None:
    """The choice is required in the first turn, and reset for the second by the SDK."""
    for kind in KINDS:
        found = await Runner.run(
            agent(kind, tools=[look_up], settings={"tool_choice": "required"}), "Where?", max_turns=6
        )
        expect(any(one.type == "tool_call_output_item" for one in found.new_items), kind, found)
        again = await Runner.run(agent(kind), [*found.to_input_list(), {"role": "user", "content": "And?"}])
        expect(again.final_output is not None, kind)


async def stream() -> None:
    for kind in KINDS:
        reply = Runner.run_streamed(agent(kind), "Generate user info")
        expect([one async for one in reply.stream_events()], kind)


async def errors() -> None:
    for kind in KINDS:
        try:
            await Runner.run(agent(kind), "x " * 9000)
        except Exception as error:  # noqa: BLE001  # of the SDK below
            expect("maximum context length" in str(error), error)
        else:
            raise AssertionError("an overlong prompt is an error")


async def cancellation() -> None:
    for kind in KINDS:
        reply = Runner.run_streamed(agent(kind), "Generate user info")
        async for one in reply.stream_events():
            if one.type == "raw_response_event":
                reply.cancel()
        expect((await Runner.run(agent(kind), "Generate user info")).final_output is not None, kind)


run(chat, structured, tools, stream, errors, cancellation)
