"""Compositions that were once refused, took a minute, or lost a member: each joins at once, on a real vocabulary."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import tests.tokenizers as tokenizers
from espalier import AllOf, Ban, Choice, Free, Gbnf, JsonObject, JsonSchema, Regex, Safety, ToolCalls, Wordlist
from espalier.automata.joint.machine import JointMachine
from espalier.constraints.after.spec import After
from espalier.constraints.compiler import Compiler
from espalier.constraints.compose.all_of_matcher import CompiledAllOf
from espalier.constraints.compose.side_by_side import CompiledSideBySide
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import judge
from espalier.errors import SpecError, UnsupportedError
from espalier.tokens import mask as masks

ARITHMETIC = Path(__file__).parents[3] / "examples" / "arithmetic.gbnf"
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "tags": {"type": "array", "items": {"type": "string"}}},
    "required": ["name", "tags"],
    "additionalProperties": False,
}
TWELVE = {
    "type": "object",
    "properties": {f"field_{i}": {"type": "string"} for i in range(12)},
    "required": [f"field_{i}" for i in range(12)],
    "additionalProperties": False,
}
FLAT = 'root ::= "{" pair (", " pair)* "}"\npair ::= text ": " (text | "[" text "]")\ntext ::= "\\"" [a-z ]* "\\""'


@pytest.fixture(scope="module")
def compiler() -> Compiler:
    return Compiler(tokenizers.byte_level_vocab())


def walked(compiler: Compiler, spec: AllOf, text: str) -> None:
    """Every token of a text that all members accept is allowed, and the end is known at every step."""
    made = compiler.compile(spec)
    assert all(judge(member, text).valid is not False for member in spec.members)
    matcher = made.matcher()
    for token in compiler.trie.segment(text.encode()) or ():
        assert masks.test(matcher.mask(), token)
        *rest, eos = matcher.shortest_completion()
        assert eos in compiler.vocab.eos_ids
        assert len(rest) < 200
        matcher.advance(token)
    assert matcher.is_accepting
    if isinstance(made, CompiledAllOf) and isinstance(made.whole.machine, JointMachine):
        assert made.whole.machine.size < 100 * 2**20


SAFE = Safety("minimal")
CASES: dict[str, tuple[AllOf, str]] = {
    "a JSON object beside safety": (AllOf(JsonObject(), SAFE), '{"name": "Ada", "n": [1, {"b": null}]}'),
    "arithmetic beside safety": (AllOf(Gbnf(ARITHMETIC.read_text(encoding="utf-8")), SAFE), "(1 + 2) * x - 3 / 4"),
    "a schema beside safety": (AllOf(JsonSchema(PERSON), SAFE), '{"name": "Ada", "tags": ["a", "b c"]}'),
    "twelve closed string fields beside safety": (
        AllOf(JsonSchema(TWELVE), SAFE),
        json.dumps({f"field_{i}": "some words" for i in range(12)}),
    ),
    "a JSON object of 50 characters": (
        AllOf(JsonObject(), Regex("[^\n]{2,50}")),
        '{"names": ["Ada", "Grace", "Édith"], "n": 1234567}',
    ),
    "two grammars": (AllOf(JsonObject(), Gbnf(FLAT)), '{"a": "b", "c": ["d"]}'),
    "a schema of bounded length": (AllOf(JsonSchema(PERSON), Regex("[^\n]{2,60}")), '{"name": "Ada", "tags": ["a"]}'),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_it_joins(compiler, case):
    walked(compiler, *CASES[case])


@pytest.mark.slow
@pytest.mark.parametrize("level", ["standard", "strict"])
def test_json_object_beside_the_large_filters(compiler, level):
    walked(compiler, AllOf(JsonObject(), Safety(level)), '{"name": "Ada", "n": [1, {"b": null}]}')


@pytest.mark.slow
def test_arithmetic_beside_strict(compiler):
    walked(compiler, AllOf(Gbnf(ARITHMETIC.read_text(encoding="utf-8")), Safety("strict")), "(1 + 2) * x - 3 / 4")


def test_thousands_of_words_inside_json_strings(compiler):
    letters = "abcdefghij"
    words = [a + b + c + d for a in letters for b in letters for c in letters for d in "xyz"]
    listed = Wordlist(words, capitals="never", quotes=True, colons=True, separators="{}[]", max_run=5)
    spec = AllOf(JsonObject(), listed)
    walked(compiler, spec, '{"aaax bbby": "jjjz", "cdex": ["abcx"]}')
    assert not compiler.compile(spec).accepts('{"aaaq": "jjjz"}')


def test_tool_calls_with_special_tokens_beside_safety():
    vocab = tokenizers.chat_vocab() if hasattr(tokenizers, "chat_vocab") else tokenizers.byte_level_vocab()
    compiler = Compiler(vocab)
    tools = ToolCalls({"look": PERSON}, format="hermes")
    made = compiler.compile(AllOf(tools, SAFE, Ban(["secret"])))
    text = '<tool_call>\n{"name": "look", "arguments": {"name": "Ada", "tags": []}}\n</tool_call>'
    assert made.accepts(text)
    assert not made.accepts(text.replace("Ada", "a secret"))


def test_what_begins_after_a_marker_beside_a_ban(compiler):
    spec = AllOf(After("</think>", Choice(["yes", "no"])), Ban(["maybe"]))
    made = compiler.compile(spec)
    assert isinstance(made, CompiledSideBySide)
    assert made.accepts("so</think>yes")
    assert not made.accepts("maybe</think>yes")
    matcher = made.matcher()
    assert matcher.unsettled == 0
    for token in compiler.trie.segment(b"mayb") or ():
        matcher.advance(token)
        assert matcher.unsettled == 0


@pytest.mark.parametrize("spec", [CASES["two grammars"][0], AllOf(JsonObject(), SAFE, dead_ends="refuse")])
def test_json_and_back(spec):
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


def test_a_word_list_beside_json_said_no_way_out(compiler):
    spec = AllOf(JsonObject(), Wordlist(["name", "rosa"]))
    with pytest.raises(SpecError, match="no text satisfies") as caught:
        compiler.compile(spec)
    assert "separators=" in caught.value.hint
    joined = compiler.compile(AllOf(JsonObject(), Wordlist(["name", "rosa"], separators='{}":')))
    assert joined.accepts('{"name": "rosa"}')
    assert not joined.accepts('{"name": "emma"}')


def test_a_filter_inside_of_free_said_no_way_out(compiler):
    for region in (Safety("minimal"), AllOf(JsonObject(), Safety("minimal"))):
        with pytest.raises(UnsupportedError, match="cannot hold safety") as caught:
            compiler.compile(Free({"<a>": region}))
        assert "AllOf(..., safety)" in caught.value.hint
    beside = compiler.compile(AllOf(Free({"<a>": JsonObject()}), Safety("minimal")))
    assert beside.accepts('x <a>{"command": "ls"}')
    assert not beside.accepts('x <a>{"command": "cd /tmp\\nrm -rf /"}')
