"""When an item that failed is tried again: bounds of the pauses, and which errors pass."""

from __future__ import annotations

import random

import pytest

from espalier.errors import InputError
from espalier.jobs.retry import PASSING, Retry


@pytest.mark.parametrize("attempts", range(8))
def test_a_pause_doubles_up_to_the_longest_and_is_drawn_from_its_upper_half(attempts: int) -> None:
    retry, longest = Retry(tries=99, first=1.5, most=20.0), min(20.0, 1.5 * 2**attempts)
    rng = random.Random(attempts)
    pauses = [retry.after(503, attempts, rng) for _ in range(300)]
    found = [pause for pause in pauses if pause is not None]
    assert len(found) == 300
    assert longest / 2 <= min(found) < 0.52 * longest
    assert 0.98 * longest < max(found) <= longest
    assert len(set(found)) == 300, "items that failed together come back apart"


def test_the_thousandth_try_waits_no_longer_than_the_longest() -> None:
    assert Retry(tries=10_000, first=1.0, most=60.0).after(503, 5_000, random.Random(0)) == pytest.approx(45, abs=15)


def test_an_item_is_tried_as_often_as_was_said() -> None:
    rng = random.Random(0)
    assert Retry(tries=1).after(503, 0, rng) is None
    assert Retry(tries=3).after(503, 1, rng) is not None
    assert Retry(tries=3).after(503, 2, rng) is None
    assert {status for status in range(100, 600) if Retry().after(status, 0, rng) is not None} == PASSING


def test_an_error_that_is_known_to_pass_waits_as_long_as_it_says_at_least() -> None:
    rng = random.Random(0)
    pauses = [Retry().after(400, 0, rng, passes=10.0) or 0.0 for _ in range(300)]
    assert 10.0 <= min(pauses) < 10.1
    assert 11.9 < max(pauses) <= 12.0
    assert (Retry(first=30.0).after(400, 0, rng, passes=1.0) or 0.0) >= 15.0
    assert Retry(tries=1).after(400, 0, rng, passes=10.0) is None


@pytest.mark.parametrize(
    ("given", "field"), [({"tries": 0}, "tries"), ({"first": -0.1}, "first"), ({"first": 2.0, "most": 1.0}, "first")]
)
def test_what_is_no_retry_is_refused(given: dict[str, float], field: str) -> None:
    with pytest.raises(InputError) as told:
        Retry(**given)  # type: ignore[arg-type]
    assert told.value.field == field
    assert Retry(tries=1, first=0.0, most=0.0).tries == Retry(tries=1, first=2.0, most=2.0).tries == 1
