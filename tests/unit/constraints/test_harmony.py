"""Turns of gpt-oss: the analysis channel is the reasoning, and calls and the answer follow it, with special tokens."""

from __future__ import annotations

import pytest

from espalier import Thinking, ToolCalls, Vocab
from espalier.chat.reading.turn_parser import parse_turn
from espalier.chat.reasoning import REASONING, detect_reasoning
from espalier.chat.wire.formats import wire_format
from espalier.constraints.compiler import Compiler
from tests.tool_texts import TOOLS, written

SPECIALS = {
    258: "<|channel|>",
    259: "<|message|>",
    260: "<|constrain|>",
    261: "<|start|>",
    262: "<|end|>",
    263: "<|call|>",
}
EOS = (256, 263)
"""As in gpt-oss, `<|call|>` ends the turn as `<|return|>` does."""
VOCAB = Vocab.from_tokens(
    [*(bytes([b]) for b in range(256)), *[b""] * 8], eos_ids=EOS, special_ids={256: "<|return|>", **SPECIALS}
)
HARMONY = REASONING["harmony"]
THOUGHT = "<|channel|>analysis<|message|>The path is < 3 words.<|end|><|start|>assistant"
CALL = '<|channel|>commentary to=functions.read <|constrain|>json<|message|>{"path": "a"}'
ANSWER = "<|channel|>final<|message|>It is done."


def ids(text: str) -> list[int]:
    found: list[int] = []
    while text:
        special = next((one for one in SPECIALS if text.startswith(SPECIALS[one])), None)
        found += list(text[0].encode()) if special is None else [special]
        text = text[1 if special is None else len(SPECIALS[special]) :]
    return found


@pytest.mark.parametrize("choice", ["auto", "required"])
@pytest.mark.parametrize("turn", [THOUGHT + CALL, CALL, THOUGHT + ANSWER, ANSWER])
def test_a_turn_may_begin_with_the_analysis_channel(choice: str, turn: str) -> None:
    if choice == "required" and ANSWER in turn:
        pytest.skip("a call is required")
    spec = Thinking(ToolCalls(TOOLS, format="harmony", choice=choice), start=HARMONY.start, end=HARMONY.end)
    matcher = Compiler(VOCAB).compile(spec).matcher()
    for at, token in enumerate(ids(turn)):
        assert matcher.allows(token), (at, turn)
        matcher.advance(token)
    assert matcher.allows(256)
    turned = parse_turn(turn, format=wire_format("harmony"), reasoning=HARMONY)
    assert not turned.fault
    assert (turned.reasoning or "") == ("The path is < 3 words." if THOUGHT in turn else "")
    assert [call.name for call in turned.calls] == (["read"] if CALL in turn else [])
    assert turned.content.strip() == ("It is done." if ANSWER in turn else "")


def test_a_call_without_the_word_json_is_read() -> None:
    text = CALL.replace("<|constrain|>json", "")
    (call,) = parse_turn(text, format=wire_format("harmony")).calls
    assert (call.name, call.parsed) == ("read", {"path": "a"})


def test_the_markers_are_detected_from_the_template() -> None:
    template = "{{ '<|start|>assistant<|channel|>analysis<|message|>' ~ message.thinking ~ '<|end|>' }}"
    assert detect_reasoning(template) == HARMONY


REASONS = REASONING["think"]
NEW = ("qwen_coder", "glm", "minimax", "deepseek_v3", "deepseek_v31", "kimi", "mistral_id", "function_gemma", "gemma4")


@pytest.mark.parametrize("name", NEW)
def test_reasoning_comes_before_a_call_in_every_format(name: str) -> None:
    wire = wire_format(name)
    spec = Thinking(ToolCalls(TOOLS, format=name, choice="required"), start=REASONS.start, end=REASONS.end)
    text = f"<think>so\n</think>\n\n{written(wire, ('read', {'path': 'a'}))}"
    compiled = Compiler(Vocab.bytes()).compile(spec)
    assert compiled.accepts(text)
    turn = parse_turn(text, format=wire, reasoning=REASONS, types=ToolCalls(TOOLS, format=name).types)
    assert (turn.reasoning, [(one.name, one.parsed) for one in turn.calls]) == ("so", [("read", {"path": "a"})])
