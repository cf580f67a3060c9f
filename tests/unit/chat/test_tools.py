"""Tools, choices and reasoning markers as people write them."""

from __future__ import annotations

import json

import pytest

from espalier.chat.reasoning import REASONING, Reasoning, detect_reasoning, read_reasoning
from espalier.chat.tools import AUTO, NO_ARGUMENTS, Tool, ToolCall, ToolChoice, hosted_types, read_choice, read_tools
from espalier.errors import InputError

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
PLAIN = Tool(name="f", parameters=json.dumps(SCHEMA), description="Does f.")


@pytest.mark.parametrize(
    "data",
    [
        {"type": "function", "function": {"name": "f", "description": "Does f.", "parameters": SCHEMA}},
        {"type": "function", "name": "f", "description": "Does f.", "parameters": SCHEMA},
        {"name": "f", "description": "Does f.", "input_schema": SCHEMA},
        {"type": "custom", "name": "f", "description": "Does f.", "input_schema": SCHEMA},
        {"name": "f", "description": "Does f.", "inputSchema": SCHEMA, "title": "F"},
    ],
)
def test_tools_are_read_in_every_shape_of_the_field(data):
    assert read_tools([data]) == read_tools(data) == read_tools({"tools": [data]}) == (PLAIN,)
    assert read_tools([PLAIN.to_json()]) == (PLAIN,)


def test_a_mapping_of_names_to_schemas_keeps_its_order():
    assert [tool.name for tool in read_tools({"b": {}, "name": {}, "tools": {}, "function": {}})] == [
        "b",
        "name",
        "tools",
        "function",
    ]


@pytest.mark.parametrize(
    ("data", "field"),
    [
        ([], "tools"),
        ({}, "tools"),
        ("f", "tools"),
        (["f"], "tools[0]"),
        ([{"parameters": {}}], "tools[0].name"),
        ([{"name": "a b", "parameters": {}}], "tools[0].name"),
        ([{"name": "", "parameters": {}}], "tools[0].name"),
        ([{"name": "x" * 129, "parameters": {}}], "tools[0].name"),
        ([{"name": 3, "parameters": {}}], "tools[0].name"),
        ([{"type": "function", "function": "a"}], "tools[0].function"),
        ([{"type": "web_search", "name": "a"}], "tools[0].type"),
        ([{"name": "a", "parameters": [1]}], "tools[0].parameters"),
        ([{"name": "a", "parameters": "{"}], "tools[0].parameters"),
        ([{"name": "a", "parameters": {"const": float("nan")}}], "tools[0].parameters"),
        ([{"name": "a", "parameters": {}, "strict": "yes"}], "tools[0].strict"),
        ([{"name": "a", "parameters": {}, "description": 5}], "tools[0].description"),
        ([{"name": "a", "parameters": {}}, {"name": "a", "parameters": {}}], "tools[1].name"),
    ],
)
def test_a_tool_that_is_no_tool_names_its_place(data, field):
    with pytest.raises(InputError) as error:
        read_tools(data)
    assert error.value.field == field


@pytest.mark.parametrize(
    "data",
    [
        {"name": "now"},
        {"name": "now", "input_schema": None},
        {"type": "function", "name": "now", "parameters": None},
        {"type": "function", "function": {"name": "now"}},
        {"type": "function", "function": {"name": "now", "parameters": None}},
    ],
)
def test_a_tool_without_a_schema_has_no_arguments(data):
    (tool,) = read_tools([data])
    assert tool.schema == NO_ARGUMENTS


def test_names_have_up_to_128_characters():
    name = "mcp__" + "a.-_Z9" * 20 + "abc"
    assert len(name) == 128
    assert read_tools([{"name": name}])[0].name == name


