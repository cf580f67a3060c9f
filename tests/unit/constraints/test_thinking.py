"""`Thinking`: the laws, its language against a plain reading, budgets, prompts; no answer begins as a thought."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier import After, AnyOf, Choice, Free, Gbnf, JsonObject, JsonSchema, Regex, ToolCalls
from espalier.constraints.after.thinking import Thinking
from espalier.constraints.spec import Spec
from espalier.constraints.to_gbnf import grammar_of
from espalier.constraints.verdict import judge, parse
from espalier.errors import SpecError
from espalier.grammar.printer import print_grammar
from tests.laws import check_matcher, check_walk
from tests.unit.constraints.test_after_opens import INNERS, THOUGHTS, compiler

FREE = Regex("(?s:.*)")
TOOLS = {
    "f": {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
}
CALL = '{"name": "f", "args": {"a": "x"}}'
BAD_CALL = '{"name": "f", "args": {"b": 1}}'


@pytest.mark.parametrize("vocab", ["bytes", "demo", "marked", "byte-level"])
@pytest.mark.parametrize("most", [None, 20])
@pytest.mark.parametrize("inner", INNERS)
def test_laws(inner: str, most: int | None, vocab: str) -> None:
    spec, accepted, rejected = INNERS[inner]
    one = compiler(vocab)
    check_matcher(
        one.compile(Thinking(spec, max_tokens=most)),
        trie=one.trie,
        accepted=[*(text for text in accepted if not text.startswith("<think>")), THOUGHTS[0] + accepted[0]],
        rejected=[*rejected, *(THOUGHTS[0] + text for text in rejected)],
    )


@pytest.mark.parametrize("spec", [FREE, ToolCalls(TOOLS), Regex("<think>[a-z]*|[a-z]*")])
@pytest.mark.parametrize("vocab", ["bytes", "marked"])
def test_laws_where_the_answer_could_begin_as_a_thought(spec: Spec, vocab: str) -> None:
    one = compiler(vocab)
    found = one.compile(Thinking(spec))
    check_matcher(found, trie=one.trie, accepted=["", "ab", "<think>x</think>ab"], rejected=["<think>ab", "<think>"])


def test_laws_along_special_tokens() -> None:
    one = compiler("marked")
    compiled = one.compile(Thinking(FREE))
    assert compiled.spelled == {257: b"</think>", 258: b"<think>"}
    for walk in [(258, 257, ord("x")), (10, 258, ord("y"), 257), (*b"<think>", 257), (*b"<thin", ord("x"))]:
        check_walk(compiled, walk, random.Random(0))


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "think>", " ", "\n", "a", CALL, BAD_CALL]), max_size=7))
def test_the_language_is_that_of_a_plain_reading(pieces: list[str]) -> None:
    text = "".join(pieces)
    for spec in (FREE, ToolCalls(TOOLS), Choice(["a", "<think>", " a"])):
        one = compiler("bytes")
        held = one.compile(spec)
        bare = text.lstrip(" \n")
        if bare.startswith("<think>") and len(text) - len(bare) <= 4:
            _, end, answer = bare.removeprefix("<think>").partition("</think>")
            gaps = range(min(len(answer) - len(answer.lstrip(" \n")), 4) + 1)
            expected = bool(end) and any(held.accepts(answer[gap:]) for gap in gaps)
        else:
            expected = held.accepts(text)
        whole = Thinking(spec)
        assert one.compile(whole).accepts(text) == expected, text
        if expected:  # judges take whitespace that no constraint writes
            assert judge(whole, text).valid is not False, text


@pytest.mark.parametrize("most", [1, 3, 8])
def test_a_thought_takes_no_more_tokens_than_it_may_also_where_the_answer_is_free(most: int) -> None:
    one = compiler("bytes")
    for seed in range(20):
        rng = random.Random(seed)
        matcher = one.compile(Thinking(FREE, max_tokens=most)).matcher()
        said = bytearray()
        for byte in b"<think>":
            matcher.advance(byte)
            said.append(byte)
        while b"</think>" not in said:
            allowed = [token for token in range(256) if matcher.allows(token)]
            assert allowed
            token = rng.choice(allowed)
            matcher.advance(token)
            said.append(token)
        assert len(said) <= max(most, 7) + len("</think>") + 3


def test_a_call_after_a_thought_is_held_to_its_tool() -> None:
    one = compiler("bytes")
    compiled = one.compile(Thinking(ToolCalls(TOOLS)))
    assert compiled.accepts(f"<think>x</think>{CALL}")
    assert not compiled.accepts(f"<think>x</think>{BAD_CALL}")
    assert not compiled.accepts('<think>x</think>{"name": "rm", "args": {}}')
    assert judge(Thinking(ToolCalls(TOOLS)), f"<think>x</think>{BAD_CALL}").valid is False


def test_what_the_prompt_has_begun() -> None:
    one = compiler("bytes")
    spec = Thinking(Choice(["yes"]))
    opened = one.compile(spec).matcher(before="assistant\n<think>\n")
    assert not opened.allows(ord("y")) or not opened.is_accepting
    for byte in b"hm</think>yes":
        opened.advance(byte)
    assert opened.is_accepting
    closed = one.compile(spec).matcher(before="<think>\n\n</think>\n\n")
    assert [token for token in range(256) if closed.allows(token) and chr(token).strip()] == [ord("y")]
    assert parse(spec, spec.begun("<think>") + "hm</think>yes") == "yes"


@pytest.mark.parametrize("spec", [Thinking(JsonObject()), Thinking(FREE, start="[T]", end="[/T]", max_tokens=5)])
def test_json_round_trip(spec: Spec) -> None:
    assert Spec.from_json(json.loads(json.dumps(spec.to_json()))) == spec


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"start": ""}, "start"),
        ({"end": ""}, "end"),
        ({"start": "a</think>"}, "start"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"spec": "x"}, "spec"),
    ],
)
def test_faults_name_the_field(values: dict[str, object], field: str) -> None:
    with pytest.raises(SpecError) as error:
        Spec.from_json({"kind": "thinking", "spec": JsonSchema({}).to_json()} | values)
    assert error.value.field == field


WORD = Choice(["x", "yes"])
NESTED: dict[str, tuple[Spec, list[str], list[str]]] = {
    # The constraint, and what it accepts and refuses behind "<a>t</a>".
    "Thinking": (Thinking(WORD, start="<b>", end="</b>"), ["x", "<b>u</b>x", "<b>u</b> yes"], ["<b>u", "z"]),
    "After with an opening": (After("</b>", WORD, opens="<b>"), ["<b>u</b>x", "<b>u</b> \nx"], ["x", "u</b>x"]),
    "AnyOf": (
        AnyOf(Thinking(WORD, start="<b>", end="</b>"), Regex("[0-9]+")),
        ["x", "17", "<b>u</b>yes"],
        ["<b>17", "z"],
    ),
    "Thinking three deep": (
        Thinking(Thinking(WORD, start="<c>", end="</c>"), start="<b>", end="</b>"),
        ["x", "<b>u</b><c>v</c>x", "<c>v</c> x", "<b>u</b> x"],
        ["<b>u</b>", "z"],
    ),
    "the same tags": (Thinking(WORD, start="<a>", end="</a>"), ["x", "<a>u</a> x"], ["<a>u", "z"]),
    "an answer with whitespace of its own": (
        Thinking(Regex(" ?x"), start="<b>", end="</b>"),
        ["x", "<b>u</b> x", "<b>u</b>x"],
        ["z"],
    ),
}


@pytest.mark.parametrize("vocab", ["bytes", "demo", "byte-level"])
@pytest.mark.parametrize("name", NESTED)
@pytest.mark.parametrize("outer", ["Thinking", "After", "AnyOf", "Free"])
def test_whitespace_may_stand_before_an_answer_that_could_think_again(outer: str, name: str, vocab: str) -> None:
    inner, accepted, rejected = NESTED[name]
    thinking = Thinking(inner, start="<a>", end="</a>")
    wrapped: dict[str, Spec] = {
        "Thinking": thinking,
        "After": After("</a>", inner),
        "AnyOf": AnyOf(thinking, Choice(["no"])),
        "Free": Thinking(AnyOf(inner, Free({"[[": Choice(["no"])})), start="<a>", end="</a>"),
    }
    if outer == "Free":  # free text takes every beginning
        rejected = []
    spec, one = wrapped[outer], compiler(vocab)
    blanks = ("", " ", "\n\n", " \t\n ")
    if name == "an answer with whitespace of its own":
        blanks = ("", "\n\n") if outer != "Free" else ("",)
    check_matcher(
        one.compile(spec),
        trie=one.trie,
        accepted=[f"<a>t</a>{blank}{text}" for blank in blanks for text in accepted],
        rejected=[f"<a>t</a>{blank}{text}" for blank in blanks for text in rejected],
    )
    for text in accepted:
        assert judge(spec, f"<a>t</a> {text}").valid is not False


def test_no_more_whitespace_than_before_one_opening() -> None:
    compiled = compiler("bytes").compile(Thinking(Thinking(WORD)))
    assert compiled.accepts("<think>t</think>    <think>u</think>    x")
    assert not compiled.accepts("<think>t</think>     <think>u</think>x")
    assert not compiled.accepts("<think>t</think>     x")


@pytest.mark.parametrize("name", [name for name in NESTED if name != "the same tags"])
def test_the_grammar_of_nested_thoughts_has_the_same_texts(name: str) -> None:
    inner, accepted, rejected = NESTED[name]
    one = compiler("bytes")
    spec = Thinking(inner, start="<a>", end="</a>")
    written = one.compile(Gbnf(print_grammar(grammar_of(spec, one, ""))))
    for blank in ("", " ", "\n\n", " \t\n ", "     "):
        for text in (*accepted, *rejected):
            whole = f"<a>t</a>{blank}{text}"
            assert written.accepts(whole) == one.compile(spec).accepts(whole), whole
