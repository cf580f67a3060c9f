"""The fast path against the plain one: the same token, the same candidates, the same numbers of the stream.

The plain path is `Chain.bias`, the mask, `Chain.shape` and `draw`, on the whole row.
"""

import math
import warnings

import numpy as np
import pytest
from espalier.sampling.fast.draw_fast import CODES, FAST, choose, heated
from espalier.sampling.fast.whole import drawn, shown
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier import SamplingConfig, Vocab
from espalier.errors import DeadEnd
from espalier.sampling.chain import Chain
from espalier.sampling.config import DEFAULT_ORDER
from espalier.sampling.config_names import OPENAI_ORDER
from espalier.sampling.draw import RandomStream, draw
from espalier.sampling.fit import fit
from espalier.sampling.samplers.registry import TRANSFORMS
from espalier.tokens import mask as masks
from tests.examples import examples

BYTES = Vocab.bytes()
ROADS = [{}, {"plain": 0}, {"plain": 0, "last": 0}, {"plain": 10**9, "last": 0}]
"""Which part of it runs for how many candidates must not show."""
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
    st.sampled_from(WIDTHS), st.integers(0, 2**32), st.sampled_from(["any", "ties", "flat", "holes"]),
    st.sampled_from([1.0, 4.0, 300.0]),
)  # fmt: skip
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
mirostats = st.fixed_dictionaries({"mirostat": st.sampled_from([1, 2]), "mirostat_tau": st.sampled_from([1.0, 5.0])})


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


def plain(row, bits, chain, stream):
    biased = chain.fitted.apply(row)
    masked = biased if bits is None else np.where(masks.unpack(bits, row.shape[0]), biased, np.float32(-np.inf))
    if not (masked > -np.inf).any():
        raise DeadEnd
    shaped = chain.shape(masked, stream.next() if chain.needs_chance else 0.0)
    return shaped, draw(shaped, stream)


def same(row, bits, chain, seed, **path):
    """All that the paths give is equal. The fast one names every candidate that it is asked for; the one in a single
    kernel leaves to it what it does not cover."""
    alone, given = RandomStream(seed), bits
    whole = drawn(row, bits, chain, alone)
    if chain.fitted.permitted is not None:
        bits = chain.fitted.permitted if bits is None else bits & chain.fitted.permitted
    one, other = RandomStream(seed), RandomStream(seed)
    before = row.copy()
    try:
        shaped, wanted = plain(row, bits, chain, one)
    except DeadEnd:
        with pytest.raises(DeadEnd):
            choose(row, bits, chain, other, **path)
        assert other.count == alone.count == 0
        assert whole is None
        return
    if whole is None:
        assert alone.count == 0
    else:
        assert (whole[0], alone.count) == (wanted.token, one.count)
        assert whole[1] == pytest.approx(wanted.prob, rel=1e-9)
    listed = shown(row, given, chain, RandomStream(seed))
    if listed is not None:
        assert (listed.token, listed.prob) == whole
        assert np.array_equal(listed.ids, wanted.ids)
        assert np.allclose(listed.probs, wanted.probs, rtol=1e-9, atol=0)
        assert np.array_equal(listed.logits, shaped[wanted.ids])
        assert listed.logit == float(shaped[wanted.token])
    best = int(np.argmax(row))
    found = choose(row, bits, chain, other, show=row.shape[0], best=best if seed % 2 else None, **path)
    assert (found.token, one.count) == (wanted.token, other.count)
    assert np.array_equal(found.ids, wanted.ids)
    assert found.prob == pytest.approx(wanted.prob, rel=1e-9)
    assert np.allclose(found.probs, wanted.probs, rtol=1e-9, atol=0)
    assert np.array_equal(found.logits, shaped[wanted.ids])
    assert found.logit == float(shaped[wanted.token])
    few = choose(row, bits, chain, RandomStream(seed), **path)
    assert (few.token, few.logit) == (wanted.token, found.logit)
    assert few.prob == pytest.approx(wanted.prob, rel=1e-9)
    assert np.array_equal(row, before)


@settings(max_examples=examples(400), deadline=None)
@given(
    rows, configs | mirostats, st.lists(st.integers(0, 8), max_size=20), st.sampled_from([0, 1, 10, 300, 1500]),
    st.integers(0, 99), st.sampled_from(ROADS),
)  # fmt: skip
def test_the_fast_path_draws_what_the_plain_one_draws(made, fields, history, count, seed, path):
    row = row_of(*made)
    width = row.shape[0]
    chain = chain_for(SamplingConfig(**fields), history, width)
    bits = allow(width, seed, count) if count else None
    with np.errstate(over="ignore", divide="ignore"):
        same(row, bits, chain, seed, **path)
        assert np.array_equal(heated(row, chain, plain=path.get("plain", 1024)), chain.heat(row))


