"""The stages and masses of one step, against the definitions of the design, section 4."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier import SamplingConfig, Vocab
from espalier.decoding.step import Watch, decide
from espalier.errors import BadLogits, DeadEnd
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.filters import FilterContext, Priority
from espalier.tokens import mask as masks

VOCAB = Vocab.from_tokens([bytes([65 + i]) for i in range(12)] + [b""], eos_ids=[12])
CONTEXT = FilterContext(step=0, prompt=(), generated=())
PLAIN = SamplingConfig(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)

rows = st.lists(st.floats(-8, 8, width=32), min_size=13, max_size=13).map(lambda r: np.array(r, dtype=np.float32))
allowed_sets = st.sets(st.integers(0, 12), min_size=1)


def step(row, allowed=None, config=PLAIN, filters=(), watch=None, vocab=VOCAB, seed=0):
    mask = None if allowed is None else masks.from_ids(sorted(allowed), vocab.width)
    return decide(
        row, mask, vocab=vocab, chain=Chain(config, filters), stream=RandomStream(seed), context=CONTEXT,
        watch=watch or Watch("full", 5),
    )  # fmt: skip


def softmax(row):
    values = row.astype(np.float64)
    weights = np.exp(values - values.max())
    return weights / weights.sum()


@given(rows, allowed_sets)
def test_removed_mass_tax_and_entropies_are_what_the_design_says(row, allowed):
    record = step(row, allowed).record
    p = softmax(row)
    inside = sorted(allowed)
    z = float(p[inside].sum())
    q = p[inside] / z
    kl = float(np.sum(q * (np.log(q) - np.log(p[inside]))))
    assert record.removed_mass == pytest.approx(1 - z, abs=1e-9)
    assert record.tax_nats == pytest.approx(-math.log(z), abs=1e-9)
    assert record.tax_nats == pytest.approx(kl, abs=1e-9)  # the tax is KL(q || p)
    assert record.entropy_before == pytest.approx(float(-np.sum(p * np.log(p))), abs=1e-9)
    assert record.entropy_after == pytest.approx(float(-np.sum(q * np.log(q))), abs=1e-9)
    assert record.allowed_count == len(allowed)
    assert record.logprob == pytest.approx(math.log(p[record.token_id]), abs=1e-6)


@given(rows, allowed_sets, st.floats(0.2, 3.0))
def test_z_sampled_is_the_allowed_mass_after_temperature_and_before_truncation(row, allowed, temperature):
    config = SamplingConfig(temperature=temperature, top_k=2, top_p=0.5, min_p=0.2)
    expected = float(softmax(row / np.float32(temperature))[sorted(allowed)].sum())
    assert step(row, allowed, config).record.z_sampled == pytest.approx(expected, rel=1e-4)


@given(rows, allowed_sets)
def test_each_stage_holds_the_top_k_in_order_and_always_the_chosen_token(row, allowed):
    record = step(row, allowed, watch=Watch("full", 3)).record
    ranking = sorted(range(13), key=lambda i: (-row[i], i))
    assert [c.id for c in record.pre_masking[:3]] == ranking[:3]
    assert [c.id for c in record.post_grammar[:3]] == [i for i in ranking if i in allowed][:3]
    for stage in (record.pre_masking, record.post_grammar, record.post_chain):
        assert record.token_id in {c.id for c in stage}
        assert len(stage) <= 4
    assert all(c.allowed == (c.id in allowed) for c in record.pre_masking)
    p = softmax(row)
    assert record.pre_masking[0].prob == pytest.approx(float(p[ranking[0]]), rel=1e-6)
    if len(allowed) <= 3:
        assert sum(c.prob for c in record.post_grammar) == pytest.approx(1.0)


@given(rows, allowed_sets, st.integers(0, 1000))
def test_the_token_is_always_allowed_and_greedy_is_the_best_with_the_lowest_id(row, allowed, seed):
    assert step(row, allowed, seed=seed).token in allowed
    greedy = step(row, allowed, SamplingConfig(temperature=0.0))
    assert greedy.token == min(allowed, key=lambda i: (-row[i], i))
    assert greedy.record.z_sampled is None
    assert greedy.prob == 1.0


def test_mass_far_below_float_precision_is_still_a_finite_tax():
    row = np.zeros(13, dtype=np.float32)
    row[0] = 900.0
    record = step(row, {1}).record
    assert record.tax_nats == pytest.approx(900.0)
    assert record.removed_mass == 1.0


@pytest.mark.parametrize(
    ("bad", "words"), [(math.nan, "NaN"), (math.inf, "infinite"), (None, "no finite")], ids=["nan", "inf", "none"]
)
def test_logits_that_are_not_numbers_end_in_a_typed_error_and_not_in_a_token(bad, words):
    row = np.full(13, -math.inf if bad is None else 0.0, dtype=np.float32)
    if bad is not None:
        row[3] = bad
    with pytest.raises(BadLogits, match=words):
        step(row)


def test_a_step_with_nothing_allowed_is_a_dead_end():
    with pytest.raises(DeadEnd, match="step 0"):
        step(np.zeros(13, dtype=np.float32), set())


def test_padding_ids_are_never_taken_even_without_a_constraint():
    vocab = Vocab.from_tokens([b"a", b"b", b""], eos_ids=[2], width=40)
    row = np.zeros(40, dtype=np.float32)
    row[20:] = 50.0
    decision = step(row, None, SamplingConfig(temperature=0.0), vocab=vocab)
    assert decision.token == 0
    assert decision.record.removed_mass == pytest.approx(1.0)


class BanAndBias:
    name, priority = "ban", Priority.HIGH

    def apply(self, logits, context):
        out = logits.copy()
        out[0] = -np.inf
        out[1] += 2
        return out

    def on_token(self, token): ...
    def rollback(self, count): ...
    def fork(self):
        return self


def test_a_filters_ban_shrinks_the_allowed_set_and_its_bias_does_not_change_the_tax():
    row = np.zeros(13, dtype=np.float32)
    record = step(row, None, filters=[BanAndBias()]).record
    assert record.allowed_count == 12
    assert record.tax_nats == pytest.approx(-math.log(12 / 13))
    assert record.z_sampled == pytest.approx(1.0)  # -inf is out of p' as well


def test_levels_off_and_measures_record_nothing_and_no_candidates():
    row = np.zeros(13, dtype=np.float32)
    assert step(row, {1}, watch=Watch("off")).record is None
    record = step(row, {1}, watch=Watch("measures")).record
    assert record.pre_masking == record.post_grammar == record.post_chain == ()
    assert record.removed_mass > 0.9


def test_the_law_of_the_mask_strategy_by_chi_squared():
    row = np.log(np.array([0.4, 0.3, 0.1, 0.1, 0.1] + [1e-9] * 8, dtype=np.float32))
    mask = masks.from_ids([1, 2, 4], 13)
    stream = RandomStream(11)
    chain = Chain(PLAIN)
    counts = np.zeros(13)
    for _ in range(5000):
        counts[
            decide(row, mask, vocab=VOCAB, chain=chain, stream=stream, context=CONTEXT, watch=Watch("off")).token
        ] += 1
    expected = np.array([0.3, 0.1, 0.1]) / 0.5 * 5000
    assert counts[[1, 2, 4]].sum() == 5000
    assert float(((counts[[1, 2, 4]] - expected) ** 2 / expected).sum()) < 13.82  # p = 0.001, 2 degrees of freedom
