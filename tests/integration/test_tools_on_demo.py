"""Tool calls end to end on the bundled model, over many seeds: every call parses, validates and names a tool."""

from __future__ import annotations

import json
import os

import jsonschema
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")

import espalier
from espalier.chat.tools import read_tools
from espalier.wiring import demo_model
from tests.examples import examples

TOOLS = read_tools(json.loads((demo_model().parents[1] / "examples" / "tools.json").read_text()))
SCHEMAS = {tool.name: tool.schema for tool in TOOLS}
PROMPTS = (
    "Read the file /etc/hosts",
    "What is the weather in Madrid?",
    "What is the capital of France?",
    "Send an email to ana.silva@example.com about lunch",
)
SEEDS = examples(200)
SEEDS_OF_OTHER_CHOICES = examples(80)
"""The grammar fixes more of the text than where the model may choose to call."""
SEEDS_OF_OTHER_FORMATS = int(os.environ.get("ESPALIER_TOOL_SEEDS") or examples(20))
"""For each new format and choice, of which there are forty; 200 take half an hour."""


@pytest.fixture(scope="module")
def eng(demo_engine):
    return demo_engine


def runs(eng, *, seeds=SEEDS, **options):
    """One result a seed, the prompts in turn."""
    usual = {"max_tokens": 160, "trace": "off", "tools": TOOLS}
    batch = [espalier.api.make_request(PROMPTS[seed % 4], seed=seed, **usual | options) for seed in range(seeds)]
    done = {}
    for event in eng.engine.run(batch):
        if hasattr(event, "result"):
            done[event.index] = event.result
    return [done[i] for i in range(seeds)]


def check(results):
    for result in results:
        cut = any(not call.is_complete for call in result.tool_calls)
        assert not cut or result.finish_reason == "length"
        if cut:
            assert result.verdict.valid is False
        elif result.finish_reason != "length":  # a text that was cut may be complete all the same
            assert result.verdict.valid is True, (result.text, result.verdict)
        for call in result.tool_calls:
            assert call.name in SCHEMAS
            if call.is_complete:
                jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])


@pytest.mark.slow
def test_every_call_parses_validates_and_names_a_tool(eng):
    results = runs(eng)
    check(results)
    calls = [len(result.tool_calls) for result in results]
    # The model was trained to call in this format, and to answer the third prompt in words.
    assert sum(count > 0 for count in calls[0::4]) > SEEDS // 5
    assert sum(count == 0 for count in calls[2::4]) > SEEDS // 8


@pytest.mark.slow
def test_required_calls_at_least_once_and_no_more_than_the_limit(eng):
    results = runs(eng, seeds=SEEDS_OF_OTHER_CHOICES, tool_choice="required", max_calls=2)
    check(results)
    assert all(1 <= len(result.tool_calls) <= 2 and not result.content for result in results)


@pytest.mark.slow
def test_named_calls_exactly_that(eng):
    results = runs(eng, seeds=SEEDS_OF_OTHER_CHOICES, tool_choice="get_weather")
    check(results)
    assert all([call.name for call in result.tool_calls] == ["get_weather"] for result in results)


@pytest.mark.slow
def test_none_never_calls(eng):
    for result in runs(eng, seeds=SEEDS_OF_OTHER_CHOICES, tool_choice="none"):
        assert result.tool_calls == ()
        assert not result.text.lstrip().startswith("{")


@pytest.mark.slow
def test_a_format_with_a_marker_leaves_the_text_free_until_it(eng):
    results = runs(eng, seeds=SEEDS_OF_OTHER_CHOICES, tool_format="hermes", parallel_tool_calls=False, max_tokens=60)
    check(results)
    assert all(len(result.tool_calls) <= 1 for result in results)


NEW = (
    "qwen_coder",
    "glm",
    "minimax",
    "deepseek_v3",
    "deepseek_v31",
    "kimi",
    "harmony",
    "mistral_id",
    "function_gemma",
    "gemma4",
)


def test_every_new_format_calls_as_it_is_read(eng):
    """One seed for each format, all in one batch."""
    usual = {"max_tokens": 40, "trace": "off", "tools": TOOLS, "tool_choice": "required", "seed": 1}
    batch = [espalier.api.make_request(PROMPTS[0], tool_format=name, **usual) for name in NEW]
    done = [event.result for event in eng.engine.run(batch) if hasattr(event, "result")]
    assert len(done) == len(NEW)
    check(done)
    assert all(result.tool_calls or result.finish_reason == "length" for result in done)


@pytest.mark.slow
@pytest.mark.parametrize("choice", ["auto", "required", "get_weather", "none"])
@pytest.mark.parametrize("name", NEW)
def test_parser_and_constraint_agree_in_the_formats_of_other_models(eng, name, choice):
    results = runs(eng, seeds=SEEDS_OF_OTHER_FORMATS, tool_format=name, tool_choice=choice, max_tokens=40)
    check(results)
    for result in results:
        names = [call.name for call in result.tool_calls]
        if choice == "none":
            assert names == []
        if choice in ("required", "get_weather") and result.finish_reason != "length":
            assert names
            assert choice == "required" or names == ["get_weather"]


def test_the_model_thinks_first_and_then_calls(eng):
    result = eng.generate(
        "Read the file /etc/hosts",
        tools=TOOLS,
        tool_choice="required",
        reasoning="auto",
        system="Think first.",
        temperature=0,
        max_tokens=200,
    )
    assert result.verdict.valid is True
    assert result.tool_calls[0].name in SCHEMAS
