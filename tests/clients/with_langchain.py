"""langchain-openai."""

from __future__ import annotations

from typing import Literal

import openai
from checks import MODEL, V1, expect, run
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from pydantic import BaseModel

model = ChatOpenAI(model=MODEL, base_url=V1, api_key="none", max_tokens=80, temperature=0, max_retries=0)
ASKED = [HumanMessage("Generate user info")]


class Person(BaseModel):
    """A person."""

    mood: Literal["calm", "glad"]
    age: int


def look_up(city: Literal["Rome", "Oslo"]) -> str:
    """Finds a place."""
    return city


def chat() -> None:
    expect(model.invoke(ASKED).content is not None)


def stream() -> None:
    chunks = list(model.stream(ASKED, max_tokens=8))
    expect(chunks, chunks)


def structured() -> None:
    for method in ("json_schema", "function_calling"):
        expect(isinstance(model.with_structured_output(Person, method=method).invoke(ASKED), Person), method)


def tools() -> None:
    bound = model.bind_tools([look_up], tool_choice="required")
    message = bound.invoke(ASKED)
    call = message.tool_calls[0]
    model.bind_tools([look_up]).invoke([*ASKED, message, ToolMessage("sunny", tool_call_id=call["id"])], max_tokens=4)


def responses() -> None:
    found = ChatOpenAI(
        model=MODEL, base_url=V1, api_key="none", max_tokens=16, temperature=0, use_responses_api=True
    ).invoke(ASKED)
    expect(found.content is not None, found)


def errors() -> None:
    try:
        model.invoke("x " * 9000)
    except openai.BadRequestError as error:
        expect("maximum context length" in str(error), error)
        return
    raise AssertionError("an overlong prompt is an error")


def cancellation() -> None:
    reply = model.stream(ASKED, max_tokens=300)
    next(reply)
    reply.close()
    chat()


run(chat, stream, structured, tools, responses, errors, cancellation)
