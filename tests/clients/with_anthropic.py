"""anthropic: messages, streams, tools over two turns, structured output, token counts, errors, cancellation."""

from __future__ import annotations

import json
import time

import anthropic
from checks import ASK, BASE, MODEL, PLACE, SCHEMA, expect, run

client = anthropic.Anthropic(base_url=BASE, api_key="none", max_retries=0)
GREEDY = {"temperature": 0}  # the SDK has no argument for it
LOOK = {"name": "look_up", "description": "Finds a place.", "input_schema": PLACE}


def chat() -> None:
    found = client.messages.create(model=MODEL, extra_body=GREEDY, max_tokens=12, messages=ASK, system="Be short.")
    expect(found.role == "assistant" and found.stop_reason in ("end_turn", "max_tokens"), found)


def stream() -> None:
    with client.messages.stream(model=MODEL, extra_body=GREEDY, max_tokens=8, messages=ASK) as reply:
        text = "".join(reply.text_stream)
        expect(reply.get_final_message().usage.output_tokens <= 8, text)


def structured() -> None:
    shape = {"type": "json_schema", "schema": SCHEMA}
    found = client.messages.create(
        model=MODEL, max_tokens=100, messages=ASK, extra_body=GREEDY | {"output_config": {"format": shape}}
    )
    expect(json.loads(found.content[0].text)["mood"] in ("calm", "glad"), found)


def tools() -> None:
    first = client.messages.create(
        model=MODEL, extra_body=GREEDY, max_tokens=100, messages=ASK, tools=[LOOK], tool_choice={"type": "any"}
    )
    call = next(one for one in first.content if one.type == "tool_use")
    expect(call.input["city"] in ("Rome", "Oslo"), first)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny"}
    turns = [*ASK, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    client.messages.create(model=MODEL, extra_body=GREEDY, max_tokens=4, messages=turns, tools=[LOOK])


def counts() -> None:
    expect(client.messages.count_tokens(model=MODEL, messages=ASK).input_tokens > 0)


def models() -> None:
    info = next(model for model in client.models.list() if model.id == MODEL)
    expect(info.max_input_tokens > 0 and info.capabilities.structured_outputs.supported, info)
    expect(client.models.retrieve(MODEL).display_name == MODEL)


def batches() -> None:
    params = {"model": MODEL, "max_tokens": 4, "messages": ASK}
    made = client.messages.batches.create(
        requests=[{"custom_id": "a", "params": params}, {"custom_id": "b", "params": {**params, "temperature": -1.0}}]
    )
    until = time.monotonic() + 60
    while (batch := client.messages.batches.retrieve(made.id)).processing_status != "ended":
        expect(time.monotonic() < until, batch)
        time.sleep(0.05)
    a, b = client.messages.batches.results(made.id)
    expect(a.custom_id == "a" and a.result.message.usage.output_tokens <= 4, a)
    expect(b.result.type == "errored" and b.result.error.error.type == "invalid_request_error", b)
    expect(made.id in [listed.id for listed in client.messages.batches.list(limit=1)])
    expect(client.messages.batches.delete(made.id).type == "message_batch_deleted")


def errors() -> None:
    for fields in ({"extra_body": {"temperature": -1.0}}, {"messages": [{"role": "user", "content": "x " * 9000}]}):
        try:
            client.messages.create(**{"model": MODEL, "max_tokens": 4, "messages": ASK} | fields)
        except anthropic.BadRequestError as error:
            expect(error.body["error"]["type"] == "invalid_request_error", error.body)
        else:
            raise AssertionError(f"{list(fields)} is an error")


def cancellation() -> None:
    with client.messages.stream(model=MODEL, extra_body=GREEDY, max_tokens=300, messages=ASK) as reply:
        next(iter(reply.text_stream))
    chat()


run(chat, stream, structured, tools, counts, models, batches, errors, cancellation)
