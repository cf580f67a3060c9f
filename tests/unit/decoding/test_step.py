"""The stages and masses of one step, against their definitions."""

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier import SamplingConfig, Vocab
from espalier.decoding.matcher_questions import MatcherQuestions
from espalier.decoding.step.decide import decide
from espalier.decoding.step.record import Watch
from espalier.errors import BadLogits, DeadEnd
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.filters import FilterContext, Priority, TokenBan
from espalier.sampling.fit import fit
from espalier.tokens import mask as masks

VOCAB = Vocab.from_tokens([bytes([65 + i]) for i in range(12)] + [b""], eos_ids=[12])
CONTEXT = FilterContext(step=0, prompt=(), generated=())
PLAIN = SamplingConfig(temperature=1.0, top_k=0, top_p=1.0, min_p=0.0)

rows = st.lists(st.floats(-8, 8, width=32), min_size=13, max_size=13).map(lambda r: np.array(r, dtype=np.float32))
allowed_sets = st.sets(st.integers(0, 12), min_size=1)


def step(row, allowed=None, config=PLAIN, filters=(), watch=None, vocab=VOCAB, seed=0):
    mask = None if allowed is None else masks.from_ids(sorted(allowed), vocab.width)
    return decide(
        row,
        mask,
        vocab=vocab,
        chain=Chain(config, filters),
        stream=RandomStream(seed),
        context=CONTEXT,
        watch=watch or Watch("full", 5),
    )


def softmax(row):
    values = row.astype(np.float64)
    weights = np.exp(values - values.max())
    return weights / weights.sum()


@given(rows, allowed_sets)
def test_removed_mass_tax_and_entropies_follow_their_definitions(row, allowed):
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
    # The bias of 2 is in p', and so is the banned token, as it was.
    assert record.z_sampled == pytest.approx((11 + math.exp(2)) / (12 + math.exp(2)))


def test_levels_off_and_measures_record_nothing_and_no_candidates():
    row = np.zeros(13, dtype=np.float32)
    assert step(row, {1}, watch=Watch("off")).record is None
    record = step(row, {1}, watch=Watch("summary")).record
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


class Members(MatcherQuestions):
    """Of a composition with these member masks."""

    def __init__(self, members):
        super().__init__(None)
        self.members = members

    def member_masks(self):
        return self.members


def fitted_step(row, allowed=None, step_number=0, seed=0, filters=(), members=(), **fields):
    config = SamplingConfig(**{"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0} | fields)
    mask = None if allowed is None else masks.from_ids(sorted(allowed), VOCAB.width)
    fitted = fit(config, VOCAB, lambda text: [ord(c) - 65 for c in text])
    return decide(
        row,
        mask,
        vocab=VOCAB,
        chain=Chain(config, filters, fitted=fitted),
        stream=RandomStream(seed),
        context=FilterContext(step=step_number, prompt=(), generated=()),
        watch=Watch("full", 5),
        questions=Members(members),
    )


def test_min_tokens_bans_the_end_before_and_not_after_and_the_record_says_so():
    row = np.zeros(13, dtype=np.float32)
    row[12] = 20.0
    early = fitted_step(row, min_tokens=3, step_number=2)
    assert early.token != 12
    assert early.record.blame.member == "min_tokens"
    assert early.record.allowed_count == 12
    assert early.record.removed_mass > 0.9
    assert fitted_step(row, min_tokens=3, step_number=3).token == 12


def test_a_constraint_that_leaves_only_the_end_wins_over_min_tokens():
    row = np.zeros(13, dtype=np.float32)
    assert fitted_step(row, {12}, min_tokens=3).token == 12
    assert fitted_step(row, {12, 4}, min_tokens=3).token == 4
    assert fitted_step(row, {12, 4}, min_tokens=3, allowed_ids=[12]).token == 12
    assert fitted_step(row, {12, 4}, min_tokens=3, stop_ids=[4]).token in {4, 12}


def test_allowed_ids_shrink_the_allowed_set_and_are_blamed():
    row = np.zeros(13, dtype=np.float32)
    row[0] = 5.0
    record = fitted_step(row, allowed_ids=[3, 4]).record
    assert record.token_id in {3, 4}
    assert (record.allowed_count, record.blame.member) == (2, "allowed_ids")
    assert record.z_sampled == pytest.approx(2 / (12 + math.exp(5)))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"allowed_ids": [3]}, "allowed_ids"),
        ({"logit_bias": {1: -math.inf, 2: -math.inf}}, "logit_bias"),
        ({"allowed_ids": [1], "logit_bias": {1: -math.inf}}, "logit_bias"),
    ],
)
def test_a_dead_end_that_the_configs_own_bans_make_says_which(fields, words):
    with pytest.raises(DeadEnd, match=f"{words}.*step 0"):
        fitted_step(np.zeros(13, dtype=np.float32), {1, 2}, **fields)


