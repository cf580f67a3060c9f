"""`espalier batch run --executor ray`: items run in Ray actors; their queue stays in this process's database."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from espalier.cli import output
from espalier.cli.batch.stopping import end_if, shown, stopped_by_signals, until_done
from espalier.cli.cluster import travelling

if TYPE_CHECKING:
    from espalier.cli.batch.progress import BatchProgress
    from espalier.server.cluster.actors import RayExecutor
    from espalier.server.environment import Environment
    from espalier.server.settings import ServerSettings
    from espalier.store.batches.open import BatchStore

OURS = ("DATABASE_URL", "BATCH_JOB_TEMP_DIR")
"""Settings of the queue, which no actor opens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """As for `server.cluster.plan.ClusterPlan`; address: of the cluster."""

    address: str | None = None
    replicas: int = 1
    cpus: float = 1.0
    gpus: float = 0.0


def work_on_ray(
    cluster: Cluster,
    environment: Environment,
    settings: ServerSettings,
    store: BatchStore,
    model: str | None,
    engine: Mapping[str, Any],
    progress: BatchProgress,
    batch_id: str,
) -> None:
    """Run the batch until it ends, or until a signal (KeyboardInterrupt). Raises EspalierError where no actor could
    start."""
    from espalier.server.cluster.actors import RayExecutor  # noqa: PLC0415
    from espalier.server.cluster.joining import joined, room  # noqa: PLC0415

    values = {name: value for name, value in travelling(environment).items() if name not in OURS}
    with joined(cluster.address, variables={}, cpus=cluster.cpus * cluster.replicas):
        fits = room(cluster.cpus, cluster.gpus)
        if fits < cluster.replicas:
            output.note(f"the cluster has room for {fits} of {cluster.replicas} actors; the others wait for more")
        executor = RayExecutor(
            count=cluster.replicas,
            cpus=cluster.cpus,
            gpus=cluster.gpus,
            pipeline=settings.batch_job_pipeline_size,
            values=values,
            model=model,
            engine=engine,
        )
        asyncio.run(_work(executor, settings, store, progress, batch_id))


async def _work(
    executor: RayExecutor, settings: ServerSettings, store: BatchStore, progress: BatchProgress, batch_id: str
) -> None:
    from espalier.jobs.retry import Retry  # noqa: PLC0415
    from espalier.jobs.worker import Worker  # noqa: PLC0415

    stopped = stopped_by_signals()
    try:
        await until_done(executor.start(), stopped)
        if not stopped.is_set():
            worker = Worker(
                queue=store.queue,
                executor=executor,
                pipeline=executor.pipeline * executor.count,
                retry=Retry(tries=settings.batch_tries),
                until_idle=True,
            )
            await until_done(_unless_broken(executor, shown(worker, store, batch_id, progress)), stopped)
    finally:
        executor.close()
    end_if(stopped, goes_on=True)
    if executor.lost:
        output.note(f"{executor.lost} actors were lost, and their items were run again")


async def _unless_broken(executor: RayExecutor, work: Coroutine[Any, Any, None]) -> None:
    """Await the work. Raises EspalierError once no actor can be had: what has not ended is given back."""
    tasks = [asyncio.create_task(work), asyncio.create_task(executor.broken())]
    try:
        ended, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        for task in ended:
            task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
