"""Operations of the queue a second: claims and results of 16 items, on SQLite and PostgreSQL."""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import tempfile
import time
from pathlib import Path

from espalier.jobs.values import ItemEnd
from tests.batch_jobs import Echo, answer, line, open_batches, postgres, postgres_folder, submit

TOGETHER = 16


def measure(name: str, url: str, folder: Path, count: int) -> None:
    store = open_batches(url, folder)
    submit(store, [line(one) for one in range(count)])
    began = time.perf_counter()
    store.queue.validate("w", Echo())
    read = time.perf_counter() - began
    claims = records = 0.0
    done = 0
    while True:
        began = time.perf_counter()
        items = store.queue.claim("w", TOGETHER, alone=True)
        claims += time.perf_counter() - began
        if not items:
            break
        began = time.perf_counter()
        store.queue.record("w", [ItemEnd(lease=one.lease, answer=answer("x" * 200)) for one in items])
        records += time.perf_counter() - began
        done += len(items)
    began = time.perf_counter()
    store.queue.tend("w")
    ended = time.perf_counter() - began
    store.database.close()
    print(
        f"{name:<12}{count / read:10,.0f} lines read{done / claims:10,.0f} claims{done / records:10,.0f} results a "
        f"second; {ended:.2f} s to sum up",
        flush=True,
    )


def main(count: int = 2000) -> None:
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        measure("sqlite", f"sqlite:///{folder}/e.db", Path(folder), count)
        if importlib.util.find_spec("psycopg") is not None and postgres_folder() is not None:
            measure("postgresql", stack.enter_context(postgres()), Path(folder), count)
        else:
            print("postgresql is not installed")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
