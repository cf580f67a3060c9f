"""Processes that store traces are killed with SIGKILL: no confirmed trace is lost, and the sums are those of the traces
that are there, each counted once. On SQLite and on PostgreSQL; ESPALIER_KILLS says how often, 50 in all for the claim.
"""

from __future__ import annotations

import contextlib
import importlib.util
import math
import os
import random
import sys
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")

from sqlalchemy import func, select

from espalier.store.costs.tables import COST_SUMS, PATH_SUMS, TAX_BINS
from espalier.store.open import Store, open_store
from espalier.store.tables import TRACE_WORDS, TRACES
from espalier.store.writer import TraceWriter
from tests.batch_jobs import postgres, postgres_folder
from tests.forks import FORKS
from tests.traces import sample_trace

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL here")]
KILLS = int(os.environ.get("ESPALIER_KILLS") or 6)
AT_ONCE = 2
"""Processes that write to one database, all killed at one moment."""
WAITING = 8
"""Traces that each has put and that are not confirmed yet."""
SECONDS = 120
HAS_POSTGRES = importlib.util.find_spec("psycopg") is not None and postgres_folder() is not None


def answer(number: int) -> dict[str, Any]:
    """A trace under one of four schemas, with two paths."""
    trace = sample_trace(1 + number % 7).to_json()
    schema = {"type": "object", "title": f"Schema {number % 4}"}
    trace["metadata"] |= {"constraint": {"kind": "json_schema", "schema": schema}}
    cost = {"tokens": 1, "tax_nats": 0.25, "removed_mass": 0.5}
    trace["summary"] |= {"total_tax_nats": 0.5, "by_path": {"/name": cost, "/items/0": cost}}
    return trace


def run(said: Connection, url: str) -> None:
    """Stores traces as a server does, until it is killed, and says the id of each once it is confirmed."""
    store = open_store(url)
    writer = TraceWriter(lambda: store, most_waiting=4 * WAITING)
    waiting: deque[Future[str]] = deque()
    number = 0
    while True:
        row = {"trace": answer(number), "request_id": f"req-{number}", "caller": "anna", "index": 0}
        written = writer.put(lambda row=row: row)  # type: ignore[misc]
        written.add_done_callback(lambda ended: said.send(ended.result()))
        waiting.append(written)
        number += 1
        if len(waiting) >= WAITING:
            waiting.popleft().result(SECONDS)


def kill_together(url: str, confirmed: list[int]) -> set[str]:
    """Start a process for each number, wait until it has so many traces confirmed, and kill all at once. Returns the
    ids of all that were confirmed."""
    ids: set[str] = set()
    started = []
    for _ in confirmed:
        here, there = FORKS.Pipe(duplex=False)
        process = FORKS.Process(target=run, args=(there, url), daemon=True)
        process.start()
        there.close()
        started.append((process, here))
    for (_, said), count in zip(started, confirmed, strict=True):
        for _ in range(count):
            assert said.poll(SECONDS), "nothing is confirmed"
            ids.add(said.recv())
    for process, _ in started:
        process.kill()
    for process, said in started:
        process.join()
        with contextlib.suppress(EOFError):
            while said.poll(0):
                ids.add(said.recv())
        said.close()
    return ids


def check_sums(store: Store) -> int:
    """That all sums are those of the stored traces. Returns how many traces there are."""
    of_sums = [func.sum(COST_SUMS.c[name]) for name in ("answers", "tokens", "tax")]
    of_traces = [func.count(), func.sum(TRACES.c.tokens), func.sum(TRACES.c.tax_nats)]
    paths = select(PATH_SUMS.c.path, func.sum(PATH_SUMS.c.answers), func.sum(PATH_SUMS.c.tax))
    with store.database.reading() as connection:
        traces, tokens, tax = connection.execute(select(*of_traces)).one()
        summed = connection.execute(select(*of_sums)).one()
        bins = connection.execute(select(func.sum(TAX_BINS.c.answers))).scalar_one()
        by_path = {name: sums for name, *sums in connection.execute(paths.group_by(PATH_SUMS.c.path))}
        words = connection.execute(select(func.count()).select_from(TRACE_WORDS)).scalar_one()
    assert (summed[0], summed[1]) == (traces, tokens)
    assert math.isclose(summed[2], tax)
    assert (bins, words) == (2 * traces, traces)
    assert by_path.keys() == {"/name", "/items/*"}
    for answers, cost in by_path.values():
        assert answers == traces
        assert math.isclose(cost, 0.25 * traces)
    return int(traces)


@pytest.fixture(
    params=[
        "sqlite",
        pytest.param(
            "postgresql", marks=pytest.mark.skipif(not HAS_POSTGRES, reason="no PostgreSQL (Debian: postgresql)")
        ),
    ]
)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    if request.param == "sqlite":
        yield f"sqlite:///{tmp_path}/espalier.db"
        return
    with postgres() as server:
        yield server


def test_no_confirmed_trace_is_lost_by_a_kill_and_none_is_counted_twice(url: str) -> None:
    store = open_store(url)
    moments = random.Random(5)
    confirmed: set[str] = set()
    there = 0
    for _ in range(-(-KILLS // AT_ONCE)):
        confirmed |= kill_together(url, [moments.randrange(1, 30) for _ in range(AT_ONCE)])
        there = check_sums(store)
        with store.database.reading() as connection:
            stored = set(connection.execute(select(TRACES.c.id)).scalars())
        assert confirmed <= stored
    sys.stdout.write(f"{KILLS} kills: {len(confirmed):,} traces confirmed, {there:,} stored and counted once\n")
    store.close()
