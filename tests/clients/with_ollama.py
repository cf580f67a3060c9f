"""The SDK `ollama`: chat, generate, formats, tools, thinking, embeddings, what it asks about models."""

from __future__ import annotations

import json
from typing import Any

import ollama
from checks import ASK, BASE, MODEL, SCHEMA, TOOL, expect, run

client = ollama.Client(host=BASE)
SHORT = {"num_predict": 8, "temperature": 0}
LONG = {"num_predict": 120, "temperature": 0}


def look_up(city: str) -> str:
    """Finds a place.

    Args:
      city: Where.
    """
    return f"{city} is sunny"


def chat() -> None:
    for name in (MODEL, f"{MODEL}:latest"):
        reply = client.chat(name, ASK, options=SHORT)
        expect(reply.model == name and reply.done and reply.done_reason in ("stop", "length"), reply)
        expect(reply.prompt_eval_count and 1 <= reply.eval_count <= 8 and reply.total_duration > 0, reply)


def stream() -> None:
    parts = list(client.chat(MODEL, ASK, stream=True, options={**LONG, "seed": 1}))
    expect([part.done for part in parts] == [False] * (len(parts) - 1) + [True], parts)
    expect(parts[-1].eval_count and parts[-1].eval_duration, parts[-1])
    whole = client.chat(MODEL, ASK, options={**LONG, "seed": 1})
    streamed = "".join(part.message.content or "" for part in parts)
    expect(streamed == whole.message.content, streamed, whole)


def structured() -> None:
    for answer in (
        client.chat(MODEL, ASK, format=SCHEMA, options=LONG).message.content,
        client.generate(MODEL, ASK[0]["content"], format=SCHEMA, options=LONG).response,
    ):
        expect(json.loads(answer)["mood"] in ("calm", "glad"), answer)
    answer = client.chat(MODEL, ASK, format="json", options=LONG).message.content
    expect(isinstance(json.loads(answer), dict), answer)


def tools() -> None:
    asked: list[Any] = [{"role": "user", "content": "What is the weather in Rome?"}]
    for tool in (look_up, TOOL):
        message = client.chat(MODEL, asked, tools=[tool], options=LONG).message
        parts = list(client.chat(MODEL, asked, tools=[tool], options=LONG, stream=True))
        calls = [call for part in parts for call in part.message.tool_calls or ()]
        expect(calls == list(message.tool_calls or ()), calls, message)
        for call in calls:
            expect(isinstance(call.function.arguments["city"], str), call)
        result = {"role": "tool", "tool_name": "look_up", "content": "sunny"}
        client.chat(MODEL, [*asked, message, result], tools=[tool], options=SHORT)


def generate() -> None:
    first = client.generate(MODEL, "Generate user info", system="Be brief.", options=SHORT)
    again = client.generate(MODEL, "And another.", context=first.context, options=SHORT)
    expect(list(again.context)[: len(first.context)] == list(first.context), first, again)
    raw = client.generate(MODEL, "One, two,", raw=True, options=SHORT)
    expect(raw.response and raw.context is None, raw)
    loaded = client.generate(MODEL)
    expect(loaded.done_reason == "load" and loaded.response == "", loaded)


def logprobs() -> None:
    reply = client.chat(MODEL, ASK, logprobs=True, top_logprobs=2, options=SHORT)
    expect(reply.logprobs and len(reply.logprobs[0].top_logprobs) == 2, reply)


def models() -> None:
    (listed,) = [model for model in client.list().models if model.model == f"{MODEL}:latest"]
    shown = client.show(listed.model)
    expect({"completion", "tools"} <= set(shown.capabilities), shown)
    expect(client.ps().models[0].model == listed.model)
    expect(client.pull(MODEL).status == "success")


def errors() -> None:
    too_long = [{"role": "user", "content": "x " * 9000}]
    expect(client.chat(MODEL, too_long, options=SHORT).prompt_eval_count, "what is too long is cut, as in Ollama")
    for refused in (
        lambda: client.show("another"),
        lambda: client.delete(MODEL),
        lambda: client.chat(MODEL, [{"role": "user", "content": "x", "images": [b"x"]}]),
        lambda: client.chat(MODEL, ASK, format={"type": 3}),
        lambda: client.chat(MODEL, ASK, options={"top_p": 7}, stream=True).__next__(),
    ):
        try:
            refused()
        except ollama.ResponseError as error:
            expect(error.status_code in (400, 404, 501) and error.error and "{" not in error.error, error)
        else:
            raise AssertionError("it is an error")


def cancellation() -> None:
    reply = client.chat(MODEL, ASK, stream=True, options={"num_predict": 300})
    next(reply)
    reply.close()
    chat()


async def in_asyncio() -> None:
    parts = await ollama.AsyncClient(host=BASE).generate(MODEL, "Hi", stream=True, options=SHORT)
    last = [part async for part in parts][-1]
    expect(last.done and last.context, last)


run(chat, stream, structured, tools, generate, logprobs, models, errors, cancellation, in_asyncio)
