"""The queue of batch items against a model of it: any order of claims, heartbeats, results, crashes and stale workers.

Every method is one transaction, so a worker can die before, within or after it; what happens to the items is predicted
by a model that knows leases and nothing of SQL, and every observed move is one of the table in `jobs/states.py`.
"""

from __future__ import annotations

import contextlib
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

pytest.importorskip("sqlalchemy")

from sqlalchemy import event, select

from espalier.jobs.states import BATCH_MOVES, ITEM_MOVES, BatchState, ItemState
from espalier.jobs.values import ItemEnd, Lease, WorkItem
from espalier.store.batches import ATTEMPTS, BATCHES, ITEMS, RESULTS
from espalier.store.batches.queue import POISON, SUSPECT
from tests.batch_jobs import Clock, Echo, answer, line, open_batches, results, submit
from tests.examples import examples

LEASE = 10.0
WORKERS = ("a", "b", "c")
COUNT = 5


class Crash(Exception):
    """The process dies here."""


class QueueMachine(RuleBasedStateMachine):
    """live: leases that still hold, with the time until which. told: the result that was accepted for each line."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.clock = Clock()
        self.store = open_batches(
            f"sqlite:///{self.folder.name}/e.db", Path(self.folder.name) / "files", clock=self.clock, lease=LEASE
        )
        self.queue = self.store.queue
        self.held: dict[str, list[WorkItem]] = {name: [] for name in WORKERS}  # what each worker believes to have
        self.live: dict[Lease, float] = {}
        self.told: dict[int, str] = {}
        self.crashes = False
        event.listen(self.store.database.engine, "commit", self._commit)

    def _commit(self, _: Any) -> None:
        if self.crashes:
            self.crashes = False
            raise Crash

    @initialize()
    def submits(self) -> None:
        self.batch = submit(self.store, [line(one) for one in range(1, COUNT + 1)], window=100.0)
        assert self.queue.validate("a", Echo())
        self.before = self._items()
        self.state = BatchState.IN_PROGRESS
        self.paused = self.cancelled = False

    def teardown(self) -> None:
        self.store.database.close()
        self.folder.cleanup()

    @rule(worker=st.sampled_from(WORKERS), limit=st.integers(1, 4), alone=st.booleans(), dies=st.booleans())
    def claims(self, worker: str, limit: int, alone: bool, dies: bool) -> None:
        items = self._items()
        ready = [one for one in items.values() if one["state"] == "pending" and one["not_before"] <= self.clock.now]
        is_on = self._is_on()
        wanted = [one["line"] for one in ready if one["losses"] < SUSPECT][:limit] if is_on else []
        if not wanted and alone and is_on:
            wanted = [one["line"] for one in ready if one["losses"] >= SUSPECT][:1]
        found = self.queue.claim(worker, limit, alone=alone)
        assert [one.lease.line for one in found] == wanted
        for one in found:
            assert one.lease not in self.live
            assert not [other for other in self.live if other.line == one.lease.line]
            self.live[one.lease] = self.clock.now + LEASE
        if not dies:
            self.held[worker] += found

    @rule(sleeper=st.sampled_from(WORKERS), other=st.sampled_from(WORKERS), finishes=st.booleans())
    def sleeps_past_its_lease(self, sleeper: str, other: str, finishes: bool) -> None:
        """The sleeper's items go to another worker; then it wakes, and says how they ended."""
        self.claims(sleeper, 2, False, False)
        self.every_move_is_in_the_tables()  # which looks at one move at a time
        self.time_passes(LEASE + 1)
        self.tends(other)
        self.every_move_is_in_the_tables()
        if other != sleeper:
            self.claims(other, 4, True, False)
            self.every_move_is_in_the_tables()
            if finishes:
                self.records(other, True, False, False)
                self.every_move_is_in_the_tables()
        self.renews(sleeper)
        self.records(sleeper, False, False, True)

    @rule(worker=st.sampled_from(WORKERS), good=st.booleans(), again=st.booleans(), dies=st.booleans())
    def records(self, worker: str, good: bool, again: bool, dies: bool) -> None:
        items, self.held[worker] = self.held[worker], []
        ended = [
            ItemEnd(
                lease=one.lease,
                answer=answer(f"{one.lease.line} {one.lease.fence}", 200 if good else 500),
                again=5.0 if again else None,
            )
            for one in items
        ]
        expected = [one.lease for one in items if one.lease in self.live]
        assert list(self.queue.record(worker, ended)) == expected
        for lease in expected:
            del self.live[lease]
            if not again:
                self.told[lease.line] = f"{lease.line} {lease.fence}"
        if dies:  # and never learnt that it was recorded: it may say so again
            self.held[worker] = items

    @rule(worker=st.sampled_from(WORKERS))
    def crashes_within_a_transaction(self, worker: str) -> None:
        items, before = self.held[worker], self._items()
        self.crashes = True
        with contextlib.suppress(Crash):
            if items:
                self.queue.record(worker, [ItemEnd(lease=one.lease, answer=answer()) for one in items])
            else:
                self.queue.claim(worker, COUNT, alone=True)
        self.crashes = False
        assert self._items() == before

    @rule(worker=st.sampled_from(WORKERS))
    def renews(self, worker: str) -> None:
        leases = [one.lease for one in self.held[worker]]
        expected = [one for one in leases if one not in self.live or not self._is_on()]
        assert list(self.queue.renew(worker, leases)) == expected
        for one in leases:
            if one not in expected:
                self.live[one] = self.clock.now + LEASE

    @rule(worker=st.sampled_from(WORKERS))
    def releases(self, worker: str) -> None:
        items, self.held[worker] = self.held[worker], []
        self.queue.release(worker, [one.lease for one in items])
        for one in items:
            self.live.pop(one.lease, None)

    @rule(worker=st.sampled_from(WORKERS))
    def loses(self, worker: str) -> None:
        items, self.held[worker] = self.held[worker], []
        before = {number: row["losses"] for number, row in self._items().items()}
        self.queue.lose(worker, [one.lease for one in items])
        lost = {one.lease.line for one in items if one.lease in self.live}
        after = {number: row["losses"] for number, row in self._items().items()}
        assert after == {number: count + (number in lost) for number, count in before.items()}
        for one in items:
            self.live.pop(one.lease, None)

    @rule(seconds=st.sampled_from((1.0, 4.0, 6.0, 11.0)))
    def time_passes(self, seconds: float) -> None:
        self.clock.now += seconds

    @rule(worker=st.sampled_from(WORKERS))
    def tends(self, worker: str) -> None:
        late = [lease for lease, until in self.live.items() if until <= self.clock.now]
        self.queue.tend(worker)
        for one in late:
            del self.live[one]

    @rule()
    def pauses_or_resumes(self) -> None:
        if self.state == BatchState.IN_PROGRESS:
            self.paused = not self.paused
        self.store.batches.pause(self.batch.id, caller="me", paused=self.paused)

    @precondition(lambda self: not self.cancelled)
    @rule(really=st.integers(0, 5))
    def cancels(self, really: int) -> None:
        if really == 0:
            self.cancelled = True
            self.store.batches.cancel(self.batch.id, caller="me")

    @invariant()
    def every_move_is_in_the_tables(self) -> None:
        if not hasattr(self, "before"):
            return
        now = self._items()
        for number, row in now.items():
            old, new = (ItemState(one[number]["state"]) for one in (self.before, now))
            assert old == new or new in ITEM_MOVES[old], f"{number}: {old} to {new}"
            assert row["fence"] >= self.before[number]["fence"]
        self.before = now
        with self.store.database.reading() as connection:
            state = BatchState(connection.execute(select(BATCHES.c.state)).scalar_one())
        path = (
            {state}
            | set(BATCH_MOVES[self.state])
            | {two for one in BATCH_MOVES[self.state] for two in BATCH_MOVES[one]}
        )
        assert state == self.state or state in path
        self.state = state

    @invariant()
    def there_is_one_result_of_each_item_that_has_ended_and_no_other(self) -> None:
        if not hasattr(self, "before"):
            return
        with self.store.database.reading() as connection:
            lines = list(connection.execute(select(RESULTS.c.line)).scalars())
        ended = {n for n, row in self._items().items() if row["state"] in ("done", "failed", "poison")}
        assert sorted(lines) == sorted(ended)
        poison = {n for n, row in self._items().items() if row["state"] == "poison"}
        assert ended - poison == set(self.told)
        found = {one["custom_id"]: one for one in results(self.store, self.batch.id)}
        for number, text in self.told.items():
            body = found[f"c{number}"]["response"]["body"]
            assert text in (body.get("text"), body.get("error", {}).get("message"))

    @invariant()
    def an_item_runs_exactly_while_its_lease_holds(self) -> None:
        if not hasattr(self, "before"):
            return
        items = self._items()
        assert {n for n, row in items.items() if row["state"] == "running"} == {one.line for one in self.live}
        for one in self.live:
            assert items[one.line]["fence"] == one.fence
        assert all(row["losses"] <= POISON for row in items.values())
        with self.store.database.reading() as connection:
            open_attempts = select(ATTEMPTS.c.line, ATTEMPTS.c.fence).where(ATTEMPTS.c.outcome.is_(None))
            assert {tuple(row) for row in connection.execute(open_attempts)} == {
                (one.line, one.fence) for one in self.live
            }

    def _is_on(self) -> bool:
        return self.state == BatchState.IN_PROGRESS and not self.paused and self.clock.now < (self.batch.expires or 0)

    def _items(self) -> dict[int, dict[str, Any]]:
        with self.store.database.reading() as connection:
            rows = connection.execute(select(ITEMS).order_by(ITEMS.c.line)).mappings()
            return {row["line"]: dict(row) for row in rows}


TestQueueMachine = QueueMachine.TestCase
TestQueueMachine.settings = settings(max_examples=examples(20), stateful_step_count=40, deadline=None)
