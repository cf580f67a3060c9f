"""Schemas of calls as plain JSON Schema, and tools from whatever describes them."""

from __future__ import annotations

import json
from typing import Literal

import jsonschema
import pytest

from espalier import JsonSchema, Vocab, multi_tool_call_schema, tool_call_schema, tools_of
from espalier.chat.tools import Tool
from espalier.constraints.compiler import Compiler
from espalier.constraints.verdict import judge
from espalier.errors import InputError

BYTES = Compiler(Vocab.bytes())
READ = {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]}
TREE = {
    "type": "object",
    "properties": {"node": {"$ref": "#/$defs/node"}, "again": {"$ref": "#"}},
    "$defs": {
        "node": {
            "type": "object",
            "properties": {"kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}},
            "additionalProperties": False,
        }
    },
    "additionalProperties": False,
}
OLD = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "$ref": "#/definitions/list",
    "definitions": {
        "list": {
            "type": "object",
            "properties": {"next": {"$ref": "#/definitions/list"}},
            "additionalProperties": False,
        }
    },
}
OLDEST = {
    "$schema": "http://json-schema.org/draft-04/schema#",
    "type": "object",
    "properties": {"n": {"$ref": "#/definitions/n"}},
    "definitions": {"n": {"type": "integer", "minimum": 0, "exclusiveMinimum": True}},
    "additionalProperties": False,
}


def test_the_schema_of_a_call():
    assert tool_call_schema("read_file", READ) == {
        "type": "object",
        "properties": {"name": {"const": "read_file"}, "args": READ},
        "required": ["name", "args"],
        "additionalProperties": False,
    }
    other = tool_call_schema("f", None, name_key="tool", args_key="arguments")
    assert list(other["properties"]) == ["tool", "arguments"]
    assert other["properties"]["arguments"] == {"type": "object", "properties": {}, "additionalProperties": False}


def test_the_schema_of_several_calls_keeps_their_order():
    found = multi_tool_call_schema({"b": READ, "a": None, "c": READ})
    assert list(found) == ["anyOf"]
    assert [one["properties"]["name"]["const"] for one in found["anyOf"]] == ["b", "a", "c"]
    assert found["anyOf"][0] == tool_call_schema("b", READ)


def agreed(schema, value):
    """What the constraint, its judge and the validator's library say of a value: they must not differ."""
    text = json.dumps(value)
    compiled = BYTES.compile(JsonSchema(schema)).accepts(text)
    library = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)(schema)
    assert compiled == judge(JsonSchema(schema), text).valid == library.is_valid(value)
    return compiled


@pytest.mark.parametrize(
    ("parameters", "good", "bad"),
    [
        (READ, [{"path": "a"}], [{}, {"path": 1}, "x"]),
        (
            TREE,
            [{}, {"node": {"kids": [{"kids": []}]}}, {"again": {"again": {"node": {}}}}],
            [{"node": {"kids": [{"kid": []}]}}, {"again": {"name": "f"}}, {"again": {"again": {"node": 1}}}],
        ),
        (OLD, [{}, {"next": {"next": {}}}], [{"next": {"last": {}}}, {"next": 1}]),
        (OLDEST, [{"n": 1}], [{"n": 0}, {"n": 1.5}]),
        ({"$id": "https://example.org/mine", **TREE}, [{"node": {"kids": [{}]}}], [{"node": {"kids": [1]}}]),
        (
            {"type": "object", "properties": {"p": {"$ref": "#n"}}, "$defs": {"n": {"$anchor": "n", "type": "null"}}},
            [{"p": None}],
            [{"p": 1}],
        ),
    ],
)
def test_references_lead_where_they_led(parameters, good, bad):
    one = tool_call_schema("f", parameters)
    many = multi_tool_call_schema({"f": parameters, "g": TREE, "h": OLD})
    for arguments, valid in [*((a, True) for a in good), *((a, False) for a in bad)]:
        assert agreed(one, {"name": "f", "args": arguments}) == valid
        assert agreed(many, {"name": "f", "args": arguments}) == valid
    for call in ({"name": "g", "args": {}}, {"args": {}}, {"name": "f"}, {"name": "f", "args": {}, "id": 1}):
        assert not agreed(one, call)
    assert agreed(many, {"name": "g", "args": {"node": {"kids": [{}]}}})
    assert agreed(many, {"name": "h", "args": {"next": {}}})


