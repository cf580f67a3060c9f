"""Limits: the bucket against a plain exact one; slots; both kinds of counters; workers that count together."""

from __future__ import annotations

import multiprocessing
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from tests.server_app import client
from tests.server_app import settings as settings_for

pytest.importorskip("dotenv", reason="the extra [server] is not installed")
pytest.importorskip("sqlalchemy", reason="the extra [server] is not installed")

from espalier.server.admit.limits import LocalCounters
from espalier.store.counters import StoredCounters
from espalier.store.db import open_database
from espalier.store.migrate import upgrade

LEASE = 60.0


@pytest.fixture
def stored(tmp_path):
    database = open_database(f"sqlite:///{tmp_path / 'x.db'}")
    upgrade(database)
    counters = StoredCounters(database, lease=LEASE)
    yield counters
    counters.close()


@pytest.fixture(params=["local", "stored"])
def counters(request):
    return LocalCounters() if request.param == "local" else request.getfixturevalue("stored")


class PlainBucket:
    """Tokens and a time, as a textbook has it, in exact numbers."""

    def __init__(self, limit: int, now: Fraction) -> None:
        self.limit, self.tokens, self.at = limit, Fraction(limit), now

    def take(self, now: Fraction, count: int) -> Fraction:
        self.tokens = min(Fraction(self.limit), self.tokens + (now - self.at) * self.limit / 60)
        self.at = now
        if self.tokens >= count:
            self.tokens -= count
            return Fraction(0)
        return (count - self.tokens) * 60 / self.limit


@settings(max_examples=examples(200), deadline=None)
@given(st.integers(1, 600), st.lists(st.tuples(st.integers(0, 40_000), st.floats(0, 1)), min_size=1, max_size=60))
def test_the_bucket_is_the_plain_one(limit, moves):
    fast, slow, now = LocalCounters(), PlainBucket(limit, Fraction(0)), Fraction(0)
    for milliseconds, share in moves:
        now += Fraction(milliseconds, 1000)
        count = max(1, round(limit * share))
        expected = slow.take(now, count)
        # A wait below a microsecond is rounding, and taken; the plain one is told so too.
        if 0 < expected <= Fraction(1, 500_000):
            slow.tokens = Fraction(0)
        assert fast.take("k", limit, float(now), count) == pytest.approx(float(expected), abs=1e-5)


def test_a_minutes_worth_at_once_and_then_evenly(counters):
    assert [counters.take("k", 6, 1000.0) for _ in range(6)] == [0.0] * 6
    assert counters.take("k", 6, 1000.0) == pytest.approx(10.0)
    assert counters.take("other", 6, 1000.0) == 0.0
    assert counters.take("k", 6, 1009.0) == pytest.approx(1.0)
    assert counters.take("k", 6, 1010.0) == 0.0
    assert counters.take("k", 6, 1010.0, 3) == pytest.approx(30.0)


def test_a_clock_that_was_set_back_locks_nobody_out_for_longer_than_a_minute(counters):
    assert counters.take("k", 1, 1_000_000.0) == 0.0
    assert counters.take("k", 1, 1_000.0) == pytest.approx(60.0)
    assert counters.take("k", 1, 1_000.0 + 60.0) <= 60.0


def test_slots_are_taken_and_given_back(counters):
    assert counters.enter("k", 2, "a", 0.0)
    assert counters.enter("k", 2, "b", 0.0)
    assert not counters.enter("k", 2, "c", 0.0)
    assert counters.enter("other", 1, "d", 0.0)
    counters.leave("a")
    counters.leave("a")
    assert not counters.enter("k", 2, "e", 0.0, 2)
    assert counters.enter("k", 2, "e", 0.0, 1)


def test_slots_of_a_killed_worker_come_back_and_renewed_ones_do_not(stored):
    assert stored.enter("k", 2, "killed", 0.0)
    assert stored.enter("k", 2, "alive", 0.0)
    stored.renew(["alive"], LEASE - 1)
    assert not stored.enter("k", 2, "new", LEASE - 0.5)
    assert stored.enter("k", 2, "new", LEASE)
    assert not stored.enter("k", 2, "newer", LEASE)


def test_slots_of_a_worker_that_was_killed_before_the_clock_was_set_back_come_back(stored):
    day = 86_400.0
    assert stored.enter("k", 1, "killed", day)
    assert stored.enter("k", 1, "new", 0.0)
    assert not stored.enter("k", 1, "newer", LEASE / 2), "what was entered by the right clock stays held"


def _take_many(url: str, queue: multiprocessing.Queue) -> None:
    counters = StoredCounters(open_database(url), lease=LEASE)
    taken = sum(counters.take("k", 50, 1000.0) == 0.0 for _ in range(40))
    entered = sum(counters.enter("k", 30, f"{multiprocessing.current_process().pid}-{i}", 1000.0) for i in range(20))
    counters.close()
    queue.put((taken, entered))


@pytest.mark.slow
def test_workers_together_take_what_one_may(stored, tmp_path):
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    url = f"sqlite:///{tmp_path / 'x.db'}"
    workers = [context.Process(target=_take_many, args=(url, queue)) for _ in range(2)]
    for worker in workers:
        worker.start()
    found = [queue.get(timeout=60) for _ in workers]
    for worker in workers:
        worker.join(60)
    assert sum(taken for taken, _ in found) == 50
    assert sum(entered for _, entered in found) == 30


@pytest.mark.parametrize(("workers", "statuses"), [("1", [200, 200]), ("2", [200, 429])])
def test_several_workers_hold_a_limit_together(tmp_path, workers, statuses):
    url = f"sqlite:///{tmp_path / 'y.db'}"
    limits = {"workers": workers, "database_url": url, "requests_per_minute": "1", "secret_token": "a-good-long-secret"}
    asked = {"json": {"prompt": "x"}, "headers": {"authorization": "Bearer a-good-long-secret"}}
    with client(config=settings_for(**limits)) as one, client(config=settings_for(**limits)) as other:
        assert [c.post("/v1/completions", **asked).status_code for c in (one, other)] == statuses