@pytest.mark.parametrize("count", [0, 10, 65_536])
@pytest.mark.parametrize("fields", [
    {}, {"top_k": 0}, {"top_k": 0, "top_p": 1.0, "min_p": 0.0}, {"top_k": 0, "top_p": 0.95, "min_p": 0.0},
    {"top_k": 0, "top_p": 1.0, "min_p": 0.02}, {"temperature": 0}, {"top_k": 300, "typical_p": 0.9},
    {"top_k": 0, "top_p": 0.9, "min_p": 0.0, "sampler_order": ("temperature", "top_p")}, {"mirostat": 2},
])  # fmt: skip
def test_at_131072_tokens(fields, count):
    rng = np.random.default_rng(5)
    law = -1.2 * np.log(np.arange(1, 131_073)) + rng.normal(size=131_072)
    row = rng.permutation(law).astype(np.float32)
    chain = Chain(SamplingConfig(**fields))
    chain.start([int(token) for token in np.argsort(-row)[:40]])
    bits = allow(131_072, 3, count) if count else None
    for seed in range(4):
        same(row, bits, chain, seed)


def test_only_as_many_candidates_are_named_as_asked_for():
    row = row_of(2000, 1, "any", 1.0)
    chain = Chain(SamplingConfig(top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0))
    _, wanted = plain(row, None, chain, RandomStream(4))
    for show in (1, 5):
        found = choose(row, None, chain, RandomStream(4), show=show)
        best = np.argsort(-wanted.probs, kind="stable")[:show]
        assert set(found.ids) >= {*best, wanted.token}
        assert found.ids.size < 100
        assert found.probs == pytest.approx(wanted.probs[found.ids], rel=1e-9)
    assert choose(row, None, chain, RandomStream(4)).ids.tolist() == [wanted.token]


def test_forks_and_rollbacks_are_the_same_on_both_paths():
    config = SamplingConfig(
        repetition_penalty=1.3, repetition_window=5, frequency_penalty=0.2, dry_multiplier=0.8, dry_allowed_length=1,
        xtc_probability=0.5, min_keep=2,
    )  # fmt: skip
    row = row_of(257, 9, "any", 1.0)

    def walk(step):
        chain, stream = Chain(config, fitted=fit(config, BYTES, lambda text: list(text.encode()))), RandomStream(8)
        chain.start([1, 2, 3, 1, 2])
        taken = []
        for turn in range(30):
            taken.append(step(chain, stream))
            chain.on_token(taken[-1], 0.5)
            if turn % 7 == 6:
                fork = chain.fork()
                taken.append(step(fork, stream.fork()))
                fork.on_token(taken[-1], 0.5)
                taken.append(step(fork, stream.fork()))
            if turn % 5 == 4:
                chain.rollback(2)
                stream.rollback(2 * chain.draws_per_token)
        return taken

    assert walk(lambda chain, stream: choose(row, None, chain, stream).token) == walk(
        lambda chain, stream: plain(row, None, chain, stream)[1].token
    )


def test_what_is_drawn_does_not_depend_on_the_row_being_writable_or_on_its_place():
    row = row_of(700, 2, "any", 2.0)
    chain = Chain(SamplingConfig())
    expected = choose(row, None, chain, RandomStream(1))
    sealed = row.copy()
    sealed.setflags(write=False)
    strided = np.repeat(row, 2)[::2]
    for other in (sealed, strided):
        assert choose(other, None, chain, RandomStream(1)).token == expected.token


def test_nothing_left_is_a_dead_end_and_takes_no_number():
    chain, stream = Chain(SamplingConfig()), RandomStream(1)
    row = np.full(9000, -np.inf, dtype=np.float32)
    row[0] = 1.0
    for bits in (masks.empty(9000), masks.from_ids([5], 9000), masks.from_ids(list(range(1, 9000)), 9000)):
        with pytest.raises(DeadEnd):
            choose(row, bits, chain, stream)
    assert stream.count == 0


