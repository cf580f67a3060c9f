"""The numbers of a step against the same sums written plainly in NumPy."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.trace.measure import allowed_mass, measure

made = st.tuples(st.sampled_from([1, 2, 13, 300, 5000]), st.integers(0, 2**32), st.sampled_from([0.1, 3.0, 400.0]))


def entropy(logits):
    """Entropy in nats, and ln of the sum of exp."""
    values = logits[logits > -np.inf].astype(np.float64)
    top = values.max()
    total = math.log(np.exp(values - top).sum()) + top
    probs = np.exp(values - total)
    return max(0.0, float(-(probs * (values - total)).sum())), total


@given(made, st.floats(0, 1))
def test_measures_are_the_plain_sums(of, share):
    width, seed, scale = of
    rng = np.random.default_rng(seed)
    row = rng.normal(scale=scale, size=width).astype(np.float32)
    row[rng.random(width) < 0.1] = -np.inf
    allowed = rng.random(width) < share
    row[0], allowed[0] = -2.0, True
    found = measure(row, allowed)
    before, log_total = entropy(row)
    after, log_allowed = entropy(row[allowed])
    tax = max(0.0, log_total - log_allowed)
    expected = (-math.expm1(-tax), tax, before, after, log_total, log_allowed)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-9)
    assert allowed_mass(row, allowed) == pytest.approx(math.exp(-tax), rel=1e-9, abs=1e-300)
    assert allowed_mass(row, None) == 1.0
    assert measure(row, None) == pytest.approx((0.0, 0.0, before, before, log_total, log_total), rel=1e-9, abs=1e-9)
