"""huggingface_hub: `InferenceClient` on chat completions, and on the routes of TGI."""

from __future__ import annotations

import json
from typing import Any

from checks import ASK, BASE, MODEL, SCHEMA, TOOL, V1, expect, run
from huggingface_hub import InferenceClient


def ask(**fields: Any) -> dict[str, Any]:
    return {"messages": ASK, "model": MODEL, "max_tokens": 80, "temperature": 0.0} | fields


def client() -> InferenceClient:
    return InferenceClient(base_url=V1, api_key="none")


def chat() -> None:
    reply = client().chat_completion(**ask(max_tokens=8))
    expect(reply.choices[0].finish_reason in ("stop", "length") and reply.usage.completion_tokens, reply)


def stream() -> None:
    here = client()  # it closes its streams when it is gone
    chunks = list(here.chat_completion(**ask(max_tokens=8, stream=True)))
    expect(any(chunk.choices and chunk.choices[0].finish_reason for chunk in chunks), chunks)


def structured() -> None:
    shapes = (
        {"type": "json_schema", "json_schema": {"name": "person", "schema": SCHEMA, "strict": True}},
        {"type": "json", "value": SCHEMA},
    )
    for shape in shapes:
        reply = client().chat_completion(**ask(response_format=shape))
        expect(json.loads(reply.choices[0].message.content)["mood"] in ("calm", "glad"), reply)


def tools() -> None:
    first = client().chat_completion(**ask(tools=[TOOL], tool_choice="required"))
    message = first.choices[0].message
    (call, *_) = message.tool_calls
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    client().chat_completion(**ask(messages=[*ASK, message, result], tools=[TOOL], tool_choice="none", max_tokens=4))


def generation() -> None:
    """TGI's `/generate`, whole and in a stream, with its `grammar`."""
    server = InferenceClient(model=BASE)
    expect(server.text_generation("Ada ", max_new_tokens=4) is not None)
    expect("".join(server.text_generation("Ada ", max_new_tokens=4, stream=True)))
    held = server.text_generation("User: ", max_new_tokens=80, grammar={"type": "json", "value": SCHEMA})
    expect(json.loads(held)["mood"] in ("calm", "glad"), held)


def errors() -> None:
    try:
        client().chat_completion(**ask(messages=[{"role": "user", "content": "x " * 9000}]))
    except Exception as error:  # noqa: BLE001  # of the SDK below
        expect("maximum context length" in str(error), error)
    else:
        raise AssertionError("an overlong prompt is an error")


run(chat, stream, structured, tools, generation, errors)
