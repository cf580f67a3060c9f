"""Closed schemas: objects take no undeclared names, in what is enforced, judged, written as a grammar and sent on."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import jsonschema
import pytest

import espalier
from espalier import JsonSchema
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Spec
from espalier.constraints.to_gbnf import portable
from espalier.constraints.verdict import judge
from espalier.errors import EspalierError, SchemaError, SpecError
from tests.examples import examples
from tests.schema_fuzz import Maker

USER = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "email": {"type": "string"}},
    "required": ["name", "email"],
}
"""The document's example."""
A, B = {"properties": {"a": {"type": "null"}}}, {"properties": {"b": {"type": "null"}}}
ADDRESS = {"properties": {"street": {"type": "null"}}}

GRID: list[tuple[str, Any, list[Any], list[Any]]] = [
    ("plain", A, [{}, {"a": None}], [{"x": 1}, {"a": None, "x": 1}]),
    ("no properties", {"type": "object"}, [{}, {"x": 1}], []),
    ("empty properties", {"type": "object", "properties": {}}, [{}], [{"x": 1}]),
    ("nested", {"properties": {"o": A}}, [{"o": {"a": None}}], [{"o": {"x": 1}}]),
    ("items", {"items": A}, [[{"a": None}]], [[{"x": 1}]]),
    ("prefix items", {"prefixItems": [A]}, [[{"a": None}, {"x": 1}]], [[{"x": 1}]]),
    ("says additional", A | {"additionalProperties": {"type": "integer"}}, [{"x": 1}], [{"x": "s"}]),
    ("says true", A | {"additionalProperties": True}, [{"x": 1}], []),
    ("says patterns", A | {"patternProperties": {"^x": True}}, [{"x": 1}, {"y": 1}], []),
    ("says names", A | {"propertyNames": {"maxLength": 1}}, [{"x": 1}], [{"xx": 1}]),
    ("says unevaluated", A | {"unevaluatedProperties": True}, [{"x": 1}], []),
    ("all of", {"allOf": [A, B]}, [{"a": None, "b": None}], [{"a": None, "x": 1}]),
    ("all of beside", A | {"allOf": [B]}, [{"a": None, "b": None}], [{"x": 1}]),
    ("all of that says", {"allOf": [A, {"additionalProperties": True}]}, [{"x": 1}], []),
    ("ref", {"$ref": "#/$defs/A", "$defs": {"A": A}}, [{"a": None}], [{"x": 1}]),
    ("ref beside", B | {"$ref": "#/$defs/A", "$defs": {"A": A}}, [{"a": None, "b": None}], [{"x": 1}]),
    (
        "a base used alone and extended",
        {"properties": {"base": {"$ref": "#/$defs/A"}, "more": B | {"$ref": "#/$defs/A"}}, "$defs": {"A": A}},
        [{"base": {"a": None}, "more": {"a": None, "b": None}}],
        [{"base": {"b": None}}, {"more": {"x": 1}}],
    ),
    (
        "two schemas of one property",
        {"allOf": [{"properties": {"o": A}}, {"properties": {"o": B}}]},
        [{"o": {"a": None, "b": None}}],
        [{"o": {"x": 1}}],
    ),
    ("any of", {"anyOf": [A, B]}, [{"a": None}, {"b": None}, {}], [{"x": 1}]),
    (
        "any of beside",
        {"properties": {"k": {}}, "anyOf": [A | {"required": ["a"]}, B | {"required": ["b"]}]},
        [{"k": 1, "a": None}, {"k": 1, "b": None}],
        [{"k": 1}, {"a": None, "x": 1}],
    ),
    (
        "any of required",
        {"properties": {"a": {}, "b": {}}, "anyOf": [{"required": ["a"]}, {"required": ["b"]}]},
        [{"a": 1}, {"b": 1}, {"a": 1, "b": 1}],
        [{}, {"a": 1, "x": 1}],
    ),
    ("any of with an open one", {"anyOf": [A, {"type": "object"}]}, [{"x": 1}, {"a": 1}], []),
    (
        "an option that holds anyway declares names",
        {"properties": {"a": {}}, "required": ["a"], "anyOf": [{"required": ["a"]}, B | {"required": ["b"]}]},
        [{"a": 1}, {"a": 1, "b": None}],
        [{"a": 1, "x": 1}],
    ),
    (
        "one of with a tag",
        {
            "oneOf": [
                {"properties": {"k": {"const": 1}, "a": {}}, "required": ["k"]},
                {"properties": {"k": {"const": 2}, "b": {}}, "required": ["k"]},
            ]
        },
        [{"k": 1, "a": 0}, {"k": 2, "b": 0}],
        [{"k": 1, "b": 0}, {"k": 3}],
    ),
    (
        "one of is read as it stands",
        {"oneOf": [{"properties": {"o": A}}, {"properties": {"o": B}}]},
        [],
        [{"o": {"a": None}}, {}],
    ),
    (
        "not is read as it stands",
        {"properties": {"a": {}}, "not": {"properties": {"a": A}}},
        [{"a": {"a": 1, "x": 1}}],
        [{"a": {}}],
    ),
    (
        "then and else",
        {"properties": {"k": {}}, "if": {"properties": {"k": {"const": 1}}, "required": ["k"]}, "then": A, "else": B},
        [{"k": 1, "a": None}, {"k": 2, "b": None}],
        [{"k": 1, "b": None}, {"k": 2, "a": None}],
    ),
    (
        "dependent schemas",
        {"properties": {"k": {}}, "dependentSchemas": {"k": A}},
        [{"k": 1, "a": None}, {}],
        [{"a": None}, {"k": 1, "x": 1}],
    ),
    ("a required name counts", A | {"required": ["b"]}, [{"b": 1}], [{"b": 1, "x": 1}, {}]),
    ("a dependent name counts", A | {"dependentRequired": {"a": ["b"]}}, [{"a": None, "b": 1}], [{"b": 1}]),
    ("listed values are as listed", {"enum": [{"x": 1}], "properties": {}}, [{"x": 1}], [{}]),
    (
        "a list of such",
        {"type": "array", "items": {"$ref": "#/$defs/n"}, "$defs": {"n": {"properties": {"n": {"$ref": "#/$defs/n"}}}}},
        [[{"n": {"n": {}}}]],
        [[{"n": {"n": {"x": 1}}}]],
    ),
    (
        "draft 7",
        {"$schema": "http://json-schema.org/draft-07/schema#", "allOf": [A, B]},
        [{"a": None, "b": None}],
        [{"x": 1}],
    ),
    (
        "draft 7 where siblings of a reference mean nothing",
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "properties": {"o": {"$ref": "#/definitions/A", "properties": {"z": {}}}},
            "definitions": {"A": A},
        },
        [{"o": {"a": None}}],
        [{"o": {"z": 1}}],
    ),
]
CASES = pytest.mark.parametrize(("schema", "fit", "unfit"), [one[1:] for one in GRID], ids=[one[0] for one in GRID])


