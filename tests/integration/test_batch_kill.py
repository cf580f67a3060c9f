"""Batches whose workers are killed, stopped and cut off from the database: one result for each item, in order, and
nothing that was recorded is run again. On SQLite and on PostgreSQL."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import random
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from sqlalchemy import func, select, text, true

from espalier.jobs.states import BatchState
from espalier.store.batches import ATTEMPTS, RESULTS
from espalier.store.batches.open import BatchStore
from tests.batch_jobs import Echo, found, line, open_batches, postgres, postgres_folder, results, submit
from tests.batch_worker import StartedWorker, start_worker
from tests.examples import examples

pytestmark = pytest.mark.slow
LEASE = 2.0
SCHEMAS = [
    {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"]},
    {
        "type": "object",
        "properties": {"age": {"type": "integer", "minimum": 3, "maximum": 99}},
        "required": ["age"],
        "additionalProperties": False,
    },
    {"enum": ["yes", "no", 3]},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
]
HAS_POSTGRES = importlib.util.find_spec("psycopg") is not None and postgres_folder() is not None


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param(
            "postgresql", marks=pytest.mark.skipif(not HAS_POSTGRES, reason="no PostgreSQL (Debian: postgresql)")
        ),
    ]
)
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[BatchStore]:
    with contextlib.ExitStack() as stack:
        url = f"sqlite:///{tmp_path}/e.db" if request.param == "sqlite" else stack.enter_context(postgres())
        opened = open_batches(url, tmp_path / "files", lease=LEASE)
        opened.url = url  # type: ignore[attr-defined]  # for the workers
        stack.callback(opened.database.close)
        yield opened


def start(store: BatchStore, *, kind: str = "echo", seconds: float = 0.01, pipeline: int = 8) -> StartedWorker:
    url: str = store.url  # type: ignore[attr-defined]
    return start_worker(url, store.files.folder, kind=kind, seconds=seconds, pipeline=pipeline, lease=LEASE)


def check(store: BatchStore, batch_id: str, count: int) -> list[dict[str, Any]]:
    """One result for each item, in the order of the input; no attempt began after its item was recorded."""
    batch = found(store, batch_id)
    assert batch.state == BatchState.COMPLETED
    lines = results(store, batch_id)
    assert [one["custom_id"] for one in lines] == [f"c{one}" for one in range(1, count + 1)]
    with store.database.reading() as connection:
        assert connection.execute(select(func.count()).select_from(RESULTS)).scalar_one() == count
        rows = connection.execute(select(RESULTS.c.line, RESULTS.c.created)).mappings()
        created = {row["line"]: row["created"] for row in rows}
        attempts = connection.execute(select(ATTEMPTS)).mappings().all()
    final = Counter(one["line"] for one in attempts if one["outcome"] in ("done", "failed"))
    last = {number: max(one["fence"] for one in attempts if one["line"] == number) for number in final}
    for one in attempts:
        assert one["began"] <= created[one["line"]], "an item was run again after its result"
        if one["outcome"] in ("done", "failed"):
            assert one["fence"] == last[one["line"]]
    assert set(final.values()) <= {1}
    return lines


def test_workers_killed_at_random_moments_leave_one_result_for_each_item(store: BatchStore) -> None:
    rng, count, kills = random.Random(7), 2000, max(3, examples(50))
    batch = submit(store, [line(one) for one in range(1, count + 1)])

    def begun(outcome: str | None = None) -> int:
        which = true() if outcome is None else ATTEMPTS.c.outcome == outcome
        with store.database.reading() as connection:
            return int(connection.execute(select(func.count()).select_from(ATTEMPTS).where(which)).scalar_one())

    def kill(after: float, *, claims: bool) -> None:
        before, until = begun(), time.monotonic() + 60
        process = start(store, seconds=0.02, pipeline=2)
        while claims and begun() == before and time.monotonic() < until:
            time.sleep(0.01)
        time.sleep(after)
        process.kill()

    kill(0.05, claims=False)  # while it reads the input, on most machines: then the lease of a dead reader has to end
    while found(store, batch.id).state == BatchState.VALIDATING:
        time.sleep(0.05)
        store.queue.validate("here", Echo())
    for number in range(kills):
        kill(rng.uniform(0.0, 0.25), claims=number % 2 == 0)
        if found(store, batch.id).counts.completed > count // 2:
            break  # what is left may all be items that two workers lost, and four losses set one aside
    start(store, seconds=0.001, pipeline=32).tally()
    assert begun("lost"), "no worker was killed while it ran an item"
    lines = check(store, batch.id, count)
    assert all(one["response"]["body"]["text"] == f"p{one['custom_id'][1:]}" for one in lines)


def test_items_of_the_engine_survive_kills_and_satisfy_their_schemas(store: BatchStore) -> None:
    def given(number: int) -> dict[str, Any]:
        schema = {"name": "x", "schema": SCHEMAS[number % len(SCHEMAS)]}
        body = {
            "messages": [{"role": "user", "content": f"{number}"}],
            "max_tokens": 60,
            "seed": number,
            "response_format": {"type": "json_schema", "json_schema": schema},
        }
        return {"custom_id": f"c{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}

    rng, count = random.Random(3), 120
    batch = submit(store, [given(one) for one in range(1, count + 1)], endpoint="/v1/chat/completions")
    for _ in range(3):
        process = start(store, kind="fake")
        time.sleep(rng.uniform(0.2, 1.5))
        process.kill()
    start(store, kind="fake").tally()
    for number, one in enumerate(check(store, batch.id, count), 1):
        choice = one["response"]["body"]["choices"][0]
        assert choice["finish_reason"] == "stop"
        jsonschema.validate(json.loads(choice["message"]["content"]), SCHEMAS[number % len(SCHEMAS)])


def stop(worker: StartedWorker, store: BatchStore) -> None:
    """SIGSTOP, at a moment at which it has no transaction: all others would wait for its locks."""
    for _ in range(100):
        os.kill(worker.pid, signal.SIGSTOP)
        if not is_locked(store):
            return
        os.kill(worker.pid, signal.SIGCONT)
        time.sleep(0.01)
    raise AssertionError("it is always within a transaction")


def is_locked(store: BatchStore) -> bool:
    """Whether another process is within a transaction."""
    if store.database.is_sqlite:
        with contextlib.closing(sqlite3.connect(str(store.database.engine.url.database), timeout=0)) as connection:
            try:
                connection.execute("BEGIN IMMEDIATE")
            except sqlite3.OperationalError:
                return True
            return False
    query = "select count(*) from pg_stat_activity where application_name='espalier' and state<>'idle' and pid<>:own"
    with store.database.writing() as connection:
        own = connection.execute(text("select pg_backend_pid()")).scalar_one()
        return bool(connection.execute(text(query), {"own": own}).scalar_one())


def test_a_worker_that_was_stopped_past_its_lease_writes_nothing_stale(store: BatchStore) -> None:
    count = 60
    batch = submit(store, [line(one) for one in range(1, count + 1)])
    sleeper = start(store, seconds=2, pipeline=16)  # so long that it has not ended when it is stopped
    until = time.monotonic() + 60
    while not found(store, batch.id).counts.running and time.monotonic() < until:
        time.sleep(0.02)
    stop(sleeper, store)
    try:
        held = found(store, batch.id).counts.running
        assert held
        start(store).tally()
        check(store, batch.id, count)
        before = results(store, batch.id)
    finally:
        os.kill(sleeper.pid, signal.SIGCONT)
    tally = sleeper.tally()
    assert results(store, batch.id) == before
    assert tally.done < count
    check(store, batch.id, count)


def test_a_worker_whose_connections_are_cut_goes_on(store: BatchStore) -> None:
    if store.database.is_sqlite:
        pytest.skip("SQLite has no connections to cut")
    count = 400
    batch = submit(store, [line(one) for one in range(1, count + 1)])
    process = start(store, seconds=0.02)
    own = "select pg_terminate_backend(pid) from pg_stat_activity where application_name='espalier' and pid<>:own"
    for _ in range(5):
        time.sleep(0.15)
        with store.database.writing() as connection:
            pid = connection.execute(text("select pg_backend_pid()")).scalar_one()
            connection.execute(text(own), {"own": pid})
    process.tally()
    check(store, batch.id, count)


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_run_items_at_once_and_share_nothing(store: BatchStore, workers: int) -> None:
    batch = submit(store, [line(one) for one in range(1, 81)])
    store.queue.validate("here", Echo())
    tallies = [one.tally() for one in [start(store, kind=f"together:{workers}", pipeline=2) for _ in range(workers)]]
    assert all(one.done for one in tallies)
    assert sum(one.done for one in tallies) == 80
    check(store, batch.id, 80)
