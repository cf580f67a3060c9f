"""`on_budget` of a request: closed, cut or refused, under every strategy and both drivers; what the result says."""

from __future__ import annotations

import json
import random
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import espalier
from espalier import Choice, JsonSchema, Regex, Vocab
from espalier.api import make_request
from espalier.constraints.kinds import JsonSchemaKind
from espalier.decoding.strategies import STRATEGIES
from espalier.engines.base import FinishEvent, TokenEvent
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.local.engine import LocalEngine
from espalier.errors import BudgetExceeded, CapabilityError, InputError, NotAvailable, UnsupportedError
from tests.examples import examples
from tests.schema_fuzz import Maker

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "tags": {"type": "array"}},
    "required": ["name"],
    "additionalProperties": False,
}
FREE = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0, "temperature": 1.0}


def engine(**more) -> LocalEngine:
    """Says anything."""
    vocab = Vocab.bytes()
    model = FakeStepModel(lambda tokens: noise(tokens, vocab.width), width=vocab.width, **more)
    return LocalEngine(name="noise", model=model, vocab=vocab, encode=lambda text, *, add_special: [*text.encode()])


ENGINE = engine()


def events(constraint, max_tokens, on_budget="close", eng=ENGINE, **more):
    request = make_request(
        "x", constraint=constraint, max_tokens=max_tokens, on_budget=on_budget, raw=True, **{"seed": 1, **FREE, **more}
    )
    return list(eng.run([request]))


def result(*args, **more):
    return events(*args, **more)[-1].result


def test_a_closed_text_is_whole_and_says_that_the_limit_closed_it():
    found = result(JsonSchema(SCHEMA), 20)
    assert found.finish_reason == "length"
    assert found.closed_by_budget
    assert found.verdict.valid is True
    assert found.parsed == json.loads(found.text)
    assert len(found.token_ids) <= 20
    assert found.trace.closed_by_budget
    assert found.trace.decoding["on_budget"] == "close"
    assert any(dict(step.removed_by).get("budget", 0) > 0 for step in found.trace.steps)


def test_what_the_model_wanted_and_the_limit_refused_is_blamed_on_it():
    eng = espalier.load("fake")  # it wants a long name
    found = eng.generate("x", constraint=JsonSchema(SCHEMA), max_tokens=16, on_budget="close", temperature=0)
    blamed = [step.blame for step in found.trace.steps if step.blame is not None and step.blame.member == "budget"]
    assert blamed
    assert blamed[-1].reason.endswith("would be left")
    assert found.parsed["name"] in "Ada Lovelace"


def test_a_text_that_ends_before_the_limit_matters_is_that_of_truncate():
    for constraint in (Regex("[a-z]{3}"), Choice(["yes", "no"])):
        for seed in range(5):
            closed, cut = (result(constraint, 200, kind, seed=seed) for kind in ("close", "truncate"))
            assert closed.token_ids == cut.token_ids
            assert closed.finish_reason == cut.finish_reason == "stop"
            assert not closed.closed_by_budget


def test_truncate_cuts_and_error_raises_after_the_events():
    cut = result(Regex("x{9}"), 4, "truncate")
    assert (cut.text, cut.finish_reason, cut.verdict.valid, cut.closed_by_budget) == ("xxxx", "length", False, False)
    request = make_request("x", constraint=Regex("x{9}"), max_tokens=4, on_budget="error", raw=True, **FREE)
    running = ENGINE.run([request])
    assert [type(next(running)) for _ in range(4)] == [TokenEvent] * 4
    with pytest.raises(BudgetExceeded, match="complete after 4 tokens; the shortest end known takes 6 more") as told:
        next(running)
    assert told.value.field == "max_tokens"
    assert ENGINE.model.live == 0


def test_error_lets_through_what_is_complete():
    assert result(Regex("x{3}"), 3, "error").verdict.valid is True  # complete, its EOS was not taken
    assert result(Regex("x{3}"), 4, "error").finish_reason == "stop"