@pytest.mark.parametrize("fields", [
    {}, {"temperature": 0}, {"temperature": 1.0, "top_k": 0}, {"bad": True}, {"sampler_order": OPENAI_ORDER},
    {"sampler_order": OPENAI_ORDER, "top_k": 0}, {"sampler_order": OPENAI_ORDER, "min_p": 0.0},
])  # fmt: skip
@pytest.mark.parametrize("count", [0, 12, 1500])
def test_the_usual_samplers_draw_in_one_kernel(fields, count):
    chain = Chain(SamplingConfig(xtc_probability=0.5) if fields.get("bad") else SamplingConfig(**fields))
    chain.start([1, 2, 3])
    row, stream = row_of(2000, 6, "any", 3.0), RandomStream(3)
    bits = allow(2000, 5, count) if count else None
    found = drawn(row, bits, chain, stream)
    assert (found is None) == ("bad" in fields)
    assert stream.count == (found is not None)
    # A short mask forbids what lies beyond it, and bits beyond the row are none.
    if count and found is not None:
        longer = np.concatenate([bits, np.full(3, -1, dtype=np.int32)])
        longer[62:] |= np.int32(-1) << np.int32(2000 % 32) if 2000 % 32 else 0
        assert drawn(row, longer, chain, RandomStream(3)) == found
        assert drawn(row, bits[:0].copy(), chain, RandomStream(3)) is None


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
    st.sampled_from([1500, 2304, 17_000, 70_001]), st.integers(0, 2**32), st.sampled_from(["any", "ties", "flat"]),
    st.sampled_from([1.0, 3.0]), usual, st.sampled_from([0, 1000, 0.05, 0.5, 0.99]), st.integers(0, 99),
)  # fmt: skip
def test_a_long_row_in_one_kernel_gives_the_token_and_the_candidates_of_the_plain_path(
    width, key, kind, scale, fields, share, seed
):
    row = row_of(width, key, kind, scale)
    chain = Chain(SamplingConfig(**fields))
    chain.start([int(token) for token in np.argsort(-row)[:30]])
    bits = allow(width, seed, share if share > 1 else int(share * width)) if share else None
    shaped, wanted = plain(row, bits, chain, RandomStream(seed))
    found, listed = drawn(row, bits, chain, RandomStream(seed)), shown(row, bits, chain, RandomStream(seed))
    is_near_an_edge = kind != "any" or fields["top_k"] == 129 or fields["min_keep"]
    assert found is not None or is_near_an_edge
    if found is not None:
        assert found == (wanted.token, pytest.approx(wanted.prob, rel=1e-9))
    if listed is not None:
        assert (listed.token, listed.prob) == found
        assert np.array_equal(listed.ids, wanted.ids)
        assert listed.probs == pytest.approx(wanted.probs, rel=1e-9)
        assert np.array_equal(listed.logits, shaped[wanted.ids])


def test_the_tables_name_transforms():
    assert FAST.keys() <= TRANSFORMS.keys()
    assert CODES.keys() <= TRANSFORMS.keys()


FAR = [3.4e38, -3.4e38, 3.39e38, 2.5e38, 1e38, -1e38, 5.0, 0.0]


@settings(deadline=None)
@given(
    st.sampled_from([3, 65, 1500]), st.integers(0, 2**32), st.integers(0, 8),
    st.sampled_from([0, 0.5, 0.7, 0.001, 1e-9, 1.0, 2.0]), st.sampled_from(ROADS), st.sampled_from([0, 10, 900]),
    st.fixed_dictionaries({}, optional={
        "repetition_penalty": st.sampled_from([1e-320, 1e-30, 1e300]), "dynatemp_range": st.sampled_from([0.5, 1e308]),
        "frequency_penalty": st.sampled_from([-3.4e38, 1e300]), "presence_penalty": st.sampled_from([3.4e38, -1e300]),
        "logit_bias": st.just({0: 3.4e38, 1: -1e308, 2: 1e308}), "top_n_sigma": st.sampled_from([1.0, 1e308]),
        "top_p": st.just(0.9), "min_p": st.just(0.05), "top_k": st.just(40), "typical_p": st.just(0.5),
        "dry_multiplier": st.just(1e300), "sampler_order": st.permutations(DEFAULT_ORDER).map(tuple),
    }),
)  # fmt: skip
def test_what_is_finite_stays_finite_on_both_paths(width, seed, far, temperature, path, count, fields):
    off = {"top_p": 1.0, "min_p": 0.0, "top_k": 0}
    row = row_of(width, seed, "any", 4.0)
    row[np.random.default_rng(seed).integers(width, size=far)] = FAR[:far]
    chain = chain_for(SamplingConfig(temperature=temperature, **off | fields), [1, 2, 0, 1, 2, 0, 1], width)
    bits = allow(width, seed, count) if count else None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        same(row, bits, chain, seed, **path)
        warm = heated(row, chain, plain=path.get("plain", 1024))
        assert np.array_equal(warm, chain.heat(row))
    assert np.isfinite(warm).all() or fields.get("dynatemp_range")  # which may come down to 0


def test_the_best_stays_the_best_where_the_division_leaves_float_range():
    for sign in (1, -1):
        row = np.float32(sign) * np.array([3.0e38, 3.2e38, 3.4e38, 3.1e38], dtype=np.float32)
        chain = Chain(SamplingConfig(temperature=0.7, repetition_penalty=1.0, top_k=0, top_p=1.0, min_p=0.0))
        shaped = chain.shape(row)
        assert np.isfinite(shaped).all()
        assert draw(shaped, RandomStream(1)).prob == 1.0
        assert choose(row, None, chain, RandomStream(1)).token == int(np.argmax(row))
