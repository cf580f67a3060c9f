"""Hazards: code, pointer and engines of each; a plain schema has few."""

from __future__ import annotations

from typing import Any

import pytest

from espalier.schema.lint.engine_limits import ENGINES
from espalier.schema.lint.hazards import Hazard, hazards
from espalier.schema.lint.patterns import pattern_hazards


def found(schema: Any, code: str) -> list[Hazard]:
    return [h for h in hazards(schema) if h.code == code]


def closed(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}


CALM = closed(
    name={"type": "string", "maxLength": 40},
    age={"type": "integer", "minimum": 0, "maximum": 150},
    tags={"type": "array", "items": {"enum": ["a", "b"]}, "maxItems": 5},
)


def test_a_calm_schema_has_none() -> None:
    calm = [h for h in hazards(CALM) if h.engines != ("openai",)]
    assert calm == []
    assert [h.engines for h in hazards(True)] == [("llama-server",)]


def test_many_options() -> None:
    (hazard,) = found(closed(x={"enum": list(range(501))}), "many-options")
    assert hazard.pointer == "/properties/x/enum"
    assert not found({"enum": list(range(500))}, "many-options")


@pytest.mark.parametrize(
    ("schema", "code"),
    [
        ({"type": "string"}, "unbounded-string"),
        ({"type": ["string", "null"]}, "unbounded-string"),
        ({"type": "array"}, "unbounded-array"),
        ({"type": "integer"}, "unbounded-number"),
        ({"type": "number", "minimum": 0}, "unbounded-number"),
    ],
)
def test_what_may_run_on(schema: Any, code: str) -> None:
    assert [h.pointer for h in found(schema, code)] == [""]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "format": "date"},
        {"type": "string", "enum": ["a"]},
        {"type": "integer", "const": 3},
        {"type": "array", "prefixItems": [True], "items": False},
        {"type": "integer", "exclusiveMinimum": 0, "maximum": 9},
    ],
)
def test_what_may_not(schema: Any) -> None:
    assert not [h for h in hazards(schema) if h.code.startswith("unbounded")]


def test_what_is_everywhere_is_said_once() -> None:
    (hazard,) = found(closed(a={"type": "string"}, b={"type": "string"}, c={"type": "string"}), "unbounded-string")
    assert hazard.pointer == "/properties/a"
    assert "2 more like it" in hazard.message


CAT = closed(kind={"const": "cat"}, lives={"type": "integer"})
DOG = closed(kind={"const": "dog"}, lives={"type": "integer"})


@pytest.mark.parametrize(
    ("options", "overlap"),
    [
        ([{"type": "string"}, {"type": "integer"}], False),
        ([{"type": "integer"}, {"type": "number"}], True),
        ([{"const": "a"}, {"enum": ["b", "c"]}], False),
        ([{"enum": ["a", "b"]}, {"enum": ["b", "c"]}], True),
        ([{"const": 1}, {"const": True}], False),
        ([{"const": "a"}, {"type": "string"}], True),
        ([CAT, DOG], False),
        ([{"$ref": "#/$defs/cat"}, {"$ref": "#/$defs/dog"}], False),
        ([{**CAT, "required": []}, DOG], True),
        ([closed(a=True), closed(b=True)], False),
        ([{"required": ["a"]}, {"required": ["b"]}], True),
        ([False, {"type": "string"}], False),
        ([True, {"type": "string"}], True),
        ([{"type": "array"}, {"type": "null"}], False),
    ],
)
def test_options_that_overlap(options: list[Any], overlap: bool) -> None:
    schema = {"oneOf": options, "$defs": {"cat": CAT, "dog": DOG}}
    assert [h.pointer for h in found(schema, "overlapping-one-of")] == (["/oneOf"] if overlap else [])


@pytest.mark.parametrize(
    ("pattern", "codes"),
    [
        ("^[a-z]+$", set()),
        ("^(a|b)$", set()),
        ("^a|b$", {"pattern-unanchored"}),
        ("abc", {"pattern-unanchored"}),
        ("^abc", {"pattern-unanchored"}),
        (r"^abc\$", {"pattern-unanchored"}),
        ("", {"pattern-unanchored"}),
        (r"^\d+$", {"pattern-class"}),
        (r"^[\w-]+$", {"pattern-class"}),
        (r"^\\d$", set()),
        (r"^a\b$", {"pattern-boundary"}),
        (r"^[\b]$", set()),
        (r"^\p{L}$", {"pattern-property"}),
        (r"^(?=a)a$", {"pattern-look-around"}),
        (r"^(?<!b)a$", {"pattern-look-around"}),
        (r"^(?:a|b)$", set()),
        (r"^(?<n>a)\1$", {"pattern-back-reference"}),
        (r"^a+?$", {"pattern-lazy"}),
        (r"^a{1,2}?$", {"pattern-lazy"}),
        (r"^a\+?$", set()),
        (r"^[+?]$", set()),
    ],
)
def test_patterns(pattern: str, codes: set[str]) -> None:
    assert {code for code, _, _ in pattern_hazards(pattern)} == codes


