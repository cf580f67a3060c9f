"""Turns of any text: reasoning, content, and the way around calls, for every format."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.chat.argument_types import STRING
from espalier.chat.reading.deltas import CallBegun, CallEnded, ContentDelta, ReasoningDelta, Turn
from espalier.chat.reading.turn_parser import TurnParser, parse_turn
from espalier.chat.reasoning import REASONING
from espalier.chat.wire.formats import WireFormat, wire_format
from espalier.errors import InputError
from tests.unit.chat.turns import (
    FORMATS,
    MARKED,
    NAMES,
    any_text,
    call,
    cut,
    cuts,
    parsed,
    plain,
    rendered,
    streamed,
    summary,
)

THINK = REASONING["think"]
HERMES = wire_format("hermes")
LLAMA3 = wire_format("llama3")
OPENAI = wire_format("openai")
MISTRAL = wire_format("mistral")
PYTHONIC = wire_format("pythonic")


# Any text


@given(any_text, cuts, st.sampled_from([None, *FORMATS]), st.booleans(), st.booleans())
def test_the_deltas_of_any_text_are_its_turn_however_it_is_cut(text, places, name, any_name, inside):
    wire = None if name is None else wire_format(name)
    parsed(text, places, format=wire, names=() if any_name else NAMES, reasoning=THINK, inside=inside)
    parsed(text, places, format=wire, names=() if any_name else NAMES)


@given(any_text, cuts, st.sampled_from(FORMATS))
def test_any_text_after_the_beginning_of_a_call_is_no_exception(text, places, name):
    wire, valid = plain(name)
    for kept in (len(valid), len(valid) - 1, len(valid) // 2, len(wire.marker)):
        parsed(valid[:kept] + text, places, format=wire, names=NAMES)


@given(any_text, st.sampled_from(FORMATS))
def test_nothing_is_lost_of_a_text_in_which_no_call_begins(text, name):
    wire = wire_format(name)
    turn = parsed(text, format=wire, names=["no such tool"])
    assert turn.calls == ()
    if "cut off" in turn.fault:  # what begins like a call up to the end is no content
        opener = wire.marker or wire.opener
        left = text.removeprefix(turn.content)
        assert left.lstrip().startswith((opener, wire.lead or opener))
        assert text == turn.content + left
    else:
        assert turn.content == text


@given(any_text, cuts)
def test_without_a_format_all_is_content(text, places):
    assert parsed(text, places, format=None) == Turn(content=text)


@pytest.mark.parametrize("name", FORMATS)
def test_every_cut_of_a_valid_text_has_the_calls_that_were_complete_and_a_beginning(name):
    wire = wire_format(name)
    python = wire.shape == "python"
    one = call(wire, "f", "a='}x]', b=[1, {'c': None}]" if python else '{"a": "}x]", "b": [1, {"c": null}]}')
    other = call(wire, "get_weather", "" if python else "{}")
    text = rendered(wire, [one, other])
    whole = parsed(text, format=wire, names=NAMES)
    assert whole.fault == ""
    arguments = '{"a": "}x]", "b": [1, {"c": null}]}'
    assert summary(whole) == [("f", arguments), ("get_weather", "{}")]
    for end in range(len(text)):
        turn = parse_turn(text[:end], format=wire, names=NAMES)
        assert len(turn.calls) <= 2
        for begun, full in zip(turn.calls, whole.calls, strict=False):
            assert begun.name == full.name
            assert full.arguments.startswith(begun.arguments)
            assert not begun.is_complete or begun == full
        assert "cut off" in turn.fault or all(found.is_complete for found in turn.calls)
        # The beginning of a marker may be that of other text, and so may the beginning of a separator after the end.
        beginnings = {wire.marker[:length] for length in range(len(wire.marker) or 1)}
        if wire.end:
            beginnings |= {wire.separator[len(wire.end) : length] for length in range(len(wire.separator))}
        assert turn.content.strip() in beginnings


@pytest.mark.parametrize("name", FORMATS)
def test_a_call_that_is_cut_off_is_no_content(name):
    wire, text = plain(name)
    first = len(wire.marker) or 1
    for end in range(first, len(text)):
        if text[end:] == wire.end != "":
            continue  # the marker of the turn's end may be missing
        turn = parsed(text[:end], format=wire, names=NAMES)
        assert turn.content == ""
        assert "cut off" in turn.fault
        assert [found.name for found in turn.calls] in ([], ["f"])


@pytest.mark.parametrize("name", FORMATS)
def test_whitespace_between_the_pieces_is_taken(name):
    wire = wire_format(name)
    written = [call(wire, "f", "" if wire.shape == "python" else "{}")] * 3
    for space in ("", " ", " \n\t"):
        turn = parsed(rendered(wire, written, space), format=wire, names=NAMES)
        assert summary(turn) == [("f", "{}")] * 3
        assert (turn.content, turn.fault) == ("", "")


@pytest.mark.parametrize("name", FORMATS)
def test_text_after_all_calls_is_content_and_whitespace_after_them_is_none(name):
    wire, text = plain(name)
    for after in ("", " ", "\n\n", "so", "\n so\n "):
        turn = parsed(text + after, format=wire, names=NAMES)
        assert summary(turn) == [("f", '{"a": 1}')]
        assert (turn.content, turn.fault) == (after if after.strip() else "", "")


@pytest.mark.parametrize("name", MARKED)
def test_text_before_a_marker_is_content_as_it_is_and_whitespace_alone_is_none(name):
    wire, text = plain(name)
    for before in ("", " \n", "Well.", "\n Well \n\n", wire.marker[:-1], "<[" * 3):
        turn = parsed(before + text, format=wire, names=NAMES)
        assert summary(turn) == [("f", '{"a": 1}')]
        assert (turn.content, turn.fault) == (before if before.strip() else "", "")


@pytest.mark.parametrize("name", MARKED)
def test_calls_may_come_again_after_content(name):
    wire, text = plain(name)
    turn = parsed(f"{text} and {text} or {text}", format=wire, names=NAMES)
    assert summary(turn) == [("f", '{"a": 1}')] * 3
    assert (turn.content, turn.fault) == (" and  or ", "")


@pytest.mark.parametrize("name", MARKED)
def test_a_marker_that_begins_no_call_is_content_and_the_next_may_begin_one(name):
    wire, text = plain(name)
    marker = wire.marker
    turn = parsed(f"Write {marker}!", format=wire, names=NAMES)
    assert (turn.content, turn.fault) == (f"Write {marker}!", "")  # a mention
    turn = parsed(f"Write\n{marker}!", format=wire, names=NAMES)
    assert turn.content == f"Write\n{marker}!"
    assert f"at character {6 + len(marker)}: " in turn.fault
    turn = parsed(f"Write {marker} {marker}! {text}", format=wire, names=NAMES)
    assert turn.content == f"Write {marker} {marker}! "
    assert summary(turn) == [("f", '{"a": 1}')]
    assert turn.fault == ""  # it is about what follows the last complete call


@pytest.mark.parametrize("name", [name for name in FORMATS if name not in MARKED])
def test_without_a_marker_a_call_is_the_first_thing_or_content_for_ever(name):
    wire, text = plain(name)
    assert summary(parsed(f" \n{text}", format=wire, names=NAMES)) == [("f", '{"a": 1}')]
    for before in ("so ", "`", "\n-"):
        assert parsed(before + text, format=wire, names=NAMES) == Turn(content=before + text)


@pytest.mark.parametrize("name", FORMATS)
def test_an_unknown_tool_is_named_and_its_call_is_content(name):
    wire = wire_format(name)
    written = "" if wire.shape == "python" else "{}"
    text = rendered(wire, [call(wire, "serch", written)])
    turn = parsed(text, format=wire, names=NAMES)
    assert turn.calls == ()
    assert turn.content == text
    assert turn.fault == f"at character {text.index('serch') - (wire.shape == 'json')}: there is no tool 'serch'"
    assert [found.name for found in parsed(text, format=wire).calls] == ["serch"]


@pytest.mark.parametrize("name", FORMATS)
def test_an_unknown_tool_after_a_call_leaves_that_call_and_what_follows_is_content(name):
    wire = wire_format(name)
    written = "" if wire.shape == "python" else "{}"
    good, bad = (call(wire, tool, written) for tool in ("f", "serch"))
    text = rendered(wire, [good, bad])
    turn = parsed(text, format=wire, names=NAMES)
    assert summary(turn) == [("f", "{}")]
    assert "there is no tool 'serch'" in turn.fault
    # Exactly what stands behind the first call.
    assert text.endswith(turn.content)
    assert turn.content.replace(bad, "") == text.partition(good)[2].replace(bad, "").removeprefix(wire.tail)


@pytest.mark.parametrize("name", [name for name in FORMATS if wire_format(name).shape not in ("tagged", "bare")])
def test_a_call_that_breaks_stays_incomplete_and_the_rest_is_no_content(name):
    wire = wire_format(name)
    broken = "a=[1}, b=2" if wire.shape == "python" else '{"a": [1}, "b": 2}'
    text = f"{rendered(wire, [call(wire, 'f', broken)])} {plain(name)[1]} and so on"
    turn = parsed(text, format=wire, names=NAMES)
    assert [(found.name, found.arguments, found.is_complete) for found in turn.calls] == [("f", '{"a": [1', False)]
    assert turn.fault == f"at character {text.index('}, ')}: ',' or ']' is missing"
    assert turn.content == ""


@pytest.mark.parametrize("name", [name for name in FORMATS if wire_format(name).tail])
def test_a_call_without_its_tail_is_not_complete(name):
    wire, text = plain(name)
    tail = wire.tail.strip()
    without = text.removesuffix(wire.close).removesuffix(wire.tail)
    for end in ("", tail[:-1]):
        turn = parsed(without + end, format=wire, names=NAMES)
        assert [found.is_complete for found in turn.calls] == [False]
        # Between tags another argument may still follow.
        assert turn.calls[0].arguments in ('{"a": 1}', '{"a": 1' if wire.shape == "tagged" else "")
        assert turn.fault == "the text was cut off in the call of 'f'"
    turn = parsed(f"{without} so", format=wire, names=NAMES)
    assert [found.is_complete for found in turn.calls] == [False]
    assert repr(tail.split()[0]) in turn.fault


@pytest.mark.parametrize("name", [name for name in FORMATS if wire_format(name).close])
def test_a_list_without_its_end_has_complete_calls_and_says_that_it_was_cut_off(name):
    wire, text = plain(name)
    between = wire.separator.strip()
    for end in ("", " ", between, f"{between} "):
        turn = parsed(text.removesuffix(wire.close) + end, format=wire, names=NAMES)
        assert summary(turn) == [("f", '{"a": 1}')]
        assert (turn.content, turn.fault) == ("", "the list of calls was cut off")
    turn = parsed(text.removesuffix(wire.close) + " so", format=wire, names=NAMES)
    assert summary(turn) == [("f", '{"a": 1}')]
    assert turn.content == " so"
    assert f"{between or wire.head.strip() or wire.name_open!r} is missing" in turn.fault
    turn = parsed(f"{text.removesuffix(wire.close)}{between} {wire.close} so", format=wire, names=NAMES)
    assert (turn.content, turn.fault) == (" so", "")


# Formats without a marker


def test_json_that_is_no_call_is_content_without_a_fault():
    for text in ('{"x": 1}', ' {"a": {"name": "f"}} and so on {', "{}", '{"name": "Bob", "age": 3}', '{"name": 3}'):
        assert parsed(text, format=OPENAI, names=NAMES) == Turn(content=text)
    for text in ("[1, 2]", "[]", ' [{"a": []}] is a list'):
        assert parsed(text, format=PYTHONIC, names=NAMES) == Turn(content=text)


def test_an_object_after_a_call_that_is_none_is_content():
    turn = parsed('{"name": "f", "arguments": {}}\n{"x": 1} {"name": "f", "arguments": {}}', format=OPENAI)
    assert turn.content == '\n{"x": 1} {"name": "f", "arguments": {}}'
    assert summary(turn) == [("f", "{}")]
    assert turn.fault == ""


def test_what_is_no_json_is_content_with_a_fault():
    turn = parsed("{so} it is", format=OPENAI, names=NAMES)
    assert turn == Turn(content="{so} it is", fault="at character 1: a string is missing")


def test_a_tag_before_a_call_is_skipped_and_before_text_it_is_content():
    for separator in ("; ", ";", "\n"):
        both = separator.join(['<|python_tag|>{"name": "f", "parameters": {}}'] * 2)
        assert summary(parsed(f"\n{both}", format=LLAMA3, names=NAMES)) == [("f", "{}")] * 2
    for text in ("<|python_tag|>print(1)", "<|python_tag|>", "<|python_", "<|python_tag| {}"):
        assert parsed(text, format=LLAMA3, names=NAMES) == Turn(content=text)


def test_a_separator_without_another_call_is_content_or_cut_off():
    one = '{"name": "f", "parameters": {}}'
    assert parsed(f"{one}; so", format=LLAMA3) == Turn(content="; so", calls=parse_turn(one, format=LLAMA3).calls)
    for end in (";", "; "):
        turn = parsed(one + end, format=LLAMA3)
        assert summary(turn) == [("f", "{}")]
        assert (turn.content, turn.fault) == ("", "the text was cut off between two calls")


def test_a_list_of_plain_objects_and_a_list_after_a_marker_alone_are_formats_too():
    both = '{"name": "f", "arguments": {}}'
    plain_list = WireFormat(name="list", shape="json", open="[", close="]", separator=", ")
    assert summary(parsed(f"[{both}, {both}]", format=plain_list)) == [("f", "{}")] * 2
    begun = WireFormat(name="begun", shape="json", begin="<call>", separator=";")
    assert summary(parsed(f"so <call>{both}; {both}", format=begun)) == [("f", "{}")] * 2
    assert parsed(f"<call>{both} <call>{both} {both}x", format=begun).content == "x"
    nested = WireFormat(
        name="nested",
        shape="named",
        begin="<calls>",
        head="<c>",
        middle="|",
        tail="</c>",
        close="</calls>",
        separator="",
    )
    assert summary(parsed("<calls> <c>f|{}</c> <c>f|{}</c>\n</calls>", format=nested)) == [("f", "{}")] * 2


# As it streams


def test_what_cannot_become_a_marker_is_told_at_once():
    parser = TurnParser(format=HERMES, names=NAMES)
    assert parser.feed(" ") == []
    assert parser.feed("so <tool") == [ContentDelta(" so ")]
    assert parser.feed("_") == []
    assert parser.feed("box> <") == [ContentDelta("<tool_box> ")]
    assert parser.turn == Turn(content=" so <tool_box> ")
    assert parser.finish() == [ContentDelta("<")]
    assert parser.turn == Turn(content=" so <tool_box> <")


@pytest.mark.parametrize("name", FORMATS)
def test_every_character_of_the_arguments_is_told_as_it_comes(name):
    wire = wire_format(name)
    long = "xyz " * 20
    written = f"a='{long}'" if wire.shape == "python" else f'{{"a": "{long}"}}'
    text = rendered(wire, [call(wire, "f", written)])
    first = text.index("xyz") + 1
    parser = TurnParser(format=wire, names=NAMES, types={"f": {"a": STRING}})
    parser.feed(text[:first])
    for character in text[first : first + len(long) - 1]:
        (delta,) = parser.feed(character)
        assert delta.text == character
    deltas, _ = streamed(text, format=wire, names=NAMES)
    assert deltas[0] == CallBegun(0, "f")
    assert deltas[-1] == CallEnded(0)


def test_a_finished_turn_takes_no_more_text():
    parser = TurnParser(format=None)
    parser.finish()
    with pytest.raises(InputError, match="finished"):
        parser.feed("")


@pytest.mark.parametrize("step", [1, 10**6])
@pytest.mark.parametrize("name", FORMATS)
def test_long_arguments_are_read_and_deep_ones_need_no_recursion(name, step):
    wire = wire_format(name)
    deep = "[" * 3000 + "]" * 3000
    written = f"a='{'x' * 20_000}', b={deep}" if wire.shape == "python" else f'{{"a": "{"x" * 20_000}", "b": {deep}}}'
    if wire.shape == "tagged":
        pairs = (("a", "x" * 20_000), ("b", deep))
        tags = "\n".join(f"{wire.key}{key}{wire.assign}{value}{wire.value_close}" for key, value in pairs)
        text = rendered(wire, [f"{wire.name_open}f{wire.middle}{tags}"])
    else:
        held = "9876543210"  # what writes the notations of some formats here recurses
        text = rendered(wire, [call(wire, "f", written.replace(deep, held))]).replace(held, deep)
    _, turn = streamed([text[i : i + step] for i in range(0, len(text), step)], format=wire, names=NAMES)
    assert summary(turn) == [("f", f'{{"a": "{"x" * 20_000}", "b": {deep}}}')]


# Reasoning


@given(st.text("<think>/ \nx"), st.text("<think>/ \nx"), cuts)
def test_reasoning_is_all_up_to_the_first_end_marker(first, then, places):
    text = f" \n<think>\n {first} </think>\n{then}"
    reasoning, _, content = f"{first} </think>\n{then}".partition("</think>")
    expected = Turn(content=content.lstrip(" \n"), reasoning=reasoning.strip(" \n"))
    assert parsed(text, places, format=None, reasoning=THINK) == expected
    assert parsed(text.split("<think>", 1)[1], places, format=None, reasoning=THINK, inside=True) == expected


@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("kind", REASONING)
def test_reasoning_comes_before_calls_and_what_looks_like_a_call_in_it_is_reasoning(name, kind):
    wire, text = plain(name)
    markers = REASONING[kind]
    for whole, inside in ((f"{markers.start}{text}{markers.end}\n\n{text}", False), (f"a\nb{markers.end}{text}", True)):
        turn = parsed(whole, [0.3, 0.6], format=wire, names=NAMES, reasoning=markers, inside=inside)
        assert turn.reasoning == ("a\nb" if inside else text)
        assert summary(turn) == [("f", '{"a": 1}')]
        assert (turn.content, turn.fault) == ("", "")


def test_whitespace_at_the_border_of_reasoning_is_dropped_and_kept_inside():
    assert parsed("\n<think>\n\n a \n b \n</think> \n Hi \n", format=None, reasoning=THINK) == Turn(
        content="Hi \n", reasoning="a \n b"
    )
    assert parsed("<think>\n\n</think>\n\nHi", format=None, reasoning=THINK) == Turn(content="Hi", reasoning="")


def test_reasoning_that_is_cut_off_is_all_reasoning():
    for text in ("", "hm", "hm \n", "hm </thi"):
        turn = parsed(text, format=HERMES, reasoning=THINK, inside=True)
        assert turn == Turn(content="", reasoning=text, fault="the reasoning was cut off")
    assert parsed("<think> hm", format=None, reasoning=THINK).reasoning == "hm"
    assert parsed("<think> hm", format=None, reasoning=THINK, inside=True).reasoning == "hm"


def test_without_a_start_marker_at_the_beginning_there_is_no_reasoning():
    for text in ("", " ", "Hi <think>a</think>", " <thin", "<thinking>a</thinking>", "</think>"):
        assert parsed(text, format=None, reasoning=THINK) == Turn(content=text)
    again = "<think>a</think>b<think>c</think>"
    assert parsed(again, format=None, reasoning=THINK) == Turn(content="b<think>c</think>", reasoning="a")


def test_reasoning_is_told_as_it_comes():
    parser = TurnParser(format=None, reasoning=THINK)
    assert parser.feed("<thi") == []
    assert parser.feed("nk> a ") == [ReasoningDelta("a")]
    assert parser.feed("b</") == [ReasoningDelta(" b")]
    assert parser.feed("think>\n") == []
    assert parser.feed("c") == [ContentDelta("c")]


def test_offsets_count_from_the_beginning_of_the_whole_text():
    text = '<think>abc</think>\n<tool_call>{"name": "nope", "arguments": {}}</tool_call>'
    for places in ([], [0.1, 0.2, 0.5, 0.7, 0.9]):
        turn = parsed(text, places, format=HERMES, names=NAMES, reasoning=THINK)
        assert turn.fault == f"at character {text.index(chr(34) + 'nope')}: there is no tool 'nope'"
    assert cut("abc", [0.4]) == ["a", "bc"]


def test_the_first_fault_after_the_last_complete_call_is_kept():
    bad = '<tool_call>{"name": "no", "arguments": {}}</tool_call>'
    turn = parsed(f"{bad}{plain('hermes')[1]}{bad.replace('no', 'nope')}{bad}", format=HERMES, names=NAMES)
    assert "'nope'" in turn.fault


def test_what_ends_the_turn_is_said_besides_an_earlier_fault():
    bad = '<tool_call>{"name": "no", "arguments": {}}</tool_call>'
    turn = parsed(f"{bad}<tool_call>{{", format=HERMES, names=NAMES)
    assert turn.content == bad
    assert turn.fault == "at character 20: there is no tool 'no'; the text was cut off in the beginning of a call"


def test_a_list_after_a_marker_needs_at_least_one_call():
    turn = parsed("[TOOL_CALLS][]", format=MISTRAL, names=NAMES)
    assert turn == Turn(content="[TOOL_CALLS][]", fault="at character 13: '{' is missing")
