"""mistralai: its client on a server of one's own, chats, streams, parsed formats, tools."""

from __future__ import annotations

from typing import Any, Literal

from checks import ASK, BASE, MODEL, TOOL, expect, run
from mistralai.client import Mistral
from pydantic import BaseModel


class Person(BaseModel):
    mood: Literal["calm", "glad"]
    age: int


def client() -> Mistral:
    return Mistral(api_key="none", server_url=BASE)


def ask(**fields: Any) -> dict[str, Any]:
    return {"model": MODEL, "messages": ASK, "max_tokens": 80, "temperature": 0.0} | fields


def chat() -> None:
    reply = client().chat.complete(**ask(max_tokens=8, random_seed=1, safe_prompt=False))
    expect(reply.choices[0].finish_reason in ("stop", "length") and reply.usage.completion_tokens, reply)


def stream() -> None:
    with client().chat.stream(**ask(max_tokens=8)) as events:
        chunks = [event.data for event in events]
    expect(chunks[-1].choices[0].finish_reason in ("stop", "length"), chunks[-1])


def structured() -> None:
    reply = client().chat.parse(response_format=Person, **ask())
    expect(isinstance(reply.choices[0].message.parsed, Person), reply)


def tools() -> None:
    first = client().chat.complete(**ask(tools=[TOOL], tool_choice="any"))
    message = first.choices[0].message
    results = [
        {"role": "tool", "name": "look_up", "tool_call_id": call.id, "content": "sunny"} for call in message.tool_calls
    ]
    client().chat.complete(**ask(messages=[*ASK, message, *results], tools=[TOOL], tool_choice="none", max_tokens=4))


def models() -> None:
    expect(client().models.list().data)


def errors() -> None:
    try:
        client().chat.complete(**ask(messages=[{"role": "user", "content": "x " * 9000}]))
    except Exception as error:  # noqa: BLE001  # of the SDK below
        expect("maximum context length" in str(error), error)
    else:
        raise AssertionError("an overlong prompt is an error")


run(chat, stream, structured, tools, models, errors)
