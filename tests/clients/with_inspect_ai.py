"""inspect_ai: a model behind an OpenAI-compatible API, with formats and tools, and an evaluation of two samples."""

from __future__ import annotations

import json
import os
import tempfile
from typing import Any

from checks import MODEL, SCHEMA, V1, expect, run
from inspect_ai import Task
from inspect_ai import eval as evaluate
from inspect_ai.dataset import Sample
from inspect_ai.model import ChatMessageTool, ChatMessageUser, GenerateConfig, Model, ResponseSchema, get_model
from inspect_ai.scorer import includes
from inspect_ai.tool import ToolInfo, ToolParam, ToolParams
from inspect_ai.util import JSONSchema

ASK = [ChatMessageUser(content="Generate user info")]
os.environ["INSPECT_LOG_DIR"] = tempfile.mkdtemp()
os.environ["INSPECT_DISPLAY"] = "none"
TOOL = ToolInfo(
    name="look_up",
    description="Finds a place.",
    parameters=ToolParams(
        properties={"city": ToolParam(type="string", enum=["Rome", "Oslo"], description="the city")}, required=["city"]
    ),
)


def model(**fields: Any) -> Model:
    config = GenerateConfig(**{"max_tokens": 100, "temperature": 0.0, "max_retries": 0} | fields)
    return get_model(f"openai-api/espalier/{MODEL}", base_url=V1, api_key="none", config=config, memoize=False)


async def chat() -> None:
    reply = await model(max_tokens=8).generate(ASK)
    expect(reply.stop_reason in ("stop", "max_tokens") and reply.usage.output_tokens, reply)


async def structured() -> None:
    shape = ResponseSchema(name="person", json_schema=JSONSchema.model_validate(SCHEMA), strict=True)
    reply = await model(response_schema=shape).generate(ASK)
    expect(json.loads(reply.completion)["mood"] in ("calm", "glad"), reply)


async def tools() -> None:
    reply = await model().generate(ASK, tools=[TOOL], tool_choice="any")
    (call, *_) = reply.message.tool_calls
    expect(call.arguments["city"] in ("Rome", "Oslo"), call)
    results = [ChatMessageTool(content="sunny", tool_call_id=one.id) for one in reply.message.tool_calls]
    second = await model(max_tokens=8).generate([*ASK, reply.message, *results], tools=[TOOL], tool_choice="none")
    expect(not second.message.tool_calls, second)


def evaluation() -> None:
    samples = [Sample(input="Generate user info", target="a"), Sample(input="Who is it?", target="b")]
    (log,) = evaluate(Task(dataset=samples, scorer=includes()), model=model(max_tokens=8), log_samples=True)
    expect(log.status == "success" and len(log.samples) == len(samples), log.error)


async def errors() -> None:
    """A prompt that is too long is no error there: the turn says that it was."""
    reply = await model().generate([ChatMessageUser(content="x " * 9000)])
    expect(reply.stop_reason == "model_length", reply)


run(chat, structured, tools, errors, evaluation)