def compiled(schema: Any) -> Any:
    return espalier.compile(JsonSchema(schema, closed=True, order="any", whitespace="flexible"))


@CASES
def test_what_is_enforced_is_what_is_judged(schema: Any, fit: list[Any], unfit: list[Any]) -> None:
    spec = JsonSchema(schema, closed=True)
    try:
        enforced = compiled(schema)
    except SchemaError:
        assert not fit
        return
    for value in fit:
        assert enforced.accepts(json.dumps(value)), value
        assert judge(spec, json.dumps(value)).valid is True, value
    for value in unfit:
        assert not enforced.accepts(json.dumps(value)), value
        assert judge(spec, json.dumps(value)).valid is False, value


@CASES
def test_the_written_out_schema_takes_what_a_closed_one_takes(schema: Any, fit: list[Any], unfit: list[Any]) -> None:
    explicit = JsonSchema(schema, closed=True).explicit()
    assert explicit.closed is None
    for value in fit:
        assert judge(explicit, json.dumps(value)).valid is True, value


@pytest.mark.parametrize(
    "name",
    [
        "plain",
        "nested",
        "items",
        "all of",
        "all of beside",
        "ref",
        "ref beside",
        "any of",
        "one of with a tag",
        "draft 7",
        "a list of such",
        "empty properties",
    ],
)
def test_the_written_out_schema_of_usual_forms_is_as_tight_as_the_closed_one(name: str) -> None:
    schema, _, unfit = next(one[1:] for one in GRID if one[0] == name)
    explicit = JsonSchema(schema, closed=True).explicit()
    for value in unfit:
        assert judge(explicit, json.dumps(value)).valid is False, value


