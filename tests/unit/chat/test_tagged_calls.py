"""Calls whose arguments stand between tags: raw text or JSON, as the types of the tool's schema say."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.chat.argument_types import ALL, STRING, argument_types
from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun
from espalier.chat.reading.turn_parser import TurnParser
from espalier.chat.wire.formats import wire_format
from espalier.chat.wire.render import render_calls
from espalier.errors import InputError
from tests.tool_texts import tagged
from tests.unit.chat.turns import BY_SHAPE, cuts, parsed, values

QWEN = wire_format("qwen_coder")
NULL = frozenset(("null", "string"))
raw = st.lists(
    st.sampled_from(["a", "\n", " ", "<", "</param", "</arg_value", "</parameter", "é", '"', "{", "5", "null", "\\"])
).map("".join)
not_texts = values.filter(lambda value: not isinstance(value, str))


@given(
    st.sampled_from(BY_SHAPE["tagged"]),
    st.lists(st.tuples(raw, not_texts, st.none() | st.sampled_from(["x", "5", "{", ""])), min_size=1, max_size=3),
    cuts,
)
def test_arguments_come_back_as_they_were_written(name, calls, places):
    wire = wire_format(name)
    types = {"f": {"text": STRING, "other": ALL - STRING, "either": NULL}}
    given = [("f", {"text": text, "other": other, "either": either}) for text, other, either in calls]
    turn = parsed(f"So: {render_calls(wire, given)}", places, format=wire, names=["f"], types=types)
    assert [json.loads(call.arguments) for call in turn.calls] == [arguments for _, arguments in given]
    assert (turn.content, turn.fault) == ("So: ", "")


@pytest.mark.parametrize(
    ("value", "types", "expected"),
    [
        ("5", STRING, "5"),
        ("5", NULL, "5"),
        ("null", STRING, "null"),
        ("null", NULL, None),
        (" null\n", NULL, None),
        ("5", ALL, 5),
        ("NaN", ALL, "NaN"),
        ("01", ALL, "01"),
        ('"5"', ALL, '"5"'),
        ("[1, {}]", ALL, [1, {}]),
        ("[1, {}] and more", ALL, "[1, {}] and more"),
        ('{"a": "</parameter>"}', ALL, {"a": "</parameter>"}),
        ("{", ALL, "{"),
        ("", ALL, ""),
        ("", STRING, ""),
        ("\n\n", STRING, "\n\n"),
    ],
)
def test_a_text_is_json_only_where_the_schema_allows_that_type(value, types, expected):
    text = f"<tool_call>\n<function=f>\n<parameter=a>\n{value}\n</parameter>\n</function>\n</tool_call>"
    (call,) = parsed(text, [0.3, 0.6], format=QWEN, names=["f"], types={"f": {"a": types}}).calls
    assert call.parsed == {"a": expected}


def test_line_ends_that_a_model_leaves_out_are_not_missed():
    text = "<tool_call><function=f><parameter=a>x</parameter><parameter=b>1</parameter></function></tool_call>"
    (call,) = parsed(text, format=QWEN, names=["f"], types={"f": {"a": STRING, "b": ALL - STRING}}).calls
    assert call.parsed == {"a": "x", "b": 1}


def test_a_text_is_told_as_it_comes_and_its_last_line_end_when_something_follows():
    parser = TurnParser(format=QWEN, names=["f"], types={"f": {"a": STRING}})
    assert parser.feed("<tool_call>\n<function=f>\n<") == [CallBegun(0, "f"), ArgumentsDelta(0, "{")]
    assert parser.feed("parameter=a>\nso") == [ArgumentsDelta(0, '"a": "so')]
    assert parser.feed("\n") == []
    assert parser.feed("on") == [ArgumentsDelta(0, "\\non")]
    assert parser.feed("\n</parameter>") == [ArgumentsDelta(0, '"')]


@pytest.mark.parametrize(
    ("inner", "fault"),
    [
        ("<parameter=a>\nx", "cut off in the call of 'f'"),
        ("<parameter=b>\nx\n</parameter>", "a value is missing"),
        ("<parameter=b>\n1 2\n</parameter>", "'</parameter>' is missing"),
        ("<param>", "'</function>' is missing"),
    ],
)
def test_what_breaks_a_call_is_said(inner, fault):
    text = f"<tool_call>\n<function=f>\n{inner}"
    turn = parsed(text, format=QWEN, names=["f"], types={"f": {"a": STRING, "b": ALL - STRING}})
    assert [call.is_complete for call in turn.calls] == [False]
    assert fault in turn.fault


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        ({"properties": {"a": {"type": "string"}}}, {"a": STRING}),
        ({"properties": {"a": {"type": ["integer", "null"]}}}, {"a": frozenset(("number", "null"))}),
        ({"properties": {"a": {"enum": ["x", None]}}}, {"a": NULL}),
        ({"properties": {"a": {"const": [1]}}}, {"a": frozenset(("array",))}),
        ({"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}]}}}, {"a": NULL}),
        ({"properties": {"a": {"type": "string", "oneOf": [{}]}}}, {"a": STRING}),
        ({"properties": {"a": {"$ref": "#/$defs/x", "type": "string"}, "b": True}}, {"a": ALL, "b": ALL}),
        ({"properties": {"a": {"type": [{"type": "string"}]}}}, {"a": ALL}),
        ({"$ref": "#/$defs/x", "properties": {"a": {"type": "string"}}}, {}),
        ({"$schema": "http://json-schema.org/draft-04/schema#", "properties": {"a": {"const": 1}}}, {"a": ALL}),
        (True, {}),
    ],
)
def test_the_types_of_arguments(schema, expected):
    assert argument_types(schema) == expected


@pytest.mark.parametrize("name", BY_SHAPE["tagged"])
@pytest.mark.parametrize("types", [STRING, NULL, ALL])
@pytest.mark.parametrize("value", ["x", "", "x\n", "{", "[1]"])
def test_a_forgotten_closing_tag_swallows_nothing_and_its_position_is_named(name, types, value):
    wire = wire_format(name)
    head = f"{wire.begin}{wire.head}{wire.name_open}f{wire.middle}{wire.key}a{wire.assign}{value}"
    whole = f"{head}{wire.value_close}\n{wire.key}b{wire.assign}y{wire.value_close}{wire.tail}{wire.close}"
    for after in (f"\n{wire.key}b{wire.assign}y{wire.value_close}{wire.tail}{wire.close}", f"{wire.tail}{wire.close}"):
        turn = parsed(f"{head}{after}", [0.4], format=wire, names=["f"], types={"f": {"a": types, "b": STRING}})
        assert [call.is_complete for call in turn.calls] == [False]
        at = len(head) + len(after) - len(after.lstrip())
        assert f"at character {at}: {wire.value_close.strip()!r} is missing before" in turn.fault
    (call,) = parsed(whole, format=wire, names=["f"], types={"f": {"a": types, "b": STRING}}).calls
    assert call.parsed.keys() == {"a", "b"}


@pytest.mark.parametrize("name", BY_SHAPE["tagged"])
def test_a_text_with_its_own_closing_tag_is_no_shorter_text(name):
    wire = wire_format(name)
    text = tagged(wire, "f", {"a": f"ends with {wire.value_close.strip()} here"})
    whole = f"{wire.begin}{wire.head}{text}{wire.tail}{wire.close}"
    turn = parsed(whole, format=wire, names=["f"], types={"f": {"a": STRING}})
    assert [call.is_complete for call in turn.calls] == [False]
    assert f"at character {whole.index('here')}" in turn.fault


@pytest.mark.parametrize("name", BY_SHAPE["tagged"])
def test_what_would_end_early_is_not_written(name):
    wire = wire_format(name)
    for arguments in (*({"a": f"x{end}"} for end in wire.text_ends), {f"a{wire.assign.split()[0]}": 1}):
        with pytest.raises(InputError):
            render_calls(wire, [("f", arguments)])
