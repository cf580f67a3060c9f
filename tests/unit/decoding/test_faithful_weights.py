"""Weights, effective sample size and resampling, against their definitions."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.decoding.faithful.weights import NOTHING, drawn, effective_size, log_mean, log_sum, systematic

logs = st.lists(st.one_of(st.just(NOTHING), st.floats(-40, 40)), min_size=1, max_size=9)
some = logs.filter(lambda found: max(found) > NOTHING)


@given(logs)
def test_sums_and_means_are_those_of_the_weights(found):
    total = math.fsum(math.exp(value) for value in found)
    assert math.exp(log_sum(found)) == pytest.approx(total)
    assert math.exp(log_mean(found)) == pytest.approx(total / len(found))


def test_sums_of_what_no_float_can_hold_are_right():
    assert log_sum([-2000.0, -2000.0]) == pytest.approx(-2000 + math.log(2))
    assert log_sum([2000.0, NOTHING]) == 2000.0
    assert log_sum([]) == log_mean([]) == log_mean([NOTHING]) == NOTHING


@given(some)
def test_the_effective_size_is_the_squared_sum_over_the_sum_of_squares(found):
    weights = np.exp(np.array(found) - max(found))
    assert effective_size(found) == pytest.approx(float(weights.sum() ** 2 / (weights**2).sum()))
    assert 1 <= effective_size(found) <= len(found) + 1e-9


@pytest.mark.parametrize(
    ("found", "expected"),
    [([0.0] * 5, 5), ([-3000.0] * 5, 5), ([0.0, NOTHING, NOTHING], 1), ([math.log(3), 0.0], 1.6), ([NOTHING] * 3, 0)],
)
def test_effective_sizes_worked_out_by_hand(found, expected):
    assert effective_size(found) == pytest.approx(expected, abs=1e-12)


def test_equal_weights_are_exactly_as_many_as_there_are_so_that_nothing_is_resampled_at_a_threshold_of_1():
    for count in range(1, 129):
        assert effective_size([-7.3] * count) == count


@given(some, st.floats(0, 1, exclude_max=True))
def test_a_place_is_drawn_by_the_share_of_the_line_that_it_has_and_never_with_a_weight_of_0(found, uniform):
    place = drawn(found, uniform)
    weights = np.exp(np.array(found) - max(found))
    ends = np.cumsum(weights) / weights.sum()
    assert found[place] > NOTHING
    assert ends[place] - weights[place] / weights.sum() - 1e-12 <= uniform <= ends[place] + 1e-12


@given(some, st.floats(0, 1, exclude_max=True))
def test_resampling_copies_each_as_often_as_its_share_up_to_rounding_and_keeps_places(found, uniform):
    parents = systematic(found, uniform)
    weights = np.exp(np.array(found) - max(found))
    wanted = weights / weights.sum() * len(found)
    for place, want in enumerate(wanted):
        copies = parents.count(place)
        assert math.floor(want - 1e-9) <= copies <= math.ceil(want + 1e-9)
        assert found[place] > NOTHING or copies == 0
        assert copies == 0 or parents[place] == place


@given(st.lists(st.integers(0, 6), min_size=1, max_size=6).filter(any))
def test_resampling_is_unbiased(counts):
    """The mean over the uniform number, exactly: the copies change only where a position meets the end of a share."""
    found = [math.log(count) if count else NOTHING for count in counts]
    total, n = sum(counts), len(counts)
    breaks = sorted({0.0, 1.0, *((sum(counts[:i]) * n / total) % 1 for i in range(1, n))})
    mean = np.zeros(n)
    for low, high in pairwise(breaks):
        if high - low > 1e-9:
            parents = systematic(found, (low + high) / 2)
            mean += (high - low) * np.bincount(parents, minlength=n)
    assert mean == pytest.approx(np.array(counts) * n / total, abs=1e-7)


def test_nothing_is_drawn_where_all_weights_are_0():
    with pytest.raises(ValueError, match="all weights are 0"):
        drawn([NOTHING, NOTHING], 0.5)
    with pytest.raises(ValueError, match="all weights are 0"):
        systematic([NOTHING], 0.5)
