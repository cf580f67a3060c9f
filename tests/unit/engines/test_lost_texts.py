"""Tags that the model wanted within a raw text of a call: the result and every reply name them."""

from __future__ import annotations

import json
from typing import Any

import pytest

import espalier
from espalier.chat.wire.formats import wire_format
from tests.tool_texts import written
from tests.unit.chat.turns import BY_SHAPE
from tests.unit.engines.test_lost_properties import engine_of

FILE = {
    "type": "object",
    "properties": {"path": {"type": "string"}, "content": {"type": ["string", "null"]}, "lines": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}
RAW = [(name, end) for name in (*BY_SHAPE["tagged"], *BY_SHAPE["bare"]) for end in wire_format(name).text_ends]


def generate(wish: str, format_name: str, **options: Any) -> espalier.Result:
    with engine_of(wish) as engine:
        calls = {"tools": {"write": FILE}, "tool_format": format_name, "tool_choice": "required"}
        return engine.generate("go", raw=True, temperature=0, max_tokens=400, **calls, **options)


@pytest.mark.parametrize("key", ["path", "content"])
@pytest.mark.parametrize(("name", "end"), RAW)
def test_a_tag_that_the_model_wanted_within_a_text_is_named(name: str, end: str, key: str) -> None:
    arguments = {"path": "a", key: f"say {end}here"}
    wish = written(wire_format(name), ("write", arguments))
    result = generate(wish, name)
    (call,) = result.tool_calls
    assert result.verdict is not None
    assert result.verdict.valid is True
    assert json.loads(call.arguments) != arguments
    assert f"the model wanted to write {end} at character {wish.index(f'{end}here')}, in a text of" in result.lost[0]
    assert result.lost[0] in result.notes


@pytest.mark.parametrize("name", BY_SHAPE["tagged"])
def test_a_text_that_ends_at_a_closing_tag_on_a_line_of_its_own_is_named(name: str) -> None:
    """The line end behind the tag is allowed; the refusal comes at the text of the next line."""
    end = wire_format(name).text_ends[0]
    arguments = {"path": "a", "content": f"first\n{end}\nhere"}
    wish = written(wire_format(name), ("write", arguments))
    result = generate(wish, name)
    assert result.tool_calls[0].parsed != arguments
    assert f"the model wanted to write {end} at character" in result.lost[0]


@pytest.mark.parametrize("name", BY_SHAPE["tagged"])
@pytest.mark.parametrize("strategy", ["mask", "rejection", "jump", "draft"])
def test_a_closing_tag_that_the_model_forgot_is_named(name: str, strategy: str) -> None:
    wire = wire_format(name)
    wish = written(wire, ("write", {"path": "a", "content": "b"})).replace(wire.value_close, "\n", 1)
    result = generate(wish, name, strategy=strategy)
    assert f"the model wanted to write {wire.key} at character" in result.lost[0]


@pytest.mark.parametrize("name", [*BY_SHAPE["tagged"], *BY_SHAPE["bare"]])
def test_nothing_is_said_where_the_model_wrote_what_it_wanted(name: str) -> None:
    calls = [("write", {"path": "a <b>", "content": None, "lines": 3}), ("write", {"path": "", "content": "</"})]
    result = generate(written(wire_format(name), *calls), name)
    assert [call.parsed for call in result.tool_calls] == [arguments for _, arguments in calls]
    assert result.lost == ()


def test_a_tag_that_the_schema_refuses_is_none_that_a_text_lost() -> None:
    wish = written(wire_format("qwen_coder"), ("write", {"path": "a", "lines": 1, "other": "x"}))
    result = generate(wish.replace("1\n", "\n"), "qwen_coder")
    assert result.lost == ()


def test_a_reply_over_http_warns() -> None:
    pytest.importorskip("fastapi")
    from espalier.server.answering.replies import result_lines

    wish = written(wire_format("qwen_coder"), ("write", {"path": "a", "content": "ends with </parameter> here"}))
    (line,) = result_lines([generate(wish, "qwen_coder")])
    assert "the model wanted to write </parameter> at character" in line
