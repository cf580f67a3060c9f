"""The judgement of a soak, and a short one on the bundled model."""

from __future__ import annotations

import sys

import pytest

pytest.importorskip("fastapi")

from espalier.constraints.kinds import KINDS
from espalier.decoding.strategies import STRATEGIES
from tests.soak.report import is_sound, run, table
from tests.soak.samples import Quantity, judge, slope
from tests.soak.tasks import CONSTRAINTS, TASKS

FILES = Quantity(name="files", read=lambda server, folder: 0.0, may_grow=4)


def samples(*values: float) -> list[tuple[float, dict[str, float]]]:
    return [(float(second), {"files": value}) for second, value in enumerate(values)]


def test_a_slope_is_that_of_most_pairs() -> None:
    assert slope([(0, 1), (1, 3), (2, 5), (3, 7)]) == 2
    assert slope([(0, 1), (1, 1), (2, 900), (3, 1), (4, 1)]) == 0
    assert slope([(0, 1)]) == 0


@pytest.mark.parametrize(
    ("values", "is_flat"),
    [
        ([10] * 20, True),
        ([10, 11] * 10, True),
        ([10] * 9 + [500] + [10] * 10, True),
        ([*range(90, 100), *[10] * 20], True),
        (list(range(30)), False),
        ([10, 10, *range(10, 28)], False),
        (list(range(60, 30, -1)), True),
    ],
    ids=["level", "up and down", "a peak", "falls", "grows", "grows late", "shrinks"],
)
def test_what_is_flat(values: list[float], is_flat: bool) -> None:
    assert judge(samples(*values), FILES, warm_up=0).is_flat is is_flat


def test_growth_of_the_warm_up_does_not_count() -> None:
    values = [*range(30), *[30] * 30]
    assert judge(samples(*values), FILES, warm_up=30).is_flat
    with pytest.raises(ValueError, match="say nothing"):
        judge(samples(*values), FILES, warm_up=59.5)


def test_a_soak_has_every_kind_and_strategy() -> None:
    assert set(CONSTRAINTS) | {"thinking"} == set(KINDS.names()), "thinking is what reasoning models are asked for"
    assert len(list(STRATEGIES.names())) == 8
    assert sum(TASKS.values()) == 104


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="memory and files are read from /proc")
def test_a_short_soak_gets_what_it_should() -> None:
    """What is flat is not judged of so short a run, but that every task gets what it should and all is sampled."""
    soaks = run(seconds=8, rate=4, every=1, least=12, engines=("transformers",))
    assert [soak.errors for soak in soaks] == [{}], table(soaks, warm_up=0)
    assert soaks[0].tasks.total() >= 12
    assert all(flat.last > 0 for flat in soaks[0].flatness(0)), table(soaks, warm_up=0)
    assert isinstance(is_sound(soaks, warm_up=0), bool)
