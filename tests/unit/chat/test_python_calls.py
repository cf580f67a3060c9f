"""Calls as Python writes them. What its own parser says of the same literals is right."""

from __future__ import annotations

import ast
import json
import math
import re
import warnings
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, Turn
from espalier.chat.reading.turn_parser import TurnParser, parse_turn
from espalier.chat.wire.formats import wire_format
from tests.unit.chat.turns import NAMES, cuts, marked_text, parsed, rendered, summary, values

PYTHONIC = wire_format("pythonic")


def argument(literal: str, places=()) -> str | None:
    """What `f(a=literal)` is told as; None where it breaks."""
    turn = parsed(f"[f(a={literal})]", places, format=PYTHONIC, names=NAMES)
    (found,) = turn.calls
    if found.is_complete and not turn.fault:
        return found.arguments.removeprefix('{"a": ').removesuffix("}")
    assert turn.fault
    return None


def in_python(literal: str) -> tuple[bool, Any]:
    """Whether it is a literal of Python, and its value as JSON has it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of escapes that Python leaves as they are
        try:
            return True, as_json(ast.literal_eval(literal.strip()))
        except (ValueError, SyntaxError, TypeError):
            return False, None


def as_json(value: Any) -> Any:
    if isinstance(value, bytes | set | complex | type(...)):
        raise TypeError
    if isinstance(value, list | tuple):
        return [as_json(inner) for inner in value]
    if isinstance(value, dict):
        if not all(isinstance(key, str) for key in value):
            raise TypeError
        return {key: as_json(inner) for key, inner in value.items()}
    return value


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types inside."""
    return repr(one) == repr(other)


identifiers = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,5}", fullmatch=True) | st.sampled_from(["é", "from", "名前"])
calls = st.lists(
    st.tuples(st.sampled_from(NAMES), st.dictionaries(identifiers, values, max_size=3)), min_size=1, max_size=3
)


@given(calls, cuts, st.sampled_from(["", " ", "\n"]))
def test_calls_come_back_as_json(calls, places, space):
    written = [
        f"{name}({space}{f'{space},{space}'.join(f'{key}{space}={space}{value!r}' for key, value in given.items())})"
        for name, given in calls
    ]
    text = rendered(PYTHONIC, written, space)
    turn = parsed(text, places, format=PYTHONIC, names=NAMES)
    assert turn.fault == ""
    assert [(name, json.loads(arguments)) for name, arguments in summary(turn)] == calls
    assert [arguments for _, arguments in summary(turn)] == [json.dumps(g, ensure_ascii=False) for _, g in calls]


def test_the_example_of_every_kind():
    text = "[f(a=1, b='x', c=[True, None]), get_weather()]"
    arguments = '{"a": 1, "b": "x", "c": [true, null]}'
    assert summary(parsed(text, format=PYTHONIC, names=NAMES)) == [("f", arguments), ("get_weather", "{}")]
    assert argument("{'k': (1, {'j': ()}), \"l\": {}}") == '{"k": [1, {"j": []}], "l": {}}'
    assert argument("[ ( 1 ) , ( 1 , ) , ((2)), ((3,)), (4, (5), (6,)), ]") == "[1, [1], 2, [3], [4, 5, [6]]]"
    assert argument("true") == "true"  # models write the words of JSON too


@pytest.mark.parametrize(
    ("literal", "told"),
    [
        ("1_000", "1000"),
        ("-1", "-1"),
        ("+1", "1"),
        ("- 1", "-1"),
        ("0", "0"),
        ("000", "0"),
        ("-0.0", "-0.0"),
        ("0x1F", "31"),
        ("-0X_ff", "-255"),
        ("0o17", "15"),
        ("0b101", "5"),
        (".5", "0.5"),
        ("5.", "5.0"),
        ("1_0.0_1", "10.01"),
        ("1e5", "1e5"),
        ("1.E+0_5", "1.0e+05"),
        ("01.5", "1.5"),
        ("00e1", "0e1"),
        ("9" * 4000, "9" * 4000),
        ("1e999", "1e999"),
    ],
)
def test_numbers_become_numbers_of_json(literal, told):
    assert argument(literal) == told
    assert argument(f"[{literal} , {literal}]") == f"[{told}, {told}]"
    if len(literal) < 100:
        assert math.isclose(json.loads(told), ast.literal_eval(literal))