def test_the_name_comes_first():
    compiled = BYTES.compile(JsonSchema(tool_call_schema("f", READ)))
    assert compiled.accepts('{"name": "f", "args": {"path": ""}}')
    assert not compiled.accepts('{"args": {"path": ""}, "name": "f"}')


def test_what_was_given_stays_as_it_was():
    before = json.dumps(TREE)
    found = tool_call_schema("f", TREE)
    found["properties"]["args"]["type"] = "null"
    assert json.dumps(TREE) == before


@pytest.mark.parametrize(
    ("arguments", "field"),
    [(("a b", READ), "name"), (("a", "x"), "parameters"), (("a", {"x": float("nan")}), "parameters")],
)
def test_faults_of_schemas(arguments, field):
    with pytest.raises(InputError) as told:
        tool_call_schema(*arguments)
    assert told.value.field == field


def test_keys_that_are_equal_and_no_tools():
    with pytest.raises(InputError, match="both stand at 'x'"):
        tool_call_schema("a", READ, name_key="x", args_key="x")
    for given in ({}, [], None):
        with pytest.raises(InputError, match="no tools"):
            multi_tool_call_schema(given)


# Tools


def search(query: str, mode: Literal["fast", "exact"] = "fast", limit: int = 10) -> list[str]:
    """Find pages
    by their text.

    More that only readers of the code need.
    """
    return []


def test_tools_from_whatever_describes_them():
    given = [
        Tool(name="a", parameters=READ),
        {"type": "function", "function": {"name": "b", "parameters": READ, "strict": False}},
        {"name": "c", "input_schema": READ, "description": "third"},
        {"name": "d", "inputSchema": READ},
        search,
    ]
    found = tools_of(given)
    assert [tool.name for tool in found] == ["a", "b", "c", "d", "search"]
    assert all(tool.schema == READ for tool in found[:4])
    assert [tool.strict for tool in found] == [None, False, None, None, None]
    assert tools_of(found) == found
    assert tools_of({"tools": given[:4]}) == found[:4]
    assert tools_of({"a": READ, "b": READ}) == (Tool(name="a", parameters=READ), Tool(name="b", parameters=READ))
    assert tools_of(given[0]) == found[:1]
    assert tools_of(given[1]) == found[1:2]
    assert tools_of(iter(given)) == found


def test_a_function_is_a_tool():
    (tool,) = tools_of(search)
    assert tool.description == "Find pages by their text."
    assert list(tool.schema["properties"]) == ["query", "mode", "limit"]
    assert tool.schema["required"] == ["query"]

    def plain() -> None: ...

    assert tools_of([plain])[0].description == ""


def unwritable(value: complex) -> None: ...


@pytest.mark.parametrize(
    ("given", "field", "message"),
    [
        ([search, search], "tools[1].name", "two tools called 'search'"),
        ([{"name": "a", "parameters": {}}, unwritable], "tools[1]", "unwritable cannot be a tool"),
        ([search, lambda x: x], "tools[1]", "<lambda> cannot be a tool"),
        ([search, 3], "tools[1]", "a tool is an object"),
        ([search, {"name": "a", "parameters": 3}], "tools[1].parameters", "is an object"),
        (3, "tools", "a list of tools"),
        ("x", "tools", "a list of tools"),
        (None, "tools", "a list of tools"),
        ([], "tools", "no tools"),
    ],
)
def test_faults_of_tools_name_the_place(given, field, message):
    with pytest.raises(InputError, match=message) as told:
        tools_of(given)
    assert told.value.field == field
