"""The chain along a sequence: what it keeps equals what is counted anew, and forks and rollbacks restore it exactly."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier import SamplingConfig, Vocab
from espalier.sampling.chain import Chain
from espalier.sampling.fit import fit
from espalier.sampling.samplers.context import TransformContext, count_window
from espalier.sampling.samplers.registry import TRANSFORMS

VOCAB = Vocab.bytes()
OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
ROW = np.linspace(3, -3, VOCAB.width, dtype=np.float32)
ALL = SamplingConfig(
    repetition_penalty=1.3,
    repetition_window=5,
    frequency_penalty=0.2,
    presence_penalty=0.1,
    dry_multiplier=0.8,
    dry_breakers=("\n",),
)
steps = st.lists(
    st.one_of(st.integers(0, 6).map(lambda i: ("take", i)), st.integers(0, 4).map(lambda n: ("undo", n))), max_size=40
)


def encode(text):
    return list(text.encode())


def chain_for(config):
    return Chain(config, fitted=fit(config, VOCAB, encode))


@given(st.lists(st.integers(0, 6), max_size=12), steps, st.sampled_from([-1, 0, 1, 3, 5]))
def test_the_counts_kept_are_those_counted_anew_whatever_is_undone(prompt, actions, window):
    chain = chain_for(SamplingConfig(repetition_window=window, repetition_penalty=1.3))
    chain.start(prompt)
    said = []
    for action, number in actions:
        if action == "take":
            chain.on_token(number)
            said.append(number)
        elif number <= len(said):
            chain.rollback(number)
            del said[len(said) - number :]
        context = chain.context()
        assert (list(context.history), context.generated) == ([*prompt, *said], len(said))
        assert (dict(context.seen), dict(context.produced)) == count_window([*prompt, *said], len(said), window)


def test_the_arrays_kept_grow_and_are_undone():
    chain = chain_for(SamplingConfig(repetition_window=-1))
    prompt, said = list(range(400)), [*range(300, 900), 5, 5]
    chain.start(prompt)
    for token in said:
        chain.on_token(token)
    for undone in (0, 2, 500, 100):
        chain.rollback(undone)
        said = said[: len(said) - undone]
        seen, times = count_window([*prompt, *said], len(said), -1)
        past = chain.fork().past
        assert past.line.tolist() == [*prompt, *said]
        kept = dict(zip(*(counts.tolist() for counts in past.counts()), strict=True))
        assert kept == {token: times.get(token, 0) for token in seen}


@given(st.lists(st.integers(0, 3), max_size=20), st.lists(st.integers(0, 3), min_size=1, max_size=10))
def test_shape_is_the_transforms_in_order_on_a_context_made_from_scratch(prompt, said):
    chain = chain_for(ALL)
    chain.start(prompt)
    for token in said:
        chain.on_token(token)
    context = TransformContext.of(ALL, [*prompt, *said], len(said), breakers=chain.fitted.breakers)
    expected = ROW
    for name in ALL.active:
        expected = TRANSFORMS[name](expected, context)
    assert np.array_equal(chain.shape(ROW), expected)


@pytest.mark.parametrize(
    "config", [ALL, SamplingConfig(mirostat=1, mirostat_tau=3.0), SamplingConfig(mirostat=2, mirostat_tau=3.0)]
)
def test_a_fork_and_a_rollback_give_back_the_very_same_logits(config):
    chain = chain_for(config)
    chain.start([1, 2, 3])
    before = []
    for token in (4, 1, 2, 3, 4, 1):
        before.append((chain.shape(ROW), chain.mu))
        chain.on_token(token, 0.3)
    fork = chain.fork()
    for token in (9, 9):
        fork.on_token(token, 1e-9)
    after = chain.shape(ROW)
    assert not np.array_equal(fork.shape(ROW), after)
    fork.rollback(2)
    assert np.array_equal(fork.shape(ROW), after)
    assert fork.mu == chain.mu
    while before:
        chain.rollback(1)
        row, mu = before.pop()
        assert np.array_equal(chain.shape(ROW), row)
        assert chain.mu == mu
    with pytest.raises(ValueError, match="undo"):
        chain.rollback(1)  # the prompt is not undone


def test_mirostat_learns_from_drawn_tokens_alone():
    chain = chain_for(SamplingConfig(mirostat=2, mirostat_tau=3.0, mirostat_eta=0.5))
    assert chain.mu == 6.0
    chain.on_token(1)  # forced
    assert chain.mu == 6.0
    chain.on_token(1, 0.25)
    assert chain.mu == pytest.approx(6.0 - 0.5 * (2.0 - 3.0))
    chain.start([])
    assert chain.mu == 6.0


def test_heat_has_penalties_and_temperature_and_no_truncation():
    config = SamplingConfig(temperature=0.5, top_k=2, top_p=0.1, min_p=0.5, repetition_penalty=2.0)
    chain = Chain(config)
    chain.start([0])
    row = np.array([2.0, 1.0, -1.0], dtype=np.float32)
    assert chain.heat(row).tolist() == [2.0, 2.0, -2.0]
    cold = Chain(SamplingConfig(temperature=0.5, repetition_penalty=2.0, sampler_order=("top_k", "penalties")))
    cold.start([0])
    assert cold.heat(row).tolist() == [1.0, 1.0, -1.0]  # what the order leaves out does not run


def test_greedy_is_the_best_after_penalties_and_ties_go_to_the_lowest_id():
    config = SamplingConfig(temperature=0.0, repetition_penalty=2.0, top_k=1)
    chain = Chain(config)
    row = np.array([0.5, 2.0, 1.0], dtype=np.float32)
    assert int(np.argmax(chain.shape(row))) == 1
    chain.on_token(1)
    out = chain.shape(row)
    assert out.tolist() == [-math.inf, 1.0, -math.inf]  # 2.0 / 2.0 ties with 1.0
    chain.on_token(0)
    assert config.is_greedy
    assert chain.draws_per_token == 1


def test_what_is_at_its_neutral_value_does_not_run_and_gives_the_row_itself():
    chain = Chain(SamplingConfig(**OFF))
    chain.start(list(range(100)))
    assert chain.shape(ROW) is ROW
    assert chain.heat(ROW) is ROW
    for name, transform in TRANSFORMS.items():
        context = TransformContext.of(SamplingConfig(**OFF), [1, 2, 1, 2, 1], 3)
        assert np.array_equal(transform(ROW, context), ROW), name


def test_xtc_takes_a_number_of_the_stream_before_the_draw_and_only_where_it_is_on():
    on = Chain(SamplingConfig(xtc_probability=0.5))
    assert (on.needs_chance, on.draws_per_token) == (True, 2)
    for fields in ({}, {"xtc_probability": 0.5, "xtc_threshold": 0.6}, {"xtc_probability": 0.5, "temperature": 0}):
        assert Chain(SamplingConfig(**fields)).draws_per_token == 1
    row = np.array([2.0, 1.9, -1.0], dtype=np.float32)
    config = SamplingConfig(**OFF | {"xtc_probability": 0.5})
    assert Chain(config).shape(row, 0.5).tolist() == pytest.approx([-math.inf, 1.9, -1.0])
    assert Chain(config).shape(row, 0.51).tolist() == pytest.approx([2.0, 1.9, -1.0])


def test_a_config_that_names_tokens_needs_to_be_fitted():
    with pytest.raises(ValueError, match="fit"):
        Chain(SamplingConfig(allowed_ids=(1,)))