HOSTED = [
    {"type": "web_search"},
    {"type": "web_search_preview", "search_context_size": "low"},
    {"type": "local_shell"},
    {"type": "namespace", "name": "mcp__docs", "tools": [{"type": "function", "name": "f"}]},
    {"type": "tool_search", "execution": "client", "description": "Finds tools.", "parameters": SCHEMA},
    {"type": "image_generation", "output_format": "png"},
    {"type": "code_interpreter", "container": {"type": "auto"}},
    {"type": "file_search", "vector_store_ids": []},
    {"type": "mcp", "server_label": "docs"},
    {"type": "computer_use_preview"},
    {"type": "web_search_20250305", "name": "web_search", "max_uses": 8},
    {"type": "bash_20250124", "name": "bash"},
    {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool"},
    {"type": "memory_20250818", "name": "memory"},
    {"type": "mcp_toolset", "mcp_server_name": "docs"},
]


@pytest.mark.parametrize("tool", HOSTED, ids=lambda tool: tool["type"])
def test_a_hosted_tool_is_left_out_where_that_is_asked(tool):
    assert read_tools([tool, PLAIN], skips_hosted=True) == (PLAIN,)
    assert read_tools([tool], skips_hosted=True) == ()
    assert hosted_types([tool, tool, {"name": "a"}]) == (tool["type"],)
    with pytest.raises(InputError, match="cannot be called here") as error:
        read_tools([PLAIN, tool])
    assert error.value.field == "tools[1].type"


@pytest.mark.parametrize("kind", ["functoin", "Function", "functions", "costum", None, 3, ["function"]])
def test_a_misspelt_type_of_a_tool_is_refused_and_not_left_out(kind):
    with pytest.raises(InputError):
        read_tools([PLAIN, {"type": kind, "name": "b c", "parameters": SCHEMA}], skips_hosted=True)


def test_faults_keep_their_position_beside_hosted_tools():
    with pytest.raises(InputError) as error:
        read_tools([*HOSTED[:3], {"name": "a b"}], skips_hosted=True)
    assert error.value.field == "tools[3].name"


NAMED = {"type": "function", "function": {"name": "f"}}
ALLOWED = {"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": [NAMED, NAMED]}}


@pytest.mark.parametrize(
    ("data", "choice"),
    [
        (None, AUTO),
        ("auto", ToolChoice()),
        ("none", ToolChoice(mode="none")),
        ("required", ToolChoice(mode="required")),
        ("f", ToolChoice(mode="required", names=("f",), single=True)),
        (NAMED, ToolChoice(mode="required", names=("f",), single=True)),
        ({"type": "function", "name": "f"}, ToolChoice(mode="required", names=("f",), single=True)),
        ({"type": "any"}, ToolChoice(mode="required")),
        ({"type": "tool", "name": "f"}, ToolChoice(mode="required", names=("f",), single=True)),
        (ALLOWED, ToolChoice(mode="required", names=("f",))),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            ToolChoice(names=("f",)),
        ),
        (
            {"type": "allowed_tools", "mode": "required", "tools": [{"type": "web_search"}, {"name": "f"}]},
            ToolChoice(mode="required", names=("f",)),
        ),
        ({"type": "allowed_tools", "mode": "auto", "tools": [{"type": "mcp"}]}, ToolChoice(mode="none")),
    ],
)
def test_choices_are_read_and_written(data, choice):
    assert read_choice(data) == choice
    assert read_choice(choice) is choice
    assert read_choice(json.loads(json.dumps(choice.to_json()))) == choice


@pytest.mark.parametrize(
    "data",
    [
        5,
        "a b",
        {"type": "function"},
        {"type": "function", "function": {}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "none", "tools": [NAMED]}},
        {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
        {"type": "allowed_tools", "allowed_tools": "f"},
        {"type": "mcp"},
    ],
)
def test_a_choice_that_cannot_be_names_the_field(data):
    with pytest.raises(InputError) as error:
        read_choice(data)
    assert error.value.field.startswith("tool_choice")


def test_a_choice_that_names_nothing_lists_the_tools():
    with pytest.raises(InputError, match="'g', which is no tool") as error:
        read_choice("g").allowed([PLAIN])
    assert error.value.hint == "tools: f"


def test_arguments_are_parsed_only_when_the_call_is_complete():
    assert ToolCall(index=0, name="f", arguments='{"a": 1}').parsed == {"a": 1}
    assert ToolCall(index=0, name="f", arguments='{"a": 1}', is_complete=False).parsed is None
    assert ToolCall(index=0, name="f", arguments='{"a": ', is_complete=False).parsed is None
    assert ToolCall(index=0, name="f", arguments="[1]").parsed is None


def test_reasoning_markers_by_name_pair_and_value():
    pair = Reasoning(start="<a>", end="</a>")
    assert read_reasoning("think").end == "</think>"
    assert read_reasoning(["<a>", "</a>"]) == read_reasoning(pair) == pair


@pytest.mark.parametrize("data", ["nonsense", ["<a>"], ["", "b"], ["a", "a"], 5, ["a", 5]])
def test_markers_that_are_none_name_the_field(data):
    with pytest.raises(InputError) as error:
        read_reasoning(data)
    assert error.value.field == "reasoning"


def test_markers_are_found_in_a_template_or_a_vocabulary():
    assert detect_reasoning("{{ content.split('</think>')[-1] }}") == REASONING["think"]
    assert detect_reasoning("{{ '<think>' }}") == REASONING["think"]
    assert detect_reasoning("", ["[THINK]", "[/THINK]"]) == REASONING["mistral"]
    assert detect_reasoning("", ["[THINK]"]) is None
    assert detect_reasoning("{{ messages }}") is None
