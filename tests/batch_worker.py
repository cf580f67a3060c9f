"""A worker of batch jobs as a process of its own, over the fake engine or an echo, to be killed by tests.

`python -m tests.batch_worker URL FOLDER KIND SECONDS PIPELINE LEASE`: until no batch is open. It prints `ready`, and at
the end its tally. After a fault of the database it begins again, as a server does.
"""

from __future__ import annotations

import asyncio
import json
import sys
from dataclasses import asdict
from pathlib import Path

from espalier.errors import EspalierError
from espalier.jobs.ports import Executor
from espalier.jobs.values import Answer, Item
from espalier.jobs.worker import Tally, Worker
from tests.batch_jobs import Echo, open_batches


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Slow(Echo):
    """Takes its time, with nothing to compute."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def execute(self, item: Item) -> Answer:
        await asyncio.sleep(self._seconds)
        return await super().execute(item)


async def main(url: str, folder: str, kind: str, seconds: float, pipeline: int, lease: float) -> Tally:
    store = open_batches(url, Path(folder), lease=lease)
    tally = Tally()

    async def work(executor: Executor) -> None:
        say("ready")
        while True:
            worker = Worker(queue=store.queue, executor=executor, pipeline=pipeline, until_idle=True, beat=lease / 5,
                            idle=0.2, tally=tally)  # fmt: skip
            try:
                await worker.run()
                return
            except EspalierError as error:
                sys.stderr.write(f"again: {error}\n")
                await asyncio.sleep(0.2)

    if kind == "echo":
        await work(Slow(seconds))
    else:
        from espalier.engines.fake import open_engine
        from espalier.server.batching.executor import ServerExecutor
        from espalier.server.process.opening import Parts, open_process
        from espalier.settings import Settings
        from espalier.wiring import App
        from tests.server_app import espalier, in_this_process, settings

        engine = espalier.LoadedEngine(open_engine(wish='{"name": "Ada", "age": 36}'))
        parts = Parts(app=App(Settings()), engine=engine, judge=in_this_process, takes_batches=False)
        async with open_process(settings(), parts, ()) as process:
            await work(ServerExecutor(process))
    store.database.close()
    return tally


if __name__ == "__main__":
    given = sys.argv[1:]
    found = asyncio.run(main(given[0], given[1], given[2], float(given[3]), int(given[4]), float(given[5])))
    say(json.dumps(asdict(found)))