def test_what_cannot_be_closed_is_refused_before_the_model_is_asked(monkeypatch):
    for kind in ("close", "error"):
        with pytest.raises(InputError, match="needs a constraint") as told:
            events(None, 10, kind)
        assert told.value.field == "on_budget"
    with pytest.raises(InputError, match="fits in 11 tokens: the shortest known takes 12") as told:
        events(JsonSchema(SCHEMA), 11)
    assert told.value.field == "max_tokens"
    for bans in ({"allowed_ids": [*range(257)]}, {"logit_bias": {"x": -float("inf")}}):
        with pytest.raises(CapabilityError, match="bans tokens") as told:
            events(Regex("x{9}"), 20, **bans)
        assert told.value.field == "on_budget"

    def no_automaton(kind, spec, compiler):
        raise NotAvailable("there is no automaton")

    monkeypatch.setattr(JsonSchemaKind, "compile", no_automaton)
    with pytest.raises(CapabilityError, match="with this constraint: there is no automaton") as told:
        events(JsonSchema({"type": "string", "maxLength": 77}), 20)
    assert told.value.field == "on_budget"


def test_the_room_that_the_context_leaves_is_the_limit_where_it_is_smaller():
    small = engine(max_positions=16)
    found = result(JsonSchema(SCHEMA), 500, eng=small)
    assert found.verdict.valid is True
    assert len(found.token_ids) <= 16
    with pytest.raises(InputError, match="fits in 11 tokens"):
        events(JsonSchema(SCHEMA), 500, eng=engine(max_positions=11))


def test_a_stop_text_ends_a_closed_text_where_it_is_met():
    found = result(JsonSchema(SCHEMA), 20, stop=['"na'])
    assert (found.text, found.finish_reason, found.verdict.valid) == ("{", "stop", False)
    assert not found.closed_by_budget


def test_min_tokens_does_not_keep_a_text_open_past_the_limit():
    found = result(Regex("x*"), 8, min_tokens=8)
    assert found.text == "x" * 7
    assert found.closed_by_budget


@pytest.mark.parametrize("strategy", STRATEGIES.names())
@pytest.mark.parametrize("constraint", [JsonSchema(SCHEMA), Regex("a{2,5}b|b{3,40}"), Choice(["no", "nothing at all"])])
def test_every_strategy_closes_in_time_alone_and_served(strategy, constraint):
    least = len(ENGINE.compiler.compile(constraint).matcher().shortest_completion())
    requests = [
        make_request(
            "x",
            constraint=constraint,
            max_tokens=least + more,
            on_budget="close",
            strategy=strategy,
            raw=True,
            **FREE,
            seed=more,
        )
        for more in (0, 1, 7)
    ]
    alone = [[*ENGINE.run([request])][-1].result for request in requests]
    for request, found in zip(requests, alone, strict=True):
        for one in (found, *found.others):
            assert one.verdict.valid is True, (strategy, one.text)
            assert len(one.token_ids) <= request.sampling.max_tokens
    with closing(espalier.LoadedEngine(engine()).serve()) as served:
        runnings = [served.submit(request) for request in requests]
        results = [[*running][-1].result for running in runnings]
    assert [(one.text, one.finish_reason, one.closed_by_budget) for one in results] == [
        (one.text, one.finish_reason, one.closed_by_budget) for one in alone
    ]


@settings(deadline=None, max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(st.integers(0, 10**6), st.integers(0, 12), st.sampled_from(STRATEGIES.names()))
def test_random_schemas_close_in_time_under_every_strategy(seed, more, strategy):
    schema = Maker(random.Random(seed), depth=2).document()
    try:
        least = len(ENGINE.compiler.compile(JsonSchema(schema)).matcher().shortest_completion())
    except (InputError, UnsupportedError):
        return  # not enforced, or no value satisfies it
    found = result(JsonSchema(schema), least + more, strategy=strategy, seed=seed)
    assert found.verdict.valid is True, (schema, found.text)
    assert len(found.token_ids) <= least + more


@settings(deadline=None, max_examples=examples(60), suppress_health_check=list(HealthCheck))
@given(st.from_regex(r"\A([ab](\{1,3\}|\*|\?)?|\((a|ab|b{2})\)){1,5}\Z"), st.integers(0, 6), st.integers(0, 99))
def test_random_expressions_close_in_time(pattern, more, seed):
    constraint = Regex(pattern)
    least = len(ENGINE.compiler.compile(constraint).matcher().shortest_completion())
    (*_, last) = events(constraint, least + more, seed=seed, strategy="mask")
    assert isinstance(last, FinishEvent)
    assert last.result.verdict.valid is True
    assert len(last.result.token_ids) <= least + more