def test_it_closes_as_unevaluated_properties_at_the_top_does() -> None:
    top = {"unevaluatedProperties": False}
    names = ("a", "b", "k", "x")
    random = Random(3)
    for name in (
        "plain",
        "all of",
        "all of beside",
        "ref beside",
        "one of with a tag",
        "then and else",
        "any of required",
    ):
        schema = next(one[1] for one in GRID if one[0] == name)
        validator = jsonschema.Draft202012Validator(schema | top)
        enforced = compiled(schema)
        for _ in range(200):
            value = {one: random.choice((None, 1, 2)) for one in random.sample(names, random.randint(0, 3))}
            assert enforced.accepts(json.dumps(value)) == validator.is_valid(value), (name, value)


@pytest.mark.parametrize("draft", ["2020-12", "draft-07", "draft-04"])
def test_a_closed_schema_only_narrows_and_enforcement_agrees_with_the_verdict(draft: str) -> None:
    random = Random(draft)
    kept = (
        "type",
        "properties",
        "required",
        "allOf",
        "anyOf",
        "oneOf",
        "not",
        "items",
        "$ref",
        "additionalProperties",
        "patternProperties",
        "const",
        "dependentRequired",
        "if",
        "then",
        "else",
    )
    compared = accepted = 0
    for _ in range(examples(80)):
        maker = Maker(random, draft=draft, only=kept)
        schema = maker.document()
        if not isinstance(schema, dict):
            continue
        if random.random() < 0.7:
            schema = {"properties": maker.by_names(1), "allOf": maker.several(1)} | schema
        try:
            spec = JsonSchema(schema, closed=True, order="any", whitespace="flexible")
            enforced = espalier.compile(spec)
            unclosed = espalier.compile(JsonSchema(schema, order="any", whitespace="flexible"))
        except EspalierError:
            continue
        plain = JsonSchema(schema)
        for _ in range(20):
            text = json.dumps(maker.value())
            valid = judge(spec, text).valid
            compared += 1
            if enforced.accepts(text):
                accepted += 1
                assert judge(plain, text).valid, (schema, text)
                assert valid is not False, (schema, text)
            elif valid and unclosed.accepts(text):  # only a value of two options of one anyOf is judged less strictly
                assert "anyOf" in json.dumps(schema), (schema, text)
    assert compared > 5 * examples(80)
    assert accepted > examples(80)


def test_the_example_of_the_document_gets_no_third_property() -> None:
    enforced = compiled(USER)
    assert enforced.accepts('{"name":"Ada","email":"a@b.c"}')
    assert not enforced.accepts('{"name":"Ada","email":"a@b.c","age":1}')
    assert espalier.compile(JsonSchema(USER)).accepts('{"name":"Ada","email":"a@b.c","age":1}')


def test_the_contract_tells_that_a_schema_is_closed_and_only_where_it_is() -> None:
    told = [
        (one.keyword, one.verdict)
        for one in espalier.contract(JsonSchema(USER, closed=True)).entries
        if one.pointer == ""
    ]
    assert ("closed", "enforced") in told
    for spec in (JsonSchema(USER), JsonSchema({"type": "object"}, closed=True)):
        assert "closed" not in {one.keyword for one in espalier.contract(spec).entries}


