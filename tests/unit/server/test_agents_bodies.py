"""Bodies with the fields that agents send, as their public sources build them, over the fake model: each is answered,
whole and as a stream, and what cannot be had is told."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
pytest.importorskip("openai")

from starlette.testclient import TestClient

from tests import messages_api, responses_api
from tests.server_app import client, events

Json = dict[str, Any]
RUN: Json = {
    "type": "object",
    "properties": {
        "workdir": {"type": "string", "description": "Where it runs."},
        "command": {"type": "string", "description": "The line."},
        "timeout_ms": {"type": "number"},
    },
    "required": ["command"],
    "additionalProperties": False,
}
ARGUMENTS = {"command": "ls -a", "workdir": "/tmp"}
"""In another order than the schema's."""
CALL = '{"name": "run_line", "args": {"command": "ls -a", "workdir": "/tmp"}}'
PATCH = r"""
start: head change+ foot
head: "*** Begin Patch" LF
foot: "*** End Patch" LF?
change: "*** Add File: " path LF line+ | "*** Delete File: " path LF
path: /(.+)/
line: "+" /(.*)/ LF
%import common.LF
"""

# Codex: codex-rs/codex-api/src/common.rs and codex-rs/tools/src/tool_spec.rs
CODEX: Json = {
    "model": "local",
    "instructions": "You work in a terminal.",
    "input": [
        {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Ask before you delete."}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "<cwd>/tmp</cwd>"}]},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "What is here?"}]},
        {"type": "reasoning", "summary": [], "content": None, "encrypted_content": None},
        {"type": "function_call", "name": "run_line", "arguments": '{"command": "pwd"}', "call_id": "call_1"},
        {"type": "function_call_output", "call_id": "call_1", "output": "Exit code: 0\nOutput:\n/tmp"},
    ],
    "tools": [
        {"type": "function", "name": "run_line", "description": "Runs it.", "strict": False, "parameters": RUN},
        {"type": "function", "name": "list_plans", "description": "Lists them.", "strict": False},
        {"type": "local_shell"},
        {"type": "web_search", "external_web_access": False, "search_context_size": "low"},
        {"type": "custom", "name": "patch", "format": {"type": "grammar", "syntax": "lark", "definition": PATCH}},
        {"type": "namespace", "name": "mcp__docs", "description": "", "tools": [{"type": "function", "name": "find"}]},
        {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": {"type": "object"}},
        {"type": "image_generation", "output_format": "png"},
        {"type": "function", "name": "mcp__" + "x" * 123, "description": "", "strict": False, "parameters": RUN},
    ],
    "tool_choice": "auto",
    "parallel_tool_calls": False,
    "reasoning": {"effort": "medium", "summary": "auto"},
    "store": False,
    "stream": True,
    "include": ["reasoning.encrypted_content"],
    "service_tier": "priority",
    "prompt_cache_key": "0193-cafe",
    "text": {"verbosity": "low"},
    "client_metadata": {"x-codex-installation-id": "0193"},
}
# Claude Code, as proxies recorded it
CLAUDE_CODE: Json = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 32000,
    "temperature": 1,
    "system": [
        {"type": "text", "text": "You work in a terminal.", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "<system-reminder>Today is Friday.</system-reminder>"},
                {"type": "text", "text": "What is here?", "cache_control": {"type": "ephemeral"}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Look.", "signature": "abc"},
                {"type": "tool_use", "id": "toolu_1", "name": "run_line", "input": {"command": "pwd"}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "toolu_1",
                    "content": [{"type": "text", "text": "/tmp"}],
                    "cache_control": {"type": "ephemeral"},
                }
            ],
        },
    ],
    "tools": [
        {
            "name": "run_line",
            "description": "Runs it.",
            "input_schema": {"$schema": "https://json-schema.org/draft/2020-12/schema", **RUN},
            "eager_input_streaming": True,
        },
        {"name": "mcp__" + "x" * 123, "description": "", "input_schema": RUN, "defer_loading": True},
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
        {"name": "list_plans", "input_schema": {"type": "object", "properties": {}}, "cache_control": {"type": "x"}},
    ],
    "metadata": {"user_id": "user_1_account__session_2"},
    "thinking": {"type": "enabled", "budget_tokens": 31999},
    "context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]},
    "output_config": {"effort": "medium"},
    "stream": True,
}
TALK: list[Json] = [
    {"role": "system", "content": "You work in a terminal."},
    {
        "role": "user",
        "content": [{"type": "text", "text": "What is here?"}, {"type": "text", "text": "<cwd>/tmp</cwd>"}],
    },
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "run_line", "arguments": '{"command": "pwd"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "/tmp"}]},
]
RUN_LINE: Json = {"name": "run_line", "description": "Runs it.", "parameters": RUN}
CHATS: dict[str, Json] = {
    # src/core/api/providers/openai.ts
    "cline": {
        "model": "local",
        "messages": TALK,
        "temperature": 0,
        "max_tokens": 400,
        "reasoning_effort": "medium",
        "stream_options": {"include_usage": True},
        "tools": [
            {"type": "function", "function": {**RUN_LINE, "strict": False}},
            {"type": "function", "function": {"name": "list_plans", "description": "Lists them."}},
        ],
        "tool_choice": "auto",
        "parallel_tool_calls": False,
    },
    # core/llm/llms/OpenAI.ts, packages/openai-adapters/src/apis/OpenAI.ts
    "continue": {
        "model": "local",
        "messages": TALK,
        "max_tokens": 400,
        "temperature": 0,
        "top_p": 1,
        "frequency_penalty": 0,
        "presence_penalty": 0,
        "stop": ["<|end|>"],
        "prediction": {"type": "content", "content": "ls"},
        "stream_options": {"include_usage": True},
        "tools": [{"type": "function", "function": RUN_LINE}],
        "parallel_tool_calls": False,
    },
    # backend/open_webui/routers/openai.py, utils/payload.py
    "open webui": {
        "model": "local",
        "messages": [{**message, "timestamp": 1} if message["role"] == "user" else message for message in TALK],
        "temperature": 0,
        "max_completion_tokens": 400,
        "stream_options": {"include_usage": True},
        "logit_bias": {},
        "user": "u-1",
        "tools": [{"type": "function", "function": RUN_LINE}, {"type": "web_search_preview"}],
    },
    # aider/models.py, coders with functions, over litellm
    "aider": {
        "model": "local",
        "messages": TALK,
        "temperature": 0,
        "max_tokens": 400,
        "tools": [{"type": "function", "function": RUN_LINE}],
        "tool_choice": {"type": "function", "function": {"name": "run_line"}},
    },
}


