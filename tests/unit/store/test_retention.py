"""Retention: exactly the newest rows stay, deleted in small batches by one process, and the file shrinks."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import event

from espalier.errors import InputError, OutputError
from espalier.store import leases
from espalier.store.generations import GenerationFilter
from espalier.store.open import Store, open_store
from espalier.store.retention import LEASE, LEASE_SECONDS, Limits, Retention, keep
from espalier.store.trace_filter import TraceFilter
from tests.examples import examples
from tests.traces import sample_trace

TRACE = sample_trace(3).to_json()
ROW = {"request_id": "r", "caller": "anna", "model": "m"}


def save(store: Store, trace: dict[str, Any] = TRACE) -> str:
    return store.save_trace(trace, request_id="r", caller="anna", index=0)


def listed(store: Store) -> list[str]:
    return [row["id"] for row in store.traces(TraceFilter(), limit=10_000)]


@given(
    gaps=st.lists(st.integers(0, 5), max_size=14),
    rows=st.none() | st.integers(1, 16),
    age=st.none() | st.integers(0, 30),
    batch=st.integers(1, 5),
)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=examples(40))
def test_exactly_what_is_young_and_among_the_newest_stays(
    store: Store, clock: Any, gaps: list[int], rows: int | None, age: int | None, batch: int
) -> None:
    for one in listed(store):
        store.delete_trace(one, caller=None)
    made = []
    for gap in gaps:
        clock.now += gap
        made.append((clock.now, save(store)))
    limits = Limits(seconds=age, rows=rows)
    removed = Retention(store.database, limits, clock=clock, batch=batch).run()
    newest = made[-rows:] if rows is not None else made
    stays = [one for moment, one in newest if age is None or moment >= clock.now - age]
    assert listed(store) == stays[::-1]
    assert removed == len(made) - len(stays)
    clock.now += 100


def test_flagged_rows_stay_when_others_go_up_to_a_number_of_their_own(store: Store, clock: Any) -> None:
    """Those that a verdict or a client calls bad; what the search has of the others, and their feedback, goes too."""
    ids = []
    for number in range(6):
        clock.now += 1
        ids.append(store.save_trace(TRACE, request_id=f"r{number}", caller="anna", index=0))
        store.save_generation({**ROW, "request_id": f"r{number}", "valid": number != 5})
    for number in (0, 2, 3):
        assert store.save_feedback(f"r{number}", caller="anna", name="user", score=0.0)
    assert store.save_feedback("r2", caller="anna", name="user", score=1.0) is False
    clock.now += 1000
    removed = Retention(store.database, Limits(seconds=10), clock=clock, batch=2).run()
    assert (listed(store), removed) == ([ids[3], ids[0]], 4 + 3)
    assert [row["request_id"] for row in store.generations(GenerationFilter(), limit=9)] == ["r5", "r3", "r0"]
    assert [row["id"] for row in store.traces(TraceFilter(query="generate"), limit=9)] == [ids[3], ids[0]]
    assert store.feedback("r2", caller=None) == []
    assert len(store.feedback("r3", caller="anna")) == 1
    Retention(store.database, Limits(seconds=10), clock=clock, most_flagged=1).run()
    assert listed(store) == [ids[3]]
    store.retention(Limits(seconds=10), most_flagged=0).run()
    assert listed(store) == [], "nothing stays longer than all else"


def test_traces_can_have_limits_of_their_own(store: Store, clock: Any) -> None:
    for _ in range(4):
        clock.now += 1
        save(store)
        store.save_generation(ROW)
    store.retention(Limits(rows=1), traces=Limits(rows=3)).run()
    assert (len(listed(store)), len(store.generations(GenerationFilter(), limit=9))) == (3, 1)


def test_generations_go_as_traces_do(store: Store, clock: Any) -> None:
    for _ in range(5):
        store.save_generation(ROW)
        clock.now += 10
    assert store.retention(Limits(rows=2)).run() == 3
    assert len(store.generations(GenerationFilter(), limit=9)) == 2
    assert store.retention(Limits(seconds=15)).run() == 1
    assert store.retention(Limits()).run() == 0


def test_limits_that_keep_nothing_are_refused() -> None:
    for limits in ({"rows": 0}, {"seconds": -1.0}):
        with pytest.raises(InputError):
            Limits(**limits)  # type: ignore[arg-type]


def test_a_batch_is_no_larger_than_said_and_others_write_between_two(store: Store, clock: Any) -> None:
    made = [save(store) for _ in range(10)]
    deleted: list[int] = []
    written: list[str] = []

    @event.listens_for(store.database.engine, "after_cursor_execute")
    def count(_c: Any, cursor: Any, statement: str, *_: Any) -> None:
        if statement.startswith("DELETE FROM traces"):
            deleted.append(cursor.rowcount)

    @event.listens_for(store.database.engine, "commit")
    def write(_c: Any) -> None:
        if deleted and not written:
            written.append("")
            thread = threading.Thread(target=lambda: written.append(save(store)))
            threads.append(thread)
            thread.start()

    threads: list[threading.Thread] = []
    assert Retention(store.database, Limits(rows=1), clock=clock, batch=4).run() == 9
    threads[0].join()
    assert deleted == [4, 4, 1]
    assert set(listed(store)) == {made[-1], written[1]}


def test_it_ends_after_the_batch_in_hand_when_it_is_told_to(store: Store, clock: Any) -> None:
    for _ in range(10):
        save(store)
    stop = threading.Event()
    event.listen(store.database.engine, "commit", lambda _: stop.set() if len(seen) >= 1 else None)
    seen: list[int] = []
    event.listen(
        store.database.engine,
        "after_cursor_execute",
        lambda _c, _cursor, statement, *_: seen.append(1) if statement.startswith("DELETE") else None,
    )
    assert Retention(store.database, Limits(rows=1), clock=clock, batch=3).run(stop) == 3
    assert len(listed(store)) == 7


def test_only_one_process_at_a_time_does_it_and_a_killed_one_is_not_waited_for_long(store: Store, clock: Any) -> None:
    for _ in range(3):
        save(store)
    mine = store.retention(Limits(rows=1))
    assert leases.take(store.database, LEASE, "another", now=clock.now, seconds=LEASE_SECONDS)
    assert mine.run() == 0
    clock.now += LEASE_SECONDS
    assert mine.run() == 2
    assert leases.take(store.database, LEASE, "another", now=clock.now, seconds=LEASE_SECONDS)  # it was given back
    leases.release(store.database, LEASE, "a third")
    assert mine.run() == 0


def test_a_lease_of_a_clock_that_was_far_ahead_does_not_hold_for_years(store: Store, clock: Any) -> None:
    assert leases.take(store.database, LEASE, "another", now=clock.now + 1e9, seconds=LEASE_SECONDS)
    assert leases.take(store.database, LEASE, "me", now=clock.now, seconds=LEASE_SECONDS)
    assert not leases.take(store.database, "no such lease", "me", now=clock.now, seconds=1)


@pytest.mark.slow
def test_the_file_shrinks(tmp_path: Path, clock: Any) -> None:
    path = tmp_path / "a.db"
    store = open_store(f"sqlite:///{path}", clock=clock)
    trace = sample_trace(120).to_json()
    for _ in range(60):
        save(store, trace)
    store.database.checkpoint()
    before = path.stat().st_size
    store.retention(Limits(rows=3)).run()
    store.close()
    assert path.stat().st_size < before / 4


def test_keep_runs_at_once_and_after_every_wait_and_goes_on_after_an_error(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    runs: list[float] = []

    class Fails(Retention):
        def run(self, stop: threading.Event | None = None) -> int:
            runs.append(1)
            if len(runs) == 2:
                raise OutputError("the disk is full")
            return super().run(stop)

    async def wait(seconds: float) -> None:
        assert seconds == 60
        save(store)
        save(store)
        if len(runs) == 3:
            raise asyncio.CancelledError

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(keep(Fails(store.database, Limits(rows=1)), every=60, sleep=wait))
    assert len(runs) == 3
    assert "the disk is full" in caplog.text
    assert len(listed(store)) == 3


def test_keep_that_is_cancelled_waits_for_the_batch_in_hand(store: Store) -> None:
    started, told = threading.Event(), []

    class Slow(Retention):
        def run(self, stop: threading.Event | None = None) -> int:
            assert stop is not None
            started.set()
            told.append(stop.wait(30))
            return 0

    async def run() -> None:
        task = asyncio.create_task(keep(Slow(store.database, Limits(rows=1)), every=60))
        await asyncio.to_thread(started.wait)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert told == [True]

    asyncio.run(run())