def test_the_grammar_is_closed_too() -> None:
    text = espalier.schema_to_gbnf(USER, closed=True)
    grammar = espalier.compile(espalier.Gbnf(text))
    assert grammar.accepts('{"name":"Ada","email":"a@b.c"}')
    assert not grammar.accepts('{"name":"Ada","email":"a@b.c","x":1}')
    assert "name" in portable(JsonSchema(USER, closed=True), Compiler(espalier.Vocab.bytes()))


def test_it_round_trips_and_its_key_differs() -> None:
    spec = JsonSchema(USER, closed=True)
    assert Spec.from_json(spec.to_json()) == spec
    assert spec.key() != JsonSchema(USER).key()
    assert JsonSchema(USER).closing(True) == spec
    assert JsonSchema(USER, closed=False).closing(True).closed is False
    with pytest.raises(SpecError) as caught:
        JsonSchema(USER, closed="yes")  # type: ignore[arg-type]
    assert caught.value.field == "closed"


def test_an_unsatisfiable_closed_schema_says_that_it_is_closed() -> None:
    with pytest.raises(SchemaError) as caught:
        espalier.compile(JsonSchema(A | {"type": "object", "minProperties": 2}, closed=True))
    assert "closed" in str(caught.value.hint)


PARTS: list[dict[str, Any]] = [
    {"properties": {"a": {"type": "integer"}}, "required": ["a"]},
    {"properties": {"a": {}, "b": {}}, "required": ["a"]},
    {"properties": {"b": {"properties": {"a": {}}}}, "required": ["b"]},
    {"properties": {"b": {"properties": {"a": {}, "b": {}}}}},
    {"properties": {"k": {"const": "x"}, "a": {}}, "required": ["k"]},
    {"properties": {"k": {"enum": ["y", "z"]}, "b": {}}, "required": ["k"]},
    {"type": "array", "items": {"properties": {"a": {}}}},
    {"type": "array", "items": {"properties": {"a": {}, "b": {}}}},
    {"anyOf": [{"properties": {"a": {}}}, {"properties": {"b": {}}}]},
    {"allOf": [{"properties": {"a": {}}}, {"required": ["k"]}]},
    {"$ref": "#/$defs/d"},
    {"type": "string"},
]


def _one_of(random: Random) -> dict[str, Any]:
    options = random.sample(PARTS, random.choice((2, 2, 3)))
    schema: dict[str, Any] = {"oneOf": options, "$defs": {"d": random.choice(PARTS[:6])}}
    match random.randrange(4):
        case 0:
            schema |= {"type": "object", "properties": {"k": {}}}
        case 1:
            schema = {"properties": {"b": {"oneOf": options}}, "$defs": schema["$defs"]}
        case 2:
            schema["oneOf"] = [{"oneOf": options[:1]}, *options[1:]]
    return schema


def _value(random: Random, depth: int = 2) -> Any:
    if depth == 0 or random.random() < 0.3:
        return random.choice((1, "x", "y", None))
    if random.random() < 0.2:
        return [_value(random, depth - 1) for _ in range(random.randrange(3))]
    return {name: _value(random, depth - 1) for name in random.sample(("a", "b", "k", "o"), random.randrange(4))}


@pytest.mark.parametrize("seed", range(40))
def test_one_of_written_out_takes_no_value_that_the_schema_refuses(seed: int) -> None:
    random = Random(seed)
    for _ in range(5):
        schema = _one_of(random)
        explicit = JsonSchema(schema, closed=True).explicit().schema
        before, after = map(jsonschema.Draft202012Validator, (schema, explicit))
        for _ in range(150):
            value = _value(random)
            assert before.is_valid(value) or not after.is_valid(value), (schema, explicit, value)


def test_options_of_one_of_that_exclude_one_another_are_still_closed() -> None:
    apart = [PARTS[0], {"properties": {"b": {}}, "required": ["b"]}]
    for options in ([PARTS[4], PARTS[5]], apart, [PARTS[0], PARTS[11]]):
        explicit = JsonSchema({"oneOf": options}, closed=True).explicit().schema
        assert all(
            option.get("additionalProperties") is False for option in explicit["oneOf"] if "properties" in option
        )
