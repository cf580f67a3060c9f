"""Every sampler, orders of them, DRY and mirostat against llama.cpp's own code; and where we differ on purpose."""

import math

import numpy as np
import pytest

from espalier import SamplingConfig, Vocab
from espalier.sampling.chain import Chain
from espalier.sampling.draw import RandomStream
from espalier.sampling.fit import fit
from espalier.sampling.samplers.context import TransformContext
from espalier.sampling.samplers.dry import resolve_breakers
from espalier.sampling.samplers.registry import TRANSFORMS
from tests.llama_grammar import LlamaVocab, library, write_vocab_gguf
from tests.llama_samplers import LlamaChain, make, samplers

OFF = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
WIDTHS = (32, 1000, 32000)
EDGE = 2e-3  # mass by which an edge may lie elsewhere: llama.cpp sums V probabilities in float32, one after the other
TIED_EDGE = 0.05  # where thousands are equal, its errors all go the same way
FIELDS = {
    "penalties": [
        {"repetition_penalty": 1.3},
        {"repetition_penalty": 0.7, "repetition_window": 5},
        {"frequency_penalty": 0.4, "presence_penalty": -0.3, "repetition_window": -1},
        {"repetition_penalty": 1.1, "frequency_penalty": 0.2, "presence_penalty": 0.5, "repetition_window": 40},
    ],
    "top_n_sigma": [{"top_n_sigma": 0.5}, {"top_n_sigma": 1.5}, {"top_n_sigma": 4.0}],
    "top_k": [{"top_k": 1}, {"top_k": 7}, {"top_k": 200}, {"top_k": 10**6}, {"top_k": 3, "min_keep": 9}],
    "typical_p": [{"typical_p": 0.2}, {"typical_p": 0.9}, {"typical_p": 0.05, "min_keep": 6}],
    "top_p": [{"top_p": 0.0}, {"top_p": 0.3}, {"top_p": 0.95}, {"top_p": 0.1, "min_keep": 12}],
    "min_p": [{"min_p": 0.02}, {"min_p": 0.5}, {"min_p": 1.0}, {"min_p": 0.6, "min_keep": 9}],
    "xtc": [
        {"xtc_probability": 1.0, "xtc_threshold": 0.02},
        {"xtc_probability": 1.0, "xtc_threshold": 0.1},
        {"xtc_probability": 1.0, "xtc_threshold": 0.01, "min_keep": 30},
        {"xtc_probability": 1.0, "xtc_threshold": 0.6},
    ],
    "temperature": [
        {"temperature": 0.6},
        {"temperature": 3.0},
        {"temperature": 0.8, "dynatemp_range": 0.5},
        {"temperature": 0.3, "dynatemp_range": 0.6, "dynatemp_exponent": 2.0},
    ],
}


def rows(width, seed):
    """Plain ones, and one with many ties."""
    rng = np.random.default_rng(seed)
    for scale in (1.0, 4.0):
        yield (rng.standard_normal(width) * scale).astype(np.float32)
    yield np.round(rng.standard_normal(width) * 2).astype(np.float32)


def config_of(*fields, **more):
    merged = dict(OFF)
    for one in fields:
        merged |= one
    return SamplingConfig(**merged | more)


def shaped(row, config, history=(), breakers=None):
    """Ours, all of the history taken as output, as llama.cpp counts it."""
    context = TransformContext.of(config, history, len(history), chance=0.5, mu=0.0, breakers=breakers or {})
    for name in config.active:
        row = TRANSFORMS[name](row, context)
    return row


def theirs(row, config, history=(), vocab=None):
    chain = LlamaChain.of(config, row.shape[0], vocab=vocab)
    chain.accept(history)
    out = chain.apply(row)
    chain.close()
    return out


def edge_of(row):
    return TIED_EDGE if row.shape[0] > 100 * np.unique(row).shape[0] else EDGE


def probs(row):
    weights = np.exp(row.astype(np.float64) - float(row.max()))
    return weights / weights.sum()


def assert_same(ours, other, before, edge=EDGE):
    """The same candidates with the same logits; of equal ones any; and what differs lies at an edge."""
    a, b = np.sort(ours[ours > -np.inf]), np.sort(other[other > -np.inf])
    if a.shape == b.shape and np.allclose(a, b, rtol=2e-6, atol=2e-6):
        both = (ours > -np.inf) & (other > -np.inf)
        assert np.allclose(ours[both], other[both], rtol=2e-6, atol=2e-6)
        return
    differing = (ours > -np.inf) != (other > -np.inf)
    assert float(probs(before)[differing].sum()) < edge, np.flatnonzero(differing)


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", FIELDS)
def test_each_sampler_equals_llama_cpps(name, width):
    for place, fields in enumerate(FIELDS[name]):
        config = config_of(fields)
        for row in rows(width, place):
            history = [int(i) for i in np.random.default_rng(place).integers(0, width, 60)]
            assert_same(shaped(row, config, history), theirs(row, config, history), row, edge_of(row))


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", [name for name in FIELDS if name != "typical_p"])
def test_removed_tokens_stay_removed_as_in_llama_cpp(name, width):
    for place, fields in enumerate(FIELDS[name]):
        config = config_of(fields, dynatemp_range=0.0, min_keep=0)  # see the differences below
        for row in rows(width, place):
            row[np.random.default_rng(place).random(width) < 0.4] = -np.inf
            history = [int(i) for i in np.random.default_rng(place).integers(0, width, 60)]
            out = shaped(row, config, history)
            assert bool((out[row == -np.inf] == -np.inf).all())
            assert_same(out, theirs(row, config, history), row, edge_of(row))


