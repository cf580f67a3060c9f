"""litellm, as an OpenAI-compatible server and as Ollama."""

from __future__ import annotations

import json

import litellm
from checks import ASK, BASE, MODEL, SCHEMA, TOOL, V1, expect, run

HERE = {"model": f"openai/{MODEL}", "api_base": V1, "api_key": "none", "num_retries": 0, "temperature": 0}


def chat() -> None:
    expect(litellm.completion(**HERE, messages=ASK, max_tokens=8).choices[0].message.content is not None)


def stream() -> None:
    chunks = list(litellm.completion(**HERE, messages=ASK, max_tokens=8, stream=True))
    expect(chunks[-1].choices[0].finish_reason in ("stop", "length"), chunks[-1])


def structured() -> None:
    shape = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
    found = litellm.completion(**HERE, messages=ASK, max_tokens=80, response_format=shape)
    expect(json.loads(found.choices[0].message.content)["mood"] in ("calm", "glad"), found)


def tools() -> None:
    first = litellm.completion(**HERE, messages=ASK, tools=[TOOL], tool_choice="required", max_tokens=80)
    message = first.choices[0].message
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "sunny"}
    litellm.completion(**HERE, messages=[*ASK, message, result], tools=[TOOL], max_tokens=4)
    dumped = message.model_dump()
    litellm.completion(**HERE, messages=[*ASK, dumped, result], tools=[TOOL], max_tokens=4)


def errors() -> None:
    try:
        litellm.completion(**HERE, messages=[{"role": "user", "content": "x " * 9000}], max_tokens=2)
    except litellm.ContextWindowExceededError:
        return
    raise AssertionError("an overlong prompt is a ContextWindowExceededError")


def cancellation() -> None:
    reply = litellm.completion(**HERE, messages=ASK, max_tokens=300, stream=True)
    next(iter(reply))
    del reply
    chat()


OLLAMA = {"model": f"ollama_chat/{MODEL}", "api_base": BASE, "num_retries": 0, "temperature": 0}


def ollama() -> None:
    found = litellm.completion(**OLLAMA, messages=ASK, max_tokens=8)
    expect(found.choices[0].finish_reason in ("stop", "length") and found.usage.completion_tokens, found)
    chunks = list(litellm.completion(**OLLAMA, messages=ASK, max_tokens=8, stream=True))
    expect(chunks[-1].choices[0].finish_reason in ("stop", "length"), chunks[-1])
    shape = {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}}
    found = litellm.completion(**OLLAMA, messages=ASK, max_tokens=80, response_format=shape)
    expect(json.loads(found.choices[0].message.content)["mood"] in ("calm", "glad"), found)


def ollama_tools() -> None:
    asked = [{"role": "user", "content": "What is the weather in Rome?"}]
    message = litellm.completion(**OLLAMA, messages=asked, tools=[TOOL], max_tokens=80).choices[0].message
    results = [{"role": "tool", "tool_call_id": call.id, "content": "sunny"} for call in message.tool_calls or ()]
    litellm.completion(**OLLAMA, messages=[*asked, message.model_dump(), *results], tools=[TOOL], max_tokens=4)


run(ollama, ollama_tools, chat, stream, structured, tools, errors, cancellation)
