"""Where the server's arithmetic may have decided either way, both are followed or nothing is; just beyond, neither."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from espalier.upstream.xray.distribution import ReportedTokens
from espalier.upstream.xray.replay import SamplerReplay
from espalier.upstream.xray.sampler import steps
from espalier.upstream.xray.sampler.candidates import UndecidedDraw
from espalier.upstream.xray.sampler.chain import SamplerPosition, _mirostat_1
from tests.unit.upstream.xray.test_sampler_steps import OFF, candidates, kept, with_probs

NEAR, FAR = 1e-6, 2e-5


@pytest.mark.parametrize(("off", "counts"), [(0.0, [2, 3]), (NEAR, [2, 3]), (-NEAR, [2, 3]), (FAR, [3]), (-FAR, [2])])
@pytest.mark.parametrize("least", [0, 2, 3, 4])
def test_top_p_at_a_sum_that_is_near_p(off: float, counts: list[int], least: int) -> None:
    given = with_probs(0.5, 0.25, 0.125, 0.125)
    found = steps.top_p(given, replace(OFF, top_p=0.75 + off, min_keep=least))
    assert kept(found) == [list(range(10, 10 + count)) for count in sorted({max(count, least) for count in counts})]


@pytest.mark.parametrize(("off", "counts"), [(NEAR, [1, 2]), (-NEAR, [1, 2]), (FAR, [2]), (-FAR, [1])])
def test_top_p_near_the_first_sum(off: float, counts: list[int]) -> None:
    found = steps.top_p(with_probs(0.5, 0.25, 0.25), replace(OFF, top_p=0.5 + off))
    assert kept(found) == [list(range(10, 10 + count)) for count in counts]


def test_top_p_near_the_sum_of_all_but_one_may_keep_all() -> None:
    assert kept(steps.top_p(with_probs(0.5, 0.25, 0.25), replace(OFF, top_p=0.75 - NEAR))) == [[10, 11], [10, 11, 12]]


def test_top_p_near_the_sum_of_all_keeps_all() -> None:
    assert kept(steps.top_p(with_probs(0.5, 0.25, 0.25), replace(OFF, top_p=1 - NEAR))) == [[10, 11, 12]]


@pytest.mark.parametrize("reach", [1, 2])
@pytest.mark.parametrize("off", [NEAR, -NEAR, FAR, -FAR])
def test_typical_is_undecided_at_a_sum_that_is_near_p(reach: int, off: float) -> None:
    probs = [0.5, 0.3, 0.15, 0.05]
    entropy = -sum(prob * math.log(prob) for prob in probs)
    order = sorted(range(4), key=lambda place: abs(-math.log(probs[place]) - entropy))
    p = sum(probs[place] for place in order[:reach]) + off
    if abs(off) == NEAR:
        with pytest.raises(UndecidedDraw):
            steps.typical(with_probs(*probs), replace(OFF, typical_p=p))
        return
    count = reach + (off > 0)
    assert kept(steps.typical(with_probs(*probs), replace(OFF, typical_p=p))) == [[10 + one for one in order[:count]]]


def test_typical_is_undecided_where_two_are_as_near_to_the_entropy() -> None:
    with pytest.raises(UndecidedDraw):
        steps.typical(with_probs(0.4, 0.3, 0.3), replace(OFF, typical_p=0.2))
    found = steps.typical(with_probs(0.3, 0.5, 0.1, 0.1), replace(OFF, typical_p=0.2))
    assert len(found[0].ids) == 1, "equal ones that come later are not drawn from"


@pytest.mark.parametrize(("off", "is_decided"), [(NEAR, False), (-NEAR, False), (FAR, True), (-FAR, True)])
def test_xtc_is_undecided_where_a_probability_is_near_the_threshold(off: float, is_decided: bool) -> None:
    settings = replace(OFF, samplers=("xtc",), xtc_probability=0.5, xtc_threshold=0.25 + off)
    given = with_probs(0.5, 0.25, 0.15, 0.1)
    if not is_decided:
        with pytest.raises(UndecidedDraw):
            steps.xtc(given, settings, np.float32(0.1))
        return
    assert kept(steps.xtc(given, settings, np.float32(0.1))) == [[11, 12, 13] if off < 0 else [10, 11, 12, 13]]


@pytest.mark.parametrize(("off", "is_decided"), [(NEAR, False), (-NEAR, False), (FAR, False), (-FAR, True)])
def test_min_p_is_undecided_where_an_unlisted_token_may_reach_the_edge(off: float, is_decided: bool) -> None:
    given, settings = candidates([0.0, -0.5], rest=math.log(0.25) + off), replace(OFF, min_p=0.25)
    if is_decided:
        assert kept(steps.min_p(given, settings)) == [[10, 11]]
    else:
        with pytest.raises(UndecidedDraw):
            steps.min_p(given, settings)


@pytest.mark.parametrize(("off", "is_decided"), [(1e-6, False), (2e-5, True)])
def test_top_k_and_temperature_0_are_undecided_where_the_next_one_is_as_good(off: float, is_decided: bool) -> None:
    logits = [2.0, 1.0, 1.0 - off]
    for step, more, given in (
        (steps.top_k, {"top_k": 2}, candidates(logits)),
        (steps.temperature, {"temperature": 0.0}, candidates([1.0, 0.5, 1.0 - off])),
    ):
        if is_decided:
            assert len(step(given, replace(OFF, **more))) == 1
        else:
            with pytest.raises(UndecidedDraw):
                step(given, replace(OFF, **more))


@pytest.mark.parametrize(("off", "counts"), [(1e-5, [4, 5]), (-1e-5, [4, 5]), (1e-4, [5]), (-1e-4, [4])])
def test_mirostat_1_near_a_whole_number_may_keep_one_less(off: float, counts: list[int]) -> None:
    weights = [1 / place**1.3 for place in range(1, 60)]
    probs = np.array([weight / sum(weights) for weight in weights], dtype=np.float32)
    logs = [(math.log((i + 1) / i), math.log(probs[i - 1] / probs[i])) for i in range(1, len(probs))]
    s_hat = sum(t * b for t, b in logs) / sum(t * t for t, _ in logs)
    k = 5 * (1 + off)
    mu = math.log2(k**s_hat * (1 - 100 ** (1 - s_hat)) / (s_hat - 1))
    assert _mirostat_1(probs, mu, 100) == counts


def replay(draws: list[tuple[int, Any]]) -> SamplerReplay:
    """draws: tokens, and the place after each. The grammar refuses token 6, and what is drawn then is not decided."""

    def draw(_given: Any, _place: Any, _past: Any, allowed: Any = None) -> list[Any]:
        if allowed is not None:
            raise UndecidedDraw
        return [SimpleNamespace(token=token, after=after) for token, after in draws]

    states: Any = SimpleNamespace(
        start=SimpleNamespace(stacks=[1]),
        allows=lambda _state, token, _begun: token != 6,
        allowed=lambda _state, ids, _begun: ids != 6,
        mask=lambda _state, _begun: np.arange(9) != 6,
    )
    chain: Any = SimpleNamespace(start=SamplerPosition(), settings=OFF, draw=draw)
    return SamplerReplay(chain, states, [])


REPORTED = ReportedTokens(ids=np.array([5, 6]), logprobs=np.log(np.array([0.6, 0.3], dtype=np.float32)), width=9)
HERE, THERE = SamplerPosition(draws=1), SamplerPosition(draws=1, chances=1)


def test_a_draw_that_may_have_used_a_number_more_does_not_decide_a_step() -> None:
    assert replay([(5, HERE)]).decides(5, REPORTED)
    assert not replay([(5, HERE), (5, THERE)]).decides(5, REPORTED), "later steps would be in doubt"
    assert replay([(5, HERE), (5, HERE)]).decides(5, REPORTED)
    assert not replay([(5, HERE), (6, HERE)]).decides(5, REPORTED), "it was accepted, or the second draw"
    assert not replay([(7, HERE)]).decides(5, REPORTED), "it contradicts the server"


def test_no_token_is_predicted_where_a_refusal_may_lead_to_any() -> None:
    assert replay([(5, HERE)]).predict(REPORTED) == 5
    assert replay([(5, HERE), (6, HERE)]).predict(REPORTED) is None
    assert replay([(6, HERE)]).predict(REPORTED) is None


def test_a_token_fits_that_was_drawn_or_may_have_been_after_a_refusal() -> None:
    assert replay([(5, HERE)]).fits(5, REPORTED)
    assert not replay([(5, HERE)]).fits(7, REPORTED)
    assert replay([(6, HERE)]).fits(7, REPORTED)
    assert not replay([(6, HERE)]).fits(6, REPORTED), "the grammar refuses it"
    assert replay([(5, HERE)]).fits(7, None), "nothing was reported that speaks against it"
