"""Prose that mentions the marker of calls stays prose; mask, parser and judge agree on what begins a call."""

from __future__ import annotations

import random
from functools import cache

import pytest

from espalier import ToolCalls, Vocab
from espalier.chat.reading.turn_parser import parse_turn
from espalier.chat.wire.formats import wire_format
from espalier.constraints.base import Compiled
from espalier.constraints.compiler import Compiler
from espalier.constraints.verdict import judge
from tests.tool_texts import FORMATS, TOOLS, written
from tests.unit.chat.turns import parsed

MARKED = [name for name in FORMATS if wire_format(name).marker]
READ = ("read", {"path": "a"})
CALLS = Compiler(Vocab.bytes())


@cache
def compiled(name: str) -> tuple[ToolCalls, Compiled]:
    spec = ToolCalls(TOOLS, format=name)
    return spec, CALLS.compile(spec)


@pytest.mark.parametrize("name", MARKED)
@pytest.mark.parametrize("mention", ["Write the {} tag.", "It is `{}`", "({})\nand so on", "é {}. {}", "a {} \n b"])
def test_prose_that_mentions_a_marker_is_prose(name: str, mention: str) -> None:
    spec, mask = compiled(name)
    text = mention.replace("{}", spec.wire.marker, 1).replace("{}", "")
    assert mask.accepts(text)
    assert judge(spec, text).valid is True
    turn = parsed(text, [0.5], format=spec.wire, names=list(TOOLS), types=spec.types)
    assert (turn.content, turn.calls, turn.fault) == (text, (), "")
    whole = f"{text} {written(spec.wire, READ)}"
    assert mask.accepts(whole)
    assert judge(spec, whole).valid is True
    turn = parsed(whole, [0.5], format=spec.wire, names=list(TOOLS), types=spec.types)
    assert (turn.content, [call.parsed for call in turn.calls]) == (f"{text} ", [{"path": "a"}])


@pytest.mark.parametrize("name", [name for name in MARKED if name != "mistral"])
def test_a_call_follows_a_mention_on_the_next_line(name: str) -> None:
    """In `mistral`, `[` both begins the marker and follows it."""
    spec, mask = compiled(name)
    text = f"I take {spec.wire.marker}\n{written(spec.wire, READ)}"
    assert mask.accepts(text)
    assert judge(spec, text).valid is True
    turn = parsed(text, [0.5], format=spec.wire, names=list(TOOLS), types=spec.types)
    assert [call.parsed for call in turn.calls] == [{"path": "a"}]


@pytest.mark.parametrize("name", MARKED)
@pytest.mark.parametrize("before", ["", " ", "\n\t", "so\n", "so <\n "])
def test_a_marker_at_the_start_of_a_line_begins_a_call(name: str, before: str) -> None:
    spec, mask = compiled(name)
    assert mask.accepts(f"{before}{written(spec.wire, READ)}")
    for rest in ("", "?", " ? so", f"? {written(spec.wire, READ)}"):
        text = f"{before}{spec.wire.marker}{rest}"
        assert not mask.accepts(text)
        assert judge(spec, text).valid is False


@pytest.mark.parametrize("name", MARKED)
def test_mask_parser_and_judge_agree_on_random_prose(name: str) -> None:
    spec, mask = compiled(name)
    marker = spec.wire.marker
    rng = random.Random(name)
    pieces = [
        marker,
        marker,
        marker[:-1],
        marker[0],
        "a",
        "?",
        " ",
        "\n",
        "é",
        "{",
        "[",
        "<",
        "read",
        "`",
        spec.wire.call_opener[:-1],
    ]
    for _ in range(300):
        prose = "".join(rng.choices(pieces, k=rng.randint(0, 7)))
        text = prose + (written(spec.wire, READ) if rng.random() < 0.5 else "")
        assert mask.accepts(text) == (judge(spec, text).valid is True), text
        turn = parsed(text, [rng.random()], format=spec.wire, names=list(TOOLS), types=spec.types)
        assert turn == parse_turn(text, format=spec.wire, names=list(TOOLS), types=spec.types)
        if mask.accepts(text):
            assert turn.fault == ""
            assert turn.content.strip() == text[: text.rfind(marker) if turn.calls else len(text)].strip()
