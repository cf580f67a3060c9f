"""The worker over a queue on SQLite and executors without a model: what it runs, retries, stops and gives back."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from espalier.errors import EspalierError, OutputError, Overloaded, ReplicaLost, Unavailable
from espalier.jobs.retry import Retry
from espalier.jobs.states import BatchState
from espalier.jobs.values import ItemAnswer, ItemEnd, Lease, WorkItem
from espalier.jobs.worker import Tally, Worker
from espalier.store.batches.open import BatchStore
from espalier.store.batches.queue import POISON, SUSPECT
from tests.batch_jobs import Echo, found, line, results, submit


def worker(store: BatchStore, executor: Any, **options: Any) -> Worker:
    given = {"until_idle": True, "beat": 0.02, "idle": 0.02, "retry": Retry(first=0.0, most=0.0)}
    return Worker(queue=store.queue, executor=executor, **given | options)


class Waiting(Echo):
    """Answers when it is told to; says when an item has begun, and which were stopped."""

    def __init__(self) -> None:
        super().__init__()
        self.begun, self.goes_on = asyncio.Event(), asyncio.Event()
        self.stopped: list[str] = []
        self.most = self.now = 0

    async def execute(self, item: WorkItem) -> ItemAnswer:
        self.now += 1
        self.most = max(self.most, self.now)
        self.begun.set()
        try:
            await self.goes_on.wait()
        except asyncio.CancelledError:
            self.stopped.append(item.custom_id)
            raise
        finally:
            self.now -= 1
        return await super().execute(item)


def test_every_item_runs_once_and_no_more_than_the_pipeline_at_a_time(store: BatchStore) -> None:
    batch = submit(store, [line(one) for one in range(50)])

    async def run() -> Waiting:
        executor = Waiting()
        made = worker(store, executor, pipeline=7)
        running = asyncio.create_task(made.run())
        await executor.begun.wait()
        executor.goes_on.set()
        await running
        assert made.tally.done == 50
        return executor

    executor = asyncio.run(run())
    assert sorted(executor.seen) == sorted(f"c{one}" for one in range(50))
    assert executor.most == 7
    assert found(store, batch.id).state == BatchState.COMPLETED


def test_a_new_batch_waited_for_the_next_look_at_idle_batches(store: BatchStore) -> None:
    async def run() -> None:
        waiting = Waiting()
        waiting.goes_on.set()
        made = worker(store, waiting, until_idle=False, idle=3_600.0)
        running = asyncio.create_task(made.run())
        first = submit(store, [line(1)])
        made.wake()
        await waiting.begun.wait()
        while found(store, first.id).counts.completed < 1:
            await asyncio.sleep(0)
        waiting.begun.clear()
        submit(store, [line(2)])
        made.wake()
        await waiting.begun.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_resumed_batch_waited_for_the_next_look_at_idle_batches(store: BatchStore) -> None:
    async def run() -> None:
        waiting = Waiting()
        waiting.goes_on.set()
        batch = submit(store, [line(1)])
        store.batches.pause(batch.id, caller=None, paused=True)
        made = worker(store, waiting, until_idle=False, idle=3_600.0)
        running = asyncio.create_task(made.run())
        while not (found(store, batch.id).counts.pending and made._wake._waiters and made._input._waiters):
            await asyncio.sleep(0)  # its input is read, and it waits for something to come
        store.batches.pause(batch.id, caller=None, paused=False)
        made.wake()
        await waiting.begun.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_worker_that_is_cancelled_just_as_something_comes_ends(store: BatchStore) -> None:
    async def run() -> None:
        sleeper = worker(store, Echo(), until_idle=False, idle=3_600.0)
        running = asyncio.create_task(sleeper.run())
        while not (sleeper._wake._waiters and sleeper._input._waiters):  # it waits for something to come
            await asyncio.sleep(0)
        sleeper.wake()
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(asyncio.wait_for(run(), 60))


class Judging(Echo):
    """Gives the verdict that an item asks for."""

    async def execute(self, item: WorkItem) -> ItemAnswer:
        return replace(await super().execute(item), valid=item.body["valid"])


def test_each_recorded_result_is_told_and_counted_by_its_verdict(store: BatchStore) -> None:
    lines = [line(number, valid=valid) for number, valid in enumerate((True, True, True, False, None))]
    submit(store, [*lines, line(5, valid=None, status=400), line(6, valid=None, status=503)])
    told: list[bool | None] = []
    made = worker(store, Judging(), told=lambda attempt: told.append(attempt.answer.valid))
    asyncio.run(made.run())
    assert made.tally == Tally(done=5, failed=2, again=2, judged=4, invalid=1)
    assert Counter(told) == {True: 3, False: 1, None: 3}


def test_a_worker_that_has_ended_leaves_no_thread(store: BatchStore) -> None:
    before = set(threading.enumerate())
    submit(store, [line(1)])
    made = worker(store, Echo())
    asyncio.run(made.run())
    assert not [thread.name for thread in set(threading.enumerate()) - before if thread.name.startswith("espalier-")]


def test_calls_of_the_queue_are_made_one_after_the_other(store: BatchStore, monkeypatch: pytest.MonkeyPatch) -> None:
    threads: dict[str, set[threading.Thread]] = {}

    def noted(name: str) -> None:
        call, seen = getattr(store.queue, name), threads.setdefault(name, set())

        def note(*given: Any, **named: Any) -> Any:
            seen.add(threading.current_thread())
            return call(*given, **named)

        monkeypatch.setattr(store.queue, name, note)

    for name in ("claim", "record", "renew", "validate", "tend"):
        noted(name)
    submit(store, [line(one) for one in range(40)])
    asyncio.run(worker(store, Echo(), pipeline=2, window=1, beat=0.0).run())
    assert len(threads["claim"] | threads["record"] | threads["renew"]) == 1
    assert len(threads["validate"] | threads["tend"]) == 1


def test_the_longest_item_of_a_window_begins_first(store: BatchStore) -> None:
    submit(store, [line(one, pad="x" * one) for one in range(8)])
    executor = Echo()
    asyncio.run(worker(store, executor, pipeline=2, window=4).run())
    assert executor.seen[0] == "c7"


def test_an_item_that_fails_for_now_is_tried_three_times_and_another_fault_once(store: BatchStore) -> None:
    batch = submit(store, [line(1, status=503), line(2, status=400), line(3)])
    executor = Echo()
    asyncio.run(worker(store, executor).run())
    assert sorted(executor.seen) == ["c1", "c1", "c1", "c2", "c3"]
    assert found(store, batch.id).counts.failed == 2


class Fails(Echo):
    """Raises the errors, one for each call, and then answers."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.errors = list(errors)

    async def execute(self, item: WorkItem) -> ItemAnswer:
        if self.errors:
            raise self.errors.pop(0)
        return await super().execute(item)


