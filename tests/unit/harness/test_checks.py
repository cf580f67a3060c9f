"""Each check by hand: an output that meets it, one that does not, and the reason that a person reads."""

from __future__ import annotations

import json
from typing import Any

import pytest

from espalier.chat.reading.deltas import Turn
from espalier.chat.tools import ToolCall
from espalier.constraints.verdict import Verdict
from espalier.engines.base import Result, Usage
from espalier.harness.cases.case import TestCase
from espalier.harness.checks import CHECKS, MeasuredOutput, failures, is_same


def measured(text: str = "", *, latency: float = 0.0, tax: float | None = 0.0, rate: float | None = 0.0, **more: Any):
    calls = tuple(ToolCall(index=i, name=n, arguments=a) for i, (n, a) in enumerate(more.pop("calls", ())))
    fields: dict[str, Any] = {"finish_reason": "stop", "stop_reason": None, "seed": 0} | more
    usage = Usage(prompt_tokens=1, completion_tokens=3)
    result = Result(text=text, token_ids=(), usage=usage, turn=Turn(content=text, calls=calls), **fields)
    return MeasuredOutput(result=result, latency=latency, tax=tax, rejection_rate=rate)


CALL = {"expected_tool_call": {"name": "f", "arguments": {"a": {"b": 1}}, "matches": {"p": "^/etc"}}}
GOOD_CALL = '{"a": {"b": 1, "c": 2}, "p": "/etc/hosts"}'
G = ("g", "{}")
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}

ROWS: list[tuple[str, dict[str, Any], MeasuredOutput, MeasuredOutput, str]] = [
    ("constraint", {}, measured(), measured(verdict=Verdict(valid=False, judge="re", errors=("no",))), "breaks its"),
    ("format", {"expected_format": "b+"}, measured("abbc"), measured("ac"), "is not found in 'ac'"),
    ("json", {"expected_json": True}, measured(' {"a": 1}\n'), measured("Sure! {}"), "is not JSON: Expecting value"),
    ("json", {"expected_json": True}, measured("[]"), measured("[NaN]"), "NaN is no JSON"),
    ("schema", {"expected_json_schema": SCHEMA}, measured('{"a": 1}'), measured('{"a": "1"}'), "$.a"),
    ("schema", {"expected_json_schema": SCHEMA}, measured('{"a": 1}'), measured("{"), "not JSON"),
    ("banned", {"banned_content": ["SUDO"]}, measured("ls"), measured("x sudo y"), "'SUDO' at character 2"),
    ("required", {"required_content": ["Hello"]}, measured("hELLO"), measured("hi"), "lacks 'Hello'"),
    ("contains", {"contains": [r"\d{2}"]}, measured("a12"), measured("a1"), "is not found"),
    ("not_contains", {"not_contains": [r"\d{2}"]}, measured("a1"), measured("a12"), "is found in 'a12'"),
    ("tool_call", CALL, measured(calls=[("f", GOOD_CALL)]), measured("hi"), "there is no tool call"),
    ("tool_call", CALL, measured(calls=[G, ("f", GOOD_CALL)]), measured(calls=[G]), "f is not called"),
    (
        "tool_call",
        CALL,
        measured(json.dumps({"tool": "f", "args": json.loads(GOOD_CALL)})),
        measured(calls=[("f", '{"a": {"b": true}, "p": "/etc"}')]),
        "is {'b': True}, not {'b': 1}",
    ),
    ("tool_call", CALL, measured(calls=[("f", GOOD_CALL)]), measured(calls=[("f", '{"a": {"b": 1}}')]), "'p' of f"),
    ("tax", {"max_tax": 1}, measured(tax=1.0), measured(tax=1.5), "cost 1.500 nats, and the limit is 1"),
    ("tax", {"max_tax": 1}, measured(tax=1.0), measured(tax=None), "was not measured"),
    ("rejection_rate", {"max_rejection_rate": 0.5}, measured(rate=0.5), measured(rate=0.51), "51.0% of the tokens"),
    ("latency", {"max_latency": 2}, measured(latency=2), measured(latency=2.5), "2.500 s for 3 tokens"),
]


@pytest.mark.parametrize(("name", "fields", "good", "bad", "reason"), ROWS)
def test_a_check_passes_what_meets_it_and_says_why_not(
    name: str, fields: dict[str, Any], good: MeasuredOutput, bad: MeasuredOutput, reason: str
) -> None:
    case = TestCase.from_json({"name": "c", "prompt": "p", **fields})
    assert failures(case, good) == ()
    (found,) = failures(case, bad)
    assert found.check == name
    assert reason in found.reason
    assert found.remedy


def test_every_check_is_tried() -> None:
    assert {row[0] for row in ROWS} == set(CHECKS)


def test_a_cut_text_says_so_first() -> None:
    case = TestCase(name="c", prompt="p", expected_json=True)
    (found,) = failures(case, measured('{"a"', finish_reason="length"))
    assert found.remedy.startswith("the text was cut at 3 tokens: raise max_tokens")


def test_true_is_not_one() -> None:
    assert not is_same(1, True)
    assert not is_same({"a": [True]}, {"a": [1]})
    assert is_same({"a": [1.0]}, {"a": [1], "b": 2})


def test_an_expression_that_never_ends_is_a_failure_and_not_a_hang(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("espalier.constraints.slow_patterns.JUDGE_SECONDS", 0.5)
    case = TestCase(name="c", prompt="p", contains=("^(a+)+$",))
    (found,) = failures(case, measured("a" * 40 + "b"))
    assert "took too long" in found.reason


def test_a_schema_that_takes_the_judge_a_lifetime_is_a_failure_and_not_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("espalier.harness.checks.JUDGE_SECONDS", 0.05)
    twice = {  # each level of the document is judged twice, for each time that the level above it is
        f"d{i}": {
            "anyOf": [
                {"properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}, "required": ["b"]},
                {"properties": {"a": {"$ref": f"#/$defs/d{i + 1}"}}},
            ]
        }
        for i in range(40)
    }
    schema = {"$defs": twice | {"d40": {"type": "integer"}}, "$ref": "#/$defs/d0"}
    case = TestCase(name="a", prompt="b", expected_json_schema=json.dumps(schema))
    found = failures(case, measured('{"a":' * 40 + "1" + "}" * 40))
    assert [one.check for one in found] == ["schema"]
    assert "could not be judged" in found[0].reason
