"""The kernel against the plain functions of the samplers: the same token, the same candidates, the same p'.

The plain way is `Chain.bias`, the mask, `Chain.shape` and `pick`, on the whole row.
"""

import math
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier import SamplingConfig, Vocab
from espalier.decoding.step.allowed import allowed_bits
from espalier.sampling.chain import Chain
from espalier.sampling.config import DEFAULT_ORDER
from espalier.sampling.config_names import OPENAI_ORDER
from espalier.sampling.draw import RandomStream, draw, pick
from espalier.sampling.fast.kernels import rows as rows_kernels
from espalier.sampling.fast.program import CODES, heated, inputs_of, list_inputs, program_of
from espalier.sampling.fit import fit
from espalier.sampling.samplers.registry import TRANSFORMS
from espalier.tokens import mask as masks
from tests.examples import examples

BYTES = Vocab.bytes()
WIDTHS = [2, 3, 13, 64, 65, 97, 200, 700, 1025, 2000]


def row_of(width, seed, kind, scale):
    rng = np.random.default_rng(seed)
    row = rng.normal(scale=scale, size=width).astype(np.float32)
    if kind == "ties":
        row = np.round(row / 2) * np.float32(2)
    if kind == "flat":
        row = np.zeros(width, dtype=np.float32)
    if kind == "holes":
        row[rng.random(width) < 0.7] = -np.inf
        row[rng.integers(width)] = 0.5
    return row


rows = st.tuples(
    st.sampled_from(WIDTHS),
    st.integers(0, 2**32),
    st.sampled_from(["any", "ties", "flat", "holes"]),
    st.sampled_from([1.0, 4.0, 300.0]),
)
orders = st.sampled_from([DEFAULT_ORDER, OPENAI_ORDER]) | st.permutations(DEFAULT_ORDER).flatmap(
    lambda names: st.integers(0, 9).map(lambda n: tuple(names[:n]))
)
configs = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0, 0.7, 1.0, 1.9, 1e-5]),
        "top_k": st.sampled_from([0, 0, 1, 5, 40, 300]),
        "top_p": st.sampled_from([1.0, 0.0, 0.25, 0.5, 0.95, 0.9999]),
        "min_p": st.sampled_from([0.0, 0.05, 0.5, 1e-6, 1.0]),
        "min_keep": st.sampled_from([0, 0, 3, 50]),
        "repetition_penalty": st.sampled_from([1.0, 1.1, 2.0, 0.5]),
        "sampler_order": orders,
    },
    optional={
        "typical_p": st.just(0.5),
        "top_n_sigma": st.just(1.5),
        "xtc_probability": st.sampled_from([0.5, 1.0]),
        "dynatemp_range": st.sampled_from([0.3, 2.0]),
        "frequency_penalty": st.sampled_from([0.3, -0.2]),
        "presence_penalty": st.just(0.4),
        "repetition_window": st.sampled_from([-1, 0, 3]),
        "dry_multiplier": st.just(0.8),
        "dry_allowed_length": st.sampled_from([0, 1]),
        "dry_window": st.sampled_from([0, 4, 30]),
        "logit_bias": st.just({0: 2.0, 5: -3.0, 11: -math.inf, 100: 40.0}),
    },
)


