"""What another constraint would have cost, estimated from kept candidates without the model: held against the model's
whole distributions and the masks of its own tokens."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest

import espalier
from espalier.constraints.compiler import Compiler
from espalier.harness.compare.estimating import StepEstimate, _steps, estimated
from espalier.tokens import mask as masks
from espalier.tokens.vocab import Vocab
from espalier.trace.records import Trace
from espalier.wiring import demo_model


def schema(*, units: tuple[str, ...] = ("piece", "kg"), required: tuple[str, ...] = ("unit", "count"), least: int = 0):
    return espalier.JsonSchema(
        {
            "type": "object",
            "properties": {
                "unit": {"enum": [*units]},
                "count": {"type": "integer", "minimum": least},
                "note": {"type": "string", "maxLength": 8},
            },
            "required": [*required],
            "additionalProperties": False,
        }
    )


HALF = 0.01
"""What half precision of a logit below -8 makes of a tax, in nats."""
ASKED = schema()
OTHERS = {
    "the same": ASKED,
    "a value more": schema(units=("piece", "kg", "pcs", "user")),
    "optional": schema(required=()),
    "tighter": schema(least=100),
    "other whitespace": espalier.JsonSchema(ASKED.schema, whitespace="compact"),
    "anything": espalier.JsonObject(),
}


@pytest.fixture(scope="module")
def engine() -> Iterator[espalier.LoadedEngine]:
    with espalier.load(str(demo_model())) as loaded:
        yield loaded


@pytest.fixture(scope="module")
def traces(engine: espalier.LoadedEngine) -> list[Trace]:
    results = [
        engine.generate("Generate an item", constraint=ASKED, seed=seed, max_tokens=40, trace="full", top_k=0)
        for seed in range(3)
    ]
    return [result.trace for result in results if result.trace is not None]


def replayed(trace: Trace, other: espalier.Spec) -> list[StepEstimate]:
    compiler = Compiler(Vocab.bytes())
    own, changed = (compiler.compile(spec).matcher() for spec in (ASKED, other))
    return list(_steps(trace, own, changed))


def test_what_changes_nothing_at_the_steps_that_are_known_is_not_lower(traces: list[Trace]) -> None:
    for name in ("the same", "tighter", "other whitespace"):
        assert not estimated(traces, ASKED, OTHERS[name]).is_lower, name


@pytest.mark.parametrize("name", OTHERS)
def test_the_true_tax_of_each_step_is_within_the_bounds(
    engine: espalier.LoadedEngine, traces: list[Trace], name: str
) -> None:
    compiler = Compiler(engine.vocab)
    for trace in traces:
        estimates = replayed(trace, OTHERS[name])
        matcher = compiler.compile(OTHERS[name]).matcher()
        for number, step in enumerate(trace.steps):
            if not matcher.allows(step.token_id):
                assert len(estimates) == number, "nothing is known from the first token on that is refused"
                break
            assert step.distribution is not None
            probs = step.distribution.probs()
            tax = -math.log(float(probs[masks.unpack(matcher.mask(), probs.shape[0])].sum()))
            low, high = estimates[number].low, estimates[number].high
            assert low - HALF <= tax <= high + HALF, (name, number, step.text)
            assert low <= estimates[number].estimate <= high
            matcher.advance(step.token_id)
        else:
            assert len(estimates) == len(trace.steps)


def test_the_same_constraint_is_estimated_to_cost_what_it_did(traces: list[Trace]) -> None:
    estimate = estimated(traces, ASKED, ASKED)
    assert estimate.steps == estimate.all_steps == sum(len(trace.steps) for trace in traces)
    assert math.isclose(estimate.estimate, estimate.was, rel_tol=1e-5)
    assert math.isclose(estimate.was, sum(trace.total_tax_nats for trace in traces), rel_tol=1e-9)
    assert not estimate.is_lower


def test_what_allows_more_is_estimated_to_cost_less(traces: list[Trace]) -> None:
    estimate = estimated(traces, ASKED, espalier.JsonObject())
    assert 0 <= estimate.low <= estimate.estimate < estimate.was
    assert estimate.is_lower == (estimate.high < estimate.was - 1e-3)


def test_traces_without_steps_are_left_aside(engine: espalier.LoadedEngine) -> None:
    result = engine.generate("Generate an item", constraint=ASKED, seed=1, max_tokens=8, trace="summary")
    assert result.trace is not None
    estimate = estimated([result.trace], ASKED, ASKED)
    assert (estimate.answers, estimate.steps) == (0, 0)
    assert estimate.to_json()["tax_per_answer"]["was"] is None
