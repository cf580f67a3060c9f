"""The pool of actors behind `espalier batch run --executor ray`, with actors that run in this process: who gets an
item, what becomes of it when its actor dies, and when the pool gives up."""

from __future__ import annotations

import asyncio
import importlib
import random
import warnings
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Ray's own imports
    pytest.importorskip("ray", reason="the extra [ray] is not installed")
    actors = importlib.import_module("espalier.server.cluster.actors")

from ray.exceptions import RayActorError

from espalier.errors import EspalierError, Overloaded, ReplicaLost, Unavailable
from espalier.jobs.retry import Retry
from espalier.jobs.values import ItemAnswer, Lease, WorkItem
from espalier.jobs.worker import Worker
from tests.batch_jobs import answer, found, line, open_batches, results, submit
from tests.examples import examples

Run = Callable[[WorkItem], Coroutine[Any, Any, Any]]


class Handle:
    """An actor as Ray shows it. run: what it does with an item."""

    def __init__(self, run: Run, opened: Exception | None) -> None:
        self._run, self._opened = run, opened
        self.execute = self.open = self

    def remote(self, *arguments: Any) -> Coroutine[Any, Any, Any]:
        return self._run(*arguments) if arguments else self._open()

    async def _open(self) -> str:
        await asyncio.sleep(0)
        if self._opened is not None:
            raise self._opened
        return "node"


@pytest.fixture
def pool(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    def make(run: Run, *, count: int = 2, pipeline: int = 2, opened: Exception | None = None) -> Any:
        cls = type("Actor", (), {"remote": staticmethod(lambda *given: Handle(run, opened))})
        monkeypatch.setattr(actors.ray, "remote", lambda **options: lambda wanted: cls)
        monkeypatch.setattr(actors.ray, "kill", lambda handle: None)
        monkeypatch.setattr(actors.ray, "cancel", lambda running: None)
        return actors.RayExecutor(count=count, cpus=1, gpus=0, pipeline=pipeline, values={}, model=None, engine={})

    return make


def item(number: int) -> WorkItem:
    lease = Lease(batch="b", line=number, fence=1)
    return WorkItem(
        lease=lease, custom_id=f"c{number}", caller="me", endpoint="/v1/completions", kind="openai", body={}, size=1
    )


async def good(one: WorkItem) -> ItemAnswer:
    await asyncio.sleep(0)
    return answer("fine")


def test_no_actor_has_more_than_its_pipeline(pool: Callable[..., Any]) -> None:
    async def main() -> None:
        executor = pool(good)
        await executor.start()
        while sum(executor.nodes.values()) < 2:  # it returns when the first one is open
            await asyncio.sleep(0)
        running = [asyncio.create_task(executor.execute(item(number))) for number in range(4)]
        await asyncio.sleep(0)
        with pytest.raises(Overloaded):
            await executor.execute(item(5))
        assert all(one.is_good for one in await asyncio.gather(*running))
        assert (await executor.execute(item(5))).is_good

    asyncio.run(main())


@pytest.mark.parametrize(
    ("said", "raised"), [("full", Overloaded), ("closing", Unavailable), (RayActorError(), ReplicaLost)]
)
def test_what_an_actor_cannot_do_is_told_in_our_words(
    pool: Callable[..., Any], said: Any, raised: type[Exception]
) -> None:
    async def run(one: WorkItem) -> Any:
        if isinstance(said, Exception):
            raise said
        return said

    async def main() -> None:
        executor = pool(run)
        await executor.start()
        with pytest.raises(raised):
            await executor.execute(item(1))

    asyncio.run(main())


def test_an_engine_that_cannot_be_opened_ends_the_run_with_its_reason(pool: Callable[..., Any]) -> None:
    async def main() -> None:
        executor = pool(good, opened=EspalierError("espalier.errors.UnknownModel: there is no model at x"))
        with pytest.raises(EspalierError, match="there is no model at x"):
            await executor.start()

    asyncio.run(main())


def test_actors_that_die_while_they_open_are_given_up_at_last(pool: Callable[..., Any]) -> None:
    async def main() -> None:
        executor = pool(good, count=1, opened=RayActorError())
        with pytest.raises(EspalierError, match="died in a row"):
            await executor.start()

    asyncio.run(main())


@pytest.mark.parametrize("seed", range(examples(3)))
def test_actors_that_die_at_random_leave_one_result_for_each_item(
    pool: Callable[..., Any], seed: int, tmp_path: Path
) -> None:
    """Oracle: every item's own number comes back, once."""
    rng = random.Random(seed)

    async def run(one: WorkItem) -> Any:
        for _ in range(rng.randrange(3)):
            await asyncio.sleep(0)
        if rng.random() < 0.05:
            raise RayActorError
        return "full" if rng.random() < 0.02 else answer(one.body["prompt"])

    store = open_batches(f"sqlite:///{tmp_path}/e.db", tmp_path / "files")
    batch = submit(store, [line(number) for number in range(1, 61)])

    async def main() -> None:
        executor = pool(run, count=3, pipeline=4)
        await executor.start()
        worker = Worker(
            queue=store.queue,
            executor=executor,
            pipeline=12,
            retry=Retry(tries=3),
            until_idle=True,
            idle=0.02,
            beat=0.05,
        )
        await worker.run()

    asyncio.run(main())
    assert found(store, batch.id).counts.completed + found(store, batch.id).counts.failed == 60
    lines = results(store, batch.id)
    assert [one["custom_id"] for one in lines] == [f"c{number}" for number in range(1, 61)]
    assert all(one["response"]["body"]["text"] == f"p{one['custom_id'][1:]}" for one in lines if one["response"])
    store.database.close()
