"""A run gone through once more: it reproduces itself, and says where another constraint would have parted from it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import espalier
from espalier.api.loaded import LoadedEngine
from espalier.api.replaying import has_distributions, replay
from espalier.constraints.spec import Choice, JsonObject, JsonSchema, Regex
from espalier.decoding.replay import restored, rounding_error
from espalier.errors import CapabilityError, InputError, UnknownName
from espalier.sampling.draw import RandomStream
from espalier.trace.records import Trace
from espalier.trace.sidecar import distribution
from espalier.wiring import demo_model

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 12}, "age": {"type": "integer", "maximum": 150}},
    "required": ["name", "age"],
}
SAMPLINGS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "usual": {"seed": 3},
    "xtc": {"seed": 4, "xtc_probability": 0.5, "xtc_threshold": 0.05},
    "mirostat": {"seed": 5, "mirostat": 2, "repetition_penalty": 1.3},
    "open": {"seed": 6, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 1.5, "frequency_penalty": 0.3},
    "dry": {"seed": 7, "dry_multiplier": 0.8, "min_tokens": 3, "temperature": 1.2},
}


@pytest.fixture(scope="module", params=["fake", "llama.cpp"])
def engine(request: pytest.FixtureRequest) -> Iterator[LoadedEngine]:
    name = "fake"
    if request.param == "llama.cpp":
        pytest.importorskip("llama_cpp")
        name = str(demo_model() / "demo.gguf")
    with espalier.load(name) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def fake() -> Iterator[LoadedEngine]:
    with espalier.load("fake") as loaded:
        yield loaded


def a_trace(engine: LoadedEngine, **options: Any) -> Trace:
    given = {"constraint": JsonSchema(SCHEMA), "max_tokens": 40, "trace": "full"} | options
    found = engine.generate("Ada Lovelace", **given).trace
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("sampling", "strategy"),
    [
        ("greedy", "mask"),
        ("usual", "rejection"),
        ("xtc", "mask"),
        ("xtc", "rejection"),
        ("mirostat", "mask"),
        ("mirostat", "rejection"),
        ("open", "rejection"),
        ("dry", "mask"),
    ],
)
def test_a_run_under_its_own_constraint_comes_out_the_same(
    engine: LoadedEngine, sampling: str, strategy: str, tmp_path: Path
) -> None:
    reproduces(engine, SAMPLINGS[sampling], strategy, tmp_path)


def test_transformers_reproduces_its_runs(tmp_path: Path, demo_engine: LoadedEngine) -> None:
    reproduces(demo_engine, SAMPLINGS["xtc"], "rejection", tmp_path)
    reproduces(demo_engine, SAMPLINGS["mirostat"], "mask", tmp_path)


def reproduces(engine: LoadedEngine, sampling: dict[str, Any], strategy: str, tmp_path: Path) -> None:
    trace = a_trace(engine, strategy=strategy, **sampling)
    trace.save(tmp_path / "t.json")
    stored = Trace.load(tmp_path / "t.json")
    found = replay(stored, engine=engine)
    assert found.is_own
    assert found.is_exact, found.to_json()
    assert [one.to_json() for one in found.trace.steps] == [one.to_json() for one in trace.steps]
    # Half precision: the same tokens without a model, and taxes that differ by its error alone.
    rounded = replay(stored, vocab=engine.vocab)
    assert rounded.is_same, rounded.to_json()
    assert rounded.source == "distributions"
    assert rounded.replayed is not None
    assert all(abs(one.tax - one.stored_tax) < 0.02 for one in rounded.replayed.steps)


@pytest.mark.parametrize("strategy", ["jump", "beam", "best_of", "smc", "awrs"])
def test_a_strategy_that_takes_no_single_steps_is_run_afresh_and_compared(engine: LoadedEngine, strategy: str) -> None:
    trace = a_trace(engine, strategy=strategy, seed=1, trace="steps")
    found = replay(trace, engine=engine)
    assert found.replayed is None
    assert found.is_same, found.diff.lines()
    assert found.trace.text == trace.text
    with pytest.raises(InputError, match=r"every step's distribution"):
        replay(trace, vocab=engine.vocab)


def test_what_the_stored_distributions_cannot_tell_needs_the_model(fake: LoadedEngine) -> None:
    with pytest.raises(CapabilityError, match=r"jump does not follow the stored tokens .* needs the model"):
        replay(a_trace(fake, seed=1), vocab=fake.vocab, strategy="jump")


def test_another_constraint_refuses_the_stored_token_and_says_why(fake: LoadedEngine) -> None:
    trace = a_trace(fake, constraint=Choice(("red", "green")), seed=1, temperature=0)
    other = "green" if trace.text == "red" else "red"
    found = replay(trace, engine=fake, constraint=Choice((other,)))
    replayed = found.replayed
    assert replayed is not None
    assert (replayed.steps, replayed.is_whole, found.is_same) == ((), False, False)
    first = replayed.first
    assert first is not None
    assert first is replayed.end
    assert (first.step, first.is_refused, first.drawn_text) == (0, True, other[0])
    assert first.blame is not None
    assert first.blame.member == "choice"


def test_a_wider_constraint_goes_on_after_another_draw_and_costs_less(fake: LoadedEngine) -> None:
    trace = a_trace(fake, constraint=Regex(r"[a-z]{8}"), seed=1)
    found = replay(trace, engine=fake, constraint=Regex(r"(?s:.*)"))
    replayed = found.replayed
    assert replayed is not None
    assert replayed.is_whole
    assert replayed.first is not None
    assert not replayed.first.is_refused
    assert replayed.end is None
    assert replayed.tax < replayed.stored_tax
    assert found.trace.text == trace.text
    assert [one.token_id for one in found.trace.steps] == [one.token_id for one in trace.steps]
    # Of the stored token, not of the drawn one: the model's own probability does not depend on the constraint.
    for then, now in zip(trace.steps, found.trace.steps, strict=True):
        assert now.logprob == pytest.approx(then.logprob)


def test_the_cost_under_another_constraint_is_that_of_its_masks(fake: LoadedEngine) -> None:
    trace = a_trace(fake, seed=2)
    found = replay(trace, vocab=fake.vocab, constraint=JsonObject())
    compiled = espalier.compile(JsonObject(), vocab=fake.vocab)
    matcher = compiled.matcher()
    assert found.replayed is not None
    assert found.replayed.steps
    for step, now in zip(trace.steps, found.replayed.steps, strict=False):
        assert step.distribution is not None
        probs = step.distribution.probs()
        allowed = sum(probs[t] for t in range(fake.vocab.width) if matcher.allows(t))
        assert now.tax == pytest.approx(-np.log(allowed), abs=1e-3)
        matcher.advance(step.token_id)


def test_another_strategy_is_a_question_of_its_own(fake: LoadedEngine) -> None:
    trace = a_trace(fake, seed=3)
    found = replay(trace, engine=fake, strategy="rejection")
    assert not found.is_own
    assert found.trace.strategy == "rejection"
    assert found.replayed is not None
    assert any(one.was_rejected for one in found.trace.steps)
    assert found.replayed.tax == pytest.approx(found.replayed.stored_tax)
    with pytest.raises(UnknownName, match="nope"):
        replay(trace, engine=fake, strategy="nope")


@pytest.mark.parametrize("is_greedy", [True, False])
def test_a_draw_that_only_half_precision_moves_is_within_rounding(fake: LoadedEngine, is_greedy: bool) -> None:
    sampling: dict[str, Any] = {"temperature": 0.0 if is_greedy else 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    trace = a_trace(fake, constraint=Regex("[ab]{3}"), seed=11, repetition_penalty=1.0, **sampling)
    step = trace.steps[0]
    assert step.distribution is not None
    a, b = ord("a"), ord("b")
    other = b if step.token_id == a else a
    # Where the two change over: at equal logits, or where the share of the first is the number that is drawn.
    place = RandomStream(11).next()
    border = 0.0 if is_greedy else math.log(place / (1 - place))
    grid = 2.0**-10  # of a float16 from 1 to 2
    for away, is_near in ((0, True), (8, False)):
        steps = math.floor(border / grid) + (1 + away if other == a else -away)
        if is_greedy:
            steps = (1 + away) * (1 if other == a else -1)
        logits = step.distribution.logits.copy()
        logits[b] = np.float16(-1.5)
        logits[a] = np.float16(-1.5 + steps * grid)
        assert -2 < logits[a] < -1
        assert float(logits[a]) == -1.5 + steps * grid
        changed = replace(trace, steps=(replace(step, distribution=step.distribution._replace(logits=logits)),))
        found = replay(changed, vocab=fake.vocab).replayed
        assert found is not None
        assert found.steps[0].drawn == other
        assert found.steps[0].is_rounding is is_near
        assert (found.first is None) is is_near


def test_half_precision_stays_within_the_stated_error() -> None:
    random = np.random.default_rng(0)
    for scale in (0.01, 1.0, 8.0, 300.0):
        raw = (random.standard_normal(4096) * scale + 40).astype(np.float32)
        raw[:5] = -np.inf
        back = restored(distribution(raw, None))
        error = rounding_error(back)
        assert np.all(np.isneginf(back[:5]))
        assert np.all(np.abs(back[5:].astype(np.float64) - raw[5:]) <= error[5:])


def test_what_cannot_be_gone_through_is_refused_by_name(fake: LoadedEngine) -> None:
    trace = a_trace(fake, seed=1)
    assert has_distributions(trace)
    with pytest.raises(InputError, match="kept no steps"):
        replay(a_trace(fake, trace="summary"), engine=fake)
    with pytest.raises(InputError, match=r"filters of your own \(mine\)"):
        replay(replace(trace, setup={**trace.setup, "filters": ["mine"]}), engine=fake)
    with pytest.raises(InputError, match="another vocabulary"):
        replay(trace, vocab=replace(fake.vocab, tokens=fake.vocab.tokens[::-1]))
    with pytest.raises(InputError, match="a model, or the vocabulary"):
        replay(trace)


def test_the_names_of_filters_are_in_the_trace(fake: LoadedEngine) -> None:
    class Mine:
        name, priority = "mine", 0

        def apply(self, logits: Any, context: Any) -> Any:
            return logits

        def on_token(self, token: int) -> None: ...

        def rollback(self, count: int) -> None: ...

        def fork(self) -> Mine:
            return self

    trace = a_trace(fake, filters=[Mine()], seed=1)
    with pytest.raises(InputError, match="cannot hold code"):
        replay(Trace.from_json(trace.to_json()), engine=fake)


def test_a_closed_text_and_one_of_several_outputs_reproduce_too(fake: LoadedEngine) -> None:
    wide = JsonSchema({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]})
    closed = a_trace(fake, constraint=wide, on_budget="close", max_tokens=12, seed=2)
    assert closed.closed_by_budget
    assert replay(closed, engine=fake).is_exact
    open_ = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "temperature": 3.0}
    results: Any = fake.generate("Ada", constraint=Regex("[a-z]{8}"), n=3, seed=9, **open_)
    traces = [one.trace for one in results if one.trace is not None]
    assert len({one.text for one in traces}) > 1
    assert all(replay(one, engine=fake).is_exact for one in traces)


def test_a_trace_of_before_still_loads_and_replays(fake: LoadedEngine) -> None:
    old = a_trace(fake, seed=1, trace="steps").to_json()
    del old["metadata"]["prompt_ids"], old["metadata"]["setup"]
    trace = Trace.from_json(old)
    assert (trace.prompt_ids, trace.setup) == ((), {})
    assert replay(trace, engine=fake).is_exact


def test_a_marker_in_the_prompt_is_found_again(fake: LoadedEngine) -> None:
    spec = espalier.After("<a>", Regex("[0-9]{4}"))
    trace = a_trace(fake, constraint=spec, raw=True, seed=1)
    found = fake.generate("go <a>", constraint=spec, raw=True, seed=1, max_tokens=20).trace
    assert found is not None
    assert found.text.strip().isdigit()
    assert not trace.text.strip().isdigit()
    assert replay(found, engine=fake).is_exact
    assert replay(trace, engine=fake).is_exact


def test_a_run_that_closes_under_its_limit_replays_with_its_rules_and_blame(fake: LoadedEngine) -> None:
    trace = a_trace(fake, on_budget="close", max_tokens=32, seed=3)
    assert trace.closed_by_budget
    assert any(one.blame is not None and one.blame.member == "budget" for one in trace.steps)
    assert trace.by_rule()
    for found in (replay(trace, engine=fake), replay(trace, vocab=fake.vocab)):
        assert found.is_own
        assert found.is_same
        assert [one.rule for one in found.trace.steps] == [one.rule for one in trace.steps]
        assert [one.blame for one in found.trace.steps] == [one.blame for one in trace.steps]
        assert [one.tax_nats for one in found.trace.steps] == pytest.approx(
            [one.tax_nats for one in trace.steps], abs=0.02
        )
        assert (found.trace.by_rule() or {}).keys() == (trace.by_rule() or {}).keys()
    exact = replay(trace, engine=fake)
    assert exact.is_exact
    assert exact.trace.by_rule() == trace.by_rule()
    assert [one.to_json() for one in exact.trace.steps] == [one.to_json() for one in trace.steps]


def test_a_reasoning_limit_with_ignore_eos_replays_and_a_new_constraint_does_not(fake: LoadedEngine) -> None:
    trace = a_trace(fake, constraint=None, ignore_eos=True, reasoning="think", max_reasoning=5, seed=3)
    assert replay(trace, engine=fake).is_exact
    with pytest.raises(InputError, match="ignore_eos cannot be combined"):
        replay(trace, engine=fake, constraint=Regex("[a-z]+"))
