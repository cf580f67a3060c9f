"""Each transform against its definition, written as a loop."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from espalier.sampling import transforms

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
    out = transforms.temperature(row, value)
    assert kept(out) == kept(row)
    assert np.allclose(out[row > -np.inf], row[row > -np.inf] / value, atol=1e-5)


@given(LOGITS, st.floats(0.0, 1e-3, exclude_min=True))
def test_a_tiny_temperature_bans_nothing_and_gives_no_nan(row, value):
    out = transforms.temperature(row, value)
    assert kept(out) == kept(row)
    assert not np.isnan(out).any()
    assert int(np.argmax(out)) == int(np.argmax(row))


@given(LOGITS)
def test_temperature_zero_keeps_the_best_with_the_lowest_id(row):
    assert kept(transforms.temperature(row, 0.0)) == {ranked(row)[0]}


@given(LOGITS, st.integers(0, 10), st.floats(0.0, 1.0), st.floats(0.0, 1.0), st.floats(0.0, 2.0))
def test_no_transform_changes_its_argument_or_removes_everything(row, k, p, m, t):
    before = row.copy()
    for out in (
        transforms.top_k(row, k),
        transforms.top_p(row, p),
        transforms.min_p(row, m),
        transforms.temperature(row, t),
    ):
        assert kept(out)
        assert out.dtype == np.float32
    assert np.array_equal(row, before)


def test_transforms_equal_transformers_warpers_on_random_logits():
    torch = pytest.importorskip("torch")
    process = pytest.importorskip("transformers.generation.logits_process")
    rng = np.random.default_rng(0)
    for _ in range(20):
        row = rng.standard_normal(500).astype(np.float32) * 3
        batch = torch.from_numpy(row[None].copy())
        ours_theirs = (
            (transforms.top_k(row, 17), process.TopKLogitsWarper(17)),
            (transforms.top_p(row, 0.8), process.TopPLogitsWarper(0.8)),
            (transforms.min_p(row, 0.1), process.MinPLogitsWarper(0.1)),
            (transforms.temperature(row, 0.6), process.TemperatureLogitsWarper(0.6)),
        )
        for ours, warper in ours_theirs:
            theirs = warper(None, batch.clone())[0].numpy()
            assert np.allclose(ours, theirs, atol=1e-5)
