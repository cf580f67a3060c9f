"""`format: assert` holds the formats that a schema's draft defines; others are annotations, as the contract says."""

from __future__ import annotations

import json

import jsonschema
import jsonschema_rs
import pytest

import espalier
from espalier import JsonSchema, Vocab
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.lowered import LoweredSchema, Use
from espalier.constraints.verdict import judge
from espalier.schema.patterns.formats import FORMATS
from espalier.schema.read.drafts import DRAFTS, SchemaDraft

BEYOND = {"draft 4": {"idn-email", "regex"}, "draft 6": {"idn-email", "regex"}}
"""Formats that `jsonschema` checks in a draft which does not define them."""


@pytest.mark.parametrize("draft", DRAFTS.values(), ids=lambda draft: draft.name)
def test_jsonschema_knows_the_formats_of_each_draft(draft: SchemaDraft) -> None:
    checked = set(getattr(jsonschema, draft.validator).FORMAT_CHECKER.checkers)
    known = set(jsonschema.Draft202012Validator.FORMAT_CHECKER.checkers)
    assert draft.formats <= FORMATS.keys()
    assert draft.formats & known <= checked
    assert checked & FORMATS.keys() - draft.formats == BEYOND.get(draft.name, set())


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("draft", DRAFTS.values(), ids=lambda draft: draft.name)
def test_a_format_of_another_draft_is_an_annotation(draft: SchemaDraft, name: str) -> None:
    schema = {"$schema": draft.uri, "type": "string", "format": name}
    spec = JsonSchema(schema, format="assert")
    (entry,) = [entry for entry in espalier.contract(spec).entries if entry.keyword == "format"]
    text = json.dumps("~ no text of any format \\ { ")
    is_held = name in draft.formats
    assert Compiler(Vocab.bytes()).compile(spec).accepts(text) is not is_held
    if is_held:
        assert entry.verdict in ("enforced", "narrowed")
    else:
        assert (entry.verdict, entry.note) == ("annotation", f"not a format of {draft.name}")
        assert judge(spec, text).valid is True


def test_values_of_an_enum_are_held_to_the_formats_of_the_draft() -> None:
    for draft in DRAFTS.values():
        schema = {"$schema": draft.uri, "enum": [["x"], [1]], "items": {"format": "uuid"}}
        compiled = Compiler(Vocab.bytes()).compile(JsonSchema(schema, format="assert"))
        assert compiled.accepts('["x"]') is ("uuid" not in draft.formats)
        assert compiled.accepts("[1]")


@pytest.mark.parametrize(("text", "valid"), [("[a-z", False), (r"\p{L}", True), ("(?P<n>a)", False), ("a++", False)])
def test_the_judge_reads_the_format_regex_as_ecma_262_does(text: str, valid: bool) -> None:
    assert judge(JsonSchema({"format": "regex"}, format="assert"), json.dumps(text)).valid is valid


@pytest.mark.parametrize("use", ["alone", "grammar"])
def test_a_narrower_format_of_names_is_noted(use: Use) -> None:
    schema = JsonSchema({"propertyNames": {"format": "email"}}, format="assert")
    (entry,) = (one for one in LoweredSchema(schema).contract(use).entries if one.pointer == "/propertyNames/format")
    assert (entry.verdict, entry.note[:6]) == ("narrowed", "email:")


LEFT_OUT = {
    "date": ({"0001-01-01"}, {"0000-01-01"}),
    "time": ({"12:00:00Z"}, {"12:00:00z"}),
    "hostname": ({"stackoverflow.com", "a" * 24 + ".de", "abc--d.e", "a--b"}, {"a" * 25 + ".de", "xn--nxasmq6b"}),
    "email": ({"ada@stackoverflow.com", "a." * 31 + "a@b.c"}, {"a" * 33 + "@b.c", "a@" + "b" * 25}),
    "uri": ({"http://localhost:18436/x", "http://a:65535", "a:", "a:/", "a:?b"}, {"http://a:65536"}),
    "uri-reference": ({"//a:18436", "a:/"}, {"//a:65536"}),
    "relative-json-pointer": ({"1" * 10 + "#"}, {"1" * 11 + "#"}),
    "uri-template": ({"[{a,b}]"}, {"é", "{+a}"}),
}
"""By format: valid texts near the limits that its note states, within and beyond."""


@pytest.mark.parametrize("name", LEFT_OUT)
def test_the_note_of_a_format_states_its_limits(name: str) -> None:
    spec = JsonSchema({"type": "string", "format": name}, format="assert")
    (entry,) = [entry for entry in espalier.contract(spec).entries if entry.keyword == "format"]
    assert entry.verdict == "narrowed"
    assert entry.note.startswith(f"{name}: ")
    compiled = Compiler(Vocab.bytes()).compile(spec)
    within, beyond = LEFT_OUT[name]
    oracle = jsonschema_rs.validator_for(spec.schema, validate_formats=True)
    assert [text for text in within | beyond if not oracle.is_valid(text)] == []
    assert {text for text in within | beyond if compiled.accepts(json.dumps(text, ensure_ascii=False))} == within
