"""ToolCalls: the laws for every format and choice, walks that parse, calls that are accepted, and a slow recogniser."""

from __future__ import annotations

import json
import random
import re
from functools import cache
from typing import Any

import jsonschema
import pytest

import tests.tokenizers as tokenizers
from espalier import JsonSchema, Regex, ToolCalls, Vocab
from espalier.chat.reading.turn_parser import parse_turn
from espalier.chat.wire.formats import WireFormat, wire_format
from espalier.constraints.compiler import Compiler
from espalier.constraints.tools.grammar import delimiters
from espalier.constraints.verdict import judge, parse
from espalier.tokens import mask as masks
from tests.laws import check_completion, check_matcher
from tests.tool_texts import FORMATS, TOOLS, random_call, written

CHOICES = ("auto", "required", "none", "read")
MARKED = [name for name in FORMATS if wire_format(name).marker]


def with_specials(*names: str) -> Vocab:
    """Bytes, and the delimiters of these formats as special tokens."""
    texts = list(dict.fromkeys(piece for name in names for piece in delimiters(ToolCalls(TOOLS, format=name))))
    texts = [text for text in texts if len(text) > 1 and not text.startswith("<function") and text != ">"]
    specials = {256: "<eos>"} | {257 + i: text for i, text in enumerate(texts)}
    tokens = [*(bytes([b]) for b in range(256)), *[b""] * len(specials), b'{"', b"</tool", b'": ', b"[TOOL", b" {"]
    return Vocab.from_tokens(tokens, eos_ids=[256], special_ids=specials)


@cache
def compiler(name: str) -> Compiler:
    made = {
        "bytes": Vocab.bytes,
        "byte-level": tokenizers.byte_level_vocab,
        "special": lambda: with_specials(*FORMATS),
        "tekken": tokenizers.tekken_vocab,
    }
    return Compiler(made[name]())


def texts(wire: WireFormat, choice: str) -> tuple[list[str], list[str]]:
    """Of the language, and not of it."""
    one, two = ("read", {"path": 'a"é'}), ("search", {"query": "x", "mode": None, "tags": []})
    read, both = written(wire, one), written(wire, one, two)
    free = ["", "Hi {é} <tool"]
    before = f"So: {read}"
    good = {"auto": [*free, both], "required": [read, both], "none": free, "read": [read]}[choice]
    bad = {"auto": [read[:-1]], "required": free, "none": [read], "read": ["", both, before]}[choice]
    if wire.marker:
        good += [before] if choice == "auto" else []
        bad += [before] if choice == "none" else []
    return good, bad


@pytest.mark.parametrize("vocab", ["bytes", "byte-level", "special"])
@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", FORMATS)
def test_laws(name, choice, vocab):
    good, bad = texts(wire_format(name), choice)
    one = compiler(vocab)
    compiled = one.compile(ToolCalls(TOOLS, format=name, choice=choice))
    check_matcher(compiled, trie=one.trie, accepted=good[-2:], rejected=bad, walks=1)


@pytest.mark.slow
def test_laws_on_a_large_vocabulary():
    one = compiler("tekken")
    good, bad = texts(wire_format("hermes"), "auto")
    compiled = one.compile(ToolCalls(TOOLS, format="hermes"))
    check_matcher(compiled, trie=one.trie, accepted=good[-1:], rejected=bad, walks=1)


def test_laws_with_content():
    one = compiler("byte-level")
    spec = ToolCalls(TOOLS, format="hermes", content=Regex("[a-z ]*"))
    call = written(wire_format("hermes"), ("now", {}))
    check_matcher(one.compile(spec), trie=one.trie, accepted=["", "a b", call], rejected=["A", f"a {call}"])


# Special tokens


