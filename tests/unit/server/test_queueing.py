"""The simulation behind the sizing table of docs/scale.md, held against formulas of queueing theory."""

from __future__ import annotations

import random

import pytest

from benchmarks.scale.queueing import (
    Service,
    at_random,
    erlang_c,
    from_sample,
    interpolated,
    quantile,
    simulate,
    two_choices,
)


def exponential(rng: random.Random) -> float:
    return rng.expovariate(1.0)


@pytest.mark.parametrize(("servers", "load"), [(1, 0.5), (1, 0.7), (4, 0.8), (20, 0.9)])
def test_one_request_at_a_time_is_the_mmc_queue(servers: int, load: float) -> None:
    service = Service(speeds=[2.0], draw=exponential, most=1)
    runs = [
        simulate(service, replicas=servers, rate=load * servers * 2.0, requests=15_000, seed=seed) for seed in range(2)
    ]
    mean = sum(sum(one) / len(one) for one in runs) / len(runs)
    assert mean == pytest.approx(erlang_c(servers, load * servers * 2.0, 2.0), rel=0.15)


def test_erlang_c_is_the_known_formula() -> None:
    assert erlang_c(1, 0.5, 1.0) == pytest.approx(2.0)  # M/M/1: 1 / (speed - rate)
    assert erlang_c(2, 1.0, 1.0) == pytest.approx(4 / 3)  # M/M/2: 1 / (1 - load^2), load per server 0.5
    with pytest.raises(ValueError, match="without end"):
        erlang_c(2, 2.0, 1.0)


@pytest.mark.parametrize("draw", [exponential, lambda rng: 1.0], ids=["exponential", "constant"])
def test_work_that_is_shared_takes_as_long_on_average_whatever_its_spread(draw: object) -> None:
    """M/G/1 with processor sharing: 1 / (speed - rate)."""
    service = Service(speeds=[1.0], draw=draw, most=10**6)  # type: ignore[arg-type]
    took = [one for seed in range(2) for one in simulate(service, replicas=1, rate=0.6, requests=15_000, seed=seed)]
    assert sum(took) / len(took) == pytest.approx(2.5, rel=0.15)


def test_an_idle_replica_takes_as_long_as_was_measured() -> None:
    service = Service(speeds=[4.0, 6.0], draw=lambda rng: 1.0, most=2)
    took = simulate(service, replicas=100, rate=0.01, requests=200, seed=1)
    assert quantile(took, 0.5) == pytest.approx(0.25)


def test_the_less_busy_of_two_is_faster_than_any() -> None:
    service = Service(speeds=[1.0], draw=exponential, most=50)
    least, most = (
        quantile(simulate(service, replicas=30, rate=24.0, requests=8_000, seed=2, choose=choose), 0.99)
        for choose in (two_choices, at_random)
    )
    assert least < 0.7 * most


def test_speeds_between_measured_ones_lie_on_lines() -> None:
    assert interpolated([(1, 1.0), (2, 2.0), (4, 3.0)]) == [1.0, 2.0, 2.5, 3.0]
    draw = from_sample([2.0, 4.0])
    assert {draw(random.Random(seed)) for seed in range(20)} == {2 / 3, 4 / 3}
