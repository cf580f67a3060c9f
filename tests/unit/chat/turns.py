"""What the tests of the parsers share: texts of calls, ways to cut them, and the laws that hold for any text."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from espalier.chat.argument_types import ArgumentTypes
from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, CallEnded, ContentDelta, Delta, ReasoningDelta, Turn
from espalier.chat.reading.turn_parser import NO_TYPES, TurnParser, parse_turn
from espalier.chat.reasoning import Reasoning
from espalier.chat.tools import ToolCall
from espalier.chat.wire.formats import WIRE_FORMATS, WireFormat, wire_format
from tests.tool_texts import bare, tagged, with_id

FORMATS = tuple(name for name in WIRE_FORMATS.names() if not wire_format(name).in_channels)
BY_SHAPE = {
    shape: tuple(name for name in FORMATS if wire_format(name).shape == shape)
    for shape in ("json", "named", "python", "tagged", "bare")
}
MARKED = tuple(name for name in FORMATS if wire_format(name).marker)
NAMES = ("f", "get_weather", "a.b-C_9")
TOKENS = (
    "<tool_call>",
    "</tool_call>",
    "<tool_",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<function=",
    "</function>",
    "<|python_tag|>",
    "<think>",
    "</think>",
    '{"name": ',
    '"name"',
    '"arguments": ',
    '"args"',
    "parameters",
    '"f"',
    "f",
    "get_weather",
    "zz",
    "f(",
    "a=",
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ",",
    ":",
    ";",
    "=",
    '"',
    "'",
    "\\",
    "\\u00e9",
    "\\ud83d",
    "1",
    "-",
    ".",
    "e",
    "0x",
    "true",
    "None",
    " ",
    "\n",
    "é",
    "😀",
    "x",
    '{"a": 1}',
    "[f(a=1)",
    '{"name": "f", "arguments": {"a": [1, "x"]}}',
    '{"tool": "f", "args": {}}',
    'f[ARGS]{"a": {}}',
    "**{",
    ">",
    '{"name": "f", "parameters": "{\\"a\\": 1}"}',
)
"""Of what texts that look like calls are made."""

letters = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
marked_text = st.lists(st.one_of(st.sampled_from(TOKENS), letters), max_size=5).map("".join)
scalars = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(allow_nan=False, allow_infinity=False), marked_text
)
values = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(marked_text, inner, max_size=3), max_leaves=6
)
calls_of_objects = st.lists(
    st.tuples(st.sampled_from(NAMES), st.dictionaries(marked_text, values, max_size=3)), min_size=1, max_size=3
)
any_text = st.lists(st.sampled_from(TOKENS), max_size=14).map("".join)


def dumper(ascii_only: bool, style: str) -> Callable[[Any], str]:
    """How JSON is written: compactly, as usual, or over several lines."""
    how: dict[str, Any] = {"compact": {"separators": (",", ":")}, "usual": {}, "indented": {"indent": 1}}[style]
    return lambda value: json.dumps(value, ensure_ascii=ascii_only, **how)


dumpers = st.builds(dumper, st.booleans(), st.sampled_from(["compact", "usual", "indented"]))


def rendered(wire: WireFormat, calls: Iterable[str], space: str = "") -> str:
    """Calls with all that stands around them, each piece with whitespace besides its own."""

    def piece(text: str) -> str:
        return f"{space}{text}{space}" if text else ""

    around = [f"{piece(wire.head)}{call}{piece(wire.tail)}" for call in calls]
    joined = (piece(wire.separator) or space).join(around)
    return f"{piece(wire.begin)}{piece(wire.open)}{joined}{piece(wire.close)}{piece(wire.end)}"


def json_call(wire: WireFormat, name: str, arguments: str) -> str:
    return f'{{"{wire.name_key}": {json.dumps(name)}, "{wire.args_key}": {arguments}}}'


def call(wire: WireFormat, name: str, arguments: str) -> str:
    """One call as a shape writes it. arguments: in the notation of the shape, JSON for tags."""
    if wire.shape in ("tagged", "bare"):
        return (tagged if wire.shape == "tagged" else bare)(wire, name, json.loads(arguments))
    return {
        "json": json_call(wire, name, arguments),
        "named": f"{name}{with_id(wire)}{wire.middle}{arguments}",
        "python": f"{name}({arguments})",
    }[wire.shape]


def plain(name: str) -> tuple[WireFormat, str]:
    """A format, and a text of one call in it: `f` with `a` = 1."""
    wire = wire_format(name)
    return wire, rendered(wire, [call(wire, "f", "a=1" if wire.shape == "python" else '{"a": 1}')])


def cut(text: str, places: Sequence[float]) -> list[str]:
    """The text in pieces. places: between 0 and 1."""
    ends = [0, *sorted(round(place * len(text)) for place in places), len(text)]
    return [text[a:b] for a, b in itertools.pairwise(ends)]


cuts = st.lists(st.floats(0, 1), max_size=8)


def streamed(
    pieces: Iterable[str],
    *,
    format: WireFormat | None,  # noqa: A002  # as the parser's
    names: Collection[str] = (),
    types: Mapping[str, ArgumentTypes] = NO_TYPES,
    reasoning: Reasoning | None = None,
    inside: bool = False,
) -> tuple[list[Delta], Turn]:
    parser = TurnParser(format=format, names=names, types=types, reasoning=reasoning, inside=inside)
    deltas = [delta for piece in pieces for delta in parser.feed(piece)]
    deltas += parser.finish()
    assert parser.finish() == []
    return deltas, parser.turn


def replayed(deltas: Iterable[Delta]) -> Turn:
    """The turn that deltas tell, and that each of them comes where it may."""
    turn = Turn(content="")
    calls: list[ToolCall] = []
    for delta in deltas:
        match delta:
            case ReasoningDelta(text):
                assert text
                assert not turn.content
                assert not calls
                turn = replace(turn, reasoning=(turn.reasoning or "") + text)
            case ContentDelta(text):
                assert text
                assert all(call.is_complete for call in calls)
                turn = replace(turn, content=turn.content + text)
            case CallBegun(index, name):
                assert index == len(calls)
                assert all(call.is_complete for call in calls)
                calls.append(ToolCall(index=index, name=name, arguments="", is_complete=False))
            case ArgumentsDelta(index, text):
                assert text
                assert index == len(calls) - 1
                assert not calls[index].is_complete
                calls[index] = replace(calls[index], arguments=calls[index].arguments + text)
            case CallEnded(index):
                assert index == len(calls) - 1
                calls[index] = replace(calls[index], is_complete=True)
    return replace(turn, calls=tuple(calls))


def parsed(text: str, places: Sequence[float] = (), **how: Any) -> Turn:
    """The turn of a text, after the laws that hold for any: how it is cut into pieces says nothing, and the deltas
    are the turn."""
    whole = parse_turn(text, **how)
    for pieces in (list(text), cut(text, places), ["", *cut(text, places), ""]):
        deltas, turn = streamed(pieces, **how)
        assert turn == whole
        told = replayed(deltas)
        assert told == replace(whole, fault="", reasoning=whole.reasoning or None)
    for found in whole.calls:
        if found.is_complete:
            assert isinstance(json.loads(found.arguments), dict)
    return whole


def summary(turn: Turn) -> list[tuple[str, str]]:
    """The calls: names and arguments. All of them are complete."""
    assert all(found.is_complete for found in turn.calls)
    assert [found.index for found in turn.calls] == list(range(len(turn.calls)))
    return [(found.name, found.arguments) for found in turn.calls]
