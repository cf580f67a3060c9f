"""Reasoning of a model that shows markers, in Python: what holds for the thought, and who decides where it stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

import espalier
from espalier.api import make_request
from espalier.api.replaying import replay
from tests.thinking_engine import MARKERS, MODEL_OPENS, PROMPT_OPENS, thinking_engine

GREEDY = {"temperature": 0, "max_tokens": 300}


def test_allowed_ids_leave_no_tokens_to_reason_with():
    engine = thinking_engine("yes", PROMPT_OPENS)
    result = engine.generate("go", allowed_ids=[*b"yes", 256], **GREEDY)
    assert (result.content, result.reasoning) == ("yes", None)
    assert any("answers at once" in note for note in result.notes)


@pytest.mark.parametrize(
    "constraint",
    [
        espalier.Thinking(espalier.JsonObject()),
        espalier.After("</think>", espalier.JsonObject()),
        espalier.Regex(r"<think>[a-z ]*</think>\{\}"),
        espalier.Gbnf('root ::= "<think>" [a-z ]* "</think>{}"'),
    ],
)
def test_a_constraint_that_says_where_the_thought_stands_is_left_as_it_is(constraint):
    shown = "{% set end = '</think>' %}" + MODEL_OPENS
    result = thinking_engine("<think>hm</think>{}", shown).generate("go", constraint=constraint, **GREEDY)
    assert (result.text, result.reasoning, result.content) == ("<think>hm</think>{}", "hm", "{}")
    assert result.verdict.valid is not False


@pytest.mark.parametrize("specials", [(), MARKERS])
def test_a_filter_alone_takes_no_marker_away(specials):
    engine = thinking_engine("<think>hm</think>Hello", "{% set end = '</think>' %}" + MODEL_OPENS, specials=specials)
    for asked in ({"safety": "minimal"}, {"bad_words": ["zebra"]}):
        result = engine.generate("go", **asked, **GREEDY)
        assert (result.reasoning, result.content) == ("hm", "Hello")


@pytest.mark.parametrize("strategy", ["mask", "jump", "beam", "draft"])
def test_stop_texts_leave_the_reasoning_whole_under_every_strategy(strategy):
    engine = thinking_engine("a four b</think>The four.", PROMPT_OPENS, specials=MARKERS)
    more = {"num_beams": 2} if strategy == "beam" else {}
    result = engine.generate("go", strategy=strategy, stop=["four"], **GREEDY, **more)
    assert (result.reasoning, result.content, result.stop_reason) == ("a four b", "The ", "four")
    assert result.usage.reasoning_tokens == len("a four b") + 1


def test_a_continued_message_is_content():
    engine = thinking_engine("42", PROMPT_OPENS)
    request = make_request([{"role": "user", "content": "go"}, {"role": "assistant", "content": "It is "}])
    run = engine.engine.run([replace(request, turn="continue", sampling=request.sampling.changed(temperature=0.0))])
    result = list(run)[-1].result
    assert (result.content, result.reasoning) == ("42", None)


def test_a_replay_of_a_thinking_run_stops_where_the_run_stopped():
    engine = thinking_engine("a four b</think>The four.", PROMPT_OPENS, specials=MARKERS)
    result = engine.generate("go", stop=["four"], trace="steps", **GREEDY)
    replayed = replay(result.trace, engine=engine)
    assert replayed.is_same
    assert replayed.trace.text == result.text
