"""Ids: ordered by time, unguessable, and recognised among other text."""

from __future__ import annotations

import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.store.ids import Ids, first_id, is_id

MOMENTS = st.integers(1, 4_000_000_000_000).map(lambda milliseconds: milliseconds / 1000)


@given(st.lists(MOMENTS, min_size=2, max_size=20))
def test_each_id_is_after_the_one_before_also_where_the_clock_goes_back(moments: list[float]) -> None:
    times = iter(moments)
    ids = Ids(lambda: next(times))
    made = [ids.new("trc")[0] for _ in moments]
    assert made == sorted(set(made))


@given(MOMENTS, MOMENTS)
def test_the_first_id_of_a_time_parts_what_is_before_from_what_is_not(bound: float, moment: float) -> None:
    made, created = Ids(lambda: moment).new("trc")
    assert created == pytest.approx(moment, abs=2e-6)
    assert (made >= first_id("trc", bound)) == (int(moment * 1e6) >= int(bound * 1e6))


def test_threads_never_get_the_same_id() -> None:
    ids = Ids(lambda: 1.0)
    made: list[str] = []
    threads = [threading.Thread(target=lambda: made.extend(ids.new("a")[0] for _ in range(200))) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 800


def test_the_part_that_is_not_time_differs_in_every_id() -> None:
    tails = {Ids(lambda: 1.0).new("trc")[0][-16:] for _ in range(500)}
    assert len(tails) == 500


@pytest.mark.parametrize(
    "text",
    [
        "",
        "trc_",
        "trc_" + "0" * 26,
        "trc_" + "i" * 27,
        "gen_" + "0" * 27,
        "trc_" + "0" * 28,
        "trc_" + "0" * 27 + "\n",
        "trc_" + "0" * 26 + "\0",
        "TRC_" + "0" * 27,
    ],
)
def test_what_is_no_id_is_told(text: str) -> None:
    assert not is_id(text, "trc")


def test_what_was_made_is_one() -> None:
    assert is_id(Ids(lambda: 1e9).new("trc")[0], "trc")
