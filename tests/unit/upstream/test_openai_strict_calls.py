"""Calls that must come, in front of a vLLM: asked for as strict, without which it holds them to no schema."""

from __future__ import annotations

import pytest

from tests.unit.upstream.test_openai_engine import WEATHER, calls, engine_where, piece


@pytest.mark.parametrize(
    ("owner", "choice", "stated", "sent"),
    [
        ("vllm", "required", {}, True),
        ("vllm", "get_weather", {}, True),
        ("vllm", "required", {"strict": False}, False),
        ("vllm", "auto", {}, None),
        ("espalier", "required", {}, None),
        ("someone", "required", {}, None),
    ],
)
def test_vllm_is_asked_to_hold_calls_that_must_come_to_their_schema(owner, choice, stated, sent):
    said = calls(piece(0, '{"city": "a"}', "get_weather"))
    with engine_where(lambda body: said, owner=owner) as (engine, server):
        engine.generate("hello", tools=[{**WEATHER, **stated}], tool_choice=choice, trace="off")
    assert server.asked[-1].body["tools"][0]["function"].get("strict") is sent


@pytest.mark.parametrize(
    ("stated", "sent"),
    [
        ({}, {"type": "object"}),
        ({"properties": {"city": {}}}, {"type": "object", "properties": {"city": {}}}),
        ({"type": ["object", "null"]}, {"type": "object"}),
        ({"type": "object", "minProperties": 1}, {"type": "object", "minProperties": 1}),
    ],
)
def test_a_server_is_told_that_arguments_are_an_object(stated, sent):
    with engine_where(lambda body: calls(piece(0, "{}", "f"))) as (engine, server):
        engine.generate("hello", tools=[{"name": "f", "parameters": stated}], trace="off")
    assert server.asked[-1].body["tools"][0]["function"]["parameters"] == sent
