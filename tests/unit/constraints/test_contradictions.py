"""A schema that no document satisfies is refused with the part and the keywords that contradict each other: every pair
of keywords of strings, arrays and objects, at the top and below."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from espalier import JsonSchema
from espalier.constraints.compiler import Compiler
from espalier.errors import SchemaError
from espalier.tokens.vocab import Vocab

BYTES = Compiler(Vocab.bytes())
STRINGS: Mapping[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "pattern and maxLength": ({"pattern": "^abc$", "maxLength": 2}, ('pattern "^abc$"', "maxLength 2")),
    "pattern and minLength": ({"pattern": "^abc$", "minLength": 4}, ('pattern "^abc$"', "minLength 4")),
    "pattern and pattern": (
        {"allOf": [{"pattern": "^a+$"}, {"pattern": "^b+$"}]},
        ('pattern "^a+$"', 'pattern "^b+$"'),
    ),
    "pattern and not": ({"pattern": "^ab$", "not": {"pattern": "b$"}}, ('pattern "^ab$"', 'not pattern "b$"')),
    "pattern and not const": ({"pattern": "^ab$", "not": {"const": "ab"}}, ('pattern "^ab$"', 'not const "ab"')),
    "format and maxLength": ({"format": "date", "maxLength": 3}, ("format date", "maxLength 3")),
    "format and minLength": ({"format": "uuid", "minLength": 50}, ("format uuid", "minLength 50")),
    "format and pattern": ({"format": "date", "pattern": "^x"}, ("format date", 'pattern "^x"')),
    "format and format": ({"allOf": [{"format": "date"}, {"format": "uuid"}]}, ("format date", "format uuid")),
    "a pattern alone": ({"pattern": "^(?=b)a"}, ('pattern "^(?=b)a"',)),
    "three": (
        {"pattern": "^(ab|abcd)$", "minLength": 3, "maxLength": 3},
        ('pattern "^(ab|abcd)$"', "minLength 3", "maxLength 3"),
    ),
    "others beside are not named": ({"pattern": "^abc$", "maxLength": 2, "minLength": 1}, ("maxLength 2",)),
    "minLength and maxLength": ({"minLength": 4, "maxLength": 2}, ("minLength", "maxLength")),
    "const and maxLength": ({"const": "abc", "maxLength": 2}, ("const", "maxLength")),
    "enum and pattern": ({"enum": ["abc"], "pattern": "^x"}, ("enum", "pattern")),
}
OTHERS: Mapping[str, tuple[dict[str, Any], tuple[str, ...]]] = {
    "uniqueItems and minItems": (
        {"type": "array", "uniqueItems": True, "items": {"enum": [1, 2]}, "minItems": 3},
        ("uniqueItems", "minItems 3"),
    ),
    "prefixItems and minItems": (
        {"type": "array", "prefixItems": [True], "items": False, "minItems": 2},
        ("items", "minItems"),
    ),
    "propertyNames and minProperties": (
        {"type": "object", "minProperties": 1, "propertyNames": False},
        ("propertyNames", "minProperties"),
    ),
    "minimum and maximum": ({"type": "number", "minimum": 5, "maximum": 3}, ("minimum", "maximum")),
    "multipleOf and bounds": ({"type": "number", "multipleOf": 10, "minimum": 1, "maximum": 9}, ("multipleOf",)),
    "items and contains": (
        {"type": "array", "contains": {"type": "string"}, "items": {"type": "number"}},
        ("/contains", "/items"),
    ),
    "required and maxProperties": ({"type": "object", "required": ["a"], "maxProperties": 0}, ("maxProperties",)),
    "patternProperties and required": (
        {"type": "object", "required": ["a"], "patternProperties": {"^a": False}},
        ("required", "patternProperties"),
    ),
}


def below(schema: dict[str, Any]) -> dict[str, tuple[dict[str, Any], str]]:
    """The schema at places where a document cannot do without it, with its pointer there."""
    return {
        "at the top": (schema, ""),
        "a property": ({"type": "object", "properties": {"p": schema}, "required": ["p"]}, "/properties/p"),
        "an item": ({"type": "array", "prefixItems": [schema], "minItems": 1}, "/prefixItems/0"),
        "a reference": (
            {"type": "object", "properties": {"p": {"$ref": "#/$defs/d"}}, "required": ["p"], "$defs": {"d": schema}},
            "/",
        ),
        "beside an optional one of the same kind": (
            {"type": "object", "properties": {"o": {**schema, "title": "o"}, "p": schema}, "required": ["p"]},
            "/properties/p",
        ),
    }


@pytest.mark.parametrize("place", list(below({})))
@pytest.mark.parametrize("name", [*STRINGS, *OTHERS])
def test_a_schema_that_nothing_satisfies_names_property_and_keywords(name: str, place: str) -> None:
    schema, named = STRINGS[name] if name in STRINGS else OTHERS[name]
    document, pointer = below({"type": "string", **schema})[place]
    with pytest.raises(SchemaError) as caught:
        BYTES.compile(JsonSchema(document, format="assert"))
    message = str(caught.value)
    assert all(keyword in message for keyword in named), message
    assert pointer in message, message
    assert "at the top" not in message or not pointer
    if name == "others beside are not named":
        assert "minLength" not in message


def test_names_that_cannot_be_are_named_at_their_object() -> None:
    names = {"type": "object", "minProperties": 1, "propertyNames": {"pattern": "^abc$", "maxLength": 2}}
    with pytest.raises(SchemaError) as caught:
        BYTES.compile(JsonSchema({"type": "object", "properties": {"p": names}, "required": ["p"]}))
    assert caught.value.pointer == "/properties/p"
    assert 'maxLength 2 contradicts pattern "^abc$"' in caught.value.message