@pytest.fixture(scope="module")
def api() -> Any:
    with client(CALL) as fake:
        yield fake


def test_codex(api: TestClient) -> None:
    whole = responses_api.whole(api, {**CODEX, "stream": False, "temperature": 0})
    (call,) = responses_api.calls_of(whole)
    assert (call["type"], call["name"], json.loads(call["arguments"])) == ("function_call", "run_line", ARGUMENTS)
    assert [tool["type"] for tool in whole["tools"]] == ["function", "function", "custom", "function"]
    streamed = responses_api.gathered(responses_api.streamed(api, {**CODEX, "temperature": 0}))
    assert responses_api.content(streamed) == responses_api.content(whole)


@pytest.mark.slow
def test_codex_is_told_which_tools_are_left_out(api: TestClient) -> None:
    reply = api.post("/v1/responses", json={**CODEX, "stream": False})
    for kind in ("local_shell", "web_search", "namespace", "tool_search", "image_generation"):
        assert f"tools of type '{kind}' cannot be called here: they are left out" in reply.headers["warning"]
    strict = api.post("/v1/responses", json={**CODEX, "client_metadata": None, "espalier": {"strict": True}})
    assert (strict.status_code, strict.json()["error"]["param"]) == (400, "tools")
    alone = {**CODEX, "stream": False, "tools": [{"type": "web_search"}], "input": "Hi", "temperature": 0}
    assert responses_api.text_of(responses_api.whole(api, alone))
    for choice in (
        "required",
        {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}]},
        {"type": "web_search"},
    ):
        refused = api.post("/v1/responses", json={**alone, "tool_choice": choice})
        assert (refused.status_code, refused.json()["error"]["param"][:11]) == (400, "tool_choice")
    some = {
        "type": "allowed_tools",
        "mode": "required",
        "tools": [{"type": "web_search"}, {"type": "custom", "name": "patch"}],
    }
    (call,) = responses_api.calls_of(responses_api.whole(api, {**CODEX, "stream": False, "tool_choice": some}))
    assert call["name"] == "patch"


def test_claude_code(api: TestClient) -> None:
    path = "/v1/messages?beta=true"
    reply = api.post(path, json={**CLAUDE_CODE, "stream": False, "temperature": 0})
    assert reply.status_code == 200, reply.text
    whole = messages_api.checked(reply.json())
    assert (whole["stop_reason"], whole["content"][-1]["name"]) == ("tool_use", "run_line")
    assert whole["content"][-1]["input"] == ARGUMENTS
    for kind in ("web_search_20250305", "text_editor_20250728"):
        assert kind in reply.headers["warning"]
    streamed = messages_api.gathered(messages_api.streamed(api, {**CLAUDE_CODE, "temperature": 0}))
    assert streamed["content"][-1]["input"] == ARGUMENTS
    counted = {name: CLAUDE_CODE[name] for name in ("model", "system", "messages", "tools")}
    assert api.post("/v1/messages/count_tokens?beta=true", json=counted).json()["input_tokens"] > 50


@pytest.mark.parametrize("agent", CHATS)
def test_agents_of_the_chat_route(api: TestClient, agent: str) -> None:
    reply = api.post("/v1/chat/completions", json={**CHATS[agent], "stream_options": None})
    assert reply.status_code == 200, reply.text
    (choice,) = reply.json()["choices"]
    (call,) = choice["message"]["tool_calls"]
    assert (choice["finish_reason"], call["function"]["name"]) == ("tool_calls", "run_line")
    assert json.loads(call["function"]["arguments"]) == ARGUMENTS
    stream = api.post("/v1/chat/completions", json={**CHATS[agent], "stream": True})
    assert stream.status_code == 200, stream.text
    deltas = [
        choice["delta"] for event in events(stream.text) if event != "[DONE]" for choice in json.loads(event)["choices"]
    ]
    pieces = [call["function"].get("arguments", "") for delta in deltas for call in delta.get("tool_calls") or ()]
    assert json.loads("".join(pieces)) == ARGUMENTS


def test_continue_completes_and_aider_continues_a_cut_reply(api: TestClient) -> None:
    body = {"model": "local", "prompt": "a = ", "max_tokens": 20, "temperature": 0.01, "stop": ["\n\n"], "stream": True}
    assert api.post("/v1/completions", json=body).status_code == 200
    talk = [*TALK, {"role": "assistant", "content": '{"name": "run', "prefix": True}]
    reply = api.post("/v1/chat/completions", json={"model": "local", "messages": talk, "temperature": 0})
    assert reply.status_code == 200, reply.text
    assert "prefix" in reply.headers["warning"]
