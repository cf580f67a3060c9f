"""A pattern has one reading in every keyword: what the automaton accepts is what the judge calls valid, and both are
what ECMA-262 says. `tests/unit/schema/test_ecma.py` compares `found` with an engine of JavaScript."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import espalier
from espalier import JsonSchema, Vocab
from espalier.constraints.compiler import Compiler
from espalier.constraints.verdict import judge
from espalier.errors import SchemaError
from espalier.schema.patterns.ecma import found

COMPILER = Compiler(Vocab.bytes())
PATTERNS = [
    r"\w",
    r"^\w+$",
    r"\W",
    r"^\d$",
    r"\D",
    r"^\s",
    r"\S$",
    "^.$",
    "^$",
    "a$",
    "^a$",
    r"\ba",
    r"a\B",
    "^[^\\w-]+$",
    "^(?!.*a$)",
    "^(?=\\w)",
]
TEXTS = [
    "",
    "a",
    "é",
    "\n",
    "a\n",
    "\u2028",
    "a\u2028",
    "ſ",
    "\u212a",
    "٣",
    "\xa0",
    "\ufeff",
    "\x1c",
    "\x85",
    "😀",
    "éa",
    "a7",
    "-",
]
NAMES = {text: {} for text in TEXTS}
INTEGER = {"type": "integer"}

Place = tuple[Callable[[str], Any], Callable[[str], Any], Callable[[bool], bool]]
"""The schema of a pattern, the document of a text, and whether it is valid if the text has the pattern."""
PLACES: dict[str, Place] = {
    "pattern": (lambda p: {"type": "string", "pattern": p}, lambda t: t, lambda has: has),
    "not": (lambda p: {"type": "string", "not": {"pattern": p}}, lambda t: t, lambda has: not has),
    "not not": (lambda p: {"type": "string", "not": {"not": {"pattern": p}}}, lambda t: t, lambda has: has),
    "oneOf of patterns": (
        lambda p: {"type": "string", "oneOf": [{"pattern": p}, {"pattern": ""}]},
        lambda t: t,
        lambda has: not has,
    ),
    "if": (
        lambda p: {"type": "string", "if": {"pattern": p}, "then": {"minLength": 9}},
        lambda t: t,
        lambda has: not has,
    ),
    "maxContains": (
        lambda p: {
            "type": "array",
            "items": {"type": "string"},
            "contains": {"pattern": p},
            "minContains": 0,
            "maxContains": 0,
            "maxItems": 1,
        },
        lambda t: [t],
        lambda has: not has,
    ),
    "patternProperties": (
        lambda p: {"type": "object", "patternProperties": {p: INTEGER}},
        lambda t: {t: "x"},
        lambda has: not has,
    ),
    "patternProperties of a closed object": (
        lambda p: {"type": "object", "patternProperties": {p: True}, "additionalProperties": False},
        lambda t: {t: "x"},
        lambda has: has,
    ),
    "patternProperties beside names": (
        lambda p: {"type": "object", "properties": NAMES, "patternProperties": {p: INTEGER}},
        lambda t: {t: "x"},
        lambda has: not has,
    ),
    "additionalProperties": (
        lambda p: {"type": "object", "patternProperties": {p: True}, "additionalProperties": INTEGER},
        lambda t: {t: "x"},
        lambda has: has,
    ),
    "propertyNames": (
        lambda p: {"type": "object", "propertyNames": {"pattern": p}},
        lambda t: {t: "x"},
        lambda has: has,
    ),
    "propertyNames with not": (
        lambda p: {"type": "object", "propertyNames": {"not": {"pattern": p}}},
        lambda t: {t: "x"},
        lambda has: not has,
    ),
    "unevaluatedProperties": (
        lambda p: {"type": "object", "allOf": [{"patternProperties": {p: True}}], "unevaluatedProperties": False},
        lambda t: {t: "x"},
        lambda has: has,
    ),
    "values of enum": (
        lambda p: {"enum": [{t: "x"} for t in TEXTS], "patternProperties": {p: INTEGER}},
        lambda t: {t: "x"},
        lambda has: not has,
    ),
    "texts of enum": (lambda p: {"enum": TEXTS, "pattern": p}, lambda t: t, lambda has: has),
}


@pytest.mark.parametrize("pattern", PATTERNS)
@pytest.mark.parametrize("place", PLACES)
def test_mask_verdict_and_standard_agree(place: str, pattern: str) -> None:
    schema, document, is_valid = PLACES[place]
    spec = JsonSchema(schema(pattern))
    having = [found(pattern, text) for text in TEXTS]
    wanted = [is_valid(has) for has in having]
    try:
        compiled = COMPILER.compile(spec)
    except SchemaError:  # no value satisfies it
        assert not any(wanted)
        return
    for text, valid in zip(TEXTS, wanted, strict=True):
        spelled = json.dumps(document(text), ensure_ascii=False)
        assert compiled.accepts(spelled) == valid, text
        assert judge(spec, spelled).valid is valid, text
    told = [entry for entry in espalier.contract(spec).entries if entry.keyword in ("pattern", "patternProperties")]
    assert {entry.verdict for entry in told} == {"enforced"}


def test_the_judge_reads_a_pattern_behind_a_reference_to_a_root_that_names_its_draft() -> None:
    """`jsonschema` goes on with the draft's own class there."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "properties": {"in": {"$ref": "#"}, "text": {"type": "string", "pattern": r"^\w$"}, "n": {"multipleOf": 0.1}},
    }
    spec = JsonSchema(schema)
    for text, valid in (("é", False), ("e", True)):
        document = json.dumps({"in": {"text": text, "n": 0.3}})
        assert judge(spec, document).valid is valid
        assert COMPILER.compile(spec).accepts(document.replace("\\u00e9", "é")) is valid


@pytest.mark.parametrize("draft", ["draft-07", "2019-09", "2020-12"])
def test_the_judge_reads_names_alike_in_every_draft(draft: str) -> None:
    uri = (
        "http://json-schema.org/draft-07/schema#"
        if draft == "draft-07"
        else f"https://json-schema.org/draft/{draft}/schema"
    )
    closed = "additionalProperties" if draft == "draft-07" else "unevaluatedProperties"
    spec = JsonSchema({"$schema": uri, "type": "object", "patternProperties": {r"^\w$": True}, closed: False})
    for text, valid in (("é", False), ("e", True)):
        assert judge(spec, json.dumps({text: 1})).valid is valid
        assert COMPILER.compile(spec).accepts(json.dumps({text: 1}, ensure_ascii=False)) is valid
