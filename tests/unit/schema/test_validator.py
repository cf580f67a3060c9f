"""The validator of verdicts where the library's own rules fail or differ from the standard: `unevaluatedItems` of
2019-09."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import jsonschema_rs
import pytest

from espalier import JsonSchema
from espalier.constraints.verdict import judge

ADDRESS = "https://json-schema.org/draft/2019-09/schema"
WHOLE, TEXT = {"type": "integer"}, {"type": "string"}
SCHEMAS: tuple[dict[str, Any], ...] = (
    {"items": False},
    {"items": True},
    {"items": WHOLE},
    {"items": [WHOLE]},
    {"items": [WHOLE], "additionalItems": WHOLE},
    {"items": [WHOLE], "additionalItems": True},
    {"additionalItems": WHOLE},
    {"allOf": [{"items": True}]},
    {"allOf": [{"unevaluatedItems": WHOLE}]},
    {"anyOf": [{"items": [WHOLE, WHOLE]}, {"items": [TEXT]}]},
    {"if": {"items": [WHOLE]}, "then": {"items": [{}, {}]}, "else": {"items": TEXT}},
    {"$ref": "#/$defs/one"},
    {"anyOf": [{"items": [{"$recursiveRef": "#"}]}, True], "maxItems": 2},
    {"dependentSchemas": {"x": {"items": True}}},
)
"""Beside `unevaluatedItems`."""
VALUES = (*(list(items) for size in range(4) for items in product((1, "x"), repeat=size)), [[]], [[1]], {"x": 1})


@pytest.mark.parametrize("rest", [False, TEXT])
@pytest.mark.parametrize("schema", SCHEMAS, ids=str)
def test_unevaluated_items_of_2019_09(schema: dict[str, Any], rest: Any) -> None:
    whole = {"$schema": ADDRESS, "$defs": {"one": {"items": [WHOLE]}}, **schema, "unevaluatedItems": rest}
    oracle = jsonschema_rs.validator_for(whole)
    for value in VALUES:
        assert judge(JsonSchema(whole), json.dumps(value)).valid is oracle.is_valid(value), value


def test_contains_evaluates_no_item_in_2019_09() -> None:
    schema = {"$schema": ADDRESS, "contains": {"const": 1}, "unevaluatedItems": False}
    assert judge(JsonSchema(schema), "[1]").valid is False
    assert judge(JsonSchema(schema | {"$schema": ADDRESS.replace("2019-09", "2020-12")}), "[1]").valid is True
