"""`Verdict.breaks`: whether an invalid text breaks what was enforced, or only what the contract says is checked."""

from __future__ import annotations

from typing import Any

import pytest

from espalier import Vocab
from espalier import compile as compile_spec
from espalier.constraints.after.spec import After
from espalier.constraints.after.thinking import Thinking
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.compose.any_of import AnyOf
from espalier.constraints.free import Free
from espalier.constraints.judging import ConfinedJudge
from espalier.constraints.spec import Choice, JsonObject, JsonSchema, Regex, Spec
from espalier.constraints.tools.spec import ToolCalls
from espalier.constraints.verdict import CUT, Verdict, breach_of, judge, promise_of
from espalier.lexicon.files import WordFiles

CHECKED = {"type": "string", "pattern": r"^(a+)\1$"}
"""A back-reference: the contract says `checked`."""
BOTH = {"type": "object", "properties": {"a": CHECKED, "n": {"type": "integer"}}}
LOOSE = JsonSchema(BOTH, allow="checked")
TEXTS = {'{"a": "b"}': "checked", '{"n": 1.5}': "enforced", '{"a": "b", "n": 1.5}': "enforced", '{"a": "aa"}': None}


@pytest.mark.parametrize(("text", "breaks"), TEXTS.items())
def test_a_schema_alone(text: str, breaks: str | None) -> None:
    verdict = judge(LOOSE, text)
    assert (verdict.valid, verdict.breaks) == (breaks is None, breaks)
    assert (breach_of(LOOSE, verdict) is not None) == (breaks == "enforced")


@pytest.mark.parametrize(("text", "breaks"), TEXTS.items())
@pytest.mark.parametrize(
    "make",
    [
        lambda spec: AllOf((spec, Regex(r"[^z]*"))),
        lambda spec: Free({"@": spec}),
        lambda spec: After("</think>", spec),
        Thinking,
    ],
    ids=["all_of", "free", "after", "thinking"],
)
def test_a_schema_inside(make: Any, text: str, breaks: str | None) -> None:
    spec: Spec = make(LOOSE)
    before = {"free": "@", "after": "x</think>"}.get(spec.kind, "")
    verdict = judge(spec, before + text)
    assert (verdict.valid, verdict.breaks) == (breaks is None, breaks)


COUNTED: tuple[tuple[dict[str, Any], str], ...] = (
    ({"type": "object", "minProperties": 2}, '{"c":1}'),
    ({"type": "object", "not": {"maxProperties": 1}}, '{"c":1}'),
    ({"type": "object", "not": {"enum": [{"c": 1}]}}, '{"c":1}'),
    ({"type": "object", "oneOf": [{}, {"enum": [{"a": 1}, {"c": 1}]}]}, '{"c":1}'),
    ({"type": "object", "if": {"minProperties": 3}, "else": False}, '{"c":1}'),
    ({"type": "object", "properties": {"p": {"minProperties": 2}}, "required": ["p"]}, '{"p":{"c":1}}'),
)
"""Schemas that a matcher of its own enforces, and a grammar does not: it cannot count names that may come twice."""


@pytest.mark.parametrize(("schema", "text"), COUNTED, ids=str)
def test_what_a_grammar_only_checks_is_no_breach_there(schema: dict[str, Any], text: str) -> None:
    spec = JsonSchema(schema, allow="checked", whitespace="compact")
    call = '{"name":"f","args":' + text + "}"
    tools = ToolCalls([{"name": "f", "parameters": schema}], choice="required", whitespace="compact")
    for whole, finished in (
        (Free({"@": spec}), f"@{text}"),
        (AllOf(Free({"@": spec}), Regex("@.*")), f"@{text}"),
        (tools, call),
    ):
        assert compile_spec(whole, vocab=Vocab.bytes()).accepts(finished)
        verdict = judge(whole, finished)
        assert (verdict.valid, verdict.breaks) == (False, "checked")
    assert not compile_spec(spec, vocab=Vocab.bytes()).accepts(text)
    assert judge(spec, text).breaks == "enforced"


def test_what_a_grammar_enforces_is_a_breach_beside_what_it_only_checks() -> None:
    schema = {"type": "object", "properties": {"p": {"minProperties": 2}, "n": {"type": "integer"}}}
    spec = JsonSchema(schema, allow="checked")
    assert judge(Free({"@": spec}), '@{"n": 1.5}').breaks == "enforced"
    assert judge(Free({"@": spec}), '@{"p": {"c": 1}}').breaks == "checked"


