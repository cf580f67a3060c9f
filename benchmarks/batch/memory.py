"""Peak memory of a process that reads, runs and sums up a batch of 1,000 and of 50,000 items, without a model."""

from __future__ import annotations

import asyncio
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.figures import note
from espalier.jobs.worker import Worker
from tests.batch_jobs import Echo, found, line, open_batches
from tests.batch_jobs import jsonl as as_lines

COUNTS = (1_000, 50_000)


class Forgetful(Echo):
    """Keeps nothing of what it has seen."""

    async def execute(self, item):  # type: ignore[no-untyped-def]  # as Echo
        made = await super().execute(item)
        self.seen.clear()
        return made


async def run(count: int) -> None:
    from espalier.jobs.values import BatchPlan

    with tempfile.TemporaryDirectory() as folder:
        store = open_batches(f"sqlite:///{folder}/e.db", Path(folder))
        with store.files.writing() as file:
            for number in range(count):
                file.write(as_lines([line(number, more="x" * 500)]))
            row = store.files.add(file, caller="me", filename="in.jsonl")
        made = store.batches.create(BatchPlan(caller="me", endpoint="/v1/completions", input_file=row["id"]))
        await Worker(queue=store.queue, executor=Forgetful(), pipeline=64, until_idle=True).run()
        assert found(store, made.id).counts.completed == count
        assert sum(1 for _ in store.results.lines(made.id, "all")) == count
        store.database.close()


def main(*counts: int) -> None:
    peaks: dict[int, float] = {}
    for count in counts or COUNTS:
        command = [sys.executable, "-m", "benchmarks.batch.memory", "one", str(count)]
        peak = subprocess.run(command, check=True, capture_output=True, text=True).stdout
        peaks[count] = int(peak) / 1024
        print(f"{count:>8} items: peak {int(peak) / 1024:8.1f} MiB", flush=True)
    few, *more = sorted(peaks)
    for count in more:
        values = {f"{count:,} items": peaks[count], f"{few:,} items": peaks[few]}
        note("Batches, peak memory", f"{count:,} items", "MiB", values)


if __name__ == "__main__":
    if sys.argv[1:2] == ["one"]:
        asyncio.run(run(int(sys.argv[2])))
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    else:
        main(*map(int, sys.argv[1:]))
