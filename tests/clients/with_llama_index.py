"""llama-index: a server that is like OpenAI's, chats, streams, structured answers, tools."""

from __future__ import annotations

from typing import Any, Literal

from checks import MODEL, V1, expect, run
from llama_index.core.llms import ChatMessage
from llama_index.core.prompts import PromptTemplate
from llama_index.core.tools import FunctionTool
from llama_index.llms.openai_like import OpenAILike
from pydantic import BaseModel

ASK = [ChatMessage(role="user", content="Generate user info")]


class Person(BaseModel):
    mood: Literal["calm", "glad"]
    age: int


class Place(BaseModel):
    city: Literal["Rome", "Oslo"]


def look_up(city: str) -> str:
    """Finds a place."""
    return f"{city} is sunny"


def model(**more: Any) -> OpenAILike:
    fields = {
        "model": MODEL,
        "api_base": V1,
        "api_key": "none",
        "context_window": 1024,
        "is_chat_model": True,
        "is_function_calling_model": True,
        "max_tokens": 100,
        "max_retries": 0,
        "temperature": 0.0,
    }
    return OpenAILike(**fields | more)


def chat() -> None:
    reply = model(max_tokens=8).chat(ASK)
    expect(reply.message.content is not None, reply)
    expect(model(max_tokens=8, is_chat_model=False).complete("Generate").text is not None)


def stream() -> None:
    *_, last = model(max_tokens=8).stream_chat(ASK)
    expect(last.message.content, last)


def structured() -> None:
    by_call = model().structured_predict(Person, PromptTemplate("Generate user info"))
    expect(isinstance(by_call, Person), by_call)
    by_format = model(should_use_structured_outputs=True).as_structured_llm(Person).chat(ASK)
    expect(isinstance(by_format.raw, Person), by_format)


def tools() -> None:
    tool = FunctionTool.from_defaults(look_up, fn_schema=Place)
    llm = model()
    first = llm.chat_with_tools([tool], user_msg="Where?", tool_required=True)
    (call, *_) = llm.get_tool_calls_from_response(first)
    expect(call.tool_kwargs["city"] in ("Rome", "Oslo"), call)
    result = ChatMessage(role="tool", content="sunny", additional_kwargs={"tool_call_id": call.tool_id})
    second = llm.chat_with_tools([tool], chat_history=[*ASK, first.message, result])
    expect(second.message is not None, second)


def errors() -> None:
    try:
        model().chat([ChatMessage(role="user", content="x " * 9000)])
    except Exception as error:  # noqa: BLE001  # of the SDK below
        expect("maximum context length" in str(error), error)
    else:
        raise AssertionError("an overlong prompt is an error")


def cancellation() -> None:
    reply = model(max_tokens=400).stream_chat(ASK)
    next(reply)
    reply.close()
    chat()


run(chat, stream, structured, tools, errors, cancellation)