@pytest.fixture(scope="module")
def dry_vocab(tmp_path_factory):
    """A vocabulary that llama.cpp has too, and that is split as llama.cpp splits it."""
    tokens = [bytes([b]) for b in range(256)] + [b"ab", b"bc", b"a\n", b"x:y", b"\xc3\xa9", b"abc", b"caf", b""]
    vocab = Vocab.from_tokens(tokens, eos_ids=[len(tokens) - 1])
    path = tmp_path_factory.mktemp("dry") / "vocab.gguf"
    library()
    write_vocab_gguf(vocab, path)
    llama = LlamaVocab(path)
    return Vocab.from_tokens(tokens, eos_ids=[len(tokens) - 1], encoder=llama.tokenize), llama


DRY = {"dry_multiplier": 0.9, "dry_base": 1.5, "dry_allowed_length": 1, "dry_breakers": ("\n",)}


@pytest.mark.parametrize("seed", range(60))
def test_random_orders_of_random_samplers_equal_llama_cpps(dry_vocab, seed):
    vocab, llama = dry_vocab
    rng = np.random.default_rng(seed)
    fields = FIELDS | {"dry": [DRY]}
    names = [str(name) for name in rng.permutation(list(fields)) if rng.random() < 0.6]
    chosen = [fields[name][rng.integers(len(fields[name]))] for name in names]
    config = config_of(*chosen, sampler_order=tuple(names))
    removes_softly = "top_n_sigma" in names and ("typical_p" in names or config.dynatemp_range or config.min_keep)
    if removes_softly:  # llama.cpp's top_n_sigma leaves what it removes among the candidates: see the differences
        config = config_of(*chosen, top_n_sigma=0.0, sampler_order=tuple(names))
    breakers = resolve_breakers(config.dry_breakers, vocab)
    for width in WIDTHS:
        row = (rng.standard_normal(width) * 3).astype(np.float32)
        history = [int(i) for i in rng.integers(0, 12, 100)]
        assert_same(shaped(row, config, history, breakers), theirs(row, config, history, llama), row)


BREAKERS = [("\n", ":", '"', "*"), ("ab",), ("abcab", "\n"), ("b",), ("bca", "c"), ("café",)]


