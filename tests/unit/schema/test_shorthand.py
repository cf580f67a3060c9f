"""The shorthand: the schema of each form, and the position of errors."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.errors import SchemaError
from espalier.schema.shorthand import parse_shorthand


def fields(text: str) -> dict[str, Any]:
    schema = parse_shorthand(text)
    jsonschema.Draft202012Validator.check_schema(schema)
    assert schema["type"] == "object"
    assert schema["additionalProperties"] is False
    properties: dict[str, Any] = schema["properties"]
    return properties


STRING = {"type": "string"}


@pytest.mark.parametrize(
    ("text", "properties"),
    [
        ("name", {"name": STRING}),
        ("name, age int, email", {"name": STRING, "age": {"type": "integer"}, "email": STRING}),
        ("name\nage int\n", {"name": STRING, "age": {"type": "integer"}}),
        ("  name ,\n\n age int,\n", {"name": STRING, "age": {"type": "integer"}}),
        ("a float, b bool, c str", {"a": {"type": "number"}, "b": {"type": "boolean"}, "c": STRING}),
        ("a integer, b number", {"a": {"type": "integer"}, "b": {"type": "number"}}),
        ("tags str[]", {"tags": {"type": "array", "items": STRING}}),
        ("grid int[][]", {"grid": {"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}}),
        ("name: full name, age int: in years", {"name": {**STRING, "description": "full name"}, "age": None}),
        ("name: Last, first\nage int: in years", {"name": {**STRING, "description": "Last, first"}, "age": None}),
        ('name: "Last, first", age', {"name": {**STRING, "description": "Last, first"}, "age": STRING}),
        ("url: like http://x", {"url": {**STRING, "description": "like http://x"}}),
        ("name:, age", {"name": STRING, "age": STRING}),
        ("size (small|large)", {"size": {"type": "string", "enum": ["small", "large"]}}),
        ('size ( "a|b" | very large | 3.5 )', {"size": {"type": "string", "enum": ["a|b", "very large", "3.5"]}}),
        ("sizes (s|m)[]", {"sizes": {"type": "array", "items": {"type": "string", "enum": ["s", "m"]}}}),
        ('"first name" str, "ü"', {"first name": STRING, "ü": STRING}),
        ("größe int, a-b", {"größe": {"type": "integer"}, "a-b": STRING}),
    ],
)
def test_forms(text: str, properties: dict[str, Any]) -> None:
    found = fields(text)
    assert list(found) == list(properties)
    assert all(found[name] == wanted for name, wanted in properties.items() if wanted is not None)
    assert parse_shorthand(text)["required"] == list(properties)


def test_optional_fields() -> None:
    assert parse_shorthand("a?, b int?, c? int[]: x, d")["required"] == ["d"]


def test_nested_objects() -> None:
    found = fields("name, home {street, zip int}, dogs {name, age int: in years}[], last")
    assert list(found) == ["name", "home", "dogs", "last"]
    assert found["home"]["properties"] == {"street": STRING, "zip": {"type": "integer"}}
    assert found["home"]["required"] == ["street", "zip"]
    assert found["dogs"]["items"]["properties"]["age"] == {"type": "integer", "description": "in years"}


def test_nested_objects_over_lines() -> None:
    found = fields("home {\n  street: with number\n  zip int,\n}: where\nlast")
    assert found["home"]["description"] == "where"
    assert found["home"]["properties"]["street"] == {**STRING, "description": "with number"}
    assert list(found["home"]["properties"]) == ["street", "zip"]


@pytest.mark.parametrize(
    ("text", "place", "said"),
    [
        ("", 0, "field name was expected, not the end"),
        ("name, 3x", 6, "field name was expected, not '3'"),
        ("name string5", 5, "'string5' is not a type"),
        ("name, name", 6, "'name' occurs twice"),
        ("age int int", 8, "'i' is not expected"),
        ("home {street", 12, "'}' was expected"),
        ("home {}", 6, "field name was expected"),
        ("a}", 1, "'}' is not expected"),
        ("size (a|b", 9, "'|' or ')' was expected"),
        ("size (a||b)", 8, "a choice was expected"),
        ("size (a|a)", 8, "'a' occurs twice"),
        ("size ()", 6, "a choice was expected"),
        ('"name', 0, "does not end"),
        ('"a\\q"', 0, "not a JSON string"),
        ("a str[", 5, "'[' is not expected"),
        ("a {" * 40 + "b" + "}" * 40, 99, "more than 32"),
    ],
)
def test_errors_say_where(text: str, place: int, said: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse_shorthand(text)
    assert said in caught.value.message
    assert f"at character {place}:" in caught.value.message


@given(st.text(alphabet='ab1 ,\n:?[](){}|"\\int', max_size=30))
def test_any_text_is_a_schema_or_an_error(text: str) -> None:
    try:
        schema = parse_shorthand(text)
    except SchemaError:
        return
    jsonschema.Draft202012Validator.check_schema(schema)
