"""ToolCalls: verdicts on finished texts, and the values that are made of them."""

from __future__ import annotations

import pytest

from espalier import JsonSchema, Regex, ToolCalls
from espalier.chat.wire.formats import wire_format
from espalier.constraints.after.spec import After
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.free import Free, Region
from espalier.constraints.verdict import judge, parse
from tests.tool_texts import FORMATS, TOOLS, written

READ = ("read", {"path": "a"})
NOW = ("now", {})


def errors(text, **options):
    found = judge(ToolCalls(TOOLS, **options), text)
    assert found.valid is (not found.errors)
    return " | ".join(found.errors)


@pytest.mark.parametrize("name", FORMATS)
def test_good_texts(name):
    wire = wire_format(name)
    one, two = written(wire, READ), written(wire, READ, NOW)
    for choice, texts in (
        ("auto", ["", "hello", one, two]),
        ("required", [one, two]),
        ("none", ["", "a"]),
        ("read", [one]),
    ):
        for text in texts:
            assert errors(text, format=name, choice=choice) == ""
    found = judge(ToolCalls(TOOLS, format=name), one)
    assert found.judge == "parser and jsonschema Draft202012Validator"


@pytest.mark.parametrize("name", FORMATS)
def test_bad_texts(name):
    wire = wire_format(name)
    if wire.shape == "tagged":  # between tags, whatever stands there is a string
        assert errors(written(wire, ("read", {"path": 3})), format=name) == ""
        assert errors(written(wire, ("read", {})), format=name) == "read: $: 'path' is a required property"
    else:
        told = errors(written(wire, ("read", {"path": 3})), format=name)
        assert told == "read: $.path: 3 is not of type 'string'"
    assert errors(written(wire, ("write", {"path": "a"})), format=name) == "write is no tool"
    assert errors(written(wire, NOW), format=name, choice="read") == "now may not be called"
    assert "there are 2 calls, 1 at most" in errors(written(wire, READ, NOW), format=name, max_calls=1)
    assert "there are 2 calls, 1 at most" in errors(written(wire, READ, READ), format=name, choice="read")
    assert errors("hello", format=name, choice="required") == "there is no call, and one is required"
    assert "there are 1 calls, 0 at most" in errors(written(wire, READ), format=name, choice="none")
    cut = written(wire, READ)[:-1]
    assert errors(cut, format=name) != ""
    assert errors(cut[: cut.index("read") + 3], format=name) != ""
    assert "besides the calls" in errors(f"{written(wire, READ)} so", format=name)
    if wire.marker:
        assert errors(f"so {written(wire, READ)}", format=name) == ""
        assert "besides the calls" in errors(f"so {written(wire, READ)}", format=name, choice="required")
        for mention in (f"so\n {wire.marker}? it is", f"so {wire.marker}{wire.call_opener or 'x'} it is"):
            assert errors(mention, format=name) != ""
            assert errors(f"{mention} {written(wire, READ)}", format=name) != ""
        assert errors(f"so {wire.marker}? it is", format=name) == ""
        assert errors(f"so {wire.marker}? it is {written(wire, READ)}", format=name) == ""


def test_text_that_begins_as_a_call_and_is_none():
    assert errors(' {"a": 1}') == "the text begins as a call does, and is none"
    assert errors(' {"a": 1}', choice="none") == "the text begins as a call does, and is none"
    assert errors("so {}") == ""


def test_content_is_judged_by_its_spec():
    number = {"content": JsonSchema({"type": "integer"})}
    for name in ("args", "hermes"):
        call = written(wire_format(name), READ)
        assert errors("3", format=name, **number) == ""
        assert errors(call, format=name, **number) == ""
        assert "is not of type 'integer'" in errors('"x"', format=name, **number)
        assert "not JSON" in errors(f"3 {call}", format=name, choice="none", **number)
        assert errors(f"3 {call}", format=name, **number) != ""
    # What looks like a call of no tool may be content.
    thing = {"content": JsonSchema({"type": "object"})}
    text = '{"name": "x", "args": {}}'
    assert errors(text, **thing) == ""
    assert parse(ToolCalls(TOOLS, **thing), text) == {"name": "x", "args": {}}


def test_what_nobody_can_judge():
    schema = {"type": "object", "properties": {"n": {"type": "number"}}}
    text = f'{{"name": "f", "args": {{"n": 1{"0" * 400}.5}}}}'
    found = judge(ToolCalls({"f": schema}), text)
    assert found.valid is None
    assert found.errors[0].startswith("f: ")


def test_keywords_that_are_only_checked_are_judged():
    tool = {
        "name": "f",
        "strict": False,
        "parameters": {"type": "object", "properties": {"a": {"type": "array", "uniqueItems": True}}},
    }
    spec = ToolCalls([tool])
    assert judge(spec, '{"name": "f", "args": {"a": [1, 2]}}').valid is True
    found = judge(spec, '{"name": "f", "args": {"a": [1, 1]}}')
    assert found.valid is False
    assert found.errors[0].startswith("f: $.a: ")


def test_values():
    calls = [{"name": "read", "arguments": {"path": "a"}}, {"name": "now", "arguments": {}}]
    for name in FORMATS:
        text = written(wire_format(name), READ, NOW)
        assert parse(ToolCalls(TOOLS, format=name), text) == calls
        assert parse(ToolCalls(TOOLS, format=name), "hello") == "hello"
        assert parse(ToolCalls(TOOLS, format=name, choice="none"), text) == text
    hermes = ToolCalls(TOOLS, format="hermes")
    assert parse(hermes, f"so {written(wire_format('hermes'), NOW)}") == calls[1:]
    number = ToolCalls(TOOLS, content=JsonSchema({"type": "integer"}))
    assert parse(number, "3") == 3
    assert parse(number, written(wire_format("args"), READ)) == calls[:1]


def test_compositions_are_judged_and_parsed():
    call = written(wire_format("args"), READ)
    both = AllOf(ToolCalls(TOOLS), Regex("[^b]*"))
    assert judge(both, call).valid is True
    assert parse(both, call) == [{"name": "read", "arguments": {"path": "a"}}]
    free = Free({"<c>": Region(ToolCalls(TOOLS, choice="required"), end="</c>")})
    assert judge(free, f"a <c>{call}</c>").valid is True
    assert judge(free, "a <c>x</c>").valid is False
    after = After("</think>", ToolCalls(TOOLS, choice="required"))
    assert judge(after, f"hm</think>{call}").valid is True