@pytest.mark.parametrize("breakers", BREAKERS, ids=repr)
@pytest.mark.parametrize("allowed", [0, 1, 2, 4])
def test_dry_equals_llama_cpps_with_its_sequence_breakers(dry_vocab, breakers, allowed):
    vocab, llama = dry_vocab
    rng = np.random.default_rng(allowed)
    alphabet = [97, 98, 99, 10, 58, 256, 257, 258, 261]
    changed = 0
    for window in (-1, 3, 17):
        config = config_of(
            dry_multiplier=0.8, dry_base=1.75, dry_allowed_length=allowed, dry_window=window, dry_breakers=breakers
        )
        for length in (0, 1, 2, 5, 12, 40, 80):
            letters = alphabet[: 2 + length % 8]
            history = [letters[i] for i in rng.integers(0, len(letters), length)]
            history += history[: 2 * length // 3]  # a repetition that goes on
            row = (rng.standard_normal(vocab.width) * 3).astype(np.float32)
            ours = shaped(row, config, history, resolve_breakers(breakers, vocab))
            assert np.allclose(ours, theirs(row, config, history, llama), rtol=1e-6, atol=1e-6)
            changed += not np.array_equal(ours, row)
    assert changed or allowed == 4  # with breakers this near, no repetition is so long


def test_dry_on_a_long_loop_equals_llama_cpps_where_the_penalty_leaves_float_range(dry_vocab):
    vocab, llama = dry_vocab
    config = config_of(dry_multiplier=0.5, dry_base=4.0, dry_breakers=("\n",))
    history = [97, 98] * 200
    row = np.linspace(-3, 3, vocab.width, dtype=np.float32)
    ours = shaped(row, config, history, resolve_breakers(("\n",), vocab))
    assert np.allclose(ours, theirs(row, config, history, llama), rtol=1e-5)
    assert bool(np.isfinite(ours).all())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("version", [1, 2])
def test_mirostat_keeps_what_llama_cpps_keeps_along_a_sequence(version, width):
    lib = samplers()
    config = SamplingConfig(mirostat=version, mirostat_tau=3.0, mirostat_eta=0.2, temperature=0.9, repetition_penalty=1)
    handle = (
        lib.llama_sampler_init_mirostat(width, 7, 3.0, 0.2, 100)
        if version == 1
        else lib.llama_sampler_init_mirostat_v2(7, 3.0, 0.2)
    )
    llama = LlamaChain([make("temperature", config, width), handle])
    ours = Chain(config)
    rng = np.random.default_rng(version)
    for _ in range(40):
        row = (rng.standard_normal(width) * 2.5).astype(np.float32)
        other, token, prob = llama.run(row)
        mine = ours.shape(row)
        kept = mine > -np.inf
        differing = kept != (other > -np.inf)
        assert int(differing.sum()) <= 1 + 1e-4 * int(kept.sum())  # rounding of a number of tokens
        assert_same(mine, other, row)
        own = probs(mine)[token]
        assert own == pytest.approx(prob, rel=1e-3)
        ours.on_token(token, prob)
    llama.close()


@pytest.mark.parametrize("probability", [0.2, 0.7])
def test_xtc_happens_as_often_as_in_llama_cpp(probability):
    config = config_of(xtc_probability=probability, xtc_threshold=0.1)
    row = np.log(np.array([0.5, 0.3, 0.2], dtype=np.float32))
    llama, ours, stream = LlamaChain.of(config, 3, seed=5), Chain(config), RandomStream(5)
    n = 4000
    found = sum(float(llama.apply(row)[0]) == -math.inf for _ in range(n))
    mine = sum(float(ours.shape(row, stream.next())[0]) == -math.inf for _ in range(n))
    llama.close()
    deviation = math.sqrt(n * probability * (1 - probability))
    assert abs(found - n * probability) < 4 * deviation
    assert abs(mine - n * probability) < 4 * deviation


# Where we differ on purpose: the table in docs/sampling.md.


def test_difference_ties_go_to_the_lowest_id():
    row = np.zeros(200, dtype=np.float32)
    config = config_of(top_k=150)
    assert np.flatnonzero(shaped(row, config) == 0).tolist() == list(range(150))
    assert int((theirs(row, config) == 0).sum()) == 150  # any 150


def test_difference_frequency_and_presence_count_the_output_alone():
    row = np.ones(8, dtype=np.float32)
    config = config_of(frequency_penalty=0.5, presence_penalty=0.25)
    chain = Chain(config)
    chain.start([3, 3])
    chain.on_token(4)
    assert chain.shape(row).tolist() == [1, 1, 1, 1, 0.25, 1, 1, 1]
    assert theirs(row, config, [3, 3, 4]).tolist() == [1, 1, 1, -0.25, 0.25, 1, 1, 1]


def test_difference_greedy_takes_the_best_of_all_and_not_of_what_xtc_and_typical_leave():
    row = np.log(np.array([0.5, 0.3, 0.1, 0.1], dtype=np.float32))
    config = config_of(temperature=0.0, xtc_probability=1.0, xtc_threshold=0.2)
    assert int(np.argmax(Chain(config).shape(row))) == 0
    assert int(np.argmax(theirs(row, config))) == 1


def test_difference_removed_tokens_do_not_spoil_typical():
    row = np.array([2.0, 1.0, 0.0, -np.inf], dtype=np.float32)
    config = config_of(typical_p=0.5)
    alone = shaped(row[:3], config)
    assert np.array_equal(shaped(row, config)[:3], alone)
    # llama.cpp's entropy is NaN here, so what it keeps depends on its sort: nothing to compare.


def test_difference_what_top_n_sigma_removed_is_no_candidate_to_dynamic_temperature():
    row = np.array([3.0, 2.5, 2.0, *[-9.0] * 13], dtype=np.float32)
    config = config_of(top_n_sigma=1.0, temperature=1.0, dynatemp_range=0.5)
    three = config_of(temperature=1.0, dynatemp_range=0.5)
    assert np.allclose(shaped(row, config)[:3], theirs(row[:3], three), rtol=1e-5)
    assert not np.allclose(shaped(row, config)[:3], theirs(row, config)[:3], rtol=1e-2)


def test_difference_min_keep_counts_candidates_alone():
    row = np.log(np.array([0.5, 0.3, 0.2, 1, 1, 1], dtype=np.float32))
    row[3:] = -np.inf
    config = config_of(xtc_probability=1.0, xtc_threshold=0.15, min_keep=2)
    assert np.array_equal(shaped(row, config), row)  # one would be left
    assert int((theirs(row, config) > -np.inf).sum()) == 1  # llama.cpp counts the three that are banned


def test_difference_a_tiny_temperature_stays_finite():
    row = np.array([50.0, 49.0, -50.0], dtype=np.float32)
    config = config_of(temperature=1e-38)
    assert int((shaped(row, config) > -np.inf).sum()) == 3
    assert bool(np.isinf(theirs(row, config)).any())


def test_difference_mirostat_runs_after_penalties_and_over_the_allowed_tokens_alone():
    config = SamplingConfig(mirostat=2, temperature=1.0, repetition_penalty=2.0)
    chain = Chain(config, fitted=fit(config, Vocab.bytes(), lambda text: list(text.encode())))
    chain.start([0])
    out = chain.shape(np.array([2.0, 1.5, -np.inf], dtype=np.float32))
    assert out.tolist() == [1.0, 1.5, -math.inf]
