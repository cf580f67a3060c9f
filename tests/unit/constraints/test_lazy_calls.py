"""Calls that are explored on demand allow exactly what the whole grammar of the calls allows."""

from __future__ import annotations

import random

import numpy as np
import pytest

from espalier import ToolCalls, Vocab
from espalier.chat.wire.formats import wire_format
from espalier.constraints.compiler import Compiler
from espalier.constraints.matching.automaton import compile_automaton
from espalier.constraints.tools.arguments import explored, outline
from espalier.constraints.tools.compile import tool_calls_language
from espalier.constraints.tools.grammar import checked_afterwards
from espalier.constraints.tools.plain import plain_least
from espalier.constraints.tools.schemas import tools_of
from espalier.errors import LimitExceeded, SpecError, UnsupportedError
from espalier.schema.lazy.rules import SchemaRules
from espalier.schema.lowering.layout import layout
from espalier.schema.lowering.objects import MAX_PROPERTIES
from espalier.schema.normal.expand import expand
from tests.examples import examples
from tests.tool_texts import FORMATS, TOOLS, random_call, written

JSON_FORMATS = [name for name in FORMATS if wire_format(name).has_json]
LONGER = [
    b'{"',
    b'": ',
    b'"}',
    b"}}",
    b'", "',
    b"read",
    b"read_file",
    b'": {"',
    b"search",
    b"<tool",
    b"_call>",
    b"\n{",
    b'": "',
]
WORDS = Compiler(Vocab.from_tokens([*(bytes([b]) for b in range(256)), *LONGER, b""], eos_ids=[256 + len(LONGER)]))


def whole(spec, compiler):
    return compile_automaton(tool_calls_language(spec, compiler), spec, compiler.vocab, compiler.trie)


@pytest.mark.parametrize("name", JSON_FORMATS)
@pytest.mark.parametrize("choice", ["auto", "required", "search"])
def test_masks_are_those_of_the_whole_grammar(name, choice):
    rng = random.Random(f"{name}{choice}")
    whitespace = rng.choice(["natural", "compact", "flexible"])
    spec = ToolCalls(TOOLS, format=name, choice=choice, whitespace=whitespace, max_calls=2)
    lazy, full = WORDS.compile(spec), whole(spec, WORDS)
    for _ in range(examples(2)):
        text = written(wire_format(name), *(random_call(rng) for _ in range(rng.randint(1, 2)))).encode()
        one, other = lazy.matcher(), full.matcher()
        for byte in text:
            assert np.array_equal(one.mask(), other.mask())
            allowed = [token for token in range(WORDS.vocab.width) if one.allows(token)]
            token = byte if byte in allowed and rng.random() < 0.97 else rng.choice(allowed)
            if token in WORDS.vocab.eos_ids:
                break
            one.advance(token)
            other.advance(token)


def test_special_tokens_begin_and_end_calls():
    texts = {300: "<|call|>", 301: "<|channel|>", 302: "<|message|>", 303: "<|constrain|>", 304: "<|start|>"}
    tokens = [*(bytes([b]) for b in range(256)), *[b""] * 49]
    vocab = Vocab.from_tokens(tokens, eos_ids=[256], special_ids={256: "<eos>", **texts})
    compiled = Compiler(vocab).compile(ToolCalls(TOOLS, format="harmony"))
    ids = {text: token for token, text in texts.items()}
    for last in ("<|call|>", ""):
        text = f"<|channel|>commentary to=functions.now <|constrain|>json<|message|>{{}}{last}"
        matcher = compiled.matcher()
        while text:
            special = next((one for one in ids if text.startswith(one)), None)
            token = ord(text[0]) if special is None else ids[special]
            assert matcher.allows(token), text
            matcher.advance(token)
            text = text[len(special or text[0]) :]
        assert matcher.allows(256)