def test_an_item_waits_where_the_engine_has_no_place(store: BatchStore) -> None:
    batch = submit(store, [line(1)])
    asyncio.run(worker(store, Fails(Overloaded(), Overloaded())).run())
    assert found(store, batch.id).counts.completed == 1


def test_an_item_that_an_engine_did_not_begin_is_given_back_untried(store: BatchStore) -> None:
    batch = submit(store, [line(1)])
    executor = Fails(Unavailable(), Unavailable(), Unavailable(), Unavailable(), Unavailable())
    asyncio.run(worker(store, executor).run())
    assert found(store, batch.id).counts.completed == 1


class Kills(Echo):
    """Loses the process that runs one item, each time, with those beside it."""

    def __init__(self, killer: str) -> None:
        super().__init__()
        self.killer, self.now, self.beside = killer, set[str](), list[int]()

    async def execute(self, item: WorkItem) -> ItemAnswer:
        self.now.add(item.custom_id)
        for _ in range(3):
            await asyncio.sleep(0)
        if self.killer in self.now:
            if item.custom_id == self.killer:
                self.beside.append(len(self.now))
                self.now.clear()
            raise ReplicaLost()
        self.now.discard(item.custom_id)
        return await super().execute(item)


def test_an_item_that_loses_its_processes_runs_alone_and_is_set_aside(store: BatchStore) -> None:
    batch = submit(store, [line(one) for one in range(1, 9)])
    executor = Kills("c3")
    asyncio.run(worker(store, executor).run())
    counts = found(store, batch.id).counts
    assert (counts.completed, counts.failed) == (7, 1)
    assert len(executor.beside) == POISON
    assert executor.beside[SUSPECT:] == [1] * (POISON - SUSPECT)
    (wrong,) = results(store, batch.id, "error")
    assert (wrong["custom_id"], wrong["error"]["code"]) == ("c3", "poison_item")