def test_a_dead_end_that_the_constraint_makes_is_not_put_on_the_bans():
    with pytest.raises(DeadEnd, match="no token is allowed"):
        fitted_step(np.zeros(13, dtype=np.float32), set(), allowed_ids=[3])


def test_a_finite_bias_changes_what_is_drawn_and_not_what_the_constraint_cost():
    row = np.zeros(13, dtype=np.float32)
    record = fitted_step(row, {1, 2}, logit_bias={"B": 3.0}, temperature=1.0).record
    assert record.tax_nats == pytest.approx(-math.log(2 / 13))
    biased = np.exp(np.array([3.0 if i == 1 else 0.0 for i in range(13)]))
    assert record.z_sampled == pytest.approx((biased[1] + biased[2]) / biased.sum(), rel=1e-5)
    assert {c.id: c.prob for c in record.post_chain}[1] == pytest.approx(biased[1] / (biased[1] + biased[2]), rel=1e-5)


def test_the_stream_moves_by_two_with_xtc_and_by_one_without_whatever_is_left():
    for fields, draws in (({}, 1), ({"xtc_probability": 0.5}, 2)):
        config = SamplingConfig(**fields)
        stream, chain = RandomStream(3), Chain(config)
        for allowed in ([5], [1, 2, 3]):
            decide(
                np.zeros(13, dtype=np.float32),
                masks.from_ids(allowed, 13),
                vocab=VOCAB,
                chain=chain,
                stream=stream,
                context=CONTEXT,
                watch=Watch("off"),
            )
        assert stream.count == 2 * draws == 2 * chain.draws_per_token


@given(st.integers(0, 50), st.integers(1, 12), st.integers(1, 12))
def test_a_run_undone_and_taken_again_gives_the_same_tokens_with_every_sampler_that_remembers(seed, length, undone):
    for fields in ({"xtc_probability": 0.5, "dry_multiplier": 0.8, "frequency_penalty": 0.3}, {"mirostat": 2}):
        config = SamplingConfig(temperature=1.5, repetition_penalty=1.3, repetition_window=4, **fields)
        chain, stream = Chain(config, fitted=fit(config, VOCAB, list)), RandomStream(seed)
        chain.start([1, 2])
        rng = np.random.default_rng(seed)
        rows = (rng.standard_normal((length, 13)) * 2).astype(np.float32)  # (T, V)

        def take(place):
            found = decide(
                rows[place],  # noqa: B023  # called at once
                None,
                vocab=VOCAB,
                chain=chain,  # noqa: B023
                stream=stream,  # noqa: B023
                context=FilterContext(step=place, prompt=(), generated=()),
                watch=Watch("off"),
            )
            chain.on_token(found.token, found.prob)  # noqa: B023
            return found

        first = [take(place) for place in range(length)]
        count = min(undone, length)
        chain.rollback(count)
        stream.rollback(count * chain.draws_per_token)
        assert [take(place) for place in range(length - count, length)] == first[length - count :]


@given(rows, allowed_sets, st.floats(0.3, 3.0))
def test_z_sampled_is_the_same_whoever_bans(row, allowed, temperature):
    fields = {"temperature": temperature, "logit_bias": {1: 2.0}, "top_k": 2}
    wanted = fitted_step(row, allowed, **fields).record.z_sampled
    values = row.copy()
    values[1] += 2
    expected = softmax(values / np.float32(temperature))[sorted(allowed)].sum()
    assert wanted == pytest.approx(float(expected), rel=1e-4)
    banned = sorted({*range(13)} - allowed)
    biases = {1: 2.0} | dict.fromkeys(banned, -math.inf)
    for more in (
        {"allowed_ids": allowed},
        {"logit_bias": biases} if 1 in allowed else {},
        {"filters": [TokenBan(banned)]} if banned else {},
    ):
        found = fitted_step(row, allowed if not more else None, **fields | more).record
        assert found.z_sampled == pytest.approx(wanted, rel=1e-9)


