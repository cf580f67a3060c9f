"""Patterns on which `re` backtracks without end are recognised in advance, ordinary ones are not; both judges still
answer."""

from __future__ import annotations

import json
import random
import re
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from espalier import JsonSchema, Regex, Vocab
from espalier.constraints import slow_patterns
from espalier.constraints.compiler import Compiler
from espalier.constraints.verdict import judge
from espalier.errors import SchemaError
from espalier.schema.patterns.cost import is_quick
from espalier.schema.patterns.ecma import found

EXPLODING = "^(a|a)+$"
LONG = "a" * 60 + "!"


@pytest.mark.parametrize(
    "pattern",
    [
        r"^[a-z]+$",
        r"^\d{3}-\d{4}$",
        r"^(red|green|blue)$",
        r"[A-Z][a-z]{2,8}-\d{2}",
        r"^[^@]+@[^@]+\.[a-z]+$",
        "(?:abc)*",
        r"^#[0-9a-f]{6}$",
        r"^(?=.*\d)[a-z]+$",
        "^(?P<a>x)$",
        "^a(b)?c$",
    ],
)
def test_ordinary_patterns_are_quick(pattern: str) -> None:
    assert is_quick(pattern, 50)


@pytest.mark.parametrize(
    "pattern",
    [
        EXPLODING,
        "(a+)+$",
        "(a*)*b",
        "(?:a?){30}b",
        "(?x)( # [\n a|a)+ # ]",
        "(?i)a",
        "a?" * 30 + "a" * 30,
        "(a|a)" * 30,
        "a*" * 8 + "b",
        r"(\w+\s?)+$",
        "([]](a|a)+)",
        "[^]x](a|a)+[]]",
    ],
)
def test_patterns_with_too_many_ways_are_not(pattern: str) -> None:
    assert not is_quick(pattern, 60)


def test_what_is_quick_is_done_soon() -> None:
    """Random patterns against texts that they all but match."""
    random_ = random.Random(5)
    parts = ["a", "b", "[ab]", "(a|b)", "(ab)", "a*", "b+", "[ab]*", "(a|ab)", "(?:ba)*", "a?", "a{2,9}", "(a*b)", "|"]
    quick = 0
    for _ in range(400):
        pattern = "".join(random_.choice(parts) for _ in range(random_.randrange(1, 9))) + "c"
        text = "".join(random_.choice("ab") for _ in range(60))
        if is_quick(pattern, len(text)):
            quick += 1
            began = time.thread_time()
            re.search(pattern, text)
            assert time.thread_time() - began < 5, pattern  # an explosion takes years
    assert quick > 100


def test_a_value_is_tested_by_an_automaton_where_re_has_no_end() -> None:
    assert not found(EXPLODING, LONG)
    assert found(EXPLODING, LONG[:-1])
    with pytest.raises(SchemaError):
        Compiler(Vocab.bytes()).compile(JsonSchema({"enum": [LONG], "pattern": EXPLODING}))
    Compiler(Vocab.bytes()).compile(JsonSchema({"enum": [LONG], "not": {"pattern": EXPLODING}}))


@pytest.mark.parametrize(
    ("wanted", "kept"), [({"pattern": EXPLODING}, [LONG[:-1]]), ({"not": {"pattern": EXPLODING}}, [LONG, "b"])]
)
def test_a_value_that_is_an_object_is_tested_by_an_automaton_too(wanted: dict[str, object], kept: list[str]) -> None:
    schema = {"enum": [{"a": text} for text in (LONG, "b", LONG[:-1])], "properties": {"a": wanted}}
    compiled = Compiler(Vocab.bytes()).compile(JsonSchema(schema))
    assert [one["a"] for one in schema["enum"] if compiled.accepts(json.dumps(one))] == kept


SLUGS = {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+(-[a-z]+)*$"}}


@pytest.mark.parametrize(("text", "valid"), [('["a-b", "c"]', True), ('["a-b", "-c"]', False)])
def test_patterns_that_are_not_quick_are_judged_all_the_same(text: str, valid: bool) -> None:
    assert judge(JsonSchema(SLUGS), text).valid is valid


def test_a_search_that_hangs_on_another_is_asked_too() -> None:
    pattern = "^([a-z]+-?)+$"
    schema = {"if": {"pattern": pattern}, "then": {"const": "no"}, "else": {"pattern": "^([0-9]+-?)+$"}}
    assert judge(JsonSchema(schema), '"1-2"').valid is True
    assert judge(JsonSchema(schema), '"1-b"').valid is False


def test_judging_makes_no_new_validator_class_for_each_text(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making one took most of a millisecond, for each answer of a server. Threads keep their own searches."""
    schema = {"properties": {"a": SLUGS, "b": {"pattern": "^b$"}}, "$schema": "http://json-schema.org/draft-07/schema#"}
    assert judge(JsonSchema(schema), '{"a": ["x-y"], "b": "b"}').valid is True
    monkeypatch.setattr("jsonschema.validators.extend", lambda *_: pytest.fail("a class is made"))
    assert judge(JsonSchema(schema), '{"a": ["x-y"], "b": "c"}').valid is False
    with ThreadPoolExecutor(4) as pool:
        texts = [f'{{"b": "{"bc"[number % 2]}"}}' for number in range(40)]
        verdicts = pool.map(lambda text: judge(JsonSchema(schema), text).valid, texts)
    assert list(verdicts) == [True, False] * 20


@pytest.mark.slow
def test_a_judge_that_has_no_end_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slow_patterns, "JUDGE_SECONDS", 0.5)
    schema = {"anyOf": [{"type": "string", "pattern": EXPLODING}, {"enum": [LONG]}]}
    assert judge(JsonSchema(schema), f'"{LONG}"').valid is None
    assert judge(Regex("(a|a)+!?b?"), LONG + "!").valid is None
    assert judge(JsonSchema({"patternProperties": {EXPLODING: False}}), f'{{"{LONG}": 1}}').valid is None