@pytest.mark.parametrize("error", [RuntimeError("boom"), EspalierError("broken")])
def test_an_error_of_the_executor_is_the_items_result(error: Exception, store: BatchStore) -> None:
    batch = submit(store, [line(1)])
    asyncio.run(worker(store, Fails(error, error, error)).run())
    (only,) = results(store, batch.id)
    assert only["error"]["code"]


@pytest.mark.parametrize("how", ["cancel", "pause"])
def test_running_items_stop_at_the_next_heartbeat(how: str, store: BatchStore) -> None:
    batch = submit(store, [line(one) for one in range(3)])

    async def run() -> Waiting:
        executor = Waiting()
        running = asyncio.create_task(worker(store, executor).run())
        await executor.begun.wait()
        if how == "cancel":
            store.batches.cancel(batch.id, caller=None)
            await running
        else:
            store.batches.pause(batch.id, caller=None, paused=True)
            while not executor.stopped:
                await asyncio.sleep(0.01)
            executor.goes_on.set()
            store.batches.pause(batch.id, caller=None, paused=False)
            await running
        return executor

    executor = asyncio.run(run())
    assert sorted(executor.stopped) == ["c0", "c1", "c2"]
    assert found(store, batch.id).state == (BatchState.CANCELLED if how == "cancel" else BatchState.COMPLETED)


