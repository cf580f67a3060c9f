"""Every number of a StepRecord, for a model of known distribution, against the definitions written out in the test."""

from __future__ import annotations

import math

import numpy as np
import pytest

from espalier import SamplingConfig, Vocab
from espalier.decoding.step.decide import decide, decide_late
from espalier.decoding.step.record import Watch
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.filters import FilterContext
from espalier.sampling.fit import fit
from espalier.tokens import mask as masks

VOCAB = Vocab.from_tokens([b"a", b"b", b"c", b"d", b"e", b"f", b""], eos_ids=[6])
WIDTH = 7
MODELS = {
    "spread": [0.22, 0.07, 0.31, 0.11, 0.04, 0.17, 0.08],
    "sure": [0.001, 0.9, 0.05, 0.03, 0.012, 0.004, 0.003],
    "far below": [0.25, 0.25 + 1e-3, 0.2, 0.3 - 2e-3, 1e-3 - 1e-9 - 1e-15, 1e-9, 1e-15],
}
SETS = [{0, 2, 6}, {1}, {4, 5}, {5, 6}, {0, 1, 2, 3, 4, 5, 6}, {3, 4}]
CONTEXT = FilterContext(step=3, prompt=(), generated=())
TEMPERATURE, BIAS = 0.8, {2: 1.5, 4: -0.5}


def made(model, inside, seed, strategy, top_k=3, temperature=TEMPERATURE):
    row = np.array([math.log(p) for p in MODELS[model]], dtype=np.float32)
    config = SamplingConfig(
        temperature=temperature, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0, logit_bias=BIAS
    )
    mask = masks.from_ids(sorted(inside), WIDTH)
    more = {
        "vocab": VOCAB,
        "chain": Chain(config, fitted=fit(config, VOCAB, list)),
        "stream": RandomStream(seed),
        "context": CONTEXT,
        "watch": Watch("full", top_k),
    }
    if strategy == "mask":
        return row, decide(row, mask, **more)
    return row, decide_late(row, lambda: mask, lambda token: masks.test(mask, token), **more)


def shares(values):
    """The softmax, of Python's own floats."""
    best = max(values.values())
    weights = {token: math.exp(value - best) for token, value in values.items()}
    total = math.fsum(weights.values())
    return {token: weight / total for token, weight in weights.items()}


@pytest.mark.parametrize("strategy", ["mask", "rejection"])
@pytest.mark.parametrize("model", MODELS)
def test_every_number_is_the_one_computed_by_hand(model, strategy):
    for inside in SETS:
        for seed in range(6):
            row, found = made(model, inside, seed, strategy)
            record, token = found.record, found.token
            logits = {t: float(value) for t, value in enumerate(row)}
            p = shares(logits)
            z = math.fsum(p[t] for t in inside)
            q = {t: p[t] / z for t in inside}
            biased = {t: float(np.float32(logits[t]) + np.float32(BIAS.get(t, 0.0))) for t in logits}
            warm = {t: value / TEMPERATURE for t, value in biased.items()}
            free, held = shares(warm), shares({t: warm[t] for t in inside})
            ranked = sorted(p, key=lambda t: (-logits[t], t))

            assert (record.step, record.token_id) == (3, token)
            assert record.text == ("abcdef" + "x")[token] or token == 6
            assert record.bytes == (b"" if token == 6 else b"abcdef"[token : token + 1])
            assert record.is_special == (token == 6)
            assert record.logprob == pytest.approx(math.log(p[token]), abs=1e-9)
            assert record.allowed_count == len(inside)
            assert record.removed_mass == pytest.approx(math.fsum(p[t] for t in p if t not in inside), abs=1e-12)
            assert record.tax_nats == pytest.approx(-math.log(z), abs=1e-9)
            kl = math.fsum(q[t] * math.log(q[t] / p[t]) for t in inside)
            assert record.tax_nats == pytest.approx(kl, abs=1e-9)
            assert record.z_sampled == pytest.approx(math.fsum(free[t] for t in inside), rel=1e-5)
            assert record.entropy_before == pytest.approx(-math.fsum(v * math.log(v) for v in p.values()), abs=1e-9)
            assert record.entropy_after == pytest.approx(-math.fsum(v * math.log(v) for v in q.values()), abs=1e-9)
            assert record.was_changed == (ranked[0] not in inside)
            assert record.is_changed == record.was_changed
            assert not record.was_forced
            assert record.exactness == "exact"

            rejected = None if record.rejected is None else record.rejected.id
            kept = {token} | ({rejected} if rejected is not None else set())
            wanted = ranked[:3] + sorted(kept - set(ranked[:3]), key=lambda t: t != token)
            assert [c.id for c in record.pre_masking] == wanted
            best = [t for t in ranked if t in inside][:3]
            assert [c.id for c in record.post_grammar] == best + [token] * (token not in best)
            for stage, law in ((record.pre_masking, p), (record.post_grammar, q)):
                for one in stage:
                    assert one.prob == pytest.approx(law[one.id], rel=1e-9)
                    assert one.logit == logits[one.id]
                    assert one.allowed == (one.id in inside)
                    assert one.text == VOCAB.text_of(one.id)
            was_free = strategy == "rejection" and rejected is None
            law = free if was_free else held
            order = sorted(law, key=lambda t: (-law[t], t))[:3]
            assert [c.id for c in record.post_chain] == order + [token] * (token not in order)
            for one in record.post_chain:
                assert one.prob == pytest.approx(law[one.id], rel=1e-5)  # logits after the chain are float32
                assert one.logit == pytest.approx(warm[one.id], rel=1e-6)
            assert record.resampled.prob == found.prob == pytest.approx(law[token], rel=1e-5)
            assert record.was_rejected == (rejected is not None)
            if rejected is not None:
                assert rejected not in inside
                assert record.rejected.prob == pytest.approx(free[rejected], rel=1e-5)
                assert record.rejected.logit == pytest.approx(warm[rejected], rel=1e-6)


def test_masses_that_sum_to_one_are_the_same_sum_of_stages():
    for model in MODELS:
        _, found = made(model, {0, 2, 6}, 1, "mask", top_k=7)
        for stage in (found.record.pre_masking, found.record.post_grammar, found.record.post_chain):
            assert math.fsum(one.prob for one in stage) == pytest.approx(1.0, abs=1e-9)


def test_the_lists_of_a_step_are_settled_with_it_and_not_when_they_are_looked_at():
    row = np.array([math.log(p) for p in MODELS["spread"]], dtype=np.float32)
    config = SamplingConfig(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0)
    more = {"vocab": VOCAB, "chain": Chain(config), "context": CONTEXT, "watch": Watch("full", 4)}
    one, two = (
        decide(row.copy(), masks.from_ids([0, 2, 6], WIDTH), stream=RandomStream(5), **more).record for _ in range(2)
    )
    seen = [list(two.pre_masking), list(two.post_grammar), list(two.post_chain)]
    scratch = row.copy()
    three = decide(scratch, masks.from_ids([0, 2, 6], WIDTH), stream=RandomStream(5), **more).record
    scratch[:] = -5.0  # the model's next pass
    assert one == two == three
    assert [list(three.pre_masking), list(three.post_grammar), list(three.post_chain)] == seen
