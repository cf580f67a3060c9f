"""CPU time of a batch of short items over the bare engine, on the demo model: alternately, in one process.

engine: the same requests, as many at once, straight to the scheduler, with verdicts. routes: through the executor of a
batch, which reads bodies and writes replies as the routes do, without a queue. batch: with the queue in SQLite, from
the claim to the recorded result.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from benchmarks.figures import note
from espalier import api
from espalier.engines.base import FinishEvent
from espalier.jobs.values import Lease, WorkItem
from espalier.jobs.worker import Worker
from espalier.server.batching.executor import ServerExecutor
from espalier.server.process.opening import Parts, open_process
from espalier.server.process.state import Process
from espalier.server.settings import settings_of
from tests.batch_jobs import line, open_batches, submit

ROUTE = "/v1/completions"
PIPELINE = 16
ROUNDS = 3
SPARED: list[float] = []


def body(number: int) -> dict[str, object]:
    return {"prompt": f"Number {number} is", "max_tokens": 16, "temperature": 0, "ignore_eos": True}


async def gather(count: int, one: Callable[[int], Awaitable[None]]) -> None:
    """PIPELINE at once."""
    left = iter(range(count))

    async def lane() -> None:
        for number in left:
            await one(number)

    await asyncio.gather(*(lane() for _ in range(PIPELINE)))


async def bare(process: Process, count: int) -> None:
    async def one(number: int) -> None:
        given = body(number)
        request = api.make_request(
            str(given["prompt"]), raw=True, trace="summary", max_tokens=16, temperature=0, ignore_eos=True
        )
        running = await asyncio.to_thread(process.scheduler.submit, request)
        async for event in running.events():
            if isinstance(event, FinishEvent):
                return

    await gather(count, one)


async def routes(process: Process, count: int) -> None:
    executor = ServerExecutor(process)

    async def one(number: int) -> None:
        lease = Lease(batch="b", line=number, fence=1)
        await executor.execute(
            WorkItem(
                lease=lease, custom_id="c", caller="me", endpoint=ROUTE, kind="openai", body=body(number), size=100
            )
        )

    await gather(count, one)


async def batch(process: Process, count: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        before = time.process_time()
        store = open_batches(f"sqlite:///{folder}/e.db", Path(folder))
        SPARED.append(time.process_time() - before)  # migrating an empty database is no part of a batch
        submit(store, [{**line(one), "body": body(one)} for one in range(count)])
        worker = Worker(queue=store.queue, executor=ServerExecutor(process), pipeline=PIPELINE, until_idle=True)
        await worker.run()
        store.database.close()
        assert worker.tally.done == count


async def measured(count: int) -> None:
    settings = settings_of({"TRACE_LEVEL": "off", "BATCH_JOBS": "false"})
    seconds: dict[str, list[float]] = {"engine": [], "routes": [], "batch": []}
    with api.load() as engine:
        async with open_process(settings, Parts(engine=engine), ()) as process:
            await routes(process, PIPELINE)  # compiles, warms
            for _ in range(ROUNDS):
                for name, run in (("engine", bare), ("routes", routes), ("batch", batch)):
                    began = time.process_time()
                    SPARED.clear()
                    await run(process, count)
                    seconds[name].append(time.process_time() - began - sum(SPARED))
    base = statistics.median(seconds["engine"])
    middles = {name: statistics.median(found) for name, found in seconds.items()}
    note("Batches", f"{count} short items", "s of CPU", {name: middles[name] for name in ("batch", "routes", "engine")})
    for name, middle in middles.items():
        print(f"{name:<10}{middle:8.2f} s of CPU for {count} items{middle / base - 1:+8.1%}", flush=True)


def main(count: int = 1000) -> None:
    asyncio.run(measured(count))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
