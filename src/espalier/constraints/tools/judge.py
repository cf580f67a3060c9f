"""Judges and parses a finished text with tool calls. It knows no grammar and no vocabulary.

It uses the parser of the server and the command line, which accepts any tool and more spellings than the matcher.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

from espalier.chat.reading.deltas import Turn
from espalier.chat.reading.incoming import SPACE
from espalier.chat.reading.turn_parser import parse_turn
from espalier.chat.tools import Tool, ToolCall
from espalier.chat.wire.formats import WireFormat
from espalier.constraints.spec import Gbnf, JsonSchema
from espalier.constraints.tools.arguments import MAY_BE_UNIQUE
from espalier.constraints.tools.spec import ToolCalls
from espalier.constraints.tools.text_grammar import ARGUMENT, grammar_in
from espalier.constraints.verdict import Promise, Verdict, judge, judge_in_grammar, parse
from espalier.lexicon.files import WordFiles

MAX_ERRORS = 5


def judge_tool_calls(spec: ToolCalls, text: str, words: WordFiles) -> Verdict:
    """Judges each call by its tool's schema; without calls, the content by its spec."""
    if spec.content is not None and spec.choice.mode == "none":
        return judge_in_grammar(spec.content, text, words)
    # With a content, a call of an unknown tool is content; without one it is an error.
    turn = parse_turn(text, format=spec.wire, names=_names(spec) if spec.content is not None else (), types=spec.types)
    if spec.content is not None and not turn.calls:
        return judge_in_grammar(spec.content, text, words)
    return judge_calls(spec, turn, list(_around(spec, text, turn)), words)


def judge_calls(spec: ToolCalls, turn: Turn, errors: list[str], words: WordFiles) -> Verdict:
    """Judges each call of a turn by its tool's schema. errors: what is wrong beside the calls."""
    judges = dict.fromkeys(["parser"])
    unsure: list[str] = []
    loose = 0  # errors about what is only checked
    tools = {tool.name: tool for tool in spec.tools}
    allowed = {tool.name for tool in spec.allowed}
    for call in turn.calls:
        if call.name not in allowed:
            known = "may not be called" if call.name in tools else "is no tool"
            errors.append(f"{call.name} {known}")
        elif call.is_complete:
            verdict = _arguments(tools[call.name], call, words)
            judges[verdict.judge] = None
            reasons = [f"{call.name}: {error}" for error in verdict.errors or ("not valid",)]
            if verdict.valid is None:
                unsure += reasons
            elif not verdict.valid:
                errors += reasons
                loose += len(reasons) if verdict.breaks == "checked" else 0
    valid = False if errors else None if unsure else True
    breaks: Promise = "enforced" if len(errors) > loose else "checked"
    return Verdict(
        valid=valid,
        judge=" and ".join(judges),
        errors=tuple(errors or unsure)[:MAX_ERRORS],
        breaks=None if valid is not False else breaks,
    )


def _names(spec: ToolCalls) -> list[str]:
    return [tool.name for tool in spec.allowed]


def _around(spec: ToolCalls, text: str, turn: Turn) -> Iterator[str]:
    """Errors other than the calls' names and arguments."""
    yield from around_calls(spec, turn)
    if not turn.calls:
        openers = tuple(filter(None, (spec.wire.opener, spec.wire.lead)))
        if spec.choice.mode != "required" and text.lstrip(SPACE).startswith(openers):
            yield "the text begins as a call does, and is none"
        return
    # Free text comes only before a marker.
    may_have_text = spec.wire.marker and spec.choice.mode == "auto" and spec.content is None
    is_before = text.startswith(turn.content) and text[len(turn.content) :].startswith(spec.wire.marker)
    if turn.content and not (may_have_text and is_before):
        yield "there is text besides the calls"
    elif turn.content:
        yield from _broken_calls(spec.wire, text, len(turn.content))


def _broken_calls(wire: WireFormat, text: str, end: int) -> Iterator[str]:
    """The markers in the text before the calls, which ends at `end`, that begin a call and lead to none."""
    at = text.find(wire.marker)
    while 0 <= at < end:
        if not text[:at].rpartition("\n")[2].strip(SPACE) or wire.begins_call(text[at + len(wire.marker) :]):
            yield f"at character {at}: {wire.marker!r} begins a call, and none follows"
        at = text.find(wire.marker, at + len(wire.marker))


def around_calls(spec: ToolCalls, turn: Turn) -> Iterator[str]:
    """What is wrong with a turn and with the number of its calls."""
    if turn.fault:
        yield turn.fault
    count, most = len(turn.calls), spec.most_calls
    if spec.choice.mode == "required" and not count:
        yield "there is no call, and one is required"
    if most is not None and count > most:
        yield f"there are {count} calls, {most} at most"


def _arguments(tool: Tool, call: ToolCall, words: WordFiles) -> Verdict:
    if call.parsed is None:
        return Verdict(valid=False, judge="json", errors=("the arguments are no object",))
    allow: Literal["checked"] | None = None if tool.strict is True else "checked"
    spec = JsonSchema(tool.schema, allow=allow, format=tool.formats, closed=tool.closed)
    verdict = judge_in_grammar(spec, call.arguments, words)
    if verdict.breaks == "enforced" and spec.allow and any(word in tool.parameters for word in MAY_BE_UNIQUE):
        verdict = replace(verdict, breaks="checked")  # whether calls are held to unique items depends on their format
    grammar = grammar_in(tool.schema)
    if grammar is None or not verdict.valid:
        return verdict
    text = judge(Gbnf(grammar), call.parsed[ARGUMENT], words)
    if text.valid is None and not text.errors:
        return Verdict(valid=None, judge="json", errors=("no independent judge reads the grammar of its text",))
    return text


def parse_tool_calls(spec: ToolCalls, text: str) -> Any:
    """The calls as a list of `{"name": ..., "arguments": {...}}`; without calls, the content as its spec parses it."""
    names = _names(spec)
    turn = parse_turn(text, format=spec.wire, names=names, types=spec.types) if names else None
    return (calls_in(turn) if turn is not None else None) or parse(spec.content, text)


def calls_in(turn: Turn) -> list[dict[str, Any]]:
    """The calls whose arguments are whole."""
    return [{"name": call.name, "arguments": call.parsed} for call in turn.calls if call.parsed is not None]
