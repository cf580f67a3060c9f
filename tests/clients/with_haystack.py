"""haystack: its OpenAI generators, with streams, formats and tools."""

from __future__ import annotations

import json
from typing import Any

from checks import MODEL, PLACE, SCHEMA, V1, expect, run
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool
from haystack.utils import Secret

ASK = [ChatMessage.from_user("Generate user info")]
TOOL = Tool(name="look_up", description="Finds a place.", parameters=PLACE, function=lambda city: f"{city} is sunny")


def generator(callback: Any = None, **fields: Any) -> OpenAIChatGenerator:
    return OpenAIChatGenerator(
        api_key=Secret.from_token("none"),
        model=MODEL,
        api_base_url=V1,
        max_retries=0,
        streaming_callback=callback,
        generation_kwargs={"max_tokens": 80, "temperature": 0.0} | fields,
    )


def chat() -> None:
    (reply,) = generator(max_tokens=8).run(ASK)["replies"]
    expect(reply.meta["finish_reason"] in ("stop", "length"), reply)


def stream() -> None:
    chunks: list[Any] = []
    (reply,) = generator(chunks.append, max_tokens=8).run(ASK)["replies"]
    expect("".join(chunk.content for chunk in chunks) == reply.text, reply)


def structured() -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
    (reply,) = generator(response_format=shape).run(ASK)["replies"]
    expect(json.loads(reply.text)["mood"] in ("calm", "glad"), reply)


def tools() -> None:
    (reply,) = generator(tool_choice="required").run(ASK, tools=[TOOL])["replies"]
    (call, *_) = reply.tool_calls
    expect(call.arguments["city"] in ("Rome", "Oslo"), reply)
    results = [ChatMessage.from_tool("sunny", origin=origin) for origin in reply.tool_calls]
    (second,) = generator(max_tokens=8).run([*ASK, reply, *results], tools=[TOOL])["replies"]
    expect(second is not None, second)


def errors() -> None:
    try:
        generator().run([ChatMessage.from_user("x " * 9000)])
    except Exception as error:  # noqa: BLE001  # of the SDK below
        expect("maximum context length" in str(error), error)
    else:
        raise AssertionError("an overlong prompt is an error")


run(chat, stream, structured, tools, errors)
