"""Arguments of tools take no names that their schema does not declare, unless they are opened."""

from __future__ import annotations

import json
from typing import Any

import pytest

from espalier.api import make_request
from espalier.chat.tools import Tool
from espalier.chat.wire.formats import wire_format
from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import Spec
from espalier.constraints.to_gbnf import grammar_of
from espalier.constraints.tools.schemas import closed_entries
from espalier.constraints.tools.spec import ToolCalls
from espalier.constraints.verdict import judge
from espalier.errors import InputError
from espalier.schema.read.walk import SAYING
from espalier.tokens.vocab import Vocab
from tests.tool_texts import FORMATS, written

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "at": {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]},
    },
    "required": ["city"],
}
TEXT = json.dumps(SCHEMA)
DECLARED = {"city": "Oslo", "at": {"x": 1}}
OTHERS = [{"city": "Oslo", "country": "Norway"}, {"city": "Oslo", "at": {"x": 1, "y": 2}}]
COMPILER = Compiler(Vocab.bytes())


def fits(tool: Tool, name: str, arguments: dict[str, Any]) -> bool:
    """Whether the matcher takes the call; what it takes, the judge takes."""
    spec = ToolCalls([tool], choice="required", max_calls=1, format=name, whitespace="flexible")
    text = written(wire_format(name), (tool.name, arguments))
    matcher = COMPILER.compile(spec).matcher()
    taken = True
    for byte in text.encode():
        taken = taken and matcher.allows(byte)
        if taken:
            matcher.advance(byte)
    taken = taken and matcher.is_accepting
    assert judge(spec, text).valid or not taken
    return taken


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_has_no_argument_that_the_tool_does_not_declare(name: str) -> None:
    tool, opened = Tool(name="f", parameters=TEXT), Tool(name="f", parameters=TEXT, closed=False)
    assert fits(tool, name, DECLARED)
    assert fits(opened, name, DECLARED)
    for arguments in OTHERS:
        assert not fits(tool, name, arguments)
        assert not judge(ToolCalls([tool], format=name), written(wire_format(name), ("f", arguments))).valid
        assert fits(opened, name, arguments)


@pytest.mark.parametrize("strict", [None, True, False])
def test_strict_changes_nothing_of_it(strict: bool | None) -> None:
    tool = Tool(name="f", parameters=TEXT, strict=strict)
    assert fits(tool, "hermes", DECLARED)
    assert not fits(tool, "hermes", OTHERS[0])


@pytest.mark.parametrize(
    ("more", "is_open"),
    [
        ({}, False),
        ({"additionalProperties": True}, True),
        ({"additionalProperties": {"type": "string"}}, True),
        ({"additionalProperties": False}, False),
        ({"patternProperties": {"^c": {"type": "string"}}}, True),
        ({"unevaluatedProperties": True}, True),
    ],
)
def test_a_schema_that_says_what_other_names_are_stays_as_it_says(more: dict[str, Any], is_open: bool) -> None:
    tool = Tool(name="f", parameters=json.dumps(SCHEMA | more))
    assert fits(tool, "hermes", OTHERS[0]) == is_open
    assert set(more) <= set(SAYING)


def test_a_tool_without_properties_takes_any_and_one_with_none_takes_none() -> None:
    assert fits(Tool(name="f", parameters='{"type": "object"}'), "hermes", {"a": 1})
    assert not fits(Tool(name="f", parameters='{"type": "object", "properties": {}}'), "hermes", {"a": 1})


def test_closed_arguments_come_in_any_order_and_open_ones_in_that_of_the_schema() -> None:
    tool, opened = Tool(name="f", parameters=TEXT), Tool(name="f", parameters=TEXT, closed=False)
    assert ToolCalls([tool]).order_of(tool) == "any"
    assert ToolCalls([opened]).order_of(opened) == "schema"
    turned = {"at": {"x": 1}, "city": "Oslo"}
    assert fits(tool, "hermes", turned)
    assert not fits(opened, "hermes", turned)


def test_grammars_for_other_programs_are_closed_too() -> None:
    grammars = []
    for schema in (SCHEMA, SCHEMA | {"additionalProperties": False}):
        tool = Tool(name="f", parameters=json.dumps(schema))
        grammars.append(grammar_of(ToolCalls([tool], choice="required", order="schema"), COMPILER, ""))
    assert grammars[0] == grammars[1]


def test_the_contract_names_the_tools_that_are_closed_by_default() -> None:
    tools = [
        Tool(name="closed", parameters=TEXT),
        Tool(name="opened", parameters=TEXT, closed=False),
        Tool(name="free", parameters='{"type": "object"}'),
    ]
    (entry,) = closed_entries(tools)
    assert (entry.keyword, entry.verdict) == ("closed", "enforced")
    assert entry.note.startswith("arguments of closed: ")
    assert closed_entries(tools[1:]) == []


@pytest.mark.parametrize("closed", [None, True, False])
def test_a_request_opens_its_tools(closed: bool | None) -> None:
    request = make_request("Hi", tools=[{"name": "f", "parameters": SCHEMA}], closed=closed)
    assert [tool.closed for tool in request.tools] == [closed is not False]


def test_open_tools_round_trip() -> None:
    tool = Tool(name="f", parameters=TEXT, closed=False)
    spec = ToolCalls([tool])
    assert Spec.from_json(spec.to_json()) == spec
    with pytest.raises(InputError, match="closed"):
        ToolCalls([{"name": "f", "parameters": SCHEMA, "closed": "no"}])


CLOSED = {"type": "object", "properties": {"a": {}}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("tool", "more", "is_noted"),
    [
        ({"parameters": SCHEMA}, {}, True),
        ({"parameters": CLOSED}, {}, False),
        ({"parameters": {"type": "object"}}, {}, False),
        ({"parameters": SCHEMA, "strict": True}, {}, False),
        ({"parameters": SCHEMA}, {"closed": True}, False),
        ({"parameters": SCHEMA}, {"closed": False}, False),
        ({"parameters": SCHEMA}, {"tool_choice": "none"}, False),
    ],
)
def test_a_request_notes_once_what_only_the_default_closes(
    tool: dict[str, Any], more: dict[str, Any], is_noted: bool
) -> None:
    request = make_request("Hi", tools=[{"name": "f", **tool}, {"name": "g", "parameters": CLOSED}], **more)
    noted = [note for note in request.notes if "`properties`" in note]
    assert len(noted) == is_noted
    assert all(note.startswith("arguments of f: ") for note in noted)