def test_of_several_members_one_that_was_enforced_is_enough() -> None:
    spec = AllOf((LOOSE, Regex(r"[^b]*")))
    assert judge(spec, '{"a": "b"}').breaks == "enforced"  # the pattern is checked, and the expression is enforced
    assert promise_of([Verdict(valid=False, judge="x", breaks="checked")]) == "checked"


def test_a_choice_of_members_is_enforced_if_every_member_is() -> None:
    assert judge(AnyOf((JsonSchema(BOTH, allow="checked"), Choice(("yes",)))), "no").breaks == "checked"
    assert judge(AnyOf((Regex("a"), Choice(("yes",)))), "no").breaks == "enforced"


REFERENCES: dict[str, tuple[dict[str, Any], dict[str, str]]] = {
    "ref": (
        {
            "$defs": {"p": CHECKED, "n": {"type": "integer"}},
            "type": "object",
            "properties": {"a": {"$ref": "#/$defs/p"}, "n": {"$ref": "#/$defs/n"}},
        },
        {'{"a": "b"}': "checked", '{"n": "b"}': "enforced"},
    ),
    "anyOf": ({"anyOf": [CHECKED, {"type": "integer"}]}, {'"b"': "checked"}),
    "oneOf": ({"oneOf": [CHECKED, {"type": "string", "maxLength": 1}]}, {'"bbb"': "checked"}),
    "not": ({"type": "string", "not": {"pattern": r"^(a+)\1$"}}, {'"aa"': "checked"}),
    "allOf": ({"allOf": [CHECKED, {"minLength": 2}]}, {'"b"': "enforced", '"bb"': "checked"}),
    "items": ({"type": "array", "items": CHECKED, "maxItems": 1}, {'["b"]': "checked", '["aa", "aa"]': "enforced"}),
}


@pytest.mark.parametrize(
    ("name", "text", "breaks"),
    [(name, text, breaks) for name, (_, texts) in REFERENCES.items() for text, breaks in texts.items()],
)
def test_wherever_the_checked_keyword_stands(name: str, text: str, breaks: str) -> None:
    verdict = judge(JsonSchema(REFERENCES[name][0], allow="checked"), text)
    assert (verdict.valid, verdict.breaks) == (False, breaks)


@pytest.mark.parametrize(("strict", "breaks"), [(None, "checked"), (True, "enforced")])
def test_the_arguments_of_a_tool(strict: bool | None, breaks: str) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": BOTH, "strict": strict}}
    spec = ToolCalls([tool], format="hermes", choice="required")
    text = '<tool_call>\n{"name": "f", "arguments": {"a": "b"}}\n</tool_call>'
    assert judge(spec, text).breaks == breaks
    assert judge(spec, text.replace('"a": "b"', '"n": 1.5')).breaks == "enforced"
    assert judge(spec, text.replace('"f"', '"g"')).breaks == "enforced"


@pytest.mark.parametrize("spec", [Regex("a+"), Choice(("a", "b")), JsonObject(), JsonSchema(True)])
def test_other_kinds_leave_nothing_to_be_checked(spec: Spec) -> None:
    verdict = judge(spec, "{]")
    assert (verdict.valid, verdict.breaks) == (False, "enforced")


def test_a_cut_text_breaks_nothing() -> None:
    assert CUT.breaks == "cut"
    assert breach_of(Regex("a"), CUT) is None


def test_the_verdict_of_another_process_says_the_same() -> None:
    judges = ConfinedJudge()
    try:
        for text, breaks in TEXTS.items():
            assert judges.judge(LOOSE, text, WordFiles.standard(), "me").breaks == breaks
    finally:
        judges.close()


def test_equal_schemas_have_one_fingerprint_whatever_the_edge_adds() -> None:
    plain = JsonSchema(BOTH)
    assert plain.fingerprint == LOOSE.fingerprint == JsonSchema(BOTH, order="any").fingerprint
    assert plain.fingerprint != JsonSchema({**BOTH, "title": "x"}).fingerprint
    assert len(Regex("a").fingerprint) == 16
