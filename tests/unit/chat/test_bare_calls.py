"""Calls in Gemma's notation: names without quotes, strings as raw text between markers."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun
from espalier.chat.reading.turn_parser import TurnParser
from espalier.chat.wire.formats import wire_format
from espalier.chat.wire.render import render_calls
from espalier.errors import InputError
from tests.unit.chat.turns import BY_SHAPE, cuts, parsed

names = st.text(st.sampled_from("abcé_-1"), min_size=1, max_size=4)
texts = st.lists(st.sampled_from(["a", "\n", "<", "<escap", '<|"', '"', "{", ",", "é", "5", "\\"])).map("".join)
values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
    max_leaves=6,
)


@given(
    st.sampled_from(BY_SHAPE["bare"]),
    st.lists(st.dictionaries(names, values, max_size=3), min_size=1, max_size=3),
    cuts,
)
def test_arguments_come_back_as_they_were_written(name, calls, places):
    wire = wire_format(name)
    text = f"So: {render_calls(wire, [('f', found) for found in calls])}"
    turn = parsed(text, places, format=wire, names=["f"])
    assert [json.loads(call.arguments) for call in turn.calls] == calls
    assert (turn.content, turn.fault) == ("So: ", "")


def test_names_may_have_quotes_and_spaces_around_them():
    text = '<start_function_call>call:f { "a" : 1 , <escape>b c<escape> : [ <escape>x<escape> ] }<end_function_call>'
    (call,) = parsed(text, [0.3, 0.7], format=wire_format("function_gemma"), names=["f"]).calls
    assert call.parsed == {"a": 1, "b c": ["x"]}


def test_a_text_is_told_as_it_comes():
    parser = TurnParser(format=wire_format("gemma4"), names=["f"])
    assert parser.feed("<|tool_call>call:f{") == [CallBegun(0, "f"), ArgumentsDelta(0, "{")]
    assert parser.feed('a:<|"|>so') == [ArgumentsDelta(0, '"a": "so')]
    assert parser.feed('\n"') == [ArgumentsDelta(0, '\\n\\"')]


@pytest.mark.parametrize(
    ("inner", "fault"),
    [
        ("{a 1}", "':' is missing"),
        ("{:1}", "the name of an argument is missing"),
        ("{a:x}", "a value is missing"),
        ("{a:[1}", "']' is missing"),
        ("{a:<escape>x", "cut off in the call of 'f'"),
    ],
)
def test_what_breaks_a_call_is_said(inner, fault):
    turn = parsed(f"<start_function_call>call:f{inner}", format=wire_format("function_gemma"), names=["f"])
    assert [call.is_complete for call in turn.calls] == [False]
    assert fault in turn.fault


@pytest.mark.parametrize("arguments", [{"a b": 1}, {"": 1}, {"a": {"x:": 1}}, {"a": "x<escape>"}])
def test_what_cannot_be_written_is_refused(arguments):
    with pytest.raises(InputError):
        render_calls(wire_format("function_gemma"), [("f", arguments)])
