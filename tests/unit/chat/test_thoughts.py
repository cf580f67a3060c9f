"""Where thoughts are in a turn's text: however the text is cut into pieces, the parts are those of the whole."""

from __future__ import annotations

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.chat.reading.thoughts import (
    GAP,
    ThoughtSplitter,
    find_reasoning,
    marker_spellings,
    start_turn,
    thoughts_of,
)
from espalier.chat.reading.turn_parser import TurnParser, parse_turn
from espalier.chat.reasoning import REASONING, Reasoning
from espalier.chat.wire.formats import HERMES
from espalier.decoding.text.stops import TextAssembler
from espalier.tokens.vocab import Vocab
from tests.examples import examples

THINK = REASONING["think"]
MARKED = [reasoning for name, reasoning in REASONING.items() if name != "harmony"]


def whole_parts(text: str, reasoning: Reasoning, *, inside: bool) -> dict[str, str]:
    """The parts of a text by one regular expression."""
    start, end = re.escape(reasoning.start), re.escape(reasoning.end)
    blank = r"[ \t\n\r]"
    head = rf"(?P<open>{blank}{{0,{GAP}}}{start})"
    head = f"{head}?" if inside else head
    match = re.match(rf"(?s){head}(?P<thought>.*?)(?:(?P<close>{end})(?P<gap>{blank}*)(?P<answer>.*)|\Z)", text)
    if match is None:
        return {"marker": "", "thought": "", "gap": "", "answer": text}
    parts = {name: value or "" for name, value in match.groupdict().items()}
    return {"marker": parts.pop("open") + parts.pop("close")} | parts


def cut_parts(splitter: ThoughtSplitter, pieces: list[str]) -> dict[str, str]:
    parts = {"marker": "", "thought": "", "gap": "", "answer": ""}
    for found in (*map(splitter.feed, pieces), splitter.finish()):
        for part, text in found:
            parts[part] += text
    return parts


