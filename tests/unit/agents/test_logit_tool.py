"""`LogitTool`: definitions in both shapes, one call of every tool, PedroCLI's messages, and what is joined."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest

import espalier
from espalier.agents.table import TOOLS, VERBS
from espalier.agents.tool import LogitTool
from espalier.store.open import open_store
from tests.agent_calls import ASK, CALLS, USER, check_answer
from tests.server_app import MemoryStore, fake_engine


@pytest.fixture(scope="module")
def tool(demo_engine: espalier.LoadedEngine) -> LogitTool:
    return LogitTool(demo_engine)


@pytest.mark.parametrize("name", CALLS)
def test_every_tool_answers_by_its_output_schema(tool: LogitTool, name: str) -> None:
    reply = tool.call(name, CALLS[name])
    assert not reply.is_error, reply.text
    check_answer(name, reply.data)
    assert json.loads(reply.text) == json.loads(json.dumps(reply.data))


def test_arguments_may_be_json_text(tool: LogitTool) -> None:
    assert tool.call("generate", json.dumps(CALLS["generate"])) == tool.call("generate", CALLS["generate"])
    assert tool.call("generate", "{").error.field == "arguments"  # type: ignore[union-attr]
    assert not tool.call("list_presets", "").is_error


def test_definitions_are_in_openais_and_anthropics_shape() -> None:
    tool = LogitTool(None)
    openai, anthropic = tool.openai(), tool.anthropic()
    assert [one["function"]["name"] for one in openai] == [one["name"] for one in anthropic] == [*VERBS, "logit"]
    for ours, theirs in zip(openai, anthropic, strict=True):
        assert ours["type"] == "function"
        assert ours["function"]["parameters"] == theirs["input_schema"]
        assert ours["function"]["description"] == theirs["description"]
        schema = theirs["input_schema"]
        jsonschema.Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object"
        assert not {"oneOf", "anyOf", "allOf"} & set(schema)  # which neither takes at the top
        assert espalier.contract(schema).by_verdict("refused") == ()  # our own models can call them


def test_without_an_engine_the_answer_says_so() -> None:
    reply = LogitTool(None).call("logit", {"action": "generate", "prompt": "Hi"})
    assert reply.is_error
    assert reply.data["error"].startswith("logit backend not configured")


@pytest.mark.parametrize(
    ("arguments", "message", "field"),
    [
        ({}, "missing required parameter: action", "action"),
        ({"action": "generate"}, "missing required parameter: prompt", "prompt"),
        ({"action": "generate_structured", "prompt": "x"}, "missing required parameter: json_schema", "json_schema"),
        (
            {"action": "generate_tool_call", "prompt": "x"},
            "missing required parameter: available_tools",
            "available_tools",
        ),
        ({"action": "test_config"}, "missing required parameter: test_prompts", "test_prompts"),
        ({"action": "dance"}, "unknown action: dance", "action"),
        ({"action": ["generate"]}, "unknown action: ['generate']", "action"),
        ({"action": "list_presets", "prompt": "x"}, "the action list_presets takes no parameter 'prompt'", "prompt"),
    ],
)
def test_logit_answers_in_pedroclis_words(tool: LogitTool, arguments: Any, message: str, field: str) -> None:
    reply = tool.call("logit", arguments)
    assert reply.is_error
    assert reply.error is not None
    assert reply.error.field == field
    assert reply.data["success"] is False
    assert reply.data["error"].startswith(message)


def test_logits_outputs_are_pedroclis(tool: LogitTool) -> None:
    found = json.loads(tool.call("logit", {"action": "generate", "prompt": "Hi", "max_tokens": 4}).data["output"])
    assert list(found) == ["text", "token_count", "stop_reason"]
    calls = {"action": "generate_tool_call", **CALLS["generate_tool_call"]}
    found = json.loads(tool.call("logit", calls).data["output"])
    assert list(found) == ["tool_call", "raw_text"]
    presets = json.loads(tool.call("logit", {"action": "list_presets"}).data["output"])
    assert {"name", "description", "temperature", "top_k", "top_p"} <= set(presets[0])
    fails = {"action": "test_config", "test_prompts": ["Hi"], "expected_format": "^never$", "max_tokens": 3}
    reply = tool.call("logit", fails)
    assert not reply.is_error
    assert reply.data["success"] is False
    assert reply.data["output"].startswith("=== Logit Test Results ===")


def test_a_seed_gives_what_the_engine_gives(tool: LogitTool, demo_engine: espalier.LoadedEngine) -> None:
    reply = tool.call("generate", {**ASK, "json_schema": USER, "safety": "strict", "preset": "json_strict"})
    own = demo_engine.generate(
        ASK["prompt"], max_tokens=40, seed=7, json_schema=USER, safety="strict", preset="json_strict"
    )
    assert reply.data["text"] == own.text
    assert reply.data["notes"] == list(own.notes)


def test_preset_safety_and_schema_all_hold(tool: LogitTool) -> None:
    """Each of the three refuses what the other two would let through."""
    shown = {"enum": ["sudo reboot", "a", "b"]}
    schema = {"type": "object", "properties": {"x": shown}, "required": ["x"], "additionalProperties": False}
    for seed in range(8):
        reply = tool.call(
            "generate",
            {
                "prompt": "x",
                "preset": "code_generation",
                "safety": {"patterns": ["b"]},
                "json_schema": schema,
                "seed": seed,
                "max_tokens": 40,
                "temperature": 1.5,
            },
        )
        assert not reply.is_error, reply.text
        assert reply.data["parsed"] == {"x": "a"}  # the preset's filter refuses the first, the pattern the last


def test_regex_and_choices_hold_together(tool: LogitTool) -> None:
    reply = tool.call("generate", {"prompt": "x", "regex": "[ab]+", "choices": ["abba", "cd"], "max_tokens": 9})
    assert reply.data["text"] == "abba"


def test_traces_are_stored_listed_and_explained(demo_engine: espalier.LoadedEngine, tmp_path: Any) -> None:
    store = open_store(f"sqlite:///{tmp_path}/traces.db")
    try:
        tool = LogitTool(demo_engine, traces=store)
        made = tool.call("generate_structured", {**CALLS["generate_structured"], "trace": True})
        assert made.data["trace_id"]
        listed = tool.call("list_traces", {"limit": 1}).data
        jsonschema.validate(listed, TOOLS["list_traces"].output_schema)
        assert [one["id"] for one in listed["traces"]] == [made.data["trace_id"]]
        told = tool.call("explain_trace", {"trace_id": made.data["trace_id"]}).data
        jsonschema.validate(told, TOOLS["explain_trace"].output_schema)
        assert told["text"] == made.data["text"]
        wrong = tool.call("explain_trace", {"trace_id": "none"})
        assert wrong.is_error
        assert wrong.error is not None
        assert wrong.error.field == "trace_id"
    finally:
        store.close()


def test_a_trace_without_a_store_is_refused_and_not_dropped() -> None:
    reply = LogitTool(fake_engine()).call("generate", {"prompt": "Hi", "trace": True})
    assert reply.is_error
    assert reply.data["error"]["field"] == "trace"
    assert (
        LogitTool(fake_engine(), traces=MemoryStore())
        .call("generate", {"prompt": "Hi", "trace": True})
        .data["trace_id"]
    )


def test_an_answer_that_the_limit_cut_off_is_an_error(tool: LogitTool) -> None:
    reply = tool.call("generate_structured", {**CALLS["generate_structured"], "max_tokens": 5, "on_budget": "truncate"})
    assert reply.is_error
    assert reply.data["error"]["field"] == "max_tokens"