def test_patterns_of_names_are_looked_at_too() -> None:
    hazard = found({"patternProperties": {"a": True}}, "pattern-unanchored")[0]
    assert hazard.pointer == "/patternProperties"


@pytest.mark.parametrize(
    ("schema", "pointer", "code", "engines"),
    [
        ({"not": {"type": "null"}}, "/not", "dropped-keyword", ("llama-server", "vllm")),
        ({"not": {"type": "null"}}, "/not", "refused-keyword", ("openai",)),
        ({"type": "array", "uniqueItems": True}, "/uniqueItems", "dropped-keyword", ("llama-server",)),
        ({"type": "array", "uniqueItems": True}, "/uniqueItems", "refused-keyword", ("vllm", "openai")),
        ({"type": "number", "minimum": 1}, "/minimum", "dropped-keyword", ("llama-server",)),
        ({"allOf": [True]}, "/allOf", "refused-keyword", ("openai",)),
        ({"items": False}, "/items", "boolean-schema", ("llama-server",)),
        ({"items": {"$ref": "#"}}, "/items/$ref", "refused-keyword", ("llama-server",)),
        ({"format": "uri"}, "/format", "unknown-format", ("llama-server", "openai")),
        ({"format": "topic"}, "/format", "unknown-format", ("llama-server", "vllm", "openai")),
        ({"$ref": "#/$defs/a", "maxLength": 3, "$defs": {"a": True}}, "/$ref", "beside-reference", ("llama-server",)),
        ({"pattern": "^a$", "maxLength": 3}, "", "pattern-and-length", ("llama-server", "vllm")),
        ({"prefixItems": [True], "items": {"type": "null"}}, "/prefixItems", "dropped-keyword", ("llama-server",)),
    ],
)
def test_keywords_that_engines_drop_or_refuse(schema: Any, pointer: str, code: str, engines: tuple[str, ...]) -> None:
    assert (pointer, engines) in [(h.pointer, h.engines) for h in found(schema, code)]


def test_what_asks_nothing_is_no_hazard() -> None:
    assert not found({"uniqueItems": False}, "dropped-keyword")
    assert not found({"$ref": "#/$defs/a", "description": "x", "$defs": {"a": {}}}, "beside-reference")


def test_bounds_of_integers_are_kept_by_llama_server() -> None:
    assert not found({"type": "integer", "minimum": 1, "maximum": 5}, "dropped-keyword")


def test_objects() -> None:
    schema = {"type": "object", "properties": {"a/b": {"type": "null"}}, "required": ["c"]}
    assert [h.pointer for h in found(schema, "extra-names")] == [""]
    assert [h.pointer for h in found(schema, "undeclared-required")] == ["/required"]
    assert [h.pointer for h in found(schema, "optional-property")] == ["/properties/a/b"]
    assert not found(closed(a=True), "extra-names")


def test_openai_wants_an_object_on_top() -> None:
    assert found({"type": "array"}, "not-an-object")
    assert not found(CALM, "not-an-object")
    assert not found({"$ref": "#/$defs/a", "$defs": {"a": CALM}}, "not-an-object")
    deep: dict[str, Any] = {"type": "null"}
    for _ in range(11):
        deep = closed(a=deep)
    assert found(deep, "too-large")


def test_values_are_not_schemas() -> None:
    assert hazards({"const": {"type": "string", "not": {}}}) == [
        Hazard(pointer="", code="not-an-object", message="the schema is not of type object", engines=("openai",))
    ]


def test_a_property_may_be_called_like_a_keyword() -> None:
    assert not found(closed(**{"not": {"const": 1}, "pattern": {"const": 2}}), "dropped-keyword")


def test_our_own_engines_drop_nothing() -> None:
    assert all(not ENGINES[name].drops for name in ("transformers", "llamacpp", "gbnf"))


def test_a_hazard_as_text() -> None:
    (hazard,) = found({"type": "string", "not": {"const": "a"}}, "refused-keyword")
    assert str(hazard) == "/not: `not` is refused by OpenAI's strict mode (refused-keyword) [openai]"
