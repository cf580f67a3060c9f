"""Constraints as grammar text: llama.cpp's own grammar takes it, and allows what our matcher allows."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

import espalier
from espalier import (
    After,
    AllOf,
    AnyOf,
    Ban,
    Choice,
    Free,
    Gbnf,
    JsonObject,
    JsonSchema,
    Regex,
    Thinking,
    ToolCalls,
    Vocab,
    Wordlist,
)
from espalier.constraints.compiler import Compiler
from espalier.constraints.to_gbnf import portable
from espalier.errors import CapabilityError
from espalier.grammar.llama_limits import within_limits
from espalier.grammar.parser import parse
from espalier.grammar.printer import print_grammar
from espalier.tokens import mask as masks
from tests.llama_grammar import LlamaGrammar, LlamaVocab, llama_bytes

VOCAB = Vocab.bytes()
COMPILER = Compiler(VOCAB)
COMPARED = np.array([*range(1, 128), 256])
"""ASCII and EOS: of a started character llama.cpp knows only a part, and it never takes NUL."""
USER = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "tags": {"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 3},
        "score": {"type": "number"},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
TOOLS = [
    {
        "name": "weather",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
    {"name": "stop", "parameters": {"type": "object", "properties": {}}},
]
SPECS = {
    "gbnf": Gbnf('root ::= item ("," item)*\nitem ::= [a-c]{1,3} | "é" item'),
    "left-recursive": Gbnf('root ::= expr\nexpr ::= expr "+" term | term\nterm ::= [0-9]+'),
    "underscores": Gbnf('start ::= my_rule my_rule\nmy_rule ::= "a" | "b"?', root="start"),
    "nullable-loop": Gbnf('root ::= ("a"? "b"?)* "c"'),
    "other-root": Gbnf('root ::= "no"\nmain ::= "yes" root?', root="main"),
    "dead-rule": Gbnf('root ::= "a" | dead\ndead ::= "b" dead'),
    "choice": Choice(["yes", "no", "not yet", ""]),
    "many-choices": Choice([f"item-{n * 7919 % 5000}" for n in range(3000)]),
    "regex": Regex(r"(?i:abc)+-\d{2,4}(\.x)?"),
    "regex-anchored": Regex(r"^a( b|c$|d)$"),
    "long-count": Regex(r"[ab]{0,3000}c"),
    "nested-count": Regex(r"((ab?){1,40},){1,60}"),
    "json": JsonObject(),
    "json-compact": JsonObject(whitespace="compact", max_depth=2, kinds=("array", "object")),
    "json-indented": JsonObject(whitespace="indented", max_depth=2),
    "json-flexible": JsonObject(whitespace="flexible"),
    "schema": JsonSchema(USER),
    "schema-compact": JsonSchema(USER, whitespace="compact"),
    "schema-recursive": JsonSchema(
        {"type": "object", "properties": {"v": {"type": "boolean"}, "next": {"$ref": "#"}}, "required": ["v"]}
    ),
    "wordlist": Wordlist(words=["cat", "dog", "don't", "mouse"], lang="en", max_run=2),
    "ban": Ban(["bad", "worse"]),
    "all-of-regular": AllOf(Regex("[a-z ]{0,12}"), Ban(["ab", "zz"])),
    "any-of": AnyOf(Choice(["none"]), JsonSchema({"type": "array", "items": {"type": "integer"}}), Regex("n[0-9]+")),
    "free": Free({"#": Regex("[0-9]{2};")}),
    "after": After("END", Regex("[0-9]+")),
    "after-own-space": After("END", Regex(" ?[0-9]+")),
    "after-no-gap": After("END", Choice(["x"]), gap=False),
    "after-opens": After("</t>", JsonObject(whitespace="compact", max_depth=1), opens="<t>"),
    "after-in-prompt": After("END", Regex("[0-9]+"), in_prompt="yes"),
    "thinking": Thinking(JsonSchema({"enum": [1, 2]})),
    "tools-required": ToolCalls(TOOLS, choice="required", max_calls=2),
    "tools-auto": ToolCalls(TOOLS, choice="auto", format="hermes"),
    "tools-auto-plain": ToolCalls(TOOLS, choice="auto", format="args", max_calls=1),
    "tools-none": ToolCalls(TOOLS, choice="none", format="hermes"),
    "nested": AnyOf(After("->", AnyOf(Regex("a+"), Choice(["b"]))), Choice(["b"])),
}


@pytest.fixture(scope="module")
def llama() -> LlamaVocab:
    return llama_bytes()


def walk(llama, spec, text, random, before="", length=40):
    """One random way, with the masks of both compared at every step; mostly towards the end of the text."""
    ours = COMPILER.compile(spec).matcher(before=before)
    theirs = LlamaGrammar(llama, text)
    read = b""
    try:
        for step in range(length):
            mine, his = masks.unpack(ours.mask(), VOCAB.width), theirs.mask()
            assert np.array_equal(mine[COMPARED], his[COMPARED]), (
                f"after {read!r}: only ours {bytes(np.flatnonzero(mine & ~his)[:20].astype(np.uint16) % 256)!r}, "
                f"only llama.cpp's {bytes(np.flatnonzero(his & ~mine)[:20].astype(np.uint16) % 256)!r}"
            )
            usable = [int(i) for i in COMPARED[mine[COMPARED]]]
            if not usable or (256 in usable and random.random() < 0.3):
                return
            usable = [i for i in usable if i != 256]
            if not usable:
                return
            hurry = [t for t in ours.shortest_completion()[:1] if t in usable] if step > 15 else []
            byte = hurry[0] if hurry and random.random() < 0.8 else random.choice(usable)
            read += bytes([byte])
            ours.advance(byte)
            theirs.accept(byte)
    finally:
        theirs.close()


@pytest.mark.parametrize("name", SPECS)
def test_llama_cpp_allows_what_our_matcher_allows(llama, name):
    spec = SPECS[name]
    text = portable(spec, COMPILER)
    random = Random(name)
    for _ in range(8):
        walk(llama, spec, text, random)


@pytest.mark.parametrize("before", ["", "<think>\nhm", "<think>\nhm\n</think>\n\n", "<think>a</think> <think>b"])
def test_what_the_prompt_has_begun_goes_on_from_there(llama, before):
    spec = Thinking(Regex("[a-c]{2,5}"))
    text = portable(spec, COMPILER, before=before)
    random = Random(before)
    for _ in range(6):
        walk(llama, spec, text, random, before=before)


def test_the_text_is_a_grammar_of_ours_too_and_says_the_same():
    for name in ("regex", "schema", "any-of", "wordlist", "after", "tools-required"):
        again = espalier.compile(Gbnf(portable(SPECS[name], COMPILER)))
        compiled, random = COMPILER.compile(SPECS[name]), Random(5)
        for _ in range(4):
            matcher, read = compiled.matcher(), b""
            while not matcher.is_accepting and len(read) < 60:
                byte = (
                    matcher.shortest_completion()[0]
                    if random.random() < 0.7 or len(read) > 25
                    else random.choice(
                        [i for i in range(32, 127) if matcher.allows(i)] or [matcher.shortest_completion()[0]]
                    )
                )
                matcher.advance(byte)
                read += bytes([byte])
            assert again.accepts(read) == compiled.accepts(read) == matcher.is_accepting, (name, read)


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (AllOf(JsonObject(), Regex(".{3,20}")), "not regular"),
        (AllOf(Gbnf('root ::= "(" root ")" | "x"'), Ban(["(("])), "not regular"),
        (After("END", Regex("a"), max_before=5), "counts no tokens"),
        (Thinking(Regex("a"), max_tokens=5), "counts no tokens"),
        (Thinking(Regex("<?think>a")), "can begin with"),
        (After("END", Regex("a"), opens=" <t>"), "begins with whitespace"),
        (JsonSchema({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}), "uniqueItems"),
        (ToolCalls(TOOLS, format="hermes", content=JsonObject()), "not regular"),
    ],
)
def test_what_no_grammar_can_say_is_refused_with_the_reason(spec, why):
    with pytest.raises(CapabilityError, match=why) as raised:
        portable(spec, COMPILER)
    assert raised.value.field == "constraint"
    assert spec.kind in raised.value.message


def test_an_answer_that_the_prompt_has_begun_is_refused():
    with pytest.raises(CapabilityError, match="a part of the answer"):
        portable(Thinking(Regex("[a-c]{2,5}")), COMPILER, before="<think>a</think>ab")


# Limits of llama.cpp


@pytest.mark.slow
@pytest.mark.parametrize(
    "text",
    [
        "root ::= [a-z]{2500}",
        'root ::= [a-z]{2500,} "!"',
        'root ::= [a-z]{0,2500} "!"',
        'root ::= [a-z]{1200,4321} "!"',
        'root ::= ([a-z] ("x" | "y" "z"){1,9}){1,150}',
        "root ::= " + "(" * 60 + '"a" "b"?' + ") [c]?" * 60,
        'root ::= (item{3}){900}\nitem ::= "a" | "b"',
    ],
)
def test_large_counts_and_deep_groups_are_written_so_that_llama_cpp_takes_them(llama, text):
    printed = portable(Gbnf(text), COMPILER)
    LlamaGrammar(llama, printed).close()
    one, other = espalier.compile(Gbnf(text)), espalier.compile(Gbnf(printed))
    for count in (0, 500, 1199, 1200, 2500, 2501, 2700, 4321):
        for sentence in ("a" * count, "a" * count + "!", "ax" * min(count, 301)):
            assert one.accepts(sentence) == other.accepts(sentence), (count, sentence[:5])


def test_what_is_within_the_limits_stays_as_it_is():
    grammar = parse('root ::= ("a" [b-c]{2,5})* item{1,2000}\nitem ::= "x"+ | ("y" "z")?')
    assert within_limits(grammar) is grammar
    assert "part" not in print_grammar(within_limits(grammar))


def test_rules_that_begin_with_one_another_too_often_are_refused():
    rules = [f'r{n} ::= r{n + 1} "a" | s{n} "b"\ns{n} ::= r{n + 1} "c"' for n in range(40)]
    text = "\n".join(["root ::= r0", *rules, 'r40 ::= "x"'])
    with pytest.raises(CapabilityError, match="too many ways"):
        portable(Gbnf(text), COMPILER)


def test_a_chain_of_many_rules_is_taken(llama):
    text = "\n".join(["root ::= r0", *(f'r{n} ::= r{n + 1} "a"?' for n in range(1000)), 'r1000 ::= "x"'])
    LlamaGrammar(llama, portable(Gbnf(text), COMPILER)).close()


def test_a_chain_that_would_take_all_of_the_stack_is_refused():
    text = "\n".join(["root ::= r0", *(f'r{n} ::= r{n + 1} "a"?' for n in range(5100)), 'r5100 ::= "x"'])
    with pytest.raises(CapabilityError, match="too many of its rules begin"):
        portable(Gbnf(text), COMPILER)
