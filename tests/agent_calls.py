"""One call of every tool that agents have, and what a call with a seed must answer: for tests over MCP and without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jsonschema

from espalier.agents.table import TOOLS

USER = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "maximum": 130}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city.",
    "parameters": {
        "type": "object",
        "properties": {"city": {"enum": ["Madrid", "Oslo"]}},
        "required": ["city"],
        "additionalProperties": False,
    },
}
ASK = {"prompt": "Generate user info", "max_tokens": 40, "seed": 7}
CALLS: Mapping[str, Mapping[str, Any]] = {
    "generate": {"prompt": "Hi", "max_tokens": 6, "seed": 7},
    "generate_structured": {**ASK, "json_schema": USER},
    "generate_tool_call": {**ASK, "prompt": "What is the weather in Oslo?", "available_tools": [WEATHER]},
    "test_config": {"test_prompts": "Generate user info", "preset": "json_strict", "iterations": 2, "max_tokens": 30},
    "list_presets": {},
    "analyze_vocabulary": {"search_terms": ["a"], "category": "digits"},
    "check_schema": {"json_schema": USER, "instances": [{"name": "Ada", "age": 36}, {"name": 1}]},
    "explain": {**ASK, "json_schema": USER},
    "try_remedies": {**ASK, "max_tokens": 12, "regex": "yes|no", "seeds": 1},
    "safety_check": {"text": "sudo rm -rf /"},
    "logit": {"action": "generate_structured", **ASK, "json_schema": USER},
}
"""Without `explain_trace` and `list_traces`, which need a store."""


def check_answer(name: str, answer: Mapping[str, Any]) -> None:
    """What every answer to a call of CALLS must be, whatever the model."""
    jsonschema.validate(answer, TOOLS[name].output_schema)
    if name == "generate_structured":
        jsonschema.validate(answer["json"], USER)
        assert answer["valid"] is True
    elif name == "generate_tool_call":
        assert answer["tool_call"]["name"] == "get_weather"
        jsonschema.validate(answer["tool_call"]["arguments"], WEATHER["parameters"])
    elif name == "test_config":
        assert len(answer["results"][0]["Samples"]) == 2
    elif name == "list_presets":
        assert {one["name"] for one in answer["presets"]} >= {"json_strict", "safe_chat"}
    elif name == "check_schema":
        assert [one["accepted"] for one in answer["instances"]] == [True, False]
    elif name == "explain":
        assert answer["cost"]["total_steps"] > 0
    elif name == "try_remedies":
        assert answer["recommended"] is None  # one seed decides nothing
        assert answer["recommendation"].startswith("Recommended: none.")
    elif name == "safety_check":
        assert not answer["safe"]
        assert answer["caught"]
    elif name == "logit":
        assert answer["success"] is True
        assert answer["output"] == answer["result"]["content"]