def plain(rng: random.Random, depth: int = 0):
    """A random schema of the plain keywords."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "several"] + ["object", "array"] * (depth < 3)
    kind = "object" if not depth else rng.choice(kinds)
    low, high = sorted(rng.choices(range(6), k=2))
    if kind == "object":
        names = rng.sample(["a", "b b", 'q"', "long_name", "\\"], rng.randint(0, 4))
        found = {"type": kind, "properties": {name: plain(rng, depth + 1) for name in names}}
        found["required"] = [name for name in names if rng.random() < 0.6]
        return found | rng.choice(({}, {"additionalProperties": False}, {"additionalProperties": True}))
    if kind == "array":
        return {"type": kind, "items": plain(rng, depth + 1)} | rng.choice(({}, {"minItems": low, "maxItems": high}))
    if kind == "enum":
        return {"enum": rng.sample(["", "x", 'say "x"', None, True, False, 3, 0], rng.randint(1, 4))}
    if kind == "several":
        return {"type": rng.sample(["string", "number", "boolean", "null", "integer"], 2), "description": "either"}
    more = {
        "string": ({}, {"minLength": low, "maxLength": high}, {"minLength": low}),
        "integer": ({}, {"minimum": -high, "maximum": low}, {"minimum": 1, "maximum": 500}, {"maximum": 20}),
    }
    return {"type": kind, "title": "T"} | rng.choice(more.get(kind, ({},)))


def test_a_plain_schema_is_enforced_as_a_whole_and_as_short_as_it_says():
    rng = random.Random(5)
    seen = 0
    for _ in range(examples(100)):
        schema = plain(rng)
        least = plain_least(schema)
        if least is None:
            continue
        seen += 1
        rules = SchemaRules(expand(schema), layout(rng.choice(["natural", "compact", "flexible"])))
        assert rules.gaps == ()
        assert rules.start.least == least, schema
        (tool,) = tools_of([{"name": "f", "parameters": schema, "strict": True}])
        assert checked_afterwards(tool, ToolCalls([tool], choice="required", whitespace="indented")) == ()
    assert seen > examples(100) * 0.8


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string"},
        {},
        {"type": "object", "properties": {"a": {"type": "string", "pattern": "x"}}},
        {"type": "object", "properties": {"a": {"$ref": "#"}}},
        {"type": "object", "required": ["a"]},
        {"type": "object", "properties": {"a": {"type": "integer", "minimum": 10}}},
        {"type": "object", "properties": {"a": {"type": "string", "minLength": True}}},
        {"type": "object", "properties": {"a": {"type": "array", "items": {"type": "null"}, "uniqueItems": True}}},
        {"type": "object", "properties": {"a": {"type": "string", "minLength": 2, "maxLength": 1}}},
        {"type": "object", "properties": {"a": False}},
        {"type": "object", "minProperties": 1},
        {"type": "object", "properties": {"a": {"enum": []}}},
        {"type": "object", "description": 3},
    ],
)
def test_what_is_not_surely_plain_is_lowered(schema):
    assert plain_least(schema) is None


def test_a_schema_that_is_too_large_is_refused_before_text_is_generated():
    many = {f"p{i}": True for i in range(MAX_PROPERTIES + 1)}
    with pytest.raises(LimitExceeded, match="the tool f: "):
        WORDS.compile(ToolCalls({"f": {"type": "object", "properties": many}}, choice="required"))


def test_errors_of_arguments_name_the_tool_before_text_is_generated():
    impossible = {"type": "object", "properties": {"a": False}, "required": ["a"]}
    with pytest.raises(SpecError, match="the tool f: no document can satisfy this schema"):
        WORDS.compile(ToolCalls({"f": impossible}))
    given = {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^(a*)b\1$"}}}
    with pytest.raises(UnsupportedError, match="the tool f: pattern at /properties/a"):
        WORDS.compile(ToolCalls([{"name": "f", "parameters": given, "strict": True}]))


def test_arguments_are_explored_when_a_call_reaches_them(monkeypatch):
    found = []

    def spied(tool, *args, **options):
        found.append(tool.name)
        return explored(tool, *args, **options)

    monkeypatch.setattr("espalier.constraints.tools.lazy_calls.explored", spied)
    matcher = WORDS.compile(ToolCalls(TOOLS, format="openai", choice="required")).matcher()
    for byte in b'{"name": "now", "arguments"':
        matcher.mask()
        matcher.advance(byte)
    assert set(found) <= {"now"}
    for byte in b": {}}":
        matcher.mask()
        matcher.advance(byte)
    assert found == ["now"]


def test_tools_with_one_schema_share_its_outline():
    one, other = tools_of([{"name": name, "parameters": {"type": "object", "minProperties": 1}} for name in "fg"])
    assert outline(one, "natural", "schema") is outline(other, "natural", "schema")
