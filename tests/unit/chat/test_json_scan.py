"""JsonScan says of every text what `json.loads` says, at the first character where it can."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.chat.reading.json_scan import JsonScan, NotJson
from tests.unit.chat.turns import cut, cuts, dumpers, values

PARTS = [
    "{",
    "}",
    "[",
    "]",
    ",",
    ":",
    '"',
    "\\",
    "u",
    "00e9",
    "D",
    "n",
    "-",
    "0",
    "1",
    "9",
    ".",
    "e",
    "E",
    "+",
    "true",
    "false",
    "null",
    "nul",
    " ",
    "\n",
    "\t",
    "\r",
    "a",
    "é",
    "\x00",
    "\x1f",
    "\x7f",
    "NaN",
    "Infinity",
    "٣",
    '"a"',
    '"a":',
    "\u00a0",
    "/",
    "\ufeff",
]


def refuse(constant):
    raise ValueError(constant)


def is_json(text: str) -> bool:
    try:
        json.loads(text, parse_constant=refuse)
    except ValueError:
        return False
    return not text.startswith("\ufeff")


def scanned(pieces) -> bool:
    scan = JsonScan()
    try:
        for piece in pieces:
            at = scan.feed(piece)
            if piece[at:].strip(" \t\n\r"):
                return False
    except NotJson:
        return False
    return scan.is_whole


@given(st.lists(st.sampled_from(PARTS), max_size=8).map("".join), cuts)
def test_it_takes_what_json_loads_takes(text, places):
    assert scanned([text]) == is_json(text)
    assert scanned(list(text)) == is_json(text)
    assert scanned(cut(text, places)) == is_json(text)


@given(values, dumpers, cuts, st.data())
def test_it_takes_every_value_and_refuses_it_with_a_character_changed(value, dump, places, data):
    text = dump(value)
    assert scanned(cut(text, places))
    at = data.draw(st.integers(0, len(text) - 1))
    changed = text[:at] + data.draw(st.sampled_from(PARTS)) + text[at + 1 :]
    assert scanned(list(changed)) == is_json(changed)


@given(st.text('{}[],:"\\u0aE1.-+ tn', max_size=12))
def test_what_it_refuses_no_continuation_makes_good(text):
    scan = JsonScan()
    try:
        end = scan.feed(text)
    except NotJson as error:
        end = error.at
    # All before the end is the beginning of some value: closing what is open makes it one.
    assert any(is_json(text[:end] + rest) for rest in completions(text[:end]))


def completions(text: str):
    """Ways to end a text that is the beginning of JSON."""
    closers, in_string, escaped = [], False, False
    for character in text:
        if in_string:
            in_string = escaped or character != '"'
            escaped = not escaped and character == "\\"
        elif character in "{[":
            closers.append({"{": "}", "[": "]"}[character])
        elif character in "}]":
            closers.pop()
        else:
            in_string = character == '"'
    ends = "".join(reversed(closers))
    for inner in (
        "",
        "0",
        "1",
        '"',
        "rue",
        "ue",
        "e",
        "ull",
        "ll",
        "l",
        '""',
        ":0",
        '":0',
        '"":0',
        'n"',
        'n":0',
        *(f"{'0' * n}{rest}" for n in range(5) for rest in ('"', '":0')),
    ):
        yield inner + ends


@pytest.mark.parametrize(
    ("text", "at", "message"),
    [
        ('{"a": tru}', 9, "word"),
        ('{"a" 1}', 5, "':'"),
        ("{1}", 1, "a name in quotes"),
        ("[1,]", 3, "a value"),
        ("[1 2]", 3, "',' or ']'"),
        ("[1}", 2, "',' or ']'"),
        ("[01]", 2, "',' or ']'"),
        ("[1.]", 3, "a digit"),
        ("[-]", 2, "a digit"),
        ('["\n"]', 2, "control character"),
        ('["\\x"]', 3, "no such escape"),
        ('["\\u12g4"]', 6, "digit of an escape"),
        ("NaN", 0, "a value"),
        ("]", 0, "a value"),
    ],
)
def test_it_says_what_is_wrong_and_where(text, at, message):
    for pieces in ([text], list(text)):
        scan = JsonScan()
        kept = len(pieces[0]) if len(pieces) == 1 else 1
        for piece in pieces[: at // kept]:
            assert scan.feed(piece) == len(piece)
        with pytest.raises(NotJson, match=message) as caught:
            scan.feed(pieces[at // kept])
        assert caught.value.at == at % kept


def test_it_stops_behind_the_value():
    scan = JsonScan()
    assert scan.feed('  {"a": [1]} x') == 12
    assert scan.is_done
    assert scan.feed("{") == 0
    number = JsonScan()
    assert number.feed("12") == 2
    assert not number.is_done
    assert number.is_whole
    assert number.feed(",") == 0
    assert number.is_done
