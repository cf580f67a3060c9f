"""Awaits the work of a batch until it ends or a signal comes, and shows how far it is."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from espalier.cli import output
from espalier.cli.batch.progress import BatchProgress
from espalier.cli.batch.store import known

if TYPE_CHECKING:
    from espalier.jobs.worker import Worker
    from espalier.store.batches.open import BatchStore


def stopped_by_signals() -> asyncio.Event:
    """Set by SIGINT and SIGTERM, which end nothing by themselves from now on. On the event loop's thread."""
    stopped = asyncio.Event()
    for signal_number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(signal_number, stopped.set)
    return stopped


async def until_done(work: Coroutine[Any, Any, None], stopped: asyncio.Event) -> None:
    """Await the work until it ends or is stopped, which gives running items back. Raises what the work raises."""
    working, waiting = asyncio.create_task(work), asyncio.create_task(stopped.wait())
    await asyncio.wait({working, waiting}, return_when=asyncio.FIRST_COMPLETED)
    for task in (working, waiting):
        task.cancel()
    outcome, _ = await asyncio.gather(working, waiting, return_exceptions=True)
    if isinstance(outcome, BaseException) and not stopped.is_set():
        raise outcome


def end_if(stopped: asyncio.Event, *, goes_on: bool) -> None:
    """Raises KeyboardInterrupt after a stop. goes_on: whether the same command goes on from here."""
    if stopped.is_set():
        if goes_on:
            output.note("interrupted; the same command goes on from here")
        raise KeyboardInterrupt


async def shown(worker: Worker, store: BatchStore, batch_id: str, progress: BatchProgress) -> None:
    """Run a worker; the counts of the batch, what an earlier run has finished included, go to the progress bar."""
    worker.told = progress.told

    async def watch() -> None:
        while True:
            batch = await asyncio.to_thread(known, store, batch_id)
            progress.counted(batch.counts)
            await asyncio.sleep(0.5)

    watching = asyncio.create_task(watch())
    try:
        await worker.run()
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        progress.counted((await asyncio.to_thread(known, store, batch_id)).counts)
