import math

import pytest

from espalier.chat.messages import check_messages
from espalier.errors import InputError


def call(arguments="{}", name="f", **more):
    return {"id": "call_1", "type": "function", "function": {"name": name, "arguments": arguments}, **more}


def assistant(*calls, **more):
    return {"role": "assistant", "tool_calls": list(calls), **more}


@pytest.mark.parametrize("content", [{}, {"content": None}, {"content": ""}])
def test_calls_need_no_content(content):
    (message,) = check_messages([assistant(call('{"a": 1}'), **content)])
    assert message == {"role": "assistant", "content": "", "tool_calls": [call('{"a": 1}')]}


def test_arguments_stay_text_or_object_as_they_were_given():
    given = {"a": [1, {"b": "é"}]}
    (message,) = check_messages([assistant(call(given), call('{ "a":1e999 }'))])
    first, second = (found["function"]["arguments"] for found in message["tool_calls"])
    assert first == given
    assert first["a"] is not given["a"]
    assert second == '{ "a":1e999 }'


def test_what_a_call_may_leave_out_is_not_missed():
    (message,) = check_messages([assistant({"id": None, "function": {"name": "f", "arguments": {}}})])
    assert message["tool_calls"] == [{"type": "function", "function": {"name": "f", "arguments": {}}}]


@pytest.mark.parametrize("none", [None, []])
def test_no_calls_are_as_if_the_field_was_not_there(none):
    assert check_messages([{"role": "assistant", "content": "x", "tool_calls": none}]) == (
        {"role": "assistant", "content": "x"},
    )


@pytest.mark.parametrize("role", ["user", "system"])
def test_other_roles_keep_their_fields(role):
    message = {"role": role, "content": "x", "tool_calls": "anything", "tool_call_id": 3, "reasoning": 4}
    assert check_messages([message]) == (message,)


def test_a_result_is_text_with_what_tells_its_call():
    message = {"role": "tool", "tool_call_id": "call_1", "name": "f", "content": "42"}
    assert check_messages([message, {"role": "tool", "content": "43"}]) == (message, {"role": "tool", "content": "43"})
    assert check_messages([{**message, "name": None}])[0].keys() == {"role", "tool_call_id", "content"}


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_passes_through(name):
    message = {"role": "assistant", "content": "x", name: "because"}
    assert check_messages([message]) == (message,)
    assert check_messages([{**message, name: None}]) == ({"role": "assistant", "content": "x"},)


@pytest.mark.parametrize(
    ("message", "field"),
    [
        (assistant(call("{a")), "tool_calls[0].function.arguments"),
        (assistant(call("[1]")), "tool_calls[0].function.arguments"),
        (assistant(call('{"a": NaN}')), "tool_calls[0].function.arguments"),
        (assistant(call("[" * 100_000)), "tool_calls[0].function.arguments"),
        (assistant(call({"a": math.inf})), "tool_calls[0].function.arguments"),
        (assistant(call({"a": object()})), "tool_calls[0].function.arguments"),
        (assistant(call(None)), "tool_calls[0].function.arguments"),
        (assistant(call(), call([])), "tool_calls[1].function.arguments"),
        (assistant(call(name="")), "tool_calls[0].function.name"),
        (assistant(call(name=None)), "tool_calls[0].function.name"),
        (assistant(call(name='f"}')), "tool_calls[0].function.name"),
        (assistant({"id": "x", "function": {"arguments": "{}"}}), "tool_calls[0].function.name"),
        (assistant({"id": "x"}), "tool_calls[0].function"),
        (assistant({"id": 7, "function": {"name": "f", "arguments": "{}"}}), "tool_calls[0].id"),
        (assistant(call(type="custom")), "tool_calls[0].type"),
        (assistant("f"), "tool_calls[0]"),
        ({"role": "assistant", "tool_calls": {"f": {}}}, "tool_calls"),
        ({"role": "assistant", "tool_calls": "f()"}, "tool_calls"),
        ({"role": "assistant", "content": None}, "content"),
        ({"role": "assistant", "content": "x", "reasoning": 3}, "reasoning"),
        ({"role": "assistant", "content": "x", "reasoning_content": ["y"]}, "reasoning_content"),
        ({"role": "assistant", "content": "x", "reasoning_content": "\ud800"}, "reasoning_content"),
        ({"role": "tool", "content": None}, "content"),
        ({"role": "tool", "content": {"a": 1}}, "content"),
        ({"role": "tool", "content": "x", "tool_call_id": 3}, "tool_call_id"),
        ({"role": "tool", "content": "x", "name": 3}, "name"),
    ],
)
def test_the_field_at_fault_is_named(message, field):
    with pytest.raises(InputError) as caught:
        check_messages([{"role": "user", "content": "Hi"}, message])
    assert caught.value.field == f"messages[1].{field}"


def test_checked_messages_check_as_they_are():
    once = check_messages(
        [assistant(call({"a": 1}), call('{"a": 1}'), reasoning="x"), {"role": "tool", "content": "1"}]
    )
    assert check_messages(once) == once