def test_a_heartbeat_goes_on_after_one_that_had_nothing_to_renew_or_to_stop(
    store: BatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewed, renew = list[int](), store.queue.renew

    def note(name: str, leases: Any) -> Any:
        renewed.append(len(leases))
        return renew(name, leases)

    monkeypatch.setattr(store.queue, "renew", note)

    async def run() -> None:
        executor = Waiting()
        made = worker(store, executor, until_idle=False, beat=0.0, idle=3_600.0)
        running = asyncio.create_task(made.run())
        while not (made._wake._waiters and made._input._waiters):  # it waits for something to come
            await asyncio.sleep(0)
        for _ in range(10):  # heartbeats that have nothing to renew
            await asyncio.sleep(0)
        batch = submit(store, [line(1)])
        made.wake()
        while len(renewed) < 3 and not running.done():  # heartbeats that have nothing to stop
            await asyncio.sleep(0)
        store.batches.pause(batch.id, caller=None, paused=True)
        while not executor.stopped and not running.done():
            await asyncio.sleep(0)
        assert executor.stopped == ["c1"]
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_batch_that_pauses_stops_its_own_items_alone(store: BatchStore) -> None:
    paused, other = (submit(store, [line(number)]) for number in (1, 2))
    executor = Waiting()

    async def run() -> None:
        running = asyncio.create_task(worker(store, executor).run())
        while executor.now < 2:
            await asyncio.sleep(0)
        store.batches.pause(paused.id, caller=None, paused=True)
        while not executor.stopped:
            await asyncio.sleep(0)
        executor.goes_on.set()
        while found(store, other.id).state != BatchState.COMPLETED:
            await asyncio.sleep(0)
        store.batches.pause(paused.id, caller=None, paused=False)
        await running

    asyncio.run(asyncio.wait_for(run(), 60))
    assert executor.stopped == ["c1"]
    assert sorted(executor.seen) == ["c1", "c2"]


class Halting(Echo):
    """The items after the first four wait for `second`."""

    def __init__(self) -> None:
        super().__init__()
        self.second = asyncio.Event()

    async def execute(self, item: WorkItem) -> ItemAnswer:
        answered = await super().execute(item)
        if len(self.seen) > 4:
            await self.second.wait()
        return answered


def test_more_items_are_claimed_once_half_of_the_window_has_run_and_not_before(
    store: BatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(store, [line(one) for one in range(40)])
    asked, claim = list[int](), store.queue.claim

    async def run() -> list[str]:
        executor, loop = Halting(), asyncio.get_running_loop()

        def note(name: str, limit: int, *, alone: bool) -> Any:
            claimed = claim(name, limit, alone=alone)
            asked.extend([limit] if claimed else [])
            if len(asked) == 2:
                loop.call_soon_threadsafe(executor.second.set)
            return claimed

        monkeypatch.setattr(store.queue, "claim", note)
        await worker(store, executor, pipeline=2, window=4).run()
        return executor.seen

    assert len(asyncio.run(run())) == 40
    assert asked[:2] == [8, 4], "of a window of 8, as soon as half of it has run"
    assert set(asked) <= set(range(4, 9))


def test_results_of_a_moment_are_recorded_together_and_no_item_waits_for_that(
    store: BatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(store, [line(one) for one in range(64)])
    recorded, record = list[int](), store.queue.record

    def note(name: str, ended: Sequence[ItemEnd]) -> Sequence[Lease]:
        recorded.append(len(ended))
        return record(name, ended)

    monkeypatch.setattr(store.queue, "record", note)
    executor = Echo()
    asyncio.run(worker(store, executor, pipeline=1, window=64).run())
    assert len(executor.seen) == sum(recorded) == 64
    assert recorded[0] > 1, "one at a time runs, and others have begun before the first one is recorded"


def test_a_cancelled_worker_gives_its_items_back_untouched(store: BatchStore) -> None:
    batch = submit(store, [line(one) for one in range(3)])

    async def run() -> None:
        executor = Waiting()
        running = asyncio.create_task(worker(store, executor).run())
        await executor.begun.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(run())
    assert found(store, batch.id).counts.pending == 3
    asyncio.run(worker(store, Echo()).run())
    assert found(store, batch.id).counts.completed == 3


def test_a_cancelled_worker_gives_nothing_back_before_its_calls_of_the_queue_have_ended(
    store: BatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    began, door, order = threading.Event(), threading.Event(), list[str]()
    tend, release = store.queue.tend, store.queue.release

    def slow(name: str) -> bool:
        began.set()
        door.wait(30)
        order.append("tend")
        return tend(name)

    def note(name: str, leases: Any) -> None:
        order.append("release")
        release(name, leases)

    monkeypatch.setattr(store.queue, "tend", slow)
    monkeypatch.setattr(store.queue, "release", note)

    async def run() -> None:
        running = asyncio.create_task(worker(store, Echo(), until_idle=False).run())
        await asyncio.to_thread(began.wait, 30)
        running.cancel()
        for _ in range(50):
            await asyncio.sleep(0)
        await asyncio.to_thread(lambda: None)
        door.set()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(asyncio.wait_for(run(), 60))
    assert order == ["tend", "release"]


def test_a_full_disk_ends_the_worker_and_the_job_goes_on_later(
    store: BatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch = submit(store, [line(one) for one in range(20)], window=None)
    record = store.queue.record

    def full(*given: Any) -> Any:
        if found(store, batch.id).counts.completed >= 8:
            raise OutputError("the database cannot be written: the disk is full")
        return record(*given)

    monkeypatch.setattr(store.queue, "record", full)
    with pytest.raises(OutputError, match="full"):
        asyncio.run(worker(store, Echo(), pipeline=2).run())
    monkeypatch.undo()
    before = found(store, batch.id).counts
    assert 8 <= before.completed < 20
    executor = Echo()
    store.queue.lease = 0.0
    store.queue.reap(2e10)
    store.queue.lease = 30.0
    asyncio.run(worker(store, executor).run())
    assert found(store, batch.id).counts.completed == 20
    assert len(executor.seen) == 20 - before.completed
