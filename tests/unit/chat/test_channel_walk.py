"""Turns in channels, as gpt-oss writes them: what is reasoning, content and a call, whole and in pieces; and that
OpenAI's own parser reads them so."""

from __future__ import annotations

import random

import pytest

from espalier.chat.reading.channel_walk import BETWEEN
from espalier.chat.reading.deltas import Turn
from espalier.chat.reading.thoughts import thoughts_of
from espalier.chat.reading.turn_parser import TurnParser, parse_turn
from espalier.chat.reasoning import REASONING
from espalier.chat.wire.formats import WireFormat, wire_format
from tests.examples import examples
from tests.gpt_oss import FINAL, PREAMBLE, THOUGHT, TYPES, call, random_turn, read_by_openai

HARMONY = REASONING["harmony"]
WIRE = wire_format("harmony")
NAMES = ("read", "get_weather", "web-browsing")


def parsed(text: str, *, wire: WireFormat | None = WIRE, size: int | None = None) -> Turn:
    """The turn of a text that comes in pieces of one size."""
    parser = TurnParser(format=wire, names=NAMES, reasoning=HARMONY)
    for at in range(0, len(text), size or max(1, len(text))):
        parser.feed(text[at : at + (size or len(text))])
    parser.finish()
    return parser.turn


def summary(turn: Turn) -> tuple[str, str | None, list[tuple[str, str]], bool]:
    return turn.content, turn.reasoning, [(one.name, one.arguments) for one in turn.calls], bool(turn.fault)


CITY = '{"city": "Oslo"}'
CALLED = [("get_weather", CITY)]
TURNS = {
    f"{THOUGHT}{FINAL}Hello<|return|>": ("Hello", "hm < 3", [], False),
    f"{FINAL}Hello": ("Hello", None, [], False),
    f"<|start|>assistant{FINAL}Hello": ("Hello", None, [], False),
    f"{THOUGHT}{THOUGHT}{FINAL}Hello": ("Hello", f"hm < 3{BETWEEN}hm < 3", [], False),
    f'{THOUGHT}<|channel|>final <|constrain|>json<|message|>{{"a": 5}}': ('{"a": 5}', "hm < 3", [], False),
    f"{THOUGHT}{PREAMBLE}{call('get_weather', CITY)}": ("First the weather.", "hm < 3", CALLED, False),
    f"{PREAMBLE}{FINAL}It is warm.": (f"First the weather.{BETWEEN}It is warm.", None, [], False),
    f"{THOUGHT}{call('get_weather', CITY)}": ("", "hm < 3", CALLED, False),
    f"{call('get_weather', CITY)}<|start|>assistant{call('read', '{}')}": ("", None, [*CALLED, ("read", "{}")], False),
    f"{THOUGHT}<|channel|>analysis to=functions.get_weather<|message|>{CITY}": ("", "hm < 3", CALLED, False),
    # An answer goes to the end, so that it may quote the format.
    f"{FINAL}A message ends with <|end|>, as in x<|end|><|start|>user": (
        "A message ends with <|end|>, as in x<|end|><|start|>user", None, [], False,
    ),
    "plain text": ("plain text", None, [], False),
    "<b>bold</b>": ("<b>bold</b>", None, [], False),
    "": ("", None, [], False),
    # Cut off, and what no request asked for.
    "<|channel|>analysis<|message|>hm": ("", "hm", [], True),
    "<|channel|>anal": ("", None, [], True),
    f"{THOUGHT}<|channel|>commentary to=functions.read json<|message|>{{": ("", "hm < 3", [("read", "{")], True),
    f"{THOUGHT}{call('other', '{}')}": ("", "hm < 3", [], True),
    '<|channel|>analysis to=browser.search code<|message|>{"q": 1}<|call|>': ("", None, [], True),
    f"{THOUGHT}<|channel|>commentary to=functions.read json<|message|>no JSON<|call|>": ("", "hm < 3", [], True),
    f"{THOUGHT.removesuffix('assistant')}user<|message|>Hi": ("", "hm < 3", [], True),
}  # fmt: skip


@pytest.mark.parametrize("text", TURNS)
@pytest.mark.parametrize("size", [None, 1, 3])
def test_a_turn_is_read_by_its_channels(text: str, size: int | None) -> None:
    assert summary(parsed(text, size=size)) == TURNS[text]


@pytest.mark.parametrize("in_role", [False, True])
@pytest.mark.parametrize("kind", TYPES)
def test_the_recipient_stands_in_the_role_or_in_the_channel(kind: str, in_role: bool) -> None:
    turn = parsed(THOUGHT + call("web-browsing", CITY, kind, in_role=in_role))
    assert summary(turn) == ("", "hm < 3", [("web-browsing", CITY)], False)


@pytest.mark.parametrize(
    ("recipient", "reason"),
    [
        ("browser.search", "browser.search is a built-in tool"),
        ("python", "python is a built-in tool"),
        ("container.exec", "container.exec is a built-in tool"),
        ("functions.nope", "there is no tool 'nope'"),
        ("nope", "there is no tool 'nope'"),
    ],
)
def test_a_call_of_a_tool_that_nobody_offered_is_named(recipient: str, reason: str) -> None:
    turn = parsed(f"{THOUGHT}<|channel|>analysis to={recipient} code<|message|>{{}}<|call|>")
    assert reason in turn.fault
    assert not turn.calls


def test_a_request_without_tools_has_no_calls() -> None:
    turn = parsed(THOUGHT + call("read", "{}"), wire=None)
    assert (turn.calls, turn.content, turn.reasoning) == ((), "", "hm < 3")
    assert "the model calls 'read', and the request has no tools" in turn.fault


def test_openai_reads_the_same_messages() -> None:
    rng = random.Random(5)
    seen = set()
    for _ in range(examples(400)):
        text = random_turn(rng)
        read = read_by_openai(text)
        turn = parse_turn(text, format=WIRE, names=NAMES)
        assert (turn.reasoning or "") == BETWEEN.join(thought.strip() for thought in read.reasoning), text
        assert turn.content == BETWEEN.join(read.content), text
        assert tuple((one.name, one.arguments) for one in turn.calls) == read.calls, text
        assert not turn.fault, text
        assert parsed(text, size=rng.randint(1, 4)) == turn
        seen.add((bool(read.reasoning), len(read.content), len(read.calls)))
    assert len(seen) > 5


@pytest.mark.parametrize("size", [1, 2, 7])
def test_the_splitter_of_thoughts_says_the_same_as_the_parser(size: int) -> None:
    rng = random.Random(size)
    for _ in range(examples(100)):
        text = random_turn(rng)
        thoughts = thoughts_of(HARMONY, inside=False)
        pieces = [piece for at in range(0, len(text), size) for piece in thoughts.feed(text[at : at + size])]
        pieces += thoughts.fork().finish()
        assert "".join(piece.text for piece in pieces) == text
        thought = "".join(piece.text for piece in pieces if piece.part == "thought")
        assert thought == "".join(read_by_openai(text).reasoning)
        assert not thoughts.is_thinking
