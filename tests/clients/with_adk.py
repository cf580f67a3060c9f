"""Google's agent development kit: an agent over LiteLLM, with a schema, with a tool, and in a stream."""

from __future__ import annotations

import json
from typing import Any, Literal

from checks import MODEL, V1, expect, run
from google.adk.agents import LlmAgent
from google.adk.agents.run_config import RunConfig, StreamingMode
from google.adk.models.lite_llm import LiteLlm
from google.adk.runners import InMemoryRunner
from google.genai import types
from pydantic import BaseModel


class Person(BaseModel):
    mood: Literal["calm", "glad"]
    age: int


def look_up(city: str) -> dict[str, str]:
    """Finds a place."""
    return {"weather": f"{city} is sunny"}


async def ask(agent_fields: dict[str, Any], text: str, mode: StreamingMode = StreamingMode.NONE) -> list[Any]:
    model = LiteLlm(f"openai/{MODEL}", api_base=V1, api_key="none", max_tokens=100, temperature=0.0, num_retries=0)
    runner = InMemoryRunner(LlmAgent(name="a", model=model, instruction="Be short.", **agent_fields))
    session = await runner.session_service.create_session(app_name=runner.app_name, user_id="me")
    message = types.Content(role="user", parts=[types.Part(text=text)])
    config = RunConfig(streaming_mode=mode, max_llm_calls=4)
    events = runner.run_async(user_id="me", session_id=session.id, new_message=message, run_config=config)
    return [event async for event in events]


async def chat() -> None:
    events = await ask({}, "Generate user info")
    expect(events[-1].content.parts[0].text, events[-1])


async def stream() -> None:
    events = await ask({}, "Generate user info", StreamingMode.SSE)
    expect(any(event.partial for event in events), events)


async def structured() -> None:
    events = await ask({"output_schema": Person}, "Generate user info")
    text = events[-1].content.parts[-1].text
    expect(json.loads(text)["mood"] in ("calm", "glad"), text)


async def tools() -> None:
    events = await ask({"tools": [look_up]}, "What is the weather in Rome?")
    expect(events and not any(event.error_code for event in events), events[-1])


async def errors() -> None:
    try:
        events = await ask({}, "x " * 9000)
    except Exception as error:  # noqa: BLE001  # LiteLLM's
        expect("maximum context length" in str(error), error)
    else:
        expect("maximum context length" in str(events[-1].error_message), events)


run(chat, stream, structured, tools, errors)
