"""Judges and parses a finished turn in channels, with the parser of the server. It knows neither grammar nor
vocabulary."""

from __future__ import annotations

from typing import Any

from espalier.chat.reading.deltas import Turn
from espalier.chat.reading.turn_parser import parse_turn
from espalier.chat.reasoning import REASONING
from espalier.constraints.channels.spec import Channels
from espalier.constraints.tools.judge import around_calls, calls_in, judge_calls
from espalier.constraints.verdict import Verdict, judge, parse
from espalier.lexicon.files import WordFiles


def judge_channels(spec: Channels, text: str, words: WordFiles) -> Verdict:
    """Judges each call by its tool's schema; without calls, the answer by its constraint."""
    turn = _turn(spec, text)
    if turn.calls and spec.calls is not None:
        return judge_calls(spec.calls, turn, list(around_calls(spec.calls, turn)), words)
    if turn.fault or not spec.has_answer:
        errors = (turn.fault or "there is no call, and one is required",)
        return Verdict(valid=False, judge="parser", errors=errors, breaks="enforced")
    if spec.final is None:
        return Verdict(valid=True, judge="parser")
    return judge(spec.final, turn.content, words)


def parse_channels(spec: Channels, text: str) -> Any:
    """The calls as a list of `{"name": ..., "arguments": {...}}`; without calls, the answer as its constraint parses
    it."""
    turn = _turn(spec, text)
    return calls_in(turn) or parse(spec.final, turn.content)


def _turn(spec: Channels, text: str) -> Turn:
    calls = spec.calls
    if calls is None or not calls.allowed:
        return parse_turn(text, format=None, reasoning=REASONING["harmony"])
    # A call of another tool is an error, which `judge_calls` names.
    return parse_turn(text, format=calls.wire)