@given(st.text("0123456789_.eExXobBaFjJ+- ", max_size=8), cuts)
@example("1e5", [])
@example("0x_f", [])
@example("0_0", [])
@example("1__0", [])
@example("0xe+1", [])
def test_what_is_no_number_of_python_is_none_here(literal, places):
    is_literal, value = in_python(literal)
    told = argument(literal, places)
    if told is None:
        # Sums make numbers of two parts, and nothing else is refused.
        assert not is_literal or re.search(r"[jJ]", literal) or isinstance(value, complex)
    else:
        assert is_literal
        assert same(json.loads(told), value)


STRING_PARTS = [
    "'",
    '"',
    "\\",
    "'''",
    '"""',
    "\n",
    "\r",
    "x",
    "x41",
    "xg",
    "u00e9",
    "U0001F600",
    "U00110000",
    "N{EM DASH}",
    "N{",
    "N{LATIN SMALL LETTER A}",
    "7",
    "12",
    "0",
    "777",
    "n",
    "a",
    "v",
    "d",
    "é",
    "😀",
    " ",
    "{",
    "}",
    "\t",
    "\x01",
    "\x7f",
    "\\n",
    "\\'",
    '\\"',
    "\\\n",
]
string_parts = st.lists(st.sampled_from(STRING_PARTS), max_size=8).map("".join)


@given(string_parts, st.sampled_from(["'", '"', "'''", '"""']), cuts)
def test_strings_mean_what_they_mean_in_python(inner, quote, places):
    literal = f"{quote}{inner}{quote}"
    turn = parsed(f"[f(a={literal})]", places, format=PYTHONIC, names=NAMES)
    is_literal, value = in_python(literal)
    told = argument(literal, places) if turn.calls[0].is_complete else None
    if is_literal and isinstance(value, str):
        if told is None:
            assert "\\\n" in literal  # between strings Python goes on behind the end of a line
        else:
            # Python reads every end of a line as \n, which matters between triple quotes only.
            assert json.loads(told) == value or "\r" in literal
    elif told is not None:
        raise AssertionError(f"{literal!r} was taken as {told!r}")


@given(marked_text, cuts)
def test_strings_that_python_writes_come_back(text, places):
    for literal in (repr(text), ascii(text), json.dumps(text), json.dumps(text, ensure_ascii=False)):
        told = argument(literal, places)
        assert told is not None
        assert json.loads(told) == ast.literal_eval(literal) or "\\ud" in literal


def test_strings_side_by_side_are_one():
    assert argument("'a' \"b\"\n'''c'''") == '"abc"'
    assert argument("'''a\n'b' \"\"''' ''") == '"a\\n\'b\' \\"\\""'
    assert argument("''") == argument("''''''") == '""'


def test_halves_of_surrogates_stay_escapes():
    assert argument(r"'\ud83d\ude00'") == r'"\ud83d\ude00"'
    assert argument(r"'\ud83d'") == r'"\ud83d"'
    assert argument("'a\\\r\nb\\\rc'") == '"abc"'


def test_any_names_come_in_a_dict_behind_two_stars():
    text = "[f(a=1, **{'x y': [2], \"z\": 3}, b=4, **{})]"
    assert summary(parsed(text, format=PYTHONIC, names=NAMES)) == [("f", '{"a": 1, "x y": [2], "z": 3, "b": 4}')]


def test_names_of_arguments_are_read_as_python_reads_them():
    assert summary(parsed("[f(ﬁ=1)]", format=PYTHONIC)) == [("f", '{"fi": 1}')]


def test_it_streams():
    parser = TurnParser(format=PYTHONIC, names=NAMES)
    assert parser.feed("[f") == []
    assert parser.feed("(") == [CallBegun(0, "f"), ArgumentsDelta(0, "{")]
    assert parser.feed("ab") == []
    assert parser.feed(" = [") == [ArgumentsDelta(0, '"ab": ')]
    assert parser.feed("1") == [ArgumentsDelta(0, "[")]
    assert parser.feed("2,") == [ArgumentsDelta(0, "12")]
    assert parser.feed("'x\"\\") == [ArgumentsDelta(0, ', "x\\"')]
    assert parser.feed("n") == [ArgumentsDelta(0, "\\n")]