def spelled(compiled: Any, tokens: list[int]) -> str:
    vocab = compiled.vocab
    return b"".join(compiled.spelled.get(token) or vocab.bytes_of(token) for token in tokens).decode()


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("name", FORMATS)
def test_pieces_that_are_special_tokens_are_met_as_either(name, choice):
    one, wire = compiler("special"), wire_format(name)
    compiled = one.compile(ToolCalls(TOOLS, format=name, choice=choice))
    known = {text: token for token, text in one.vocab.special_texts.items()}
    text = wire.lead + written(wire, ("read", {"path": "[ARGS]<tool_call>"}), ("now", {}))
    special = [piece for piece in delimiters(compiled.spec) if piece in known]
    assert {token: piece.encode() for piece in special for token in [known[piece]]} == compiled.spelled
    rng = random.Random(7)
    for _ in range(8):
        matcher, tokens = compiled.matcher(), []
        inside = text.index("[ARGS]<tool_call>") - 1, text.index("[ARGS]<tool_call>") + 17
        at = 0
        while at < len(text):
            piece = next((p for p in special if text.startswith(p, at) and not inside[0] < at < inside[1]), None)
            if piece is not None and rng.random() < 0.5:
                tokens.append(known[piece])
                at += len(piece)
            else:
                tokens += text[at].encode()
                at += 1
        for token in tokens:
            matcher.advance(token)
        assert matcher.is_accepting
        assert spelled(compiled, tokens) == text


@pytest.mark.parametrize("name", MARKED)
def test_a_marker_token_comes_between_characters_of_free_text_only(name):
    one = compiler("special")
    compiled = one.compile(ToolCalls(TOOLS, format=name))
    marker = one.vocab.special_id(wire_format(name).marker)
    if marker is None:
        assert name in ("functionary", "function_gemma", "gemma4", "upstream")  # not one token
        return
    matcher = compiled.matcher()
    for token, allowed in ((None, True), ("é".encode()[0], False), ("é".encode()[1], True)):
        if token is not None:
            matcher.advance(token)
        assert matcher.allows(marker) == allowed
    silent = one.compile(ToolCalls(TOOLS, format=name, choice="none"))
    assert not silent.matcher().allows(marker)
    assert not silent.accepts(f"a {wire_format(name).marker}")
    assert silent.spelled == {}
    matcher.advance(marker)
    assert matcher.is_accepting  # a mention
    matcher = compiled.matcher()
    matcher.advance(marker)
    assert not matcher.is_accepting
    assert not matcher.allows(marker)


# Walks through the mask


def walk(compiled: Any, rng: random.Random, begin: str) -> str:
    """A random text of the language that begins like that, if it can."""
    matcher, tokens = compiled.matcher(), []
    for byte in begin.encode():
        if not matcher.allows(byte):
            break
        matcher.advance(byte)
        tokens.append(byte)
    for _ in range(rng.randint(0, 120)):
        ids = [int(i) for i in masks.allowed_ids(matcher.mask(), compiled.vocab.width)]
        ids = [i for i in ids if i not in compiled.vocab.eos_ids]
        if not ids:
            break
        # What closes things is likely, so that calls end.
        closing = [i for i in ids if i < 128 and chr(i) in '"}])>\n']
        token = rng.choice(closing if closing and rng.random() < 0.3 else ids)
        matcher.advance(token)
        tokens.append(token)
    check_completion(matcher)
    tokens += matcher.shortest_completion()[:-1]
    return spelled(compiled, tokens)


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("name", FORMATS)
def test_random_walks_are_calls_that_validate(name, choice):
    wire = wire_format(name)
    spec = ToolCalls(TOOLS, format=name, choice=choice, max_calls=3)
    rng = random.Random(f"{name} {choice}")
    counts = []
    for vocab in ("bytes", "special"):
        compiled = compiler(vocab).compile(spec)
        for round_ in range(12):
            begin = (wire.marker or wire.opener) if round_ % 2 else ""
            text = walk(compiled, rng, begin)
            found = judge(spec, text)
            assert found.valid is True, (text, found.errors)
            turn = parse_turn(text, format=wire, types=spec.types)
            assert not turn.fault
            counts.append(len(turn.calls))
            if turn.calls:
                called = [{"name": call.name, "arguments": json.loads(call.arguments)} for call in turn.calls]
                assert parse(spec, text) == called
            else:
                assert parse(spec, text) == text
    low, high = {"auto": (0, 3), "required": (1, 3), "none": (0, 0), "read": (1, 1)}[choice]
    assert low == min(counts)
    assert max(counts) <= high
    assert max(counts) >= min(high, 1)


