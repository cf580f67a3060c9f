"""langchain-ollama."""

from __future__ import annotations

from typing import Literal

import ollama
from checks import BASE, MODEL, expect, run
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_ollama import ChatOllama, OllamaLLM
from pydantic import BaseModel

model = ChatOllama(model=MODEL, base_url=BASE, num_predict=120, temperature=0, validate_model_on_init=True)
ASKED = [HumanMessage("Generate user info")]


class Person(BaseModel):
    """A person."""

    mood: Literal["calm", "glad"]
    age: int


def look_up(city: Literal["Rome", "Oslo"]) -> str:
    """Finds a place."""
    return city


def chat() -> None:
    message = model.invoke(ASKED)
    expect(message.usage_metadata["output_tokens"] > 0, message)
    expect(message.response_metadata["done_reason"] in ("stop", "length"), message)


def stream() -> None:
    chunks = list(model.stream(ASKED))
    expect("".join(chunk.content for chunk in chunks) == model.invoke(ASKED).content, chunks)


def structured() -> None:
    found = model.with_structured_output(Person, method="json_schema").invoke(ASKED)
    expect(isinstance(found, Person), found)


def tools() -> None:
    bound = model.bind_tools([look_up])
    asked = [HumanMessage("What is the weather in Rome?")]
    message = bound.invoke(asked)
    results = [ToolMessage("sunny", tool_call_id=call["id"]) for call in message.tool_calls]
    bound.invoke([*asked, message, *results])


def thinking() -> None:
    for wanted in (True, False):
        told = ChatOllama(model=MODEL, base_url=BASE, num_predict=60, reasoning=wanted).invoke(ASKED)
        expect("<think>" not in told.content or not wanted, told)


def completion() -> None:
    expect(isinstance(OllamaLLM(model=MODEL, base_url=BASE, num_predict=8).invoke("Hi"), str))


def errors() -> None:
    try:
        ChatOllama(model=MODEL, base_url=BASE, top_p=7).invoke(ASKED)
    except ollama.ResponseError as error:
        expect(error.status_code == 400 and "options.top_p" in error.error, error)
        return
    raise AssertionError("a wrong option is an error")


def cancellation() -> None:
    reply = model.stream(ASKED)
    next(reply)
    reply.close()
    chat()


run(chat, stream, structured, tools, thinking, completion, errors, cancellation)
