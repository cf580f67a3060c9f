"""Random calls are done to the end, or refused with an error of ours that names an argument; nothing else is raised."""

from __future__ import annotations

from random import Random
from typing import Any

import jsonschema
import pytest

from espalier.agents.table import TOOLS, VERBS
from espalier.agents.tool import LogitTool
from tests.examples import examples
from tests.server_app import MemoryStore, fake_engine

DEEP: Any = {}
for _ in range(60):
    DEEP = {"properties": {"a": DEEP}}
VALUES: dict[str, list[Any]] = {
    "prompt": ["Hi", "", "\ud800", "a\x00b", "<|im_end|>"],
    "system_prompt": ["Be brief.", "", "\udfff"],
    "preset": ["json_strict", "safe_chat", "none", "", "../../etc", "\x00"],
    "grammar": ['root ::= "a"', "root ::= root", "", "@json_object", "@none", "root ::= x", "\ud800"],
    "json_schema": [
        {"type": "object"},
        {"type": "nonsense"},
        {"$ref": "#/none"},
        {"$ref": "http://x/y"},
        "{",
        "[]",
        "true",
        True,
        False,
        {"enum": []},
        {"pattern": "("},
        {"type": "string", "minLength": -1},
        DEEP,
        {"\ud800": 1},
        {"not": {}},
        {"type": "integer", "minimum": float("nan")},
        {"allOf": [{"type": "string"}, {"type": "null"}]},
    ],
    "regex": ["a+", "(", "", "(a+)+b", "a{500}", "[", "\ud800", "(?=x)", r"\p{L}"],
    "choices": [["a", "b"], [""], ["a", "a"], ["\ud800"], ["x" * 5000]],
    "constraint": [
        {"kind": "regex", "pattern": "a"},
        {},
        {"kind": "none"},
        {"kind": 3},
        {"kind": "all_of", "members": []},
        {"kind": "wordlist", "lang": "es", "top": 5},
        {"kind": "regex", "pattern": 3},
    ],
    "safety": [
        "strict",
        "none",
        {},
        {"categories": ["pii"]},
        {"categories": "pii"},
        {"nonsense": 1},
        {"patterns": [3]},
    ],
    "temperature": [0, 1.5, 1e308, float("inf"), float("nan")],
    "top_k": [0, 1, 10**30],
    "top_p": [0, 0.5, 1],
    "min_p": [0, 1],
    "repetition_penalty": [0, 1.1, 1e300],
    "max_tokens": [1, 3, 5.0, 10**9, 10**30],
    "seed": [0, 2**32 - 1],
    "stop": ["a", ["a", "b"], "", [], ["\ud800"]],
    "strategy": ["mask", "beam", "smc", "none", "", "native"],
    "schema_in_prompt": [True, False],
    "closed": [True, False],
    "seeds": [1, 2],
    "on_budget": ["close", "truncate", "error"],
    "reasoning": ["auto", "think", "none", ""],
    "max_reasoning": [1, 10**12],
    "trace": [True, False],
    "available_tools": [
        [{"name": "f", "parameters": {"type": "object"}}],
        [{}],
        [{"name": ""}],
        [{"name": "f"}, {"name": "f"}],
        [{"name": "f", "parameters": {"type": "nonsense"}}],
        [{"name": "a b c", "parameters": {}}],
    ],
    "test_prompts": ["Hi", [""], ["a", "b"], "\ud800"],
    "iterations": [0, 1, 2],
    "safety_preset": ["strict", "none", ""],
    "expected_format": ["a", "(", ""],
    "expected_json": [True],
    "expected_json_schema": [{"type": "object"}, {"type": 3}, "{", True],
    "banned_content": [["x"], [""], []],
    "required_content": [["x"], [""]],
    "cases": [
        [{"name": "a", "prompt": "b"}],
        [{}],
        [{"name": "a", "prompt": "b", "nonsense": 1}],
        [{"name": "a", "prompt": "b"}, {"name": "a", "prompt": "c"}],
    ],
    "search_terms": [["a"], ["\ud800"], ["ñ", " "]],
    "category": ["digits", "latin"],
    "engine": ["transformers", "gbnf", "openai"],
    "instances": [[{"a": 1}], [float("nan")], [{"\ud800": 1}], [], [DEEP]],
    "allow_checked": [True],
    "text": ["sudo rm -rf /", "", "\ud800", "a" * 2000],
    "categories": [["pii"], ["hate"]],
    "include": [["email"], ["none"], []],
    "patterns": [["x"], [""]],
    "regexes": [["a+"], ["("], ["(a+)+$"], [""]],
    "trace_id": ["trc_x", "", "\x00"],
    "limit": [1, 100],
    "after": ["x", ""],
}
"""Values that fit the schemas of the arguments, many of which mean nothing."""


def drawn(random: Random, name: str) -> dict[str, Any]:
    verb = VERBS[name]
    others = random.sample([*verb.properties], k=min(len(verb.properties), random.randrange(4)))
    chosen = dict.fromkeys([*verb.required, *others])
    found = {one: random.choice(VALUES[one]) for one in chosen}
    if "max_tokens" in verb.properties:
        found.setdefault("max_tokens", 3)
    return found


@pytest.fixture(scope="module")
def tool() -> LogitTool:
    return LogitTool(fake_engine("Hello."), traces=MemoryStore())


def test_the_values_are_those_of_all_arguments() -> None:
    assert set(VALUES) == {name for verb in VERBS.values() for name in verb.properties}


@pytest.mark.parametrize("name", VERBS)
def test_a_random_call_is_answered_or_refused_by_name(tool: LogitTool, name: str) -> None:
    random = Random(name)
    answered = refused = 0
    for _ in range(examples(40)):
        arguments = drawn(random, name)
        called, given = (name, arguments) if random.random() < 0.8 else ("logit", {"action": name, **arguments})
        reply = tool.call(called, given)
        assert reply.text
        if reply.is_error:
            refused += 1
            assert reply.error is not None
            assert reply.error.field in (*given, *VERBS[name].properties, "arguments"), (given, reply.error)
            assert reply.error.message
        else:
            answered += 1
            jsonschema.validate(reply.data, TOOLS[called].output_schema)
    assert answered + refused