@pytest.mark.parametrize("whitespace", ["natural", "compact", "flexible"])
@pytest.mark.parametrize("name", FORMATS)
def test_random_walks_through_open_schemas_validate(name, whitespace):
    several = {"anyOf": [{"type": "integer"}, {"type": "null"}, {"type": "array"}]}
    given = {"any": {"type": "object"}, "mix": {"properties": {"a": {}, "b": several}, "required": ["b"]}}
    options = {"format": name, "whitespace": whitespace}
    rng = random.Random(f"{name} {whitespace}")
    held = ToolCalls(given, content=JsonSchema({"type": "object"}), **options)
    for spec in (ToolCalls(given, choice="required", **options), held):
        compiled = compiler("bytes").compile(spec)
        for _ in range(6):
            text = walk(compiled, rng, "")
            found = judge(spec, text)
            assert found.valid is True, (text, found.errors)


@pytest.mark.parametrize("name", FORMATS)
def test_random_calls_are_accepted_and_come_back(name):
    wire, rng = wire_format(name), random.Random(name)
    specs = [ToolCalls(TOOLS, format=name, choice=choice) for choice in ("auto", "required")]
    compiled = [compiler("bytes").compile(spec) for spec in specs]
    for _ in range(40):
        calls = [random_call(rng) for _ in range(rng.randint(1, 3))]
        text = written(wire, *calls)
        for spec, one in zip(specs, compiled, strict=True):
            assert one.accepts(text), text
            assert judge(spec, text).valid is True
            assert parse(spec, text) == [{"name": called, "arguments": given} for called, given in calls]
        if wire.marker:
            before = rng.choice(["So ", "{}", "é<", ""])
            assert compiled[0].accepts(before + text)
            assert judge(specs[0], before + text).valid is True


# A slow recogniser


def recognise(spec: ToolCalls, text: str) -> bool:
    """Whether a text is of the language, for the formats that write calls as JSON objects alone."""
    wire = spec.wire
    if spec.choice.mode == "auto":
        begun = text.lstrip(" \t\r\n")
        if not begun.startswith(("{", wire.lead or "{")):
            return True
        text = begun
    rest = text
    while True:
        rest = rest.removeprefix(wire.lead)
        try:
            value, end = json.JSONDecoder().raw_decode(rest)
        except ValueError:
            return False
        compact = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        if not is_call(wire, value) or natural(rest[:end]) != compact:
            return False
        rest = rest[end:]
        if not rest:
            return True
        separator = next((s for s in (wire.separator, wire.separator.rstrip(" ")) if rest.startswith(s)), None)
        if separator is None:
            return False
        rest = rest.removeprefix(separator)


def is_call(wire: WireFormat, value: Any) -> bool:
    if not isinstance(value, dict) or list(value) != [wire.name_key, wire.args_key]:
        return False
    schema = TOOLS.get(value[wire.name_key]) if isinstance(value[wire.name_key], str) else None
    return schema is not None and in_order(value[wire.args_key], schema)


def in_order(value: Any, schema: Any) -> bool:
    if not jsonschema.Draft202012Validator(schema).is_valid(value):
        return False
    if isinstance(value, dict):
        declared = list(schema["properties"])
        return sorted(value, key=declared.index) == list(value) and all(
            in_order(inner, schema["properties"][key]) for key, inner in value.items()
        )
    return not isinstance(value, float)


def natural(text: str) -> str:
    """Without the one space that may follow a comma or a colon."""
    return re.sub(r'("(?:[^"\\]|\\.)*")|([,:]) ', lambda found: found[1] or found[2], text, flags=re.DOTALL)


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("name", ["args", "tool_args", "openai", "llama3"])
def test_the_slow_recogniser_agrees(name, choice):
    wire, rng = wire_format(name), random.Random(f"{name}{choice}")
    spec = ToolCalls(TOOLS, format=name, choice=choice)
    compiled = compiler("bytes").compile(spec)
    seen = {True: 0, False: 0}
    for _ in range(250):
        text = written(wire, *(random_call(rng) for _ in range(rng.randint(1, 2))))
        if rng.random() < 0.2:
            text = rng.choice([" ", "\n", "<|python_tag|>", "a"]) + text
        variants = [text]
        for _ in range(4):
            at = rng.randrange(len(text) + 1)
            cut = rng.randint(0, 2)
            variants.append(
                text[:at] + rng.choice(["", " ", '"', "{", "}", ",", ":", "\n", "1", "a", "\\"]) + text[at + cut :]
            )
        for one in variants:
            expected = recognise(spec, one)
            assert compiled.accepts(one) == expected, one
            seen[expected] += 1
            if expected:
                assert judge(spec, one).valid is True, one
    assert min(seen.values()) > 50
