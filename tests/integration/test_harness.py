"""The standard cases on the demo model, under transformers and as GGUF, and cases that must pass or fail."""

from __future__ import annotations

import pytest

import espalier
from espalier.harness.cases.case import TestCase
from espalier.harness.cases.standard import STANDARD
from espalier.harness.run import Harness
from espalier.wiring import demo_model

SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}, "required": ["age"]}
TOOLS = [
    {
        "name": "set_alarm",
        "parameters": {
            "type": "object",
            "properties": {"time": {"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"}},
            "required": ["time"],
        },
    }
]
CALL = {"name": "set_alarm", "matches": {"time": r"^\d\d:\d\d$"}}


def check_standard(engine: espalier.LoadedEngine) -> None:
    report = Harness(engine).add(*STANDARD).run()
    found = {one.case.name: one for one in report.results}
    assert [one.summary.error_count for one in report.results] == [0, 0, 0, 0], str(report)
    assert [found[name].passed for name in ("json_object_basic", "deterministic_output", "code_safety")] == [True] * 3
    # The demo model was not taught this tool: a call it is, and the format check says which one.
    call = found["tool_call_format"]
    assert call.json_passed == 5
    assert [one.check for one, _ in call.reasons()] in (["format"] * n for n in range(6))


def test_the_standard_cases_under_transformers(demo_engine: espalier.LoadedEngine) -> None:
    check_standard(demo_engine)


def test_each_expectation_holds_where_the_configuration_demands_it(demo_engine: espalier.LoadedEngine) -> None:
    cases = [
        TestCase.from_json(
            {"name": "schema", "prompt": "A user", "json_schema": SCHEMA, "expected_json_schema": SCHEMA}
        ),
        TestCase.from_json(
            {"name": "broken", "prompt": "Tell a story", "expected_json_schema": SCHEMA, "max_tokens": 8}
        ),
        TestCase.from_json(
            {"name": "call", "prompt": "Wake me", "tools": TOOLS, "tool_choice": "required", "expected_tool_call": CALL}
        ),
    ]
    report = Harness(demo_engine).add(*cases).run()
    assert [one.passed for one in report.results] == [True, False, True], str(report)
    assert "try: the text was cut at 8 tokens" in str(report) or "try: constrain it" in str(report)


@pytest.mark.slow
def test_the_standard_cases_on_llama_cpp() -> None:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    with espalier.load(str(demo_model() / "demo.gguf")) as engine:
        check_standard(engine)