@st.composite
def turns(draw: Any) -> tuple[Reasoning, bool, list[str]]:
    reasoning = draw(st.sampled_from(MARKED))
    start, end = reasoning.start, reasoning.end
    words = [start, end, start[:-1], end[:-1], end[1:], start[:2], " ", "\n\n", "     ", "a", "é", "<", "x</"]
    text = "".join(draw(st.lists(st.sampled_from(words), max_size=8)))
    cuts = sorted(draw(st.lists(st.integers(0, len(text)), max_size=12)))
    pieces = [text[low:high] for low, high in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    return reasoning, draw(st.booleans()), pieces


@given(turns())
@settings(max_examples=examples(600), deadline=None)
def test_any_cut_gives_the_parts_of_the_whole(turn: tuple[Reasoning, bool, list[str]]) -> None:
    reasoning, inside, pieces = turn
    text = "".join(pieces)
    wanted = whole_parts(text, reasoning, inside=inside)
    assert cut_parts(thoughts_of(reasoning, inside=inside), pieces) == wanted
    assert cut_parts(thoughts_of(reasoning, inside=inside), list(text)) == wanted


@given(turns())
@settings(max_examples=examples(200), deadline=None)
def test_a_fork_goes_its_own_way(turn: tuple[Reasoning, bool, list[str]]) -> None:
    reasoning, inside, pieces = turn
    splitter = thoughts_of(reasoning, inside=inside)
    for place, piece in enumerate(pieces):
        rest = cut_parts(splitter.fork(), pieces[place:])
        assert rest == cut_parts(splitter.fork(), ["".join(pieces[place:])])
        splitter.feed(piece)


@given(turns())
@settings(max_examples=examples(300), deadline=None)
def test_the_parser_reads_any_cut_alike(turn: tuple[Reasoning, bool, list[str]]) -> None:
    reasoning, inside, pieces = turn
    for format_ in (None, HERMES):
        parser = TurnParser(format=format_, reasoning=reasoning, inside=inside)
        for piece in pieces:
            parser.feed(piece)
        parser.finish()
        assert parser.turn == parse_turn("".join(pieces), format=format_, reasoning=reasoning, inside=inside)


@given(turns(), st.lists(st.sampled_from(["a", "\n\n", "<", "é", " "]), min_size=1, max_size=2, unique=True))
@settings(max_examples=examples(300), deadline=None)
def test_stop_texts_end_the_answer_alone(turn: tuple[Reasoning, bool, list[str]], stops: list[str]) -> None:
    reasoning, inside, pieces = turn
    text = "".join(pieces)
    parts = whole_parts(text, reasoning, inside=inside)
    answer = parts["answer"]
    at = min((answer.find(stop) for stop in stops if stop in answer), default=len(answer))
    assembler = TextAssembler(tuple(stops), thoughts_of(reasoning, inside=inside))
    shown = [assembler.feed(piece.encode()) for piece in pieces]
    shown.append(assembler.finish())
    assert "".join(piece.text for piece in shown) == assembler.text == text[: len(text) - len(answer) + at]
    assert any(piece.stop for piece in shown) is (at < len(answer))


def test_a_call_that_a_thought_mentions_is_not_made() -> None:
    call = '<tool_call>\n{"name": "f", "arguments": {}}\n</tool_call>'
    turn = parse_turn(f"<think>maybe {call}</think>{call}", format=HERMES, names=("f",), reasoning=THINK)
    assert (len(turn.calls), turn.reasoning) == (1, f"maybe {call}")


@pytest.mark.parametrize(
    ("before", "begun", "options", "wanted"),
    [
        ("<|im_start|>assistant\n", {}, {}, (True, False, "")),
        ("assistant\n<think>\n", {}, {}, (True, True, "")),
        ("assistant\n<think>\n\n</think>\n\n", {}, {}, (False, False, "")),
        ("assistant\n<think>\n", {}, {"may_think": False}, (False, False, "\n</think>\n\n")),
        ("assistant\n", {}, {"may_think": False}, (True, False, "")),
        ("assistant\n", {"content": "The answer"}, {}, (False, False, "The answer")),
        ("assistant\n", {"content": "<think>hm"}, {}, (True, True, "<think>hm")),
        ("assistant\n", {"content": "<think>hm</think>A"}, {}, (False, False, "<think>hm</think>A")),
        ("assistant\n<think>\n", {"content": "A"}, {}, (False, False, "\n</think>\n\nA")),
        ("assistant\n<think>\n", {"content": "A", "reasoning_content": "hm"}, {}, (False, False, "hm\n</think>\n\nA")),
        ("assistant\n<think>\n", {"content": "hm</think>A"}, {}, (False, False, "hm</think>A")),
    ],
)
def test_how_a_turn_starts(before: str, begun: dict[str, str], options: dict[str, bool], wanted: Any) -> None:
    start = start_turn(THINK, before, begun, **options)
    assert (start.reasoning is not None, start.inside, start.added) == wanted


def test_special_tokens_that_are_markers_are_spelled_and_ends_are_not() -> None:
    specials = {256: "<eos>", 257: "<think>", 258: "</think>", 259: "<other>"}
    vocab = Vocab.from_tokens(
        [*(bytes([byte]) for byte in range(256)), b"", b"", b"", b""], eos_ids=[256], special_ids=specials
    )
    assert marker_spellings(THINK, vocab) == {257: b"<think>", 258: b"</think>"}
    assert marker_spellings(Reasoning(start="<think>", end="<eos>"), vocab) == {257: b"<think>"}


def test_tokens_of_text_are_markers_only_where_somebody_says_that_the_model_reasons() -> None:
    texts = [*(bytes([byte]) for byte in range(256)), b"", b"<think>", b"</think>"]
    plain = Vocab.from_tokens(texts, eos_ids=[256], special_ids={256: "<eos>"})
    assert (find_reasoning("", plain), find_reasoning("", plain, is_asked=True)) == (None, THINK)
    assert find_reasoning("{% set end = '</think>' %}", plain) == THINK
    special = {256: "<eos>", 257: "[THINK]", 258: "[/THINK]"}
    vocab = Vocab.from_tokens([*texts[:256], b"", b"", b""], eos_ids=[256], special_ids=special)
    assert find_reasoning("", vocab) == REASONING["mistral"]
    assert (find_reasoning("", None), find_reasoning("<think>", None)) == (None, THINK)
