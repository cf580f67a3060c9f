"""Each kernel against a plain way to say the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier import SamplingConfig
from espalier.kernels.group import KernelGroup
from espalier.sampling.chain import Chain
from espalier.sampling.fast.candidates import DRAWS, leaders
from espalier.sampling.fast.codes import FIRST, PENALTIES
from espalier.sampling.fast.kernels import changes, finishing, leading, masked, places, sums
from espalier.sampling.fast.program import NO_IDS, NO_LOSSES, program_of
from espalier.sampling.samplers.dry import longest_repeats
from espalier.sampling.samplers.penalties import LARGEST, penalties
from espalier.tokens import mask as masks
from espalier.trace import measure

SIZES = [1, 31, 32, 33, 64, 65, 200, 255, 256, 257, 1300]
rows = st.tuples(st.sampled_from(SIZES), st.integers(0, 2**32), st.sampled_from(["any", "ties", "holes"])).map(
    lambda made: row_of(*made)
)


def row_of(width, seed, kind):
    rng = np.random.default_rng(seed)
    row = rng.normal(scale=4.0, size=width).astype(np.float32)
    if kind == "ties":
        row = np.round(row / 3) * np.float32(3)
    if kind == "holes":
        row[rng.random(width) < 0.6] = -np.inf
        row[rng.integers(width)] = 1.0
    return row


def test_exp_is_right_to_two_units_in_the_last_place_and_0_far_below():
    row = np.concatenate([-np.geomspace(1e-30, 707, 20_000), [0.0, -0.0]]).astype(np.float32)
    out = np.empty(row.shape[0])
    sums.weights(row, 0.0, out)
    exact = np.exp(row.astype(np.float64))
    assert float(np.abs(out / exact - 1).max()) <= 4.5e-16
    assert out[-1] == out[-2] == 1.0
    sums.weights(np.array([-709, -1e30, -np.inf], dtype=np.float32), 0.0, out)
    assert out[:3].tolist() == [0.0, 0.0, 0.0]


@given(rows, st.floats(0, 1), st.integers(0, 99))
def test_masks_are_walked_as_they_unpack(row, share, seed):
    flags = np.random.default_rng(seed).random(row.shape[0]) < share
    bits = masks.from_bool(flags)
    out = np.empty_like(row)
    masked.mask_row(row, bits.view(np.uint32), out)
    assert np.array_equal(out, np.where(flags, row, np.float32(-np.inf)))
    ids, values = np.empty(int(flags.sum()), dtype=np.int64), np.empty(int(flags.sum()), dtype=np.float32)
    count = masked.gather(row, bits.view(np.uint32), ids, values)
    expected = np.flatnonzero(flags & (row > -np.inf))
    assert np.array_equal(ids[:count], expected)
    assert np.array_equal(values[:count], row[expected])


@given(rows, st.integers(0, 300))
def test_the_leaders(row, place):
    k = 1 + place % row.shape[0]
    ranking = np.argsort(-row, kind="stable")[:k]
    ranking = ranking[row[ranking] > -np.inf]
    for largest in (leaders(row, k), leaders(row.astype(np.float64), k), leading.likely(row, k)):
        assert set(ranking) <= set(largest) or not largest.size
        assert np.array_equal(largest, np.sort(largest))


@given(rows, st.floats(0, 1, exclude_max=True), st.sampled_from([1.0, 0.7, 3.0]))
def test_the_place_of_a_mass(row, uniform, heat):
    values = (row / np.float32(heat)).astype(np.float64)
    top = float(values.max())
    place, weight, total, before, after = sums.find_mass(row, np.float32(heat), top, uniform)
    mass = np.cumsum(np.exp(values - top))
    assert total == pytest.approx(float(mass[-1]), rel=1e-12)
    assert (after, after - before) == pytest.approx((float(mass[place]), weight), rel=1e-9)
    target = uniform * total
    if target - before > 1e-9 * total and after - target > 1e-9 * total:
        assert place == int(np.searchsorted(mass, uniform * mass[-1], side="right"))


@given(rows)
def test_mass_by_bucket(row):
    top = float(row.max())
    masses = np.zeros(64)
    total = sums.mass_by_bucket(row, top, 2.0, masses)
    alive = row[row > -np.inf].astype(np.float64)
    places = np.minimum((top - alive) * 2.0, 63).astype(np.int64)
    expected = np.bincount(places, weights=np.exp(alive - top), minlength=64)
    assert masses == pytest.approx(expected, rel=1e-12, abs=1e-300)
    assert total == pytest.approx(float(expected.sum()), rel=1e-12)


counts = st.dictionaries(st.integers(0, 80), st.tuples(st.integers(1, 4), st.integers(0, 4)), max_size=20)
amounts = st.sampled_from([0.0, 0.3, -2.0, 3e38])


@given(rows, counts, st.sampled_from([1.0, 1.3, 0.5, 0.0, 1e39]), amounts, amounts, st.booleans())
def test_penalties_are_those_of_the_plain_function_bit_by_bit(row, window, repetition, frequency, presence, is_whole):
    seen = {token: pair[0] for token, pair in window.items()}
    said = {token: min(pair) for token, pair in window.items() if min(pair)}
    expected = penalties(row, repetition, frequency, presence, seen, said)
    ids = np.arange(row.shape[0]) if is_whole else np.arange(0, row.shape[0], 3)
    values = row[ids]
    tokens = np.array(list(seen), dtype=np.int64)
    times = np.array([said.get(token, 0) for token in seen], dtype=np.int64)
    amounts = min(repetition, LARGEST), frequency, presence
    program = np.array([0, 0, 0, 1, PENALTIES, *amounts], dtype=np.float64)
    top = np.float32(np.inf)
    changes.change(values, ids[:0] if is_whole else ids, program, FIRST, tokens, times, NO_LOSSES, top)
    assert np.array_equal(values, expected[ids])


@given(st.lists(st.integers(0, 2), min_size=1, max_size=40), st.integers(0, 50), st.integers(0, 4))
def test_repeats_are_those_of_the_plain_loops(history, limit, least):
    same = np.empty(len(history), dtype=np.int64)
    places.repeats(np.array(history, dtype=np.int64), limit, least, same)
    found = {}
    for back in np.flatnonzero(same >= 0):
        token = history[len(history) - back]
        found[token] = max(found.get(token, -1), int(same[back]))
    assert found == longest_repeats(history, len(history), limit, least)


@given(rows, st.integers(0, 99))
def test_the_sums_of_the_measures(row, seed):
    allowed = np.random.default_rng(seed).random(row.shape[0]) < 0.5
    top = float(row.max())
    shifted = row.astype(np.float64) - top
    weights = np.exp(shifted)
    spread = weights * np.maximum(shifted, -746.0)
    expected = [weights.sum(), spread.sum(), weights[allowed].sum(), spread[allowed].sum()]
    words = masks.from_bool(allowed).view(np.uint32)
    assert sums.sum_row(row, words, top) == pytest.approx(expected, rel=1e-11, abs=1e-13)
    assert sums.sum_row(row, words[:0], top)[:2] == pytest.approx(expected[:2], rel=1e-11, abs=1e-13)
    for flags, bits in ((allowed, words), (None, words[:0])):
        by_numpy = measure.sum_plainly(row, flags, top)
        assert by_numpy == pytest.approx(sums.sum_row(row, bits, top), rel=1e-11, abs=1e-13)


def test_the_first_measures_of_an_installation_wait_for_no_kernel(monkeypatch):
    row, allowed = row_of(200, 3, "any"), np.arange(200) < 50
    DRAWS.load()
    compiled = measure.measure(row, allowed)
    monkeypatch.setattr(measure, "DRAWS", KernelGroup("not compiled", [], seconds=1))
    monkeypatch.delattr(measure, "kernels")
    assert measure.measure(row, allowed) == pytest.approx(compiled, rel=1e-12)


@pytest.mark.slow
def test_the_last_kernel_says_when_the_last_digits_decide():
    values = np.zeros(4, dtype=np.float32)
    probs = np.empty(4)

    def finish(uniform, **fields):
        off = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
        program = Chain(SamplingConfig(**off | fields)).kept(program_of).drawing
        ids = np.arange(4)
        return finishing.finish(values, ids, program, 0, NO_IDS, NO_IDS, NO_LOSSES, 0.0, uniform, probs)

    assert finish(0.1, top_p=0.5) == (0, False)  # exactly two tokens are half of the mass
    assert finish(0.1, top_p=0.6) == (0, True)
    assert probs.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, -1.0])
    assert finish(0.5) == (0, False)  # exactly between two tokens
    assert finish(0.75, top_k=2, min_p=0.9) == (1, True)
    assert probs.tolist() == [0.5, 0.5, -1.0, -1.0]
    assert finish(0.1, xtc_probability=1.0, xtc_threshold=0.25) == (0, False)
    assert finish(0.1, typical_p=0.5) == (0, False)
