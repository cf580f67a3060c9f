"""Adaptive weighted rejection: the law and the estimate, by exact enumeration of every order of draws."""

import math
from collections import defaultdict
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from espalier.decoding.faithful.awrs import Urn, sample
from espalier.sampling.draw import RandomStream
from tests.examples import examples

P = [0.4, 0.25, 0.15, 0.1, 0.06, 0.04]


class More(Exception):
    """The script is at its end: this many tokens could be next."""


class Scripted:
    """An urn whose draws are given; it keeps the probability of what was drawn."""

    def __init__(self, weights, script):
        self.weights, self.script = weights, list(script)
        self.gone, self.probability = [], 1.0

    @property
    def open(self):
        return [token for token, weight in enumerate(self.weights) if weight > 0 and token not in self.gone]

    @property
    def is_empty(self):
        return not self.open

    @property
    def left(self):
        return math.fsum(self.weights[token] for token in self.open)

    def draw(self):
        if not self.script:
            raise More(self.open)
        token = self.script.pop(0)
        self.probability *= self.weights[token] / self.left
        self.gone.append(token)
        return token, self.weights[token]


def every_run(weights, allowed, **options):
    """(probability, what was found), for every order of draws."""
    scripts = [()]
    while scripts:
        script = scripts.pop()
        urn = Scripted(weights, script)
        asked = []
        try:
            found = sample(urn, lambda token: (asked.append(token), token in allowed)[1], **options)  # noqa: B023
        except More as more:
            scripts += [(*script, token) for token in more.args[0]]
            continue
        assert asked == urn.gone  # only what was drawn is asked about, once
        yield urn.probability, found


@pytest.mark.parametrize("checks", [1, 2, 4])
@pytest.mark.parametrize("most", [1, 2, 99])
@pytest.mark.parametrize("size", [1, 2, 3, 5, 6])
def test_the_mean_of_weight_times_token_is_the_probability_of_each_allowed_token(size, most, checks):
    for allowed in [*combinations(range(len(P)), size)][:: size + 1]:
        means, total, failed = defaultdict(float), 0.0, 0.0
        for probability, found in every_run(P, allowed, most=most, checks=checks):
            total += probability
            if found.token is None:  # the caller then draws by the mask, with the exact mass as its weight
                failed += probability
                assert len(found.refused) == most
            else:
                means[found.token] += probability * found.mass
                assert P[found.token] - 1e-12 <= found.mass <= 1 + 1e-12
        assert total == pytest.approx(1)
        for token in allowed:
            assert means[token] + failed * P[token] == pytest.approx(P[token], abs=1e-12)
        assert set(means) <= set(allowed)


def test_the_token_has_the_law_of_p_on_the_allowed_set_and_the_mean_given_any_token_is_its_mass():
    allowed = {1, 2, 5}
    mass = math.fsum(P[token] for token in allowed)
    law, means = defaultdict(float), defaultdict(float)
    for probability, found in every_run(P, allowed):
        law[found.token] += probability
        means[found.token] += probability * found.mass
    for token in allowed:
        assert law[token] == pytest.approx(P[token] / mass)
        assert means[token] / law[token] == pytest.approx(mass)


def test_one_check_is_the_recursive_estimator_of_the_paper():
    """Lipkin et al.: the product of (1 - share of what is left) over the refused, times the accepted one's share if the
    next is refused."""
    allowed = {0, 3}
    for _, found in every_run(P, allowed, checks=1):
        product, left = 1.0, 1.0
        for token in found.refused:
            product *= 1 - P[token] / left
            left -= P[token]
        assert any(found.mass == pytest.approx(product * last) for last in (1.0, P[found.token] / left)), found


def test_nothing_allowed_is_found_out_after_everything_was_asked_once():
    for _, found in every_run(P[:4], set(), most=99):
        assert found.token is None
        assert sorted(found.refused) == [0, 1, 2, 3]


def test_more_checks_make_the_estimate_less_noisy():
    def variance(checks):
        runs = [(probability, found.mass) for probability, found in every_run(P, {0, 2, 4}, checks=checks)]
        mean = math.fsum(p * mass for p, mass in runs)
        return math.fsum(p * (mass - mean) ** 2 for p, mass in runs)

    assert variance(1) > variance(2) > variance(4)


@given(st.lists(st.floats(1e-12, 1.0) | st.just(0.0), min_size=1, max_size=40), st.integers(0, 2**32 - 1))
@settings(max_examples=examples(200))
def test_an_urn_gives_each_token_once_and_keeps_its_mass_to_the_last_digits(weights, seed):
    urn = Urn(np.array(weights), RandomStream(seed).next)
    left = {token: weight for token, weight in enumerate(weights) if weight > 0}
    while not urn.is_empty:
        assert urn.left == pytest.approx(math.fsum(left.values()), rel=1e-12)
        token, weight = urn.draw()
        assert left.pop(token) == weight
    assert left == {}
    assert urn.left == 0.0


def test_an_urn_draws_in_proportion_to_what_is_left():
    runs, seen = 6000, defaultdict(int)
    for seed in range(runs):
        urn = Urn(np.array([0.7, 0.2, 0.1]), RandomStream(seed).next)
        seen[tuple(urn.draw()[0] for _ in range(3))] += 1
    expected = {
        (0, 1, 2): 0.7 * 2 / 3,
        (0, 2, 1): 0.7 / 3,
        (1, 0, 2): 0.2 * 7 / 8,
        (1, 2, 0): 0.2 / 8,
        (2, 0, 1): 0.1 * 7 / 9,
        (2, 1, 0): 0.1 * 2 / 9,
    }
    assert sum(expected.values()) == pytest.approx(1)
    chi_squared = sum((seen[order] - runs * p) ** 2 / (runs * p) for order, p in expected.items())
    assert chi_squared < 20.5  # 5 degrees of freedom, p = 0.001
