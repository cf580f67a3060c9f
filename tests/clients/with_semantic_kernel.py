"""semantic-kernel: its OpenAI connector, with streams, formats and functions that it calls itself."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from checks import MODEL, V1, expect, run
from openai import AsyncOpenAI
from pydantic import BaseModel
from semantic_kernel import Kernel
from semantic_kernel.connectors.ai.function_choice_behavior import FunctionChoiceBehavior
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion, OpenAIChatPromptExecutionSettings
from semantic_kernel.contents import ChatHistory
from semantic_kernel.functions import kernel_function


class Person(BaseModel):
    mood: Literal["calm", "glad"]
    age: int


class Weather:
    @kernel_function(description="Finds a place.")
    def look_up(self, city: Annotated[str, "the city"]) -> str:
        return f"{city} is sunny"


def service() -> OpenAIChatCompletion:
    made = AsyncOpenAI(base_url=V1, api_key="none", max_retries=0)  # its connections belong to one event loop
    return OpenAIChatCompletion(ai_model_id=MODEL, async_client=made)


def settings(**fields: Any) -> OpenAIChatPromptExecutionSettings:
    return OpenAIChatPromptExecutionSettings(**{"max_tokens": 100, "temperature": 0.0} | fields)


def asked(text: str = "Generate user info") -> ChatHistory:
    history = ChatHistory()
    history.add_user_message(text)
    return history


async def chat() -> None:
    reply = await service().get_chat_message_content(asked(), settings(max_tokens=8))
    expect(reply.finish_reason.value in ("stop", "length"), reply)


async def stream() -> None:
    pieces = [piece async for piece in service().get_streaming_chat_message_content(asked(), settings(max_tokens=8))]
    expect("".join(str(piece) for piece in pieces), pieces)


async def structured() -> None:
    reply = await service().get_chat_message_content(asked(), settings(response_format=Person))
    expect(Person.model_validate_json(str(reply)), reply)


async def tools() -> None:
    kernel = Kernel()
    kernel.add_plugin(Weather(), "weather")
    history = asked("What is the weather in Rome?")
    choice = FunctionChoiceBehavior.Required(auto_invoke=True)
    reply = await service().get_chat_message_content(history, settings(function_choice_behavior=choice), kernel=kernel)
    kinds = {type(item).__name__ for message in history.messages for item in message.items}
    expect("FunctionResultContent" in kinds, reply, kinds)


async def errors() -> None:
    try:
        await service().get_chat_message_content(asked("x " * 9000), settings())
    except Exception as error:  # noqa: BLE001  # of the SDK below
        expect("maximum context length" in f"{error} {error.__cause__}", error)
    else:
        raise AssertionError("an overlong prompt is an error")


run(chat, stream, structured, tools, errors)
