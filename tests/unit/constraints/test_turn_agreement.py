"""What constraints of turns allow is read as it was meant: random walks through `ToolCalls` with a content, alone or
after thinking, parted by the parser that an engine uses."""

from __future__ import annotations

import json
import random
from typing import Any

import jsonschema
import pytest

from espalier import Choice, JsonObject, JsonSchema, Regex, Thinking, ToolCalls
from espalier.chat.reading.turn_parser import parse_turn
from espalier.chat.reasoning import REASONING
from espalier.constraints.spec import Spec
from espalier.constraints.verdict import judge
from tests.examples import examples
from tests.tool_texts import FORMATS, TOOLS
from tests.unit.constraints.test_tool_laws import compiler, walk

CONTENTS: dict[str, Spec | None] = {
    "free": None,
    "object": JsonObject(),
    "named object": JsonSchema({"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}),
    "call": JsonSchema(
        {
            "type": "object",
            "properties": {"name": {"enum": ["read", "now", "other"]}, "args": {"type": "object"}},
            "required": ["name", "args"],
            "additionalProperties": False,
        }
    ),
    "choice": Choice(["yes", "[no]", "{"]),
    "any text": Regex(r"(?s:[\x00-\x7f]*)"),
    "list": JsonObject(kinds=("array",)),
}
BEGINNINGS = (
    "",
    '{"name": "',
    '{"name": "read", "',
    "[read(",
    "<tool_call>",
    "[TOOL_CALLS]",
    "<function=",
    "<thi",
    "[",
)


@pytest.mark.parametrize("thinks", [False, True])
@pytest.mark.parametrize("content", CONTENTS)
@pytest.mark.parametrize("name", FORMATS)
def test_walks_are_read_as_they_were_meant(name: str, content: str, thinks: bool) -> None:
    held = ToolCalls(TOOLS, format=name, max_calls=2, content=CONTENTS[content])
    spec: Spec = Thinking(held) if thinks else held
    compiled = compiler("bytes").compile(spec)
    rng = random.Random(f"{name} {content} {thinks}")
    heads = ("", "<think>hm", "<think></think>", "\n<think>x</think>\n") if thinks else ("",)
    for beginning in rng.sample(BEGINNINGS, examples(len(BEGINNINGS))):
        text = walk(compiled, rng, rng.choice(heads) + beginning)
        check(spec, held, text, thinks)


def check(spec: Spec, held: ToolCalls, text: str, thinks: bool) -> None:
    names = [tool.name for tool in held.allowed]
    turn = parse_turn(
        text, format=held.wire, names=names, types=held.types, reasoning=REASONING["think"] if thinks else None
    )
    assert len(turn.calls) <= 2, text
    for call in turn.calls:
        assert call.is_complete, text
        jsonschema.validate(json.loads(call.arguments), _schema(held, call.name))
    if held.content is not None:
        assert not turn.calls or not turn.content.strip(), text
        if not turn.calls:
            assert judge(held.content, turn.content).valid is not False, (text, turn)
    elif turn.calls:
        assert turn.fault == "", (text, turn)
    assert judge(spec, text).valid is not False, (text, judge(spec, text))


def _schema(held: ToolCalls, name: str) -> dict[str, Any]:
    return next(tool.schema for tool in held.tools if tool.name == name)
