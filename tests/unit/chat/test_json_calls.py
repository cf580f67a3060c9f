"""Calls as JSON objects, in every format that has them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, ContentDelta, Turn
from espalier.chat.reading.turn_parser import TurnParser, parse_turn
from espalier.chat.wire.formats import wire_format
from tests.unit.chat.turns import (
    BY_SHAPE,
    NAMES,
    call,
    calls_of_objects,
    cuts,
    dumpers,
    json_call,
    parsed,
    rendered,
    streamed,
    summary,
)

OPENAI = wire_format("openai")
HERMES = wire_format("hermes")
names = st.sampled_from(BY_SHAPE["json"])


@given(names, calls_of_objects, dumpers, cuts, st.booleans())
def test_calls_come_back_as_they_were_written(name, calls, dump, places, with_names):
    wire = wire_format(name)
    written = [(tool, dump(arguments)) for tool, arguments in calls]
    text = rendered(wire, [call(wire, *one) for one in written])
    turn = parsed(text, places, format=wire, names=NAMES if with_names else ())
    assert summary(turn) == written
    assert (turn.content, turn.fault) == ("", "")
    assert [found.parsed for found in turn.calls] == [arguments for _, arguments in calls]


@given(names, calls_of_objects, dumpers, cuts, st.permutations(["name", "args", "id", "type"]))
def test_the_order_of_the_keys_and_further_keys_do_not_matter(name, calls, dump, places, order):
    wire = wire_format(name)

    def written(tool, arguments):
        keys = {
            "name": (wire.name_key, json.dumps(tool)),
            "args": (wire.args_key, arguments),
            "id": ("id", '{"name": [1, "}"], "arguments": {}}'),
            "type": ("type", "12"),
        }
        return "{ " + " ,\n".join(f'"{keys[key][0]}" : {keys[key][1]}' for key in order) + " }"

    dumped = [(tool, dump(arguments)) for tool, arguments in calls]
    turn = parsed(rendered(wire, [written(*one) for one in dumped]), places, format=wire, names=NAMES)
    assert summary(turn) == dumped
    assert (turn.content, turn.fault) == ("", "")


@given(calls_of_objects, dumpers, st.booleans(), cuts)
def test_arguments_in_a_string_are_what_the_string_means(calls, dump, ascii_only, places):
    written = [(tool, dump(arguments)) for tool, arguments in calls]
    text = "\n".join(json_call(OPENAI, tool, json.dumps(inner, ensure_ascii=ascii_only)) for tool, inner in written)
    assert summary(parsed(text, places, format=OPENAI, names=NAMES)) == written


@pytest.mark.parametrize("name_key", ["name", "tool"])
@pytest.mark.parametrize("args_key", ["args", "arguments", "parameters"])
@pytest.mark.parametrize("name", BY_SHAPE["json"])
def test_the_keys_of_other_formats_are_taken(name, name_key, args_key):
    wire = wire_format(name)
    text = rendered(wire, [f'{{"{name_key}": "f", "{args_key}": {{}}}}'])
    assert summary(parsed(text, format=wire, names=NAMES)) == [("f", "{}")]


def test_keys_and_names_are_read_as_they_are_meant():
    text = '{"\\u006eame": "get\\u005fweather", "argum\\u0065nts": {"\\u0061": 1}}'
    assert summary(parsed(text, format=OPENAI, names=NAMES)) == [("get_weather", '{"\\u0061": 1}')]


def test_a_call_is_told_when_its_name_and_the_beginning_of_its_arguments_are_there():
    parser = TurnParser(format=OPENAI, names=NAMES)
    assert parser.feed('{"name": "f", "arguments": ') == []
    assert parser.feed('{"a"') == [CallBegun(0, "f"), ArgumentsDelta(0, '{"a"')]
    assert parser.feed(": 1") == [ArgumentsDelta(0, ": 1")]
    assert [(found.arguments, found.is_complete) for found in parser.turn.calls] == [('{"a": 1', False)]


def test_arguments_before_the_name_wait_for_it():
    parser = TurnParser(format=OPENAI, names=NAMES)
    assert parser.feed('{"arguments": {"a": 1}, "name": "f') == []
    assert parser.feed('"') == [CallBegun(0, "f"), ArgumentsDelta(0, '{"a": 1}')]
    turn = parsed('{"arguments": {"a": 1}, "na', format=OPENAI, names=NAMES)
    assert turn == Turn(content="", fault="the text was cut off in the beginning of a call")


def test_arguments_in_a_string_are_told_as_they_come():
    parser = TurnParser(format=OPENAI, names=NAMES)
    assert parser.feed('{"name": "f", "arguments": " ') == []
    assert parser.feed("{\\") == [CallBegun(0, "f"), ArgumentsDelta(0, "{")]
    assert parser.feed('"\\ud83d') == [ArgumentsDelta(0, '"')]
    assert parser.feed("\\ude00") == [ArgumentsDelta(0, "😀")]
    deltas, turn = streamed(['{"name": "f", "arguments": "{} "}'], format=OPENAI)
    assert summary(turn) == [("f", "{}")]
    assert len(deltas) == 3


@pytest.mark.parametrize(
    ("inner", "arguments", "fault"),
    [
        ('{"a": tru}', '{"a": tru', "at character 38: there is no such word"),
        ('{"a": "b\nc"}', '{"a": "b\nc"}', "at character 36: a control character in a string has to be escaped"),
        ('{"a": 1}}', '{"a": 1}}', "at character 45: '</tool_call>' is missing"),
        ('{"a": 1', '{"a": 1', "the text was cut off in the call of 'f'"),
        ('{"a": "', '{"a": "', "the text was cut off in the call of 'f'"),
        ('{"a"; 1}', '{"a"', "at character 33: ':' is missing"),
    ],
)
def test_arguments_that_are_no_json_break_the_call(inner, arguments, fault):
    text = f'<tool_call>{{"name":"f","args":{inner}' + ("}</tool_call>" if "}" in inner else "")
    turn = parsed(text, format=HERMES, names=NAMES)
    (found,) = turn.calls
    assert not found.is_complete
    assert fault.partition(": ")[2] in turn.fault
    assert turn.content == ""
    if "cut" not in fault and "tool_call" not in fault:
        at = int(turn.fault.split()[2].rstrip(":"))
        assert text[:at].endswith(found.arguments)
        assert arguments.startswith(found.arguments)


@pytest.mark.parametrize(
    ("text", "arguments", "fault"),
    [
        ('{"name": "f", "arguments": "{} x"}', "{}", "at character 31: something follows the arguments"),
        ('{"name": "f", "arguments": "{"}', "{", "at character 29: the arguments in the string are not complete"),
        ('{"name": "f", "arguments": "{,"}', "{", "at character 29: a name in quotes is missing"),
        ('{"name": "f", "arguments": "{\\n,"}', "{\n", "at character 31: a name in quotes is missing"),
        ('{"name": "f", "arguments": "{\\x"}', "{", "at character 30: there is no such escape"),
        ('{"name": "f", "arguments": "{\\u00g0"}', "{", "at character 33: a digit of an escape is missing"),
        (
            '{"name": "f", "arguments": "{\t"}',
            "{",
            "at character 29: a control character in a string has to be escaped",
        ),
        ('{"name": "f", "arguments": "{\\ud83dx"}', "{", "at character 35: half a pair of surrogates is no text"),
        ('{"name": "f", "arguments": "{\\ude00"}', "{", "at character 29: half a pair of surrogates is no text"),
        ('{"name": "f", "arguments": {}, "args": {}}', "{}", "at character 31: the call has arguments twice"),
        ('{"name": "f", "arguments": {}, "name": "f"}', "{}", "at character 31: the call is named twice"),
        ('{"name": "f", "arguments": {}, }', "{}", "at character 31: a string is missing"),
        ('{"name": "f", "arguments": {} "x"}', "{}", "at character 30: '}' is missing"),
        ('{"name": "f", "arguments": {}, "id": x}', "{}", "at character 37: a value is missing"),
    ],
)
def test_what_breaks_a_call_is_said_with_its_place(text, arguments, fault):
    turn = parsed(text, [0.5, 0.7, 0.9], format=OPENAI, names=NAMES)
    assert [(found.arguments, found.is_complete) for found in turn.calls] == [(arguments, False)]
    assert (turn.content, turn.fault) == ("", fault)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('{"name": "f", "arguments": [1]}', "at character 27: the arguments are no object"),
        ('{"name": "f", "arguments": "so"}', "at character 28: the arguments are no object"),
        ('{"name": "f", "arguments": ""}', "at character 28: the arguments in the string are not complete"),
        ('{"name": "Bob", "arguments": [1]}', "at character 9: there is no tool 'Bob'"),
        ('{"arguments": {}, "name": "Bob"}', "at character 26: there is no tool 'Bob'"),
        ('{"arguments": "so"}', ""),
        ('{"name": ["f"], "arguments": {}}', ""),
        ('{"name": "f", "name": "f"}', ""),
        ('{"name": "f"}', ""),
        ('{"name": "f",}', "at character 13: a string is missing"),
        ('{"name" "f"}', "at character 8: ':' is missing"),
        ('{"name": "a\nb"}', "at character 11: a control character in a string has to be escaped"),
    ],
)
def test_an_object_that_is_no_call_is_content_and_a_fault_where_it_was_meant_to_be_one(text, fault):
    turn = parsed(text, [0.3, 0.6, 0.9], format=OPENAI, names=NAMES)
    assert turn == Turn(content=text, fault=fault)
    marked = parsed(f"<tool_call>{text}</tool_call>", [0.3], format=HERMES, names=NAMES)
    assert marked.content == f"<tool_call>{text}</tool_call>"
    assert marked.fault


def test_without_names_any_name_that_a_tool_could_have_is_a_call():
    assert summary(parsed('{"name": "any.one-9", "arguments": {}}', format=OPENAI)) == [("any.one-9", "{}")]
    for name in ("", "a b", "é", "x" * 129):
        turn = parsed(json.dumps({"name": name, "arguments": {}}), format=OPENAI)
        assert turn.calls == ()
        assert "there is no tool" in turn.fault
        assert len(turn.fault) < 120


def test_json_that_is_no_call_is_streamed_as_content_at_its_first_foreign_key():
    parser = TurnParser(format=wire_format("args"), names=["f"])
    assert parser.feed('{"name": "Bob"') == []
    assert parser.feed(', "age": 3') == [ContentDelta('{"name": "Bob", "age": 3')]
    assert parser.feed(', "more": "') == [ContentDelta(', "more": "')]
    parser.finish()
    assert parser.turn == Turn(content='{"name": "Bob", "age": 3, "more": "')


@pytest.mark.parametrize("text", ['{"name": "Bob"', '{"name": "Bob", ', '{"age": ', '{"name": "Bob", "a'])
def test_json_that_names_no_tool_is_not_lost_when_it_is_cut(text):
    assert parse_turn(text, format=wire_format("args"), names=["f"]) == Turn(content=text)
