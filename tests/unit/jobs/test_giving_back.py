"""What a worker gives back to its queue, and when: items that paused, that were lost, that no engine began."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")

from espalier.errors import OutputError, ReplicaLost, Unavailable
from espalier.jobs.states import BatchState
from espalier.jobs.values import Batch, ItemAnswer, ItemEnd, Lease, WorkItem
from espalier.jobs.worker import Worker
from espalier.store.batches.open import BatchStore
from tests.batch_jobs import Echo, answer, found, line, submit
from tests.unit.jobs.test_worker import Fails, Waiting, worker


async def run_with_a_pause(
    store: BatchStore, runs: Worker, executor: Waiting, batch_id: str, given_back: Sequence[Any]
) -> None:
    """Run a worker to its end. Its batch pauses when an item has begun, until something is given back."""
    running = asyncio.create_task(runs.run())
    await executor.begun.wait()
    store.batches.pause(batch_id, caller=None, paused=True)
    while not given_back:
        await asyncio.sleep(0)
    executor.goes_on.set()
    store.batches.pause(batch_id, caller=None, paused=False)
    await running


def test_items_that_waited_in_a_window_when_their_batch_paused_run_once_when_it_goes_on(
    store: BatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, executor = submit(store, [line(one) for one in range(4)]), Waiting()
    released, release = list[int](), store.queue.release

    def note(name: str, leases: Any) -> Any:
        release(name, leases)
        released.append(len(leases))

    monkeypatch.setattr(store.queue, "release", note)

    run = run_with_a_pause(store, worker(store, executor, pipeline=1, window=4), executor, batch.id, released)
    asyncio.run(asyncio.wait_for(run, 60))
    assert released[0] == 4
    assert sorted(executor.seen) == ["c0", "c1", "c2", "c3"]
    assert found(store, batch.id).counts.completed == 4


class SlowToStop(Waiting):
    """An executor that takes a while to stop."""

    async def execute(self, item: WorkItem) -> ItemAnswer:
        try:
            return await super().execute(item)
        except asyncio.CancelledError:
            self.stopped.clear()
            for _ in range(20):
                await asyncio.sleep(0)
            self.stopped.append(item.custom_id)
            raise


def test_an_item_is_given_back_once_it_has_stopped_so_that_no_other_worker_runs_it_meanwhile(
    store: BatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, executor = submit(store, [line(1)]), SlowToStop()
    stopped, release = list[list[str]](), store.queue.release

    def note(name: str, leases: Any) -> Any:
        stopped.append(list(executor.stopped))
        return release(name, leases)

    monkeypatch.setattr(store.queue, "release", note)

    asyncio.run(run_with_a_pause(store, worker(store, executor), executor, batch.id, stopped))
    assert stopped[0] == ["c1"]
    assert found(store, batch.id).state == BatchState.COMPLETED


def test_items_that_were_given_back_once_are_not_given_back_again_at_each_look(
    store: BatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(store, [line(1), line(2)])
    released, release = list[int](), store.queue.release

    def note(name: str, leases: Sequence[Lease]) -> None:
        released.extend(lease.line for lease in leases)
        release(name, leases)

    monkeypatch.setattr(store.queue, "release", note)
    asyncio.run(worker(store, Fails(Unavailable(), Unavailable()), idle=0.0, beat=3_600.0).run())
    assert sorted(released) == [1, 2]


def test_a_worker_whose_queue_fails_counts_the_losses_of_items_whose_process_died(
    store: BatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    submit(store, [line(1), line(2)])

    def full(*_: Any) -> Any:
        raise OutputError("the database cannot be written: the disk is full")

    monkeypatch.setattr(store.queue, "record", full)
    with pytest.raises(OutputError, match="full"):
        asyncio.run(worker(store, Fails(ReplicaLost())).run())
    (item,) = store.queue.claim("next", 2, alone=True)
    assert item.losses == 1


def holding(store: BatchStore) -> tuple[Batch, Worker, WorkItem]:
    """A batch that is paused, and a worker that has claimed its item."""
    batch = submit(store, [line(1)])
    assert store.queue.validate("w", Echo())
    made = worker(store, Echo(), beat=0.0)
    made._ahead = [*store.queue.claim(made.name, 1, alone=True)]
    store.batches.pause(batch.id, caller=None, paused=True)
    return batch, made, made._ahead[0]


async def beat_once(made: Worker, meanwhile: Callable[[], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """One heartbeat. meanwhile: what happens to the claimed item while it learns that it is to be stopped."""
    told = asyncio.Event()

    async def ask(_: Worker, call: Any, *given: Any) -> Any:
        if made._ahead:
            made._ahead.clear()
            meanwhile()
        if call == made.queue.release:
            told.set()
        return call(*given)

    monkeypatch.setattr(Worker, "_ask", ask)
    beating = asyncio.create_task(made._beat())
    await told.wait()
    beating.cancel()
    await asyncio.gather(beating, return_exceptions=True)


def test_an_item_that_was_stopped_before_it_began_held_its_place_in_the_pipeline(
    store: BatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, made, item = holding(store)

    async def run() -> None:
        def begin() -> None:
            made._running[item.lease] = asyncio.create_task(made._execute(item))

        await beat_once(made, begin, monkeypatch)
        assert not made._running
        assert made._wake.is_set(), "there is room for another one"

    asyncio.run(asyncio.wait_for(run(), 60))
    assert found(store, batch.id).counts.pending == 1


def test_an_item_that_ended_as_its_batch_was_paused_ran_again(
    store: BatchStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    batch, made, item = holding(store)

    async def run() -> None:
        await beat_once(made, lambda: made._ended.append(ItemEnd(lease=item.lease, answer=answer())), monkeypatch)

    asyncio.run(asyncio.wait_for(run(), 60))
    (ended,) = made._ended
    assert store.queue.record(made.name, [ended]) == [item.lease]
    assert found(store, batch.id).counts.completed == 1
