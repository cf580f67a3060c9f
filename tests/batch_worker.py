"""A worker of batch jobs as a process of its own, over the fake engine or an echo, to be killed by tests.

`start_worker` forks it from a process that has imported everything once, so that fifty of them cost what they do and
not what importing costs. It works until no batch is open, and says its tally. After a fault of the database it begins
again, as a server does.
"""

from __future__ import annotations

import asyncio
import faulthandler
import os
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

from espalier.errors import EspalierError
from espalier.jobs.ports import Executor
from espalier.jobs.values import ItemAnswer, WorkItem
from espalier.jobs.worker import Tally, Worker
from espalier.store.batches import stages
from tests.batch_jobs import Echo, open_batches
from tests.forks import FORKS

END_SECONDS = 240
READY = "ready"


@dataclass(frozen=True, slots=True)
class StartedWorker:
    """A worker that has begun. pid: its process."""

    process: BaseProcess
    said: Connection

    @property
    def pid(self) -> int:
        assert self.process.pid is not None
        return self.process.pid

    def kill(self) -> None:
        """SIGKILL, and wait. Idempotent."""
        self.process.kill()
        self.process.join()
        self.said.close()

    def tally(self) -> Tally:
        """Wait for its end, when it has nothing left to do. Raises AssertionError where it ends otherwise."""
        assert self.said.poll(END_SECONDS), "the worker does not end"
        found: Tally = self.said.recv()
        self.process.join(END_SECONDS)
        assert self.process.exitcode == 0
        self.said.close()
        return found


def start_worker(url: str, folder: Path, *, kind: str, seconds: float, pipeline: int, lease: float) -> StartedWorker:
    """A worker that is ready. kind: `echo`, which takes `seconds` for an item, `together:3`,
    an echo that holds its first item until three workers hold one, or `fake`, an engine."""
    here, there = FORKS.Pipe(duplex=False)
    process = FORKS.Process(target=run, args=(there, url, folder, kind, seconds, pipeline, lease), daemon=True)
    process.start()
    there.close()
    assert here.poll(END_SECONDS), "the worker does not begin"
    assert here.recv() == READY
    return StartedWorker(process, here)


def run(said: Connection, *given: Any) -> None:
    """The main function of the process, which says where it stands if it does not end."""
    faulthandler.dump_traceback_later(END_SECONDS - 10)
    said.send(asyncio.run(main(said, *given)))


class Slow(Echo):
    """Takes its time, with nothing to compute."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    async def execute(self, item: WorkItem) -> ItemAnswer:
        await asyncio.sleep(self._seconds)
        return await super().execute(item)


class Together(Echo):
    """Holds its first item until so many workers hold one: workers that wait for each other never end."""

    def __init__(self, folder: Path, workers: int) -> None:
        super().__init__()
        self._folder, self._workers = folder, workers

    async def execute(self, item: WorkItem) -> ItemAnswer:
        (self._folder / f"holds-{os.getpid()}").touch()
        while sum(1 for _ in self._folder.glob("holds-*")) < self._workers:
            await asyncio.sleep(0.01)
        return await super().execute(item)


async def main(
    said: Connection, url: str, folder: Path, kind: str, seconds: float, pipeline: int, lease: float
) -> Tally:
    stages.READING_SECONDS = lease
    store = open_batches(url, folder, lease=lease)
    tally = Tally()

    async def work(executor: Executor) -> None:
        said.send(READY)
        while True:
            worker = Worker(
                queue=store.queue,
                executor=executor,
                pipeline=pipeline,
                until_idle=True,
                beat=lease / 5,
                idle=0.2,
                tally=tally,
            )
            try:
                await worker.run()
                return
            except EspalierError as error:
                sys.stderr.write(f"again: {error}\n")
                await asyncio.sleep(0.2)

    if kind == "echo":
        await work(Slow(seconds))
    elif kind.startswith("together:"):
        await work(Together(folder.parent, int(kind.removeprefix("together:"))))
    else:
        from espalier.engines.fake import open_engine
        from espalier.server.batching.executor import ServerExecutor
        from espalier.server.process.opening import Parts, open_process
        from espalier.settings import KernelSettings
        from espalier.wiring import App
        from tests.server_app import espalier, in_this_process, settings

        engine = espalier.LoadedEngine(open_engine(wish='{"name": "Ada", "age": 36}'))
        parts = Parts(app=App(KernelSettings()), engine=engine, judge=in_this_process, takes_batches=False)
        async with open_process(settings(), parts, ()) as process:
            await work(ServerExecutor(process))
    store.database.close()
    return tally
