"""Calls as a name and JSON behind it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, Turn
from espalier.chat.reading.turn_parser import TurnParser
from espalier.chat.wire.formats import wire_format
from tests.unit.chat.turns import BY_SHAPE, NAMES, call, calls_of_objects, cuts, dumpers, parsed, rendered, summary

FUNCTIONARY = wire_format("functionary")
MISTRAL = wire_format("mistral_args")


@given(st.sampled_from(BY_SHAPE["named"]), calls_of_objects, dumpers, cuts, st.booleans(), st.sampled_from(["", " \n"]))
def test_calls_come_back_as_they_were_written(name, calls, dump, places, with_names, space):
    wire = wire_format(name)
    written = [(tool, dump(arguments)) for tool, arguments in calls]
    text = "So: " + rendered(wire, [call(wire, *one) for one in written], space)
    turn = parsed(text, places, format=wire, names=NAMES if with_names else ())
    assert summary(turn) == written
    assert (turn.content, turn.fault) == (f"So: {space}", "")


def test_a_call_is_told_at_the_beginning_of_its_arguments():
    parser = TurnParser(format=FUNCTIONARY, names=NAMES)
    assert parser.feed("<function=get_weather>") == []
    assert parser.feed(" ") == []
    assert parser.feed('{"a') == [CallBegun(0, "get_weather"), ArgumentsDelta(0, '{"a')]
    assert parser.feed('": "</function>') == [ArgumentsDelta(0, '": "</function>')]


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("<function=>{}</function>", "at character 10: the name of a tool is missing"),
        ("<function=f{}</function>", "at character 11: '>' is missing"),
        ("<function=f>[]</function>", "at character 12: the arguments are no object"),
        ("<function=ff>{}</function>", "at character 10: there is no tool 'ff'"),
        (f"<function={'x' * 130}>{{}}</function>", f"at character 10: no tool is called '{'x' * 64}…'"),
    ],
)
def test_what_is_no_call_is_content_and_said(text, fault):
    assert parsed(text, [0.2, 0.5, 0.8], format=FUNCTIONARY, names=NAMES) == Turn(content=text, fault=fault)


def test_what_breaks_a_call_is_said():
    turn = parsed('[TOOL_CALLS]f[ARGS]{"a": 01}', format=MISTRAL, names=NAMES)
    assert [(found.arguments, found.is_complete) for found in turn.calls] == [('{"a": 0', False)]
    assert turn.fault == "at character 26: ',' or '}' is missing"


def test_a_name_that_begins_like_another_is_another():
    text = "[TOOL_CALLS]get_weather[ARGS]{}"
    assert summary(parsed(text, format=MISTRAL, names=["get", "get_weather"])) == [("get_weather", "{}")]
    assert "'get_weather'" in parsed(text, format=MISTRAL, names=["get", "get_weather_2"]).fault