def chain_for(config, history, width):
    if any(token >= width for token, _ in config.logit_bias):
        config = SamplingConfig(**{**config.to_json(), "logit_bias": []})
    vocab = Vocab.from_tokens([bytes([i % 256, i // 256]) for i in range(width - 1)] + [b""], eos_ids=[width - 1])
    chain = Chain(config, fitted=fit(config, vocab, lambda text: []))
    chain.start(history[: len(history) // 2])
    for token in history[len(history) // 2 :]:
        chain.on_token(token)
    return chain


def allow(width, seed, count):
    ids = np.random.default_rng(seed).choice(width, size=min(count, width), replace=False)
    return masks.from_ids(ids, width)


def plain(row, bits, chain, chance, uniform):
    """The shaped row and what is drawn from it; None where nothing is allowed."""
    biased = chain.fitted.apply(row)
    masked = biased if bits is None else np.where(masks.unpack(bits, row.shape[0]), biased, np.float32(-np.inf))
    if not (masked > -np.inf).any():
        return None
    shaped = chain.shape(masked, chance)
    return shaped, pick(shaped, uniform)


def same(row, bits, chain, seed, show=0):
    """All that the two ways give is equal, where the kernel decides. Returns whether it does."""
    stream, before = RandomStream(seed), row.copy()
    chance, uniform = stream.next(), stream.next()
    program = chain.kept(program_of)
    allowed = allowed_bits(row, bits, BYTES, chain)
    inputs = inputs_of(row, allowed, chain, program, program.drawing, int(row.argmax()), chance, uniform)
    token, prob, logit = rows_kernels.draw_row(*inputs)
    listed = list_inputs(inputs, show or row.shape[0])
    assert np.array_equal(row, before)
    expected = plain(row, bits, chain, chance, uniform)
    if expected is None:
        assert (token, listed) == (-1, None)
        return True
    shaped, drawn = expected
    if token >= 0:
        assert (token, logit) == (drawn.token, drawn.logit)
        assert prob == pytest.approx(drawn.prob, rel=1e-9)
    if listed is not None:
        assert listed[:3] == (token, prob, logit)
        assert np.array_equal(listed.ids, drawn.ids) or (show and set(listed.ids) <= set(drawn.ids))
        every = np.searchsorted(drawn.ids, listed.ids)
        assert np.allclose(listed.probs, drawn.probs[every], rtol=1e-9, atol=0)
        assert np.array_equal(listed.logits, shaped[listed.ids])
    return token >= 0


@settings(max_examples=examples(400), deadline=None)
@given(
    rows, configs, st.lists(st.integers(0, 8), max_size=20), st.sampled_from([0, 1, 10, 300, 1500]), st.integers(0, 99)
)
def test_the_kernel_draws_what_the_plain_functions_draw(made, fields, history, count, seed):
    row = row_of(*made)
    width = row.shape[0]
    chain = chain_for(SamplingConfig(**fields), history, width)
    bits = allow(width, seed, count) if count else None
    with np.errstate(over="ignore", divide="ignore"):
        same(row, bits, chain, seed)
        assert np.array_equal(heated(row, chain), chain.heat(row))


@pytest.mark.parametrize("count", [0, 10, 65_536])
@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"top_k": 0},
        {"top_k": 0, "top_p": 1.0, "min_p": 0.0},
        {"top_k": 0, "top_p": 0.95, "min_p": 0.0},
        {"top_k": 0, "top_p": 1.0, "min_p": 0.02},
        {"temperature": 0},
        {"top_k": 300, "typical_p": 0.9},
        {"top_k": 5000},
        {"top_k": 0, "top_p": 0.9, "min_p": 0.0, "sampler_order": ("temperature", "top_p")},
        {"top_n_sigma": 2.0},
        {"dry_multiplier": 0.8, "dry_allowed_length": 1},
        {"xtc_probability": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
        {"dynatemp_range": 0.5, "sampler_order": ("temperature", "min_p")},
    ],
)
def test_at_131072_tokens(fields, count):
    rng = np.random.default_rng(5)
    law = -1.2 * np.log(np.arange(1, 131_073)) + rng.normal(size=131_072)
    row = rng.permutation(law).astype(np.float32)
    config = SamplingConfig(**fields)
    chain = Chain(config, fitted=fit(config, BYTES, lambda text: []))
    chain.start([int(token) for token in np.argsort(-row)[:40]] * 2)
    bits = allow(131_072, 3, count) if count else None
    for seed in range(4):
        assert same(row, bits, chain, seed, show=20)


def test_only_as_many_candidates_are_listed_as_asked_for():
    row = row_of(2000, 1, "any", 1.0)
    chain = Chain(SamplingConfig(top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0))
    program = chain.kept(program_of)
    inputs = inputs_of(row, None, chain, program, program.drawing, int(row.argmax()), 0.0, 0.4)
    _, drawn = plain(row, None, chain, 0.0, 0.4)
    for show in (1, 5):
        listed = list_inputs(inputs, show)
        best = np.argsort(-drawn.probs, kind="stable")[:show]
        assert set(listed.ids) >= {*best, drawn.token}
        assert listed.ids.size < 100
        assert listed.probs == pytest.approx(drawn.probs[listed.ids], rel=1e-9)


def test_inputs_that_were_copied_draw_the_same_after_the_chain_has_gone_on():
    row, chain = row_of(700, 2, "any", 2.0), Chain(SamplingConfig())
    chain.start([1, 2, 3])
    program = chain.kept(program_of)
    inputs = inputs_of(row, allow(700, 1, 300), chain, program, program.drawing, int(row.argmax()), 0.0, 0.3)
    drawn, later = rows_kernels.draw_row(*inputs), inputs.copied()
    row[:] = 0.0
    for token in range(50):
        chain.on_token(token)
    assert list_inputs(later, 5)[:3] == drawn


def test_what_is_drawn_does_not_depend_on_the_row_being_writable_or_on_its_place():
    row = row_of(700, 2, "any", 2.0)
    sealed = row.copy()
    sealed.setflags(write=False)
    for other in (sealed, np.repeat(row, 2)[::2]):
        assert same(other, None, Chain(SamplingConfig()), 1)


def test_nothing_left_draws_nothing():
    row = np.full(9000, -np.inf, dtype=np.float32)
    row[0] = 1.0
    for bits in (masks.empty(9000), masks.from_ids([5], 9000), masks.from_ids(list(range(1, 9000)), 9000)):
        for fields in ({}, {"temperature": 0}, {"top_k": 0, "top_p": 1.0, "min_p": 0.0}):
            assert same(row, bits, Chain(SamplingConfig(**fields)), 1)


@pytest.mark.parametrize("name", [*CODES])
def test_samplers_are_known_to_the_kernel(name):
    assert CODES.keys() == TRANSFORMS.keys()
    fields = {"typical_p": 0.9, "top_n_sigma": 2.0, "xtc_probability": 0.5, "dry_multiplier": 0.8}
    config = SamplingConfig(**fields, dynatemp_range=0.3, sampler_order=(name,))
    chain = Chain(config, fitted=fit(config, BYTES, lambda text: []))
    chain.start([1, 2, 3, 1, 2])
    assert chain.running == (name,)
    assert same(row_of(257, 3, "any", 3.0), None, chain, 5)


def test_mirostat_is_left_to_the_plain_function():
    assert Chain(SamplingConfig(mirostat=2)).kept(program_of) is None


usual = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0, 0.7, 1.0]),
        "top_k": st.sampled_from([0, 0, 40, 128, 129]),
        "top_p": st.sampled_from([1.0, 0.3, 0.95]),
        "min_p": st.sampled_from([0.0, 0.05, 1e-6]),
        "min_keep": st.sampled_from([0, 0, 50]),
        "repetition_penalty": st.sampled_from([1.0, 1.1, 0.5]),
        "sampler_order": st.tuples(st.permutations(["top_k", "top_p", "min_p"]), st.booleans()).map(
            lambda o: ("penalties", "temperature", *o[0]) if o[1] else ("penalties", *o[0], "temperature")
        ),
    }
)


@settings(max_examples=examples(80), deadline=None)
@given(
    st.sampled_from([1500, 2304, 17_000, 70_001]),
    st.integers(0, 2**32),
    st.sampled_from(["any", "ties", "flat"]),
    st.sampled_from([1.0, 3.0]),
    usual,
    st.sampled_from([0, 1000, 0.05, 0.5, 0.99]),
    st.integers(0, 99),
)
def test_a_long_row_is_truncated_without_the_plain_functions(width, key, kind, scale, fields, share, seed):
    row = row_of(width, key, kind, scale)
    chain = Chain(SamplingConfig(**fields))
    chain.start([int(token) for token in np.argsort(-row)[:30]])
    bits = allow(width, seed, share if share > 1 else int(share * width)) if share else None
    is_near_an_edge = kind != "any" or fields["min_keep"]
    assert same(row, bits, chain, seed) or is_near_an_edge


FAR = [3.4e38, -3.4e38, 3.39e38, 2.5e38, 1e38, -1e38, 5.0, 0.0]


@settings(deadline=None)
@given(
    st.sampled_from([3, 65, 1500]),
    st.integers(0, 2**32),
    st.integers(0, 8),
    st.sampled_from([0, 0.5, 0.7, 0.001, 1e-9, 1.0, 2.0]),
    st.sampled_from([0, 10, 900]),
    st.fixed_dictionaries(
        {},
        optional={
            "repetition_penalty": st.sampled_from([1e-320, 1e-30, 1e300]),
            "dynatemp_range": st.sampled_from([0.5, 1e308]),
            "frequency_penalty": st.sampled_from([-3.4e38, 1e300]),
            "presence_penalty": st.sampled_from([3.4e38, -1e300]),
            "logit_bias": st.just({0: 3.4e38, 1: -1e308, 2: 1e308}),
            "top_n_sigma": st.sampled_from([1.0, 1e308]),
            "top_p": st.just(0.9),
            "min_p": st.just(0.05),
            "top_k": st.just(40),
            "typical_p": st.just(0.5),
            "dry_multiplier": st.just(1e300),
            "sampler_order": st.permutations(DEFAULT_ORDER).map(tuple),
        },
    ),
)
def test_what_is_finite_stays_finite_both_ways(width, seed, far, temperature, count, fields):
    off = {"top_p": 1.0, "min_p": 0.0, "top_k": 0}
    row = row_of(width, seed, "any", 4.0)
    row[np.random.default_rng(seed).integers(width, size=far)] = FAR[:far]
    chain = chain_for(SamplingConfig(temperature=temperature, **off | fields), [1, 2, 0, 1, 2, 0, 1], width)
    bits = allow(width, seed, count) if count else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(row, bits, chain, seed)
        warm = heated(row, chain)
        assert np.array_equal(warm, chain.heat(row))
    assert np.isfinite(warm).all() or fields.get("dynatemp_range")  # which may come down to 0


def test_the_best_stays_the_best_where_the_division_leaves_float_range():
    for sign in (1, -1):
        row = np.float32(sign) * np.array([3.0e38, 3.2e38, 3.4e38, 3.1e38], dtype=np.float32)
        chain = Chain(SamplingConfig(temperature=0.7, repetition_penalty=1.0, top_k=0, top_p=1.0, min_p=0.0))
        shaped = chain.shape(row)
        assert np.isfinite(shaped).all()
        assert draw(shaped, RandomStream(1)).prob == 1.0
        same(row, None, chain, 1)
