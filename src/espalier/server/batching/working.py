"""The worker inside a server: it runs while the application does, and begins again after a fault of the database."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from espalier.errors import EspalierError
from espalier.jobs.retry import Retry
from espalier.jobs.worker import Worker
from espalier.server.batching.executor import ServerExecutor
from espalier.server.process.state import Process
from espalier.store.batches.open import BatchStore

log = logging.getLogger(__name__)
AGAIN_SECONDS = 5.0
SWEEP_SECONDS = 300.0
DAY = 86_400.0


def make_worker(process: Process, store: BatchStore) -> Worker:
    """A worker on this process's model, as its settings say."""
    settings = process.settings
    return Worker(
        queue=store.queue,
        executor=ServerExecutor(process),
        pipeline=settings.batch_job_pipeline_size,
        retry=Retry(tries=settings.batch_tries),
    )


@asynccontextmanager
async def working(process: Process) -> AsyncIterator[None]:
    """While open, batches are worked on and old ones deleted; at the end, running items are given back."""
    if process.batches is None:
        yield
        return
    tasks = [asyncio.create_task(keep_working(process, process.batches)), asyncio.create_task(_sweep(process))]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def keep_working(process: Process, store: BatchStore, *, made: Callable[[Worker], None] = lambda _: None) -> None:
    """Work until cancelled. What the database cannot do now is tried again. made: gets each new worker."""
    while True:
        try:
            worker = make_worker(process, store)
            made(worker)
            await _wake_worker(process, worker)
        except EspalierError as error:
            log.error("batch jobs wait %g s: %s", AGAIN_SECONDS, error)
        except Exception:
            log.exception("the worker of batch jobs has failed, and begins again")
        await asyncio.sleep(AGAIN_SECONDS)


async def _wake_worker(process: Process, worker: Worker) -> None:
    """Run the worker, told of what is new."""
    process.wakers.append(worker.wake)
    try:
        await worker.run()
    finally:
        process.wakers.remove(worker.wake)


async def _sweep(process: Process) -> None:
    days, store = process.settings.batch_retention_days, process.batches
    assert store is not None
    while True:
        try:
            count = await asyncio.to_thread(store.sweep, None if days is None else days * DAY)
            if count:
                log.info("old batches and files were deleted", extra={"rows": count})
        except EspalierError as error:
            log.warning("old batches could not be deleted: %s", error)
        await asyncio.sleep(SWEEP_SECONDS)
