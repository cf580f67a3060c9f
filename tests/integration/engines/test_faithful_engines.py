"""Faithful sampling with the demo model on both in-process engines: valid, weighed, the same alone and served."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

import espalier
from espalier.decoding.options import FAITHFUL
from espalier.engine_table import open_engine
from espalier.engines.base import FinishEvent
from espalier.engines.options import EngineOptions

pytestmark = pytest.mark.usefixtures("one_thread")

DEMO = Path(__file__).resolve().parents[3] / "models" / "demo"
SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ASKED = (
    ("Generate user info", {"constraint": espalier.JsonSchema(SCHEMA), "max_tokens": 48}),
    ("Name a colour", {"constraint": espalier.Choice(["red", "green", "blue"]), "num_return_sequences": 3}),
    ("Hi", {"max_tokens": 6, "trace": "off"}),
)
PARTICLES = 4


def transformers_engine():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    return open_engine(str(DEMO), options=EngineOptions(device="cpu", dtype="float32"))


def llamacpp_engine():
    pytest.importorskip("llama_cpp")
    options = EngineOptions(kv_type="f32", flash_attention="off", threads=1)
    return open_engine(str(DEMO / "demo.gguf"), options=options)


@pytest.fixture(scope="module", params=[transformers_engine, llamacpp_engine], ids=["transformers", "llamacpp"])
def eng(request):
    engine = espalier.LoadedEngine(request.param())
    yield engine
    engine.engine.close()


def made(eng, strategy):
    return [
        request
        for seed, (prompt, more) in enumerate(ASKED)
        for request in eng.requests(prompt, strategy=strategy, particles=PARTICLES, seed=seed, **more)[0]
    ]


def rounded(result):
    """What must be equal; logits of other batches differ in their last digits, and weights add them up."""
    weighing = result.weighing
    return [
        (one.text, one.token_ids, one.finish_reason, pytest.approx(one.weighing.log_weight, abs=1e-3))
        for one in (result, *result.others)
    ], (pytest.approx(weighing.ess, rel=1e-2), weighing.acceptance, weighing.resamplings)


@pytest.mark.parametrize("strategy", FAITHFUL)
def test_results_are_valid_and_the_same_alone_and_in_the_scheduler(eng, strategy):
    requests = made(eng, strategy)
    alone = [event.result for one in requests for event in eng.engine.run([one]) if isinstance(event, FinishEvent)]
    for result in alone:
        for one in (result, *result.others):
            assert one.weighing.particles == PARTICLES
            if one.weighing.log_weight > -math.inf and one.verdict is not None:
                assert one.verdict.valid
                assert one.finish_reason == "stop"
    assert [one.weighing.log_weight for one in alone][2] == 0.0  # no constraint
    served = eng.serve()
    runnings = [served.submit(request) for request in requests]
    results = [[*running][-1].result for running in runnings]
    served.close()
    assert [rounded(one) for one in results] == [rounded(one) for one in alone]


def test_weights_of_masked_texts_are_what_their_steps_lost(eng):
    result = eng.generate(
        "Name a colour",
        constraint=espalier.Choice(["red", "green", "blue"]),
        strategy="best_of",
        particles=PARTICLES,
        num_return_sequences=3,
        seed=1,
    )
    for one in (result, *result.others):
        lost = math.fsum(math.log(step.z_sampled) for step in one.trace.steps)
        assert one.weighing.log_weight == pytest.approx(lost, abs=1e-3)


def test_awrs_draws_the_same_whether_or_not_it_is_traced(eng):
    def told(trace):
        result = eng.generate(
            "Generate user info",
            constraint=espalier.JsonSchema(SCHEMA),
            strategy="awrs",
            particles=3,
            seed=2,
            max_tokens=48,
            trace=trace,
        )
        return result.token_ids, result.weighing

    assert told("off") == told("steps")
