"""Each transform against its definition, written as a loop."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from espalier.sampling.samplers import mirostat
from espalier.sampling.samplers import truncations as transforms
from espalier.sampling.samplers.dry import dry
from espalier.sampling.samplers.penalties import penalties
from espalier.sampling.samplers.temperature import dynamic_temperature, temperature

LOGITS = hnp.arrays(
    np.float32,
    st.integers(1, 40),
    elements=st.one_of(st.integers(-6, 6).map(float), st.just(-math.inf)),  # integers make ties
).filter(lambda row: bool((row > -np.inf).any()))


def ranked(row):
    """Ids of finite logits, most probable first, ties by id."""
    return sorted((i for i in range(len(row)) if row[i] > -np.inf), key=lambda i: (-row[i], i))


def kept(row):
    return {int(i) for i in np.flatnonzero(row > -np.inf)}


def softmax(values):
    top = max(values)
    weights = [math.exp(v - top) for v in values]
    return [w / sum(weights) for w in weights]


@given(LOGITS, st.integers(0, 45))
def test_top_k_keeps_exactly_k_and_ties_go_to_the_lowest_id(row, k):
    expected = set(ranked(row)[:k]) if k else kept(row)
    assert kept(transforms.top_k(row, k)) == expected


@given(LOGITS, st.floats(0.0, 1.0))
def test_top_p_keeps_until_the_mass_is_reached(row, p):
    order = ranked(row)
    probs = softmax([float(row[i]) for i in order])
    expected, mass = set(), 0.0
    for token, prob in zip(order, probs, strict=True):
        expected.add(token)
        mass += prob
        if mass >= p and p < 1.0:
            break
    found = kept(transforms.top_p(row, p))
    # Sums in another order may differ in the last bit exactly at the edge; then one token more or less is right.
    assert found == expected or abs(mass - p) < 1e-9 or len(found ^ expected) == 1


@given(LOGITS, st.floats(0.0, 1.0))
def test_min_p_keeps_what_is_near_the_best(row, p):
    best = float(row.max())
    for i, value in enumerate(row):
        ratio = math.exp(float(value) - best)
        if abs(ratio - p) > 1e-5:
            assert (i in kept(transforms.min_p(row, p))) == (value > -np.inf and ratio >= p)


@given(LOGITS, st.floats(0.05, 5.0))
def test_temperature_divides_and_keeps_bans(row, value):
    out = temperature(row, value)
    assert kept(out) == kept(row)
    assert np.allclose(out[row > -np.inf], row[row > -np.inf] / value, atol=1e-5)


@given(LOGITS, st.floats(0.0, 1e-3, exclude_min=True))
def test_a_tiny_temperature_bans_nothing_and_gives_no_nan(row, value):
    out = temperature(row, value)
    assert kept(out) == kept(row)
    assert not np.isnan(out).any()
    assert int(np.argmax(out)) == int(np.argmax(row))


@given(LOGITS)
def test_temperature_zero_keeps_the_best_with_the_lowest_id(row):
    assert kept(temperature(row, 0.0)) == {ranked(row)[0]}


@given(LOGITS, st.integers(0, 10), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 2.0))
def test_no_transform_changes_its_argument_or_removes_everything(row, k, p, m, t):
    before = row.copy()
    for out in (transforms.top_k(row, k), transforms.top_p(row, p), transforms.min_p(row, m), temperature(row, t)):
        assert kept(out)
        assert out.dtype == np.float32
    assert np.array_equal(row, before)


@given(LOGITS, st.floats(0.01, 0.99), st.integers(0, 12))
def test_typical_p_keeps_the_least_surprising_surprises_until_the_mass_is_exceeded(row, p, min_keep):
    order = ranked(row)
    probs = softmax([float(row[i]) for i in order])
    entropy = -sum(q * math.log(q) for q in probs if q)
    nearest = sorted(range(len(order)), key=lambda n: (abs(-math.log(max(probs[n], 1e-300)) - entropy), n))
    expected, mass = set(), 0.0
    for n in nearest:
        expected.add(order[n])
        mass += probs[n]
        if mass > p and len(expected) >= min_keep:
            break
    found = kept(transforms.typical_p(row, p, min_keep))
    # The last bit of a mass, or of two distances that are equal on paper, may fall either way.
    assert len(found) == len(expected) or abs(len(found) - len(expected)) == 1


@given(LOGITS, st.floats(0.1, 4.0))
def test_top_n_sigma_keeps_what_is_within_n_deviations_of_the_best(row, n):
    values = [float(v) for v in row if v > -np.inf]
    mean = sum(values) / len(values)
    edge = max(values) - n * math.sqrt(sum((v - mean) ** 2 for v in values) / len(values))
    for i, value in enumerate(row):
        if abs(float(value) - edge) > 1e-5:
            assert (i in kept(transforms.top_n_sigma(row, n))) == (value > -np.inf and value >= edge)


@given(LOGITS, st.floats(0.0, 0.6), st.floats(0.0, 1.0), st.floats(0.0, 0.99), st.integers(0, 6))
def test_xtc_removes_the_top_but_the_last_that_reaches_the_threshold(row, threshold, probability, chance, min_keep):
    order = ranked(row)
    above = [i for i, p in zip(order, softmax([float(row[i]) for i in order]), strict=True) if p >= threshold]
    expected = set(order[max(0, len(above) - 1) :])
    is_off = probability == 0 or threshold > 0.5 or chance > probability or len(expected) < min_keep
    found = kept(transforms.xtc(row, probability, threshold, chance, min_keep))
    assert found == (set(order) if is_off else expected)


@given(LOGITS, st.floats(0.0, 1.0), st.integers(0, 12))
def test_min_keep_leaves_the_most_probable(row, p, min_keep):
    order = ranked(row)
    for out in (transforms.top_p(row, p, min_keep), transforms.min_p(row, p, min_keep)):
        assert set(order[:min_keep]) <= kept(out)


@given(LOGITS, st.floats(0.0, 2.0), st.floats(0.01, 2.0), st.floats(0.0, 3.0))
def test_dynamic_temperature_lies_between_its_bounds_and_bans_nothing(row, value, spread, exponent):
    out = dynamic_temperature(row, value, spread, exponent)
    low, high = max(0.0, value - spread), value + spread
    values = [float(v) for v in row if v > -np.inf]
    if len(values) == 1:
        assert np.array_equal(out, row)
        return
    probs = softmax(values)
    entropy = -sum(p * math.log(p) for p in probs if p)
    heat = low + (high - low) * (entropy / math.log(len(values))) ** exponent
    if heat > 1e-2:
        assert kept(out) == kept(row)
        inside = row > -np.inf
        assert np.allclose(
            out[inside] - out[inside].max(), (row[inside] - row[inside].max()) / heat, rtol=1e-3, atol=1e-3
        )


def test_penalties_by_hand():
    row = np.array([2.0, -2.0, 0.0, 3.0, -np.inf], dtype=np.float32)
    out = penalties(row, 2.0, 0.5, 0.25, {0: 2, 1: 1, 2: 1, 4: 3, 99: 1}, {0: 2, 4: 1})
    assert out.tolist() == [1.0 - 2 * 0.5 - 0.25, -4.0, 0.0, 3.0, -math.inf]
    assert row[0] == 2.0


@pytest.mark.parametrize("repetition", [0.0, 1e-40, 1e38, 1e300])
def test_penalties_give_neither_nan_nor_infinity_nor_a_ban(repetition):
    row = np.array([5.0, -5.0, 0.0], dtype=np.float32)
    out = penalties(row, repetition, 1e38, 0.0, {0: 1, 1: 1, 2: 1}, {0: 9})
    assert np.isfinite(out).all()


def test_dry_by_hand():
    row = np.zeros(6, dtype=np.float32)
    # The end 1 2 occurred before 3; with 5 in front once more: 5 1 2.
    history = [5, 1, 2, 3, 1, 2, 4, 5, 1, 2]
    options = {"multiplier": 1.0, "base": 2.0, "allowed_length": 2, "window": -1}
    assert dry(row, history, **options).tolist() == [0, 0, 0, -2.0, -1.0, 0]
    assert dry(row, history, **options, breakers={5: ((),)}).tolist() == [0, 0, 0, -1.0, -1.0, 0]
    assert dry(row, history, **options, breakers={3: ((),)}).tolist() == [0, 0, 0, 0, -1.0, 0]
    assert dry(row, history, **options | {"window": 5}) is not None
    assert dry(row, history, **options | {"multiplier": 0.0}) is row


@pytest.mark.parametrize("base", [1.0, 1.0000001, 4.0, 1e300])
def test_dry_gives_no_infinity(base):
    row = np.zeros(4, dtype=np.float32)
    out = dry(row, [1, 2] * 300, multiplier=5.0, base=base, allowed_length=0, window=-1)
    assert np.isfinite(out).all()
    assert out[1] < 0


@given(LOGITS, st.floats(-5, 40))
def test_both_mirostats_keep_the_most_probable_and_at_least_one(row, mu):
    order = ranked(row)
    for version in (1, 2):
        found = kept(mirostat.MIROSTATS[version](row, mu))
        assert found == set(order[: len(found)])
        assert found
    surprises = [-math.log2(p) for p in softmax([float(row[i]) for i in order])]
    if all(abs(s - mu) > 1e-9 for s in surprises):
        assert len(kept(mirostat.mirostat_2(row, mu))) == max(1, sum(s <= mu for s in surprises))


@pytest.mark.parametrize("mu", [-1e9, 0.0, 1e9])
def test_mirostat_1_on_equal_logits_and_on_wild_ones_keeps_something(mu):
    for row in (np.zeros(50, dtype=np.float32), np.array([1e4, 0, -1e4], dtype=np.float32)):
        assert kept(mirostat.mirostat_1(row, mu))
