"""How long the page of costs takes over a month of a million answers: forty constraints, two models, every hour.

    python -m benchmarks costs

Milliseconds from the question to the JSON of the reply, on SQLite, of the first question of a process and of the next
ones; and the CPU time that the sums add to storing one trace.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from statistics import median
from typing import Any

from sqlalchemy import insert

from benchmarks.figures import note
from benchmarks.harness import timed
from espalier.server.http.wire import to_bytes
from espalier.store.costs.bins import BINS
from espalier.store.costs.tables import CONSTRAINTS, COST_SUMS, PATH_SUMS, TAX_BINS
from espalier.store.costs.window import DAY, HOUR, CostWindow
from espalier.store.open import Store, open_store

CONSTRAINED, MODELS, PATHS, HOURS = 40, 2, 12, 30 * 24
ANSWERS = 1_000_000
UNTIL = 1_800_000_000 // DAY * DAY


def fill(store: Store) -> int:
    """The sums of a million answers. Returns how many rows they are."""
    rng, count = Random(5), 0
    each = ANSWERS // (CONSTRAINED * MODELS * HOURS) + 1
    with store.database.writing() as connection:
        for number in range(CONSTRAINED):
            key = {"caller": "anna", "fingerprint": f"{number:016x}"}
            known = {**key, "kind": "json_schema", "title": f"Schema {number}", "spec": "{}", "first_seen": 0.0}
            connection.execute(insert(CONSTRAINTS), known)
            for table, rows in (
                (COST_SUMS, list(_sums(rng, key, each))),
                (TAX_BINS, list(_bins(rng, key, each))),
                (PATH_SUMS, list(_paths(rng, key, each))),
            ):
                connection.execute(insert(table), rows)
                count += len(rows)
    return count


def _hours() -> range:
    return range(UNTIL - HOURS * HOUR, UNTIL, HOUR)


def _sums(rng: Random, key: dict[str, str], each: int) -> Iterator[dict[str, Any]]:
    whole = {name.name: each for name in COST_SUMS.c if not name.primary_key}
    for hour in _hours():
        for model in range(MODELS):
            tax = each * rng.expovariate(1.0)
            row = {"tax": tax, "tax_squares": tax * tax / each, "removed": each * 3.0, "seconds": each * 0.4}
            tokens = {"tokens": 40 * each, "measured_tokens": 40 * each, "timed_tokens": 40 * each}
            yield {**key, **whole, "model": f"model {model}", "template": "", "hour": hour, **tokens, **row}


def _bins(rng: Random, key: dict[str, str], each: int) -> Iterator[dict[str, Any]]:
    for hour in _hours():
        for measure in ("answer", "token"):
            for number in rng.sample(range(-3 * BINS, 4 * BINS), 6):
                yield {**key, "measure": measure, "bin": number, "hour": hour, "answers": each}


def _paths(rng: Random, key: dict[str, str], each: int) -> Iterator[dict[str, Any]]:
    for hour in _hours():
        for path in range(PATHS):
            tax = each * rng.expovariate(10.0)
            sums = {"answers": each, "tokens": 4 * each, "tax": tax, "tax_squares": tax * tax, "removed": 0.5 * each}
            yield {**key, "path": f"/items/*/field{path}", "hour": hour, **sums}


def told(question: str, first: float, again: float) -> None:
    note("Costs of a month of a million answers", question, "ms", {"asked again, ms": again, "asked first, ms": first})
    print(f"| {question} | {first:.0f} | {again:.0f} |")


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder)}/costs.db"
        store = open_store(url)
        began = time.perf_counter()
        rows = fill(store)
        store.close()
        size = (Path(folder) / "costs.db").stat().st_size
        print(
            f"{ANSWERS:,} answers are {rows:,} rows, {size / 1e6:.0f} MB, filled in {time.perf_counter() - began:.0f} s"
        )
        store = open_store(url)
        print("| asked for | first, ms | again, ms |")
        print("|---|---|---|")
        for name, days in (("30 days", 30), ("7 days", 7), ("a day", 1)):
            window = CostWindow(since=UNTIL - days * DAY, until=UNTIL, caller="anna")
            ask = lambda window=window: to_bytes([row.to_json() for row in store.costs(window)])  # noqa: E731
            first, *more = (timed(ask, time.perf_counter)[1] for _ in range(6))
            told(f"all constraints, {name}", first, median(more))
            one = lambda window=window: store.cost_paths(window, f"{3:016x}")  # noqa: E731
            first, *more = (timed(one, time.perf_counter)[1] for _ in range(6))
            told(f"one constraint by path, {name}", first, median(more))
        store.close()


if __name__ == "__main__":
    main()