def test_z_sampled_is_none_where_the_temperature_depends_on_what_is_allowed():
    row = np.zeros(13, dtype=np.float32)
    for spread, is_told in ((0.0, True), (0.5, False)):
        record = fitted_step(row, {1, 2}, dynatemp_range=spread).record
        assert (record.z_sampled is not None) == is_told


class Raising(TokenBan):
    """Raises what another banned, which stays banned."""

    priority = Priority.HIGH

    def apply(self, logits, context):
        return logits + np.float32(1)


@given(rows, st.none() | allowed_sets, st.sampled_from([(), ("ban",), ("ban", "raise"), ("ban", "ban", "raise")]))
def test_shares_of_what_was_removed_name_bans_too_and_sum_to_it(row, allowed, kinds):
    filters = [
        TokenBan([5 + place], name=f"ban {place}") if kind == "ban" else Raising([1], name="raise")
        for place, kind in enumerate(kinds)
    ]
    fields = {
        "allowed_ids": [1, 2, 3, 4, 5, 6, 7, 12],
        "logit_bias": {1: -math.inf, 2: 3.0},
        "min_tokens": 2,
        "filters": filters,
    }
    if allowed is not None:
        allowed = allowed | {3}
    p = softmax(row)
    left = {*range(13)}
    wanted = {}
    steps = [("constraint", allowed)] if allowed is not None else []
    steps += [("allowed_ids", {1, 2, 3, 4, 5, 6, 7, 12}), ("logit_bias", left - {1})]
    steps += [(f"ban {i}", left - {5 + i}) for i, kind in enumerate(kinds) if kind == "ban"]
    for name, allows in [*steps, ("min_tokens", left - {12})]:
        share = float(sum(p[token] for token in left - allows))
        if share or name == "constraint":
            wanted[name] = share
        left &= allows
    record = fitted_step(row, allowed, **fields).record
    assert dict(record.removed_by) == pytest.approx(wanted, abs=1e-9)
    assert list(dict(record.removed_by)) == list(wanted)
    assert sum(wanted.values()) == pytest.approx(record.removed_mass, abs=1e-9)


def test_a_composition_s_members_come_before_the_bans_beside_it():
    row = np.zeros(13, dtype=np.float32)
    mask = masks.from_ids([1, 2, 12], 13)
    record = fitted_step(row, {1, 2, 12}, members=[("one", mask)], allowed_ids=[1, 12, 0], min_tokens=1).record
    assert record.removed_by == tuple(
        (name, pytest.approx(n / 13)) for name, n in (("one", 10), ("allowed_ids", 1), ("min_tokens", 1))
    )


def test_a_filter_that_bans_the_favourite_is_blamed():
    row = np.zeros(13, dtype=np.float32)
    row[4] = 3.0
    record = fitted_step(row, filters=[TokenBan([4], name="mine")]).record
    assert (record.blame.member, record.removed_by[0][0]) == ("mine", "mine")


def test_shares_that_nothing_bans_are_left_to_compositions():
    assert fitted_step(np.zeros(13, dtype=np.float32), {1, 2}).record.removed_by == ()


def test_what_is_finite_gives_a_finite_record():
    row = np.linspace(-3, 3, 13, dtype=np.float32)
    for fields in (
        {"logit_bias": {5: 3.4e38}},
        {"logit_bias": {"F": 1e308, 5: 1e308}},
        {"logit_bias": {"F": -1e308, 5: -1e308}},
        {"logit_bias": dict.fromkeys(range(13), -3.4e38)},
        {"logit_bias": {5: 3.4e38, 6: 1e38, 7: -3.4e38}},
    ):
        for temperature in (0.7, 0.001, 1e-9, 1.0, 3.0):
            record = fitted_step(row, {4, 5, 6, 7}, **{"temperature": temperature} | fields).record
            json.dumps(record.to_json(), allow_nan=False)
            assert 0 < record.resampled.prob <= 1
            assert sum(c.prob for c in record.post_chain) == pytest.approx(1.0)
            assert record.resampled.logit is not None
