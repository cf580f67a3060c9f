"""What llama-server's own `json_schema` holds: what it drops or reads wrongly is refused here, by its pointer."""

from __future__ import annotations

from typing import Any

import pytest

from espalier import JsonSchema
from espalier.errors import CapabilityError, UnsupportedError
from espalier.upstream.llama_server.native_schema import check_native, native_contract

TEXT = {"type": "string"}


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "number", "minimum": 3}, "/minimum"),
        ({"type": "integer", "minimum": 100}, "/minimum"),
        ({"type": "integer", "exclusiveMinimum": 99}, "/exclusiveMinimum"),
        ({"type": "integer", "maximum": -1030}, "/maximum"),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": 5}, "/exclusiveMinimum"),
        ({"type": "integer", "minimum": 2.5}, "/minimum"),
        ({"type": "string", "pattern": "^.*$"}, "/pattern"),
        ({"type": "string", "pattern": "^[^a]$"}, "/pattern"),
        ({"type": "string", "pattern": "^[ -~]+$"}, "/pattern"),
        ({"type": "string", "pattern": "^a+?$"}, "/pattern"),
        ({"type": "string", "pattern": r"^ab\.+$"}, "/pattern"),
        ({"type": "string", "pattern": "^a$|^b$"}, "/pattern"),
        ({"type": "string", "pattern": "^\u00e9+$"}, "/pattern"),
        ({"type": "string", "pattern": "^a+$", "maxLength": 3}, "/maxLength"),
        ({"maxLength": 3}, "/maxLength"),
        ({"type": "array", "minItems": 2}, "/minItems"),
        ({"type": "array", "prefixItems": [TEXT], "items": TEXT}, "/prefixItems"),
        ({"type": "array", "prefixItems": [TEXT], "minItems": 2}, "/minItems"),
        ({"type": "array", "items": TEXT, "uniqueItems": True}, "/uniqueItems"),
        ({"allOf": [{"type": "object", "properties": {"a": TEXT}}, {"required": ["a"]}]}, "/allOf"),
        ({"anyOf": [TEXT, {"type": "null"}], "maxLength": 3}, "/maxLength"),
        ({"oneOf": [TEXT, {"type": "string", "maxLength": 3}]}, "/oneOf"),
        ({"enum": ["a", 1], "type": "string"}, "/type"),
        ({"enum": ["a", "bb"], "type": "string", "maxLength": 1}, "/maxLength"),
        ({"type": "object", "properties": {"a": TEXT}, "additionalProperties": TEXT}, "/additionalProperties"),
        ({"type": "object", "properties": {}, "required": ["a"]}, "/required"),
        ({"required": ["a"]}, "/required"),
        ({"$ref": "#/$defs/a", "maxLength": 3, "$defs": {"a": TEXT}}, "/maxLength"),
        ({"type": "object", "minProperties": 1}, "/minProperties"),
        ({"not": TEXT}, "/not"),
    ],
)
def test_what_the_server_drops_or_reads_wrongly_is_refused_by_its_pointer(schema: dict[str, Any], pointer: str) -> None:
    with pytest.raises(UnsupportedError, match="llama-server's own json_schema") as caught:
        check_native(JsonSchema(schema))
    assert pointer in caught.value.message
    assert "schema_as=gbnf" in str(caught.value.hint)
    left = check_native(JsonSchema(schema, allow="checked")).by_verdict("checked")
    assert pointer in [one.pointer for one in left]


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "object", "properties": {"a": TEXT}, "required": ["a"], "additionalProperties": False},
        {"type": "integer", "minimum": 15},
        {"type": "integer", "minimum": 100, "maximum": 2000},
        {"type": "string", "pattern": r"^[a-z]+(ab|c){2}\.txt$"},
        {"type": "string", "minLength": 1, "maxLength": 3},
        {"type": ["integer", "null"]},
        {"oneOf": [TEXT, {"type": "integer"}]},
        {"oneOf": [{"const": "a"}, {"const": "b"}]},
        {"enum": [1, 2], "type": "integer"},
        {"type": "array", "items": TEXT, "minItems": 1, "maxItems": 3},
        {"$ref": "#/$defs/a", "$defs": {"a": TEXT}},
        {"type": "object", "additionalProperties": {"type": "integer"}},
        {"type": "string", "format": "uuid"},
    ],
)
def test_what_the_server_holds_may_be_sent(schema: dict[str, Any]) -> None:
    assert check_native(JsonSchema(schema)).by_verdict("checked", "refused") == ()


def test_a_list_of_items_is_said_to_be_narrowed() -> None:
    found = native_contract(JsonSchema({"type": "array", "prefixItems": [TEXT, TEXT]}))
    (one,) = [entry for entry in found.entries if entry.pointer == "/prefixItems"]
    assert (one.verdict, one.note) == ("narrowed", "exactly 2 items")


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"whitespace": "indented"}, "whitespace"),
        ({"separators": (",", ":")}, "separators"),
        ({"order": ["b", "a"]}, "order"),
        ({"documents": {"http://a/b": TEXT}}, "documents"),
    ],
)
def test_a_layout_that_the_server_does_not_write_is_refused(options: dict[str, Any], said: str) -> None:
    with pytest.raises(CapabilityError, match=said) as caught:
        check_native(JsonSchema({"type": "object"}, **options))
    assert caught.value.field == "constraint"


def test_the_order_of_the_schema_may_be_asked_for_where_the_server_keeps_it() -> None:
    kept = {"type": "object", "properties": {"a": TEXT, "b": TEXT}, "required": ["a"]}
    assert check_native(JsonSchema(kept, order="schema"))
    with pytest.raises(CapabilityError, match="order"):
        check_native(JsonSchema(kept | {"required": ["b"]}, order="schema"))