def test_what_may_be_a_tuple_waits_until_it_is_known():
    parser = TurnParser(format=PYTHONIC, names=NAMES)
    parser.feed("[f(a=")
    assert parser.feed("('x'") == []
    assert parser.feed(", ") == [ArgumentsDelta(0, '["x"')]
    assert parser.feed("2) ") == [ArgumentsDelta(0, ", 2]")]
    assert parse_turn("[f(a=('x'", format=PYTHONIC).calls[0].arguments == '{"a": '


@pytest.mark.parametrize(
    ("written", "arguments", "fault"),
    [
        ("1", "{", "at character 3: an argument has to be written as name=value"),
        ("x", "{", "at character 3: an argument has to be written as name=value"),
        ("*[1]", "{", "at character 3: an argument has to be written as name=value"),
        ("a=1, 'b'", '{"a": 1', "at character 8: an argument has to be written as name=value"),
        ("1a=1", "{", "at character 3: an argument has to be written as name=value"),
        ("a=1, a=2", '{"a": 1', "at character 8: the argument 'a' comes twice"),
        ("a=1, **{'a': 2}", '{"a": 1', "at character 11: the argument 'a' comes twice"),
        ("**{a: 2}", "{", "at character 6: a string in quotes is missing"),
        ("a=1 b=2", '{"a": 1', "at character 7: ')' is missing"),
        ("a=f'x'", '{"a": ', "at character 5: strings with a prefix, such as f'', are not taken"),
        ("a=r'x'", '{"a": ', "at character 5: strings with a prefix, such as r'', are not taken"),
        ("a=b'x'", '{"a": ', "at character 5: strings with a prefix, such as b'', are not taken"),
        ("a=inf", '{"a": ', "at character 5: inf is no literal"),
        ("a=-inf", '{"a": ', "at character 5: inf is no number"),
        ("a=nan", '{"a": ', "at character 5: nan is no literal"),
        ("a=g(1)", '{"a": ', "at character 5: g is no literal"),
        ("a=Truest", '{"a": ', "at character 5: Truest is no literal"),
        ("a=", '{"a": ', "at character 5: a value is missing"),
        ("a=-", '{"a": ', "at character 5: a number is missing"),
        ("a=012", '{"a": ', "at character 5: a number begins with 0"),
        ("a=1j", '{"a": ', "at character 5: 1j is no number"),
        ("a=1+2", '{"a": 1', "at character 6: ')' is missing"),
        (f"a=0x{'f' * 2000}", '{"a": ', "at character 5: the number is too long"),
        ("a={1: 2}", '{"a": {', "at character 6: the keys of a dict are strings"),
        ("a={'x'}", '{"a": {"x"', "at character 9: ':' is missing"),
        ("a=[1)", '{"a": [1', "at character 7: ',' or ']' is missing"),
        ("a=[1 2]", '{"a": [1', "at character 8: ',' or ']' is missing"),
        ("a=[,]", '{"a": [', "at character 6: a value is missing"),
        ("a='x\ny'", '{"a": "x', "at character 7: a string ends on the line where it begins"),
        ("a='\\xg1'", '{"a": "', "at character 8: a digit of an escape is missing"),
        ("a='\\U00110000'", '{"a": "', "at character 7: there is no such character"),
        ("a='\\N{no such}'", '{"a": "', "at character 7: there is no such character"),
        ("a='\\Nx'", '{"a": "', "at character 7: there is no such character"),
    ],
)
def test_what_breaks_a_call_is_said_with_its_place(written, arguments, fault):
    turn = parsed(f"[f({written})] so", [0.2, 0.4, 0.6, 0.8], format=PYTHONIC, names=NAMES)
    assert [(found.arguments, found.is_complete) for found in turn.calls] == [(arguments, False)]
    assert (turn.content, turn.fault) == ("", fault)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("[nope(a=1)]", "at character 1: there is no tool 'nope'"),
        ("[so](far)", "at character 3: '(' is missing"),
        ("[é(a=1)]", "at character 1: the name of a tool is missing"),
    ],
)
def test_what_is_no_call_is_content_and_said(text, fault):
    assert parsed(text, [0.3, 0.6], format=PYTHONIC, names=NAMES) == Turn(content=text, fault=fault)
