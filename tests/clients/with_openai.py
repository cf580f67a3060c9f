"""openai: chat, streams, parse, tools over two turns, log probabilities, responses, batches, errors, cancellation."""

from __future__ import annotations

import io
import json
import time
from typing import Literal

import openai
from checks import ASK, BASE, MODEL, SCHEMA, TOOL, V1, expect, run
from pydantic import BaseModel

client = openai.OpenAI(base_url=V1, api_key="none", max_retries=0)


class Person(BaseModel):
    mood: Literal["calm", "glad"]
    age: int


def chat() -> None:
    found = client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=12, temperature=0, store=True, user="me"
    )
    expect(found.choices[0].message.role == "assistant", found)
    expect(found.usage.completion_tokens <= 12, found.usage)


def stream() -> None:
    with client.chat.completions.stream(
        model=MODEL, temperature=0, messages=ASK, max_tokens=8, stream_options={"include_usage": True}
    ) as events:
        kinds = {one.type for one in events}
        final = events.current_completion_snapshot  # the final one is refused where the length ended it
    expect("chunk" in kinds, kinds)
    expect(final.usage.completion_tokens, final)


def structured() -> None:
    found = client.chat.completions.parse(
        model=MODEL, temperature=0, messages=ASK, max_tokens=80, response_format=Person
    )
    expect(isinstance(found.choices[0].message.parsed, Person), found)
    turn = [*ASK, found.choices[0].message, {"role": "user", "content": "Again"}]
    again = client.chat.completions.parse(
        model=MODEL, temperature=0, messages=turn, max_tokens=80, response_format=Person
    )
    expect(again.choices[0].message.parsed is not None, again)


def tools() -> None:
    first = client.chat.completions.create(
        model=MODEL,
        temperature=0,
        messages=ASK,
        tools=[TOOL],
        tool_choice="required",
        max_tokens=80,
        parallel_tool_calls=False,
    )
    message = first.choices[0].message
    call = message.tool_calls[0]
    expect(json.loads(call.function.arguments)["city"] in ("Rome", "Oslo"), call)
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    second = client.chat.completions.create(
        model=MODEL, temperature=0, messages=[*ASK, message, result], tools=[TOOL], tool_choice="none", max_tokens=8
    )
    expect(second.choices[0].message.tool_calls is None, second)


def parsed_tools() -> None:
    tool = openai.pydantic_function_tool(Person, name="person")
    first = client.chat.completions.parse(
        model=MODEL, temperature=0, messages=ASK, tools=[tool], tool_choice="required", max_tokens=120
    )
    message = first.choices[0].message
    expect(isinstance(message.tool_calls[0].function.parsed_arguments, Person), message)
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "ok"}
    client.chat.completions.create(
        model=MODEL, temperature=0, messages=[*ASK, message, result], tools=[tool], max_tokens=4
    )


def logprobs() -> None:
    found = client.chat.completions.create(
        model=MODEL, messages=ASK, max_tokens=3, logprobs=True, top_logprobs=2, temperature=0
    )
    expect(len(found.choices[0].logprobs.content[0].top_logprobs) == 2, found)
    old = client.completions.create(model=MODEL, temperature=0, prompt="Ada ", max_tokens=1, echo=True, logprobs=1)
    expect(old.choices[0].logprobs.token_logprobs[0] is None, old)


def errors() -> None:
    for fields, kind in (
        ({"temperature": -1}, openai.BadRequestError),
        ({"messages": [{"role": "user", "content": "x " * 9000}]}, openai.BadRequestError),
        ({"extra_body": {"response_fromat": SCHEMA}}, openai.BadRequestError),
    ):
        try:
            client.chat.completions.create(**{"model": MODEL, "messages": ASK, "max_tokens": 2} | fields)
        except kind as error:
            expect(error.code, error)
            if "messages" in fields:
                expect(error.code == "context_length_exceeded", error)
        else:
            raise AssertionError(f"{kind} was not raised for {list(fields)}")


def cancellation() -> None:
    reply = client.chat.completions.create(model=MODEL, messages=ASK, max_tokens=400, stream=True, temperature=0)
    next(iter(reply))
    reply.close()
    found = client.chat.completions.create(model=MODEL, temperature=0, messages=ASK, max_tokens=2)
    expect(found.choices, found)


def responses() -> None:
    first = client.responses.create(model=MODEL, temperature=0, input="Generate user info", max_output_tokens=16)
    expect(first.status in ("completed", "incomplete"), first)
    with client.responses.stream(
        model=MODEL, temperature=0, input="Generate user info", max_output_tokens=60, text_format=Person
    ) as events:
        expect([one.sequence_number for one in events][:2] == [0, 1], "numbers")
        expect(isinstance(events.get_final_response().output_parsed, Person), events)
    tool = {"type": "function", **TOOL["function"]}
    called = client.responses.create(
        model=MODEL, temperature=0, input=ASK, tools=[tool], tool_choice="required", max_output_tokens=80, store=False
    )
    call = next(one for one in called.output if one.type == "function_call")
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    client.responses.create(
        model=MODEL, temperature=0, input=[*ASK, *called.output, result], tools=[tool], max_output_tokens=8, store=False
    )


def batches() -> None:
    line = {
        "custom_id": "a",
        "method": "POST",
        "url": "/v1/chat/completions",
        "body": {"model": MODEL, "messages": ASK, "max_tokens": 4, "temperature": 0},
    }
    upload = client.files.create(file=("in.jsonl", io.BytesIO(json.dumps(line).encode())), purpose="batch")
    batch = client.batches.create(input_file_id=upload.id, endpoint="/v1/chat/completions", completion_window="24h")
    until = time.monotonic() + 60
    while batch.status not in ("completed", "failed") and time.monotonic() < until:
        batch = client.batches.retrieve(batch.id)
    expect(batch.status == "completed", batch)
    expect(json.loads(client.files.content(batch.output_file_id).text)["custom_id"] == "a", batch)


def models() -> None:
    expect(client.models.list().data[0].id, BASE)


run(chat, stream, structured, tools, parsed_tools, logprobs, errors, cancellation, responses, batches, models)
