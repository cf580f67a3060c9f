"""Cases as values and as files: what is read, what is refused, and that the error says where."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import tomli_w
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.errors import InputError, TooLarge
from espalier.files.limits import CASES
from espalier.harness.cases.case import ExpectedCall, TestCase, read_timeout
from espalier.harness.cases.read import read_cases
from espalier.harness.cases.standard import STANDARD
from espalier.harness.cases.yaml_text import read_yaml
from tests.examples import examples

PEDRO = {
    "name": "json_output",
    "description": "d",
    "prompt": "Generate a user object",
    "system_prompt": "",
    "preset": "",
    "config": {"temperature": 0.1, "top_k": 40, "repetition_penalty": 1.0, "seed": -1, "max_tokens": 64},
    "grammar": "",
    "json_schema": "",
    "safety_preset": "",
    "filters": None,
    "expected_format": r"^\s*\{.*\}\s*$",
    "expected_json": True,
    "expected_json_schema": "",
    "banned_content": None,
    "required_content": [],
    "iterations": 0,
    "max_tokens": 0,
    "timeout": 30_000_000_000,
}


def write(folder: Path, name: str, text: str) -> Path:
    path = folder / name
    path.write_text(text, "utf-8")
    return path


def test_a_file_of_pedrocli_is_read_as_it_is(tmp_path: Path) -> None:
    (case,) = read_cases(write(tmp_path, "c.json", json.dumps([PEDRO])))
    assert (case.iterations, case.max_tokens, case.timeout, case.preset, case.grammar) == (1, None, 30.0, None, None)
    assert dict(case.config)["top_k"] == 40


FULL: dict[str, Any] = {
    "name": "all",
    "prompt": "p",
    "description": "d",
    "system_prompt": "s",
    "preset": "chat",
    "strategy": "jump",
    "config": {"temperature": 0.5},
    "json_schema": '{"type": "object"}',
    "safety_preset": "minimal",
    "filters": [{"type": "ban", "enabled": True, "options": {"phrases": ["x"]}}],
    "tools": [{"name": "f", "parameters": {"type": "object", "properties": {}}}],
    "tool_choice": "required",
    "expected_format": "a",
    "expected_json": True,
    "expected_json_schema": {"type": "object"},
    "banned_content": ["b"],
    "required_content": ["c"],
    "contains": ["d+"],
    "not_contains": ["e$"],
    "expected_tool_call": {"name": "f", "arguments": {"a": 1}, "matches": {"b": "^x"}},
    "max_tax": 0,
    "max_rejection_rate": 0.5,
    "max_latency": 1.5,
    "deterministic": True,
    "min_success_rate": 0.9,
    "iterations": 4,
    "max_tokens": 8,
    "timeout": "500ms",
}


@pytest.mark.parametrize("form", ["json", "toml", "yaml", "yml"])
def test_every_field_is_read_alike_from_every_form_and_round_trips(form: str, tmp_path: Path) -> None:
    wrapped = {"cases": [FULL]}
    text = {"json": json.dumps, "toml": tomli_w.dumps}.get(form, yaml.safe_dump)(wrapped)
    (case,) = read_cases(write(tmp_path, f"c.{form}", text))
    assert case.expected_tool_call == ExpectedCall(name="f", arguments={"a": 1}, matches={"b": "^x"})
    assert (case.max_tax, case.timeout, case.iterations) == (0, 0.5, 4)
    again = TestCase.from_json(json.loads(json.dumps(case.to_json())))
    assert again.to_json() == case.to_json()
    assert set(case.to_json()) == set(FULL)


def test_the_standard_cases_round_trip() -> None:
    assert [one.name for one in STANDARD] == [
        "json_object_basic",
        "tool_call_format",
        "deterministic_output",
        "code_safety",
    ]
    assert [TestCase.from_json(one.to_json()) for one in STANDARD] == [*STANDARD]


def test_defaults_hold_where_a_case_states_nothing(tmp_path: Path) -> None:
    text = "defaults: {iterations: 3, preset: chat}\ncases: [{name: a, prompt: p}, {name: b, prompt: p, iterations: 2}]"
    assert [(one.iterations, one.preset) for one in read_cases(write(tmp_path, "c.yaml", text))] == [
        (3, "chat"),
        (2, "chat"),
    ]


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"prompt": ""}, "a case has a prompt"),
        ({"expected": 1}, "no field 'expected'"),
        ({"contains": ["("]}, "is no regular expression"),
        ({"expected_format": "("}, "is no regular expression"),
        ({"banned_content": "sudo"}, "banned_content is a list"),
        ({"required_content": [False]}, "each of required_content is a text, not bool"),
        ({"expected_json_schema": {"type": "objekt"}}, "is not valid under|is not one of|objekt"),
        ({"expected_json_schema": "{"}, "is not JSON"),
        ({"config": {"temprature": 1}}, "temprature"),
        ({"config": {"n": 2}}, "n is 1"),
        ({"grammar": 'root ::= "a"', "json_schema": "{}"}, "one of them"),
        ({"expected_tool_call": {"nam": "f"}}, "expected_tool_call"),
        ({"max_tax": -1}, "max_tax is a number"),
        ({"max_latency": float("nan")}, "max_latency is a number"),
        ({"max_rejection_rate": 2}, "at most 1"),
        ({"iterations": 1.5}, "iterations is a whole number"),
        ({"timeout": 30}, "in nanoseconds"),
        ({"timeout": "soon"}, "no duration"),
        ({"timeout": 10**400}, "more than a year"),
        ({"timeout": f"{'9' * 400}s"}, "more than a year"),
        ({"timeout": "0.5ms"}, "at least a millisecond"),
        ({"tool_choice": "required"}, "tool_choice needs tools"),
        ({"name": "a\nb"}, "printable"),
        ({"filters": [{"typ": "ban"}]}, "no field 'typ'"),
    ],
)
def test_a_wrong_field_is_refused_by_file_and_case(fields: dict[str, Any], said: str, tmp_path: Path) -> None:
    path = write(
        tmp_path, "c.json", json.dumps([{"name": "ok", "prompt": "p"}, {"name": "bad", "prompt": "p"} | fields])
    )
    with pytest.raises(InputError, match=said) as caught:
        read_cases(path)
    assert "case 2" in str(caught.value)
    assert "c.json" in str(caught.value)


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("c.txt", "", "ends in"),
        ("c.json", "[", "is not JSON"),
        ("c.json", '[{"name": "a", "name": "b", "prompt": "p"}]', "'name' stands twice"),
        ("c.json", "[]", "has 0 cases"),
        ("c.json", '{"case": []}', "no field 'case'"),
        ("c.toml", "x = ", "is not TOML"),
        ("c.yaml", "a: [", "is not YAML at line"),
        ("c.yaml", "- name: a\n  name: b\n", "line 2, column 3: the key 'name' stands twice"),
        ("c.yaml", "- &x {name: a}\n- *x\n", r"aliases \(\*x\) are not read"),
        ("c.yaml", "- {1: a}\n", "the key 1 is no text"),
        ("c.yaml", "- !!python/object/apply:os.system ['true']\n", "is not YAML at line 1"),
        ("c.yaml", "- {name: a, prompt: no}\n", "prompt is a text, not bool"),
        ("c.yaml", "- {name: a, prompt: 2026-13-45}\n", "is not YAML"),
        ("c.yaml", "a: 1\n---\nb: 1\n", "is not YAML"),
        ("c.yaml", "- {name: a, prompt: p}\n- {name: a, prompt: q}\n", "two cases are called 'a'"),
    ],
)
def test_a_file_that_is_wrong_is_refused_by_its_name(name: str, text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said) as caught:
        read_cases(write(tmp_path, name, text))
    assert name in str(caught.value)


def test_yaml_of_many_levels_or_values_is_too_large(tmp_path: Path) -> None:
    with pytest.raises(TooLarge, match="nested too deeply"):
        read_cases(write(tmp_path, "c.yaml", "[" * 200_000))
    small = type(CASES)(noun="file of cases", bytes=100, depth=8, values=50, field="cases")
    with pytest.raises(TooLarge, match="more than 50 values"):
        read_yaml("[" + "1," * 60 + "]", small, "c.yaml")


@given(st.text(alphabet="ab:-[]{}&*!?|>\"' \n\t#,%@1~<\\", max_size=60))
@settings(max_examples=examples(200))
def test_no_text_makes_the_yaml_reader_raise_anything_else(text: str) -> None:
    try:
        found = read_yaml(text, CASES, "c.yaml")
    except InputError:
        return
    assert found == yaml.safe_load(text)


def test_durations() -> None:
    assert [read_timeout(one) for one in ("30s", "1.5 s", "250ms", "2m", 10**9, 0)] == [30, 1.5, 0.25, 120, 1, 0]
