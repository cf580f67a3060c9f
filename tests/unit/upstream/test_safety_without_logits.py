"""Safety filters on engines without logits: what the grammar holds, what is judged, and what is told."""

from __future__ import annotations

from random import Random

import pytest

import espalier
from espalier import AllOf, Choice, Gbnf, JsonSchema, Regex, Safety
from espalier.constraints.compiler import Compiler
from espalier.constraints.joining.rule import without_filters
from espalier.constraints.safety.judge import find
from espalier.constraints.safety.written import held_patterns
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import judge
from espalier.errors import CapabilityError, SpecError
from espalier.grammar.printer import print_grammar
from espalier.upstream.safety import sent_constraint

BYTES = espalier.Vocab.bytes()
COMPILER = Compiler(BYTES)
USER = JsonSchema(
    {
        "type": "object",
        "properties": {"name": {"type": "string"}, "cmd": {"type": "string"}},
        "required": ["name", "cmd"],
    },
    closed=True,
)
TREE = JsonSchema({"$ref": "#/$defs/n", "$defs": {"n": {"type": "array", "items": {"$ref": "#/$defs/n"}}}})
TEXTS = 600
"""All of them in every run: a share of them may refuse too few to tell."""
WORDS = ("rm", " -rf", " /", "sudo ", "ls", " ", "a", "\n", "; ", "$(", ")", "`", "|", " sh", "curl x", "é", '"', "1")


@pytest.mark.slow
@pytest.mark.parametrize("preset", ["minimal", "standard"])
def test_the_grammar_refuses_only_what_the_judge_refuses(preset: str) -> None:
    spec = Safety(preset)
    found = held_patterns(spec)
    assert found.grammar is not None
    grammar = espalier.compile(Gbnf(print_grammar(found.grammar)))
    random = Random(preset)
    refused = 0
    for _ in range(TEXTS):
        text = "".join(random.choices(WORDS, k=random.randint(1, 6)))
        caught = {f"{one.category}/{one.pattern}" for one in find(spec, text) if not one.decoded}
        if grammar.accepts(text):
            assert not caught & found.held, (text, caught)
        else:
            refused += 1
            assert caught, text
    assert refused > TEXTS / 20


@pytest.mark.slow
@pytest.mark.parametrize("text", ["rm -rf /", "sudo rm x", "echo $(id)", "x; rm -r y", "RM -RF /home"])
def test_the_patterns_of_the_document_are_in_the_grammar(text: str) -> None:
    sent = sent_constraint(Safety("minimal"), COMPILER)
    assert sent.follows is not None
    assert not espalier.compile(sent.follows).accepts(text)
    assert espalier.compile(sent.follows).accepts("Write a bash script that lists pseudo files.")


FORMS = (USER, Regex("[a-z -/;]{1,30}"), Choice(["rm -rf /", "ls"]))


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.kind)
def test_a_regular_form_and_the_patterns_are_one_grammar(form: Spec) -> None:
    sent = sent_constraint(AllOf(form, Safety(patterns=["rm -rf"])), COMPILER)
    assert sent.spec == form
    assert sent.follows is not None
    grammar = espalier.compile(sent.follows)
    texts = ['{"name": "a", "cmd": "ls"}', '{"name": "a", "cmd": "rm -rf"}', "ls", "rm -rf /"]
    assert [grammar.accepts(one) for one in texts] == [
        espalier.compile(form).accepts(one) and "rm -rf" not in one for one in texts
    ]


def test_beside_a_recursive_form_the_text_is_judged() -> None:
    sent = sent_constraint(AllOf(TREE, Safety("minimal")), COMPILER)
    assert (sent.spec, sent.grammar) == (TREE, None)
    assert any(note.startswith("safety: code_injection: judged only") for note in sent.notes)


def test_an_engine_without_grammars_only_judges() -> None:
    sent = sent_constraint(AllOf(USER, Safety("standard")), COMPILER, takes_grammar=False)
    assert (sent.spec, sent.grammar) == (USER, None)
    assert [note.split(":")[1].strip() for note in sent.notes] == ["code_injection", "credentials"]


def test_tokens_that_complete_a_match_by_themselves_get_a_bias() -> None:
    tokens = [*(bytes([i]) for i in range(256)), b"ab", b"xabx", b"ba", b"<eos>"]
    vocab = espalier.Vocab(tokens=tuple(tokens), eos_ids=(259,), special_texts={259: "<eos>"}, width=260)
    sent = sent_constraint(Safety(patterns=["ab"]), COMPILER, vocab=vocab)
    assert sent.banned == (256, 257)
    assert any("2 tokens" in note and "logit_bias" in note for note in sent.notes)


def test_a_list_and_a_custom_expression_are_in_the_grammar() -> None:
    spec = Safety(categories=["violence"], lists={"violence": ["stab him"]}, patterns=[{"regex": "k[0-9]{2}"}])
    sent = sent_constraint(spec, COMPILER)
    assert sent.follows is not None
    grammar = espalier.compile(sent.follows)
    for text, is_allowed in {
        "hello": True,
        "go stab him": False,
        "stab himself": True,
        "k12": False,
        "k1": True,
    }.items():
        assert grammar.accepts(text) is is_allowed, text
        assert judge(spec, text).valid is is_allowed, text


@pytest.mark.slow
def test_every_category_with_patterns_is_told_once() -> None:
    sent = sent_constraint(Safety("maximum", patterns=["zz"]), COMPILER)
    told = [note.split(":")[1].strip() for note in sent.notes]
    assert told == ["pii", "code_injection", "credentials", "dangerous", "custom"]


def test_a_filter_that_must_mask_is_refused_and_round_trips() -> None:
    spec = Safety("standard", must_mask=True)
    assert Spec.from_json(spec.to_json()) == spec
    with pytest.raises(CapabilityError) as caught:
        sent_constraint(AllOf(USER, spec), COMPILER)
    assert caught.value.field == "safety"
    assert espalier.compile(spec).accepts("hello")  # our own engines mask
    with pytest.raises(SpecError):
        Safety("standard", must_mask="yes")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("spec", "left"),
    [
        (None, None),
        (USER, USER),
        (Safety("minimal"), None),
        (AllOf(USER, Safety("minimal")), USER),
        (Safety("minimal", mode="rewind"), None),
    ],
)
def test_a_constraint_without_its_filters(spec: Spec | None, left: Spec | None) -> None:
    assert without_filters(spec) == left


def test_taking_text_back_is_told_to_be_impossible() -> None:
    sent = sent_constraint(Safety("minimal", mode="rewind"), COMPILER)
    assert any("mode=rewind" in note for note in sent.notes)
