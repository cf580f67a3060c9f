"""Custom tools on `/v1/chat/completions`, as OpenAI's SDK sends and reads them: a text of a grammar, not JSON."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import openai
import pytest

from tests.server_app import client, make_app, served

DATE = '[0-9]{4}\n"[a-f]"'
SUM = 'start: sum\nsum: D "+" D | "(" sum ")"\nD: /[0-9]/\n'
CLOSED = {"type": "object", "properties": {}, "additionalProperties": False}
FUNCTION = {"type": "function", "function": {"name": "look_up", "parameters": CLOSED}}
ASK: dict[str, Any] = {"model": "fake", "messages": [{"role": "user", "content": "a"}], "seed": 3, "max_tokens": 200}


def custom(name: str, syntax: str, definition: str) -> dict[str, Any]:
    grammar = {"type": "grammar", "grammar": {"syntax": syntax, "definition": definition}}
    return {"type": "custom", "custom": {"name": name, "description": "Does it.", "format": grammar}}


@pytest.fixture(scope="module")
def sdk() -> Iterator[openai.OpenAI]:
    app = make_app()
    with served(app) as url, openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0) as sdk:
        yield sdk


@pytest.mark.parametrize("choice", ["required", {"type": "custom", "custom": {"name": "when"}}])
def test_a_call_has_a_text_of_its_grammar(sdk: openai.OpenAI, choice: Any) -> None:
    tools: list[Any] = [custom("when", "regex", DATE)]
    reply = sdk.chat.completions.create(**ASK, tools=tools, tool_choice=choice, parallel_tool_calls=False)
    [call] = reply.choices[0].message.tool_calls or []
    assert call.type == "custom"
    assert call.custom.name == "when"
    assert re.fullmatch(DATE, call.custom.input)
    assert reply.choices[0].finish_reason == "tool_calls"


def test_a_stream_tells_the_same_text_piece_by_piece(sdk: openai.OpenAI) -> None:
    for name, syntax, definition in (
        ("when", "regex", DATE),
        ("add", "lark", SUM),
        ("say", "regex", '["\\\\\né]{1,6}'),
    ):
        ask = {**ASK, "tools": [custom(name, syntax, definition)], "tool_choice": "required"}
        ask["parallel_tool_calls"] = False
        whole = sdk.chat.completions.create(**ask)
        [call] = whole.choices[0].message.tool_calls or []
        parts = [
            part.model_dump(exclude_unset=True)
            for chunk in sdk.chat.completions.create(**ask, stream=True)
            for part in chunk.choices[0].delta.tool_calls or []
        ]
        first, *rest = parts
        assert (first["type"], first["custom"]) == ("custom", {"name": name, "input": ""})
        assert "".join(part["custom"]["input"] for part in rest) == call.custom.input  # type: ignore[union-attr]
        assert all("function" not in part for part in parts)


def test_functions_and_custom_tools_stand_beside_each_other_and_calls_come_back(sdk: openai.OpenAI) -> None:
    tools: list[Any] = [FUNCTION, custom("add", "lark", SUM)]
    allowed = {"mode": "required", "tools": [{"type": "custom", "custom": {"name": "add"}}]}
    choice: Any = {"type": "allowed_tools", "allowed_tools": allowed}
    reply = sdk.chat.completions.create(**ASK, tools=tools, tool_choice=choice, parallel_tool_calls=False)
    message = reply.choices[0].message
    [call] = message.tool_calls or []
    assert call.type == "custom"
    messages: list[Any] = [
        *ASK["messages"],
        message.model_dump(exclude_none=True),
        {"role": "tool", "tool_call_id": call.id, "content": "3"},
    ]
    again = sdk.chat.completions.with_raw_response.create(**ASK | {"messages": messages}, tools=tools)
    assert "warning" not in again.headers
    other: Any = {"type": "function", "function": {"name": "look_up"}}
    [function] = sdk.chat.completions.create(**ASK, tools=tools, tool_choice=other).choices[0].message.tool_calls or []
    assert function.type == "function"


@pytest.mark.parametrize(
    ("tool", "param"),
    [
        ({"type": "custom", "custom": "run"}, "tools[0].custom"),
        ({"type": "custom", "custom": {}}, "tools[0].custom.name"),
        ({"type": "custom", "custom": {"name": "a", "format": {"type": "x"}}}, "tools[0].custom.format.type"),
        (custom("a", "ebnf", "x"), "tools[0].custom.format.grammar.syntax"),
        (custom("a", "lark", "start: a\na.2: 'b'"), "tools[0].custom.format.grammar.definition"),
        ({"type": "custom", "name": "a", "format": {"type": "grammar", "syntax": "x"}}, "tools[0].format.definition"),
    ],
)
def test_what_is_wrong_with_a_custom_tool_is_named(tool: dict[str, Any], param: str) -> None:
    with client() as http:
        reply = http.post("/v1/chat/completions", json={**ASK, "tools": [tool]})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, param), reply.text


def test_a_tool_of_anthropics_type_custom_stays_a_function() -> None:
    tool = {"type": "custom", "name": "look_up", "input_schema": {"type": "object", "properties": {}}}
    with client() as http:
        reply = http.post("/v1/chat/completions", json={**ASK, "tools": [tool], "tool_choice": "required"})
    assert reply.json()["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "look_up"
