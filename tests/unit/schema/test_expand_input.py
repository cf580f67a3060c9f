"""Malformed schemas, dangling references and schemas that are too large: the error, its pointer, and the time it
takes."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from typing import Any

import pytest

from espalier.errors import LimitExceeded, SchemaError, UnsupportedError
from espalier.schema.normal.expand import expand
from espalier.schema.read.drafts import DRAFTS
from tests.shapes import fits


def nested(levels: int, keyword: str) -> dict[str, Any]:
    schema: dict[str, Any] = {}
    for _ in range(levels):
        schema = {keyword: {"a": schema} if keyword == "properties" else schema}
    return schema


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        (3, ""),
        (None, ""),
        ([], ""),
        ({"type": "text"}, "/type"),
        ({"type": []}, "/type"),
        ({"properties": []}, "/properties"),
        ({"properties": {"a/b": {"items": 3}}}, "/properties/a~1b/items"),
        ({"required": True}, "/required"),
        ({"minimum": "3"}, "/minimum"),
        ({"minimum": float("inf")}, "/minimum"),
        ({"minLength": -1}, "/minLength"),
        ({"minLength": 1.5}, "/minLength"),
        ({"multipleOf": 0}, "/multipleOf"),
        ({"anyOf": []}, "/anyOf"),
        ({"anyOf": [{}, "a"]}, "/anyOf/1"),
        ({"items": [{}]}, "/items"),
        ({"enum": 3}, "/enum"),
        ({"const": {"a": [float("nan")]}}, "/const"),
        ({"$ref": 3}, "/$ref"),
        ({"$schema": 3}, "/$schema"),
    ],
)
def test_what_is_not_a_schema(schema: Any, pointer: str) -> None:
    with pytest.raises(SchemaError) as caught:
        expand(schema)
    assert caught.value.pointer == pointer


@pytest.mark.parametrize(
    ("schema", "pointers"),
    [
        ({"type": "number", "minimum": 5, "maximum": 3}, ["/minimum", "/maximum"]),
        ({"type": "string", "minLength": 5, "maxLength": 3}, ["/minLength", "/maxLength"]),
        ({"type": "string", "allOf": [{"type": "number"}]}, ["/type", "/allOf/0/type"]),
        ({"type": "string", "enum": [1, 2]}, ["/type", "/enum"]),
        ({"type": "object", "required": ["a"], "properties": {"a": False}}, ["/required", "/properties/a"]),
        ({"type": "object", "required": ["a"], "additionalProperties": False}, ["/required", "/additionalProperties"]),
        ({"type": "integer", "minimum": 1, "maximum": 3, "multipleOf": 5}, ["/minimum", "/maximum", "/multipleOf"]),
        ({"type": "object", "minProperties": 2, "maxProperties": 1}, ["/minProperties", "/maxProperties"]),
        (
            {
                "type": "object",
                "properties": {"a": {"type": "integer", "minimum": 2, "exclusiveMaximum": 2}},
                "required": ["a"],
            },
            ["/properties/a/minimum", "/properties/a/exclusiveMaximum"],
        ),
        (
            {"type": "object", "properties": {"a": {}}, "additionalProperties": False, "minProperties": 2},
            ["/minProperties", "/additionalProperties"],
        ),
        ({"type": "string", "pattern": "^a", "not": {"pattern": "^a"}}, ["/pattern"]),
        ({"not": {}}, ["/not"]),
        (False, ["at the top"]),
    ],
)
def test_what_nothing_satisfies_names_what_contradicts(schema: Any, pointers: list[str]) -> None:
    with pytest.raises(SchemaError, match="no document can satisfy this schema") as caught:
        expand(schema)
    assert all(pointer in str(caught.value) for pointer in pointers)


def test_what_requires_itself_cannot_be_finished() -> None:
    with pytest.raises(SchemaError, match="requires itself without end"):
        expand({"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"]})
    with pytest.raises(SchemaError, match="requires itself without end"):
        expand({"type": "array", "items": {"$ref": "#"}, "minItems": 1})


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#"},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}},
        {"allOf": [{"$ref": "#"}], "type": "object"},
        {"anyOf": [{"$ref": "#"}, {"type": "null"}]},
        {"not": {"$ref": "#"}, "minimum": 3},
    ],
)
def test_a_reference_that_leads_to_itself(schema: Any) -> None:
    with pytest.raises(SchemaError, match=r"to itself") as caught:
        expand(schema)
    assert caught.value.pointer is not None


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"$schema": "http://json-schema.o]]/draft-04/schema#"}, "/$schema"),
        ({"$ref": "//[x#a"}, "/$ref"),
        ({"properties": {"a": {"$dynamicRef": "//x]#a"}}}, "/properties/a/$dynamicRef"),
        ({"$id": "http://a/", "$defs": {"b": {"$id": "//[b"}}}, "/$defs/b/$id"),
    ],
)
def test_an_address_that_is_none_is_an_error_with_its_place(schema: Any, pointer: str) -> None:
    with pytest.raises(SchemaError, match="is no address") as caught:
        expand(schema)
    assert caught.value.pointer == pointer
    with pytest.raises(SchemaError, match="is no address"):
        expand({}, documents={"//[x#a": {}})


def test_a_reference_to_nothing_and_to_another_document() -> None:
    with pytest.raises(SchemaError, match="leads to nothing") as caught:
        expand({"properties": {"a": {"$ref": "#/$defs/b"}}, "required": ["a"]})
    assert caught.value.pointer == "/properties/a/$ref"
    with pytest.raises(SchemaError, match="leads to nothing"):
        expand({"$ref": "#anchor"})
    remote = {"properties": {"a": {"$ref": "http://example.com/b#/c"}}, "required": ["a"]}
    with pytest.raises(UnsupportedError, match=r"at /properties/a/\$ref leads to another document"):
        expand(remote)
    shapes = expand(remote, documents={"http://example.com/b": {"c": {"type": "null"}}})
    assert fits(shapes, shapes.root, {"a": None})
    assert not fits(shapes, shapes.root, {"a": 1})


def test_listed_values_are_judged_by_other_documents_too() -> None:
    other = {"$id": "http://example.com/y", "type": "object", "properties": {"a": {"$ref": "#/$defs/i"}}}
    documents = {"http://example.com/x": other | {"$defs": {"i": {"type": "integer"}}}}
    listed = {"enum": [{"a": 1}, {"a": "x"}], "$ref": "http://example.com/x"}
    for schema in (listed, listed | {"$id": "http://example.com/z"}, {"allOf": [listed]}):
        shapes = expand(schema, documents=documents)
        assert [case.values for case in shapes.cases(shapes.root)] == [({"a": 1},)]  # type: ignore[union-attr]
        assert shapes.contract.worst == "enforced"


@pytest.mark.parametrize("uri", [*DRAFTS, "https://json-schema.org/draft/2020-12/schema#"])
def test_metaschemas_are_at_hand(uri: str) -> None:
    shapes = expand({"$schema": uri, "allOf": [{"$ref": uri}]})
    assert fits(shapes, shapes.root, {"type": "object", "properties": {"a": {"minLength": 2}}})
    assert not fits(shapes, shapes.root, {"type": "object", "properties": {"a": {"minLength": "2"}}})
    assert shapes.contract.worst == "enforced"


def test_drafts() -> None:
    with pytest.raises(UnsupportedError, match="known: draft 4, draft 6"):
        expand({"$schema": "http://example.com/own"})
    own = {"http://example.com/own": {"$schema": "http://json-schema.org/draft-07/schema#"}}
    assert expand({"$schema": "http://example.com/own"}, documents=own).draft.name == "draft 7"
    vocabulary = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$vocabulary": {"http://example.com/v": True},
    }
    with pytest.raises(UnsupportedError, match=r"requires the vocabulary 'http://example.com/v'"):
        expand({"$schema": "http://example.com/own"}, documents={"http://example.com/own": vocabulary})
    beside = {"$ref": "#/definitions/a", "type": "null", "definitions": {"a": {"type": "string"}}}
    seven = expand({"$schema": "http://json-schema.org/draft-07/schema#"} | beside)
    assert fits(seven, seven.root, "a")
    with pytest.raises(SchemaError, match="no document"):
        expand(beside)


def test_references_of_every_kind() -> None:
    schema = {
        "$id": "http://example.com/root",
        "properties": {
            "pointer": {"$ref": "#/$defs/a~1b%25c"},
            "anchor": {"$ref": "#word"},
            "address": {"$ref": "inner"},
            "inside": {"$ref": "inner#/$defs/x"},
            "whole": {"$ref": "http://example.com/root#/$defs/a~1b%25c"},
            "unknown": {"$ref": "#/x-mine/0"},
        },
        "x-mine": [{"type": "null"}],
        "$defs": {
            "a/b%c": {"type": "null"},
            "w": {"$anchor": "word", "type": "null"},
            "i": {"$id": "inner", "type": "null", "$defs": {"x": {"type": "null"}}},
        },
    }
    shapes = expand(schema)
    for name in schema["properties"]:
        assert fits(shapes, shapes.root, {name: None})
        assert not fits(shapes, shapes.root, {name: 1})


def test_dynamic_references() -> None:
    tree = {
        "$id": "http://example.com/tree",
        "$dynamicAnchor": "node",
        "type": "object",
        "properties": {"children": {"type": "array", "items": {"$dynamicRef": "#node"}}},
    }
    strict = {
        "$id": "http://example.com/strict",
        "$dynamicAnchor": "node",
        "$ref": "tree",
        "unevaluatedProperties": False,
    }
    shapes = expand(strict, documents={"http://example.com/tree": tree})
    assert fits(shapes, shapes.root, {"children": [{"children": []}]})
    assert not fits(shapes, shapes.root, {"children": [{"other": 1}]})
    loose = expand(tree)
    assert fits(loose, loose.root, {"children": [{"other": 1}]})


def test_recursive_references() -> None:
    nine = "https://json-schema.org/draft/2019-09/schema"
    tree = {
        "$schema": nine,
        "$id": "http://example.com/tree",
        "$recursiveAnchor": True,
        "properties": {"next": {"$recursiveRef": "#"}},
    }
    strict = {
        "$schema": nine,
        "$id": "http://example.com/strict",
        "$recursiveAnchor": True,
        "$ref": "tree",
        "required": ["a"],
    }
    shapes = expand(strict, documents={"http://example.com/tree": tree})
    assert fits(shapes, shapes.root, {"a": 1, "next": {"a": 1}})
    assert not fits(shapes, shapes.root, {"a": 1, "next": {"b": 1}})


@pytest.mark.parametrize("keyword", ["properties", "not", "items", "additionalProperties"])
def test_what_is_nested_too_deeply(keyword: str) -> None:
    with pytest.raises(SchemaError, match="nested too deeply"):
        expand(nested(10_000, keyword))
    expand(nested(100, keyword))


def test_values_and_chains_that_are_too_deep() -> None:
    value: list[Any] = []
    for _ in range(10_000):
        value = [value]
    with pytest.raises(SchemaError, match="nested too deeply") as caught:
        expand({"const": value})
    assert caught.value.pointer == "/const"
    chain = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"minLength": i}]} for i in range(2000)}
    with pytest.raises(LimitExceeded, match="too deeply"):
        expand({"allOf": [{"$ref": "#/$defs/d0"}, {}], "$defs": chain | {"d2000": {}}})


@pytest.mark.slow
def test_a_million_values() -> None:
    began = time.thread_time()
    shapes = expand({"type": "string", "enum": [f"v{i}" for i in range(1_000_000)]})
    (case,) = shapes.cases(shapes.root)
    assert len(case.values) == 1_000_000  # type: ignore[union-attr]
    assert time.thread_time() - began < 20


@pytest.mark.slow
def test_ten_megabytes() -> None:
    one = {"type": "object", "description": "x" * 400, "properties": {"a": {"type": "string"}}}
    text = json.dumps({"type": "object", "properties": {f"p{i}": one for i in range(21_000)}})
    assert len(text) > 10_000_000
    began = time.thread_time()
    shapes = expand(json.loads(text))
    (case,) = shapes.cases(shapes.root)
    assert len(case.properties) == 21_000  # type: ignore[union-attr]
    assert time.thread_time() - began < 30


def test_decimal_bounds_are_exact() -> None:
    shapes = expand({"type": "number", "minimum": Decimal("1.00000000000000000001")})
    assert not fits(shapes, shapes.root, 1)


def test_a_pattern_that_cannot_be_read() -> None:
    with pytest.raises(UnsupportedError, match="cannot be read"):
        expand({"type": "object", "patternProperties": {"(": {}}, "properties": {"a": {}}})


def test_options_are_checked() -> None:
    with pytest.raises(SchemaError, match="neither 'annotate' nor 'assert'"):
        expand({}, format="ignore")
    with pytest.raises(SchemaError, match="neither 'schema' nor"):
        expand({}, order="alphabet")


def test_references_that_lead_back_twice_are_refused_at_once() -> None:
    schema = {"$dynamicRef": "#node", "$ref": "#", "$dynamicAnchor": "node"}
    with pytest.raises(SchemaError, match="refers to itself without end"):
        expand(schema)
    twice = {f"d{i}": {"allOf": [{"$ref": f"#/$defs/d{i + 1}"}, {"$ref": f"#/$defs/d{i + 1}"}]} for i in range(18)}
    expand({"$ref": "#/$defs/d0", "$defs": twice | {"d18": {"type": "string"}}})
