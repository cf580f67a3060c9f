"""A process that stores traces is killed with SIGKILL again and again: no row is corrupt, no reported row is lost."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("sqlalchemy")
pytest.importorskip("alembic")

from espalier.store.open import Store, open_store
from espalier.store.retention import Limits
from espalier.store.trace_filter import TraceFilter
from espalier.trace.records import Trace
from tests.traces import sample_trace

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL here")]

KEPT = 60
"""Rows that retention leaves: it runs in the same process, so that kills meet deletes and the shrinking of the file."""

WRITER = f"""
import sys, time
from espalier.store.open import open_store
from espalier.store.retention import Limits
from tests.traces import sample_trace

traces = [sample_trace(n).to_json() for n in (0, 5, 40)]
print("ready", flush=True)
later = float(sys.argv[2])
store = open_store(sys.argv[1], clock=lambda: time.time() + later)
retention = store.retention(Limits(rows={KEPT}))
count = 0
while True:
    print(store.save_trace(traces[count % 3], request_id="r", caller="c", index=count), flush=True)
    store.save_generation({{"request_id": "r", "caller": "c", "model": "m", "words": [f"apple n{{count}}"]}})
    count += 1
    if count % 10 == 0:
        retention.run()
"""


def start(url: str, later: float) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, url, str(later)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def kill_after(process: subprocess.Popen[str], lines: int) -> list[str]:
    """Read so many ids, kill, and return all ids that were said, the last line only if it is whole."""
    return after_kill(process, lines_of(process, lines))


def lines_of(process: subprocess.Popen[str], count: int) -> list[str]:
    assert process.stdout is not None
    return [process.stdout.readline() for _ in range(count)]


def after_kill(process: subprocess.Popen[str], said: list[str]) -> list[str]:
    """What it said, with the lines that were read before."""
    assert process.stdout is not None
    process.send_signal(signal.SIGKILL)
    rest = process.stdout.read()  # not `communicate`, which would leave out what `readline` has read ahead
    assert process.wait(60) == -signal.SIGKILL
    assert process.stderr is not None
    assert process.stderr.read() == ""
    process.stdout.close()
    process.stderr.close()
    return [line.strip() for line in [*said, *rest.splitlines(keepends=True)] if line.endswith("\n")]


def check(path: Path) -> None:
    connection = sqlite3.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        # Raises if the index and the rows differ.
        connection.execute(
            "INSERT INTO generation_logs_search(generation_logs_search, rank) VALUES ('integrity-check', 1)"
        )
    finally:
        connection.close()


def all_ids(store: Store) -> list[str]:
    """Every trace that is listed; each was read and is a trace."""
    seen: list[str] = []
    while rows := store.traces(TraceFilter(caller="c", after=seen[-1] if seen else None), limit=50):
        for row in rows:
            found = store.trace(row["id"], caller="c")
            assert found is not None
            assert len(Trace.from_json(found).steps) == row["tokens"]
        seen += [row["id"] for row in rows]
    return seen


def test_what_was_kept_is_whole_after_every_kill_and_writing_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    url = f"sqlite:///{path}"
    moments = random.Random(9)
    for turn in range(4):
        later = turn * 1000.0  # by which the lease of the killed one has run out
        two = [start(url, later) for _ in range(1 + turn % 2)]
        read = [lines_of(process, moments.randrange(1, 60)) for process in two]
        for process in two:  # at once: one that died amid its deletes keeps the other from deleting
            process.send_signal(signal.SIGKILL)
        said = [after_kill(process, lines) for process, lines in zip(two, read, strict=True)]
        check(path)
        store = open_store(url)
        there = all_ids(store)
        store.close()
        # Each has seen to it that no more than KEPT are left, so what was said last is what must be there.
        assert set(sorted(one for ids in said for one in ids)[-KEPT // 2 :]) <= set(there)
        assert len(there) <= 2 * KEPT
    store = open_store(url, clock=lambda: 4e9)
    kept = store.save_trace(sample_trace(3).to_json(), request_id="r", caller="c", index=0)
    assert store.retention(Limits(rows=1)).run() > 0
    assert all_ids(store) == [kept]
    store.close()
    check(path)


def test_a_process_killed_while_it_makes_the_database_leaves_one_that_opens(tmp_path: Path) -> None:
    for turn in range(2):
        path = tmp_path / f"{turn}.db"
        kill_after(start(f"sqlite:///{path}", 0), 0)
        store = open_store(f"sqlite:///{path}")
        kept = store.save_trace(sample_trace(3).to_json(), request_id="r", caller="c", index=0)
        assert kept in all_ids(store)
        store.close()
        check(path)
