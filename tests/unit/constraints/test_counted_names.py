"""`minProperties` with undeclared names: they count if they differ, which a matcher watches; against `jsonschema`."""

from __future__ import annotations

import json
from itertools import combinations, permutations
from typing import Any

import jsonschema
import pytest

import espalier
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import JsonSchema
from espalier.errors import LimitExceeded, SchemaError, UnsupportedError
from espalier.schema.gbnf import to_gbnf
from espalier.schema.normal.expand import expand
from espalier.tokens.vocab import Vocab
from tests.laws import check_matcher

COMPILER = Compiler(Vocab.bytes())
NAMES = ("a", "b", "x1", "x2", "y")


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


SCHEMAS: dict[str, dict[str, Any]] = {
    "no declared name": {"minProperties": 3},
    "a declared name": {"properties": {"a": {"const": 1}}, "minProperties": 4},
    "required names": {"properties": {"a": {}, "b": {}}, "required": ["b"], "minProperties": 3, "maxProperties": 4},
    "patterns": {"patternProperties": {"^x": {"const": 1}}, "additionalProperties": False, "minProperties": 2},
    "short names": {"properties": {"a": {}}, "propertyNames": {"maxLength": 2}, "minProperties": 3},
    "nested": {"properties": {"a": {"type": "object", "minProperties": 2}}, "minProperties": 2},
}


@pytest.mark.parametrize("name", SCHEMAS)
@pytest.mark.parametrize("order", ["any", "schema"])
def test_undeclared_names_are_counted(name: str, order: str) -> None:
    schema = {"type": "object"} | SCHEMAS[name]
    judge = jsonschema.Draft202012Validator(schema)
    compiled = COMPILER.compile(JsonSchema(schema, whitespace="compact", order=order))
    for count in range(5):
        for names in permutations(NAMES, count) if order == "any" else combinations(NAMES, count):
            value = dict.fromkeys(names, 1)
            assert compiled.accepts(compact(value)) == judge.is_valid(value), value
    assert not espalier.contract(schema, order=order).by_verdict("checked", "refused")


def test_a_name_that_comes_twice_is_refused_and_named() -> None:
    compiled = COMPILER.compile(JsonSchema({"type": "object", "minProperties": 3}, whitespace="compact"))
    assert not compiled.accepts('{"x":1,"y":1,"x":1}')
    matcher = compiled.matcher()
    for token in b'{"x":1,"x':
        matcher.advance(token)
    assert not matcher.allows(ord('"'))
    assert "the name" in matcher.explain(ord('"')).reason


@pytest.mark.parametrize("order", ["any", "schema"])
def test_the_laws_hold_where_names_are_counted(order: str) -> None:
    schema = {
        "type": "object",
        "properties": {"a": {"const": 1}},
        "propertyNames": {"maxLength": 1},
        "minProperties": 3,
        "maxProperties": 3,
        "additionalProperties": {"const": 1},
    }
    compiled = COMPILER.compile(JsonSchema(schema, whitespace="compact", order=order))
    accepted = ['{"a":1,"b":1,"":1}', '{"x":1,"y":1,"z":1}']
    rejected = ['{"a":1,"b":1,"b":1}', '{"x":1,"y":1}', '{"x":1,"y":1,"xx":1}']
    check_matcher(compiled, trie=COMPILER.trie, accepted=accepted, rejected=rejected, walks=2)


def test_too_few_possible_names_are_refused() -> None:
    """No more than a, b and c are names here, and four must come: the search for a document ends without one."""
    schema = {"type": "object", "propertyNames": {"pattern": "^[a-c]$"}, "minProperties": 4}
    with pytest.raises((SchemaError, LimitExceeded)):
        COMPILER.compile(JsonSchema(schema, whitespace="compact"))


def test_any_order_does_not_lose_documents_with_several_undeclared_names() -> None:
    """A schema of one declared name and three that must come was said to have no document."""
    schema = {"type": "object", "properties": {"a": {}}, "minProperties": 3}
    assert COMPILER.compile(JsonSchema(schema, order="any", whitespace="compact")).accepts('{"y":1,"a":1,"x":1}')
    with pytest.raises(UnsupportedError, match="minProperties"):  # a grammar cannot count them
        to_gbnf(expand(schema, order="any"))
