"""Runs the items of batches in Ray actors: an `Executor` of `jobs/ports.py` over a pool of engines.

The queue stays with the worker that asks, so that only its process needs the database. An actor that dies, alone or
with its node, costs the items that it had: they are given back as lost, and another actor takes its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import ray
from ray.exceptions import RayActorError, RayError, RayTaskError, TaskCancelledError

from espalier import api
from espalier.errors import EspalierError, Overloaded, ReplicaLost, Unavailable
from espalier.jobs.values import InputFault, ItemAnswer, WorkItem
from espalier.server.batching.executor import DIALECTS, ServerExecutor
from espalier.server.cluster.joining import failure
from espalier.server.environment import read_environment
from espalier.server.process.opening import Parts, open_process
from espalier.server.settings import settings_of
from espalier.wiring import build_app

log = logging.getLogger(__name__)
Ran: TypeAlias = ItemAnswer | Literal["full", "closing"]
NOTHING_KEPT = {"TRACE_LEVEL": "off", "STORE_RESPONSES": "false", "STORE_GENERATIONS": "off", "BATCH_JOBS": "false"}
"""Settings of an actor: it opens no database."""
FIRST = asyncio.FIRST_COMPLETED
MOST_STARTS = 20
"""Actors that died in a row without an answer, for each that was asked for, after which the run ends."""


class BatchActor:
    """An engine and what the server does with an item, in a process of its own. values: settings by their variables.
    model, engine: as for `espalier.load`."""

    def __init__(self, values: Mapping[str, str], model: str | None, engine: Mapping[str, Any]) -> None:
        self._given = values, model, engine
        self._stack = AsyncExitStack()
        self._executor: ServerExecutor | None = None

    async def open(self) -> str:
        """Load the model; the name of the node. Raises what opening it raises."""
        values, model, engine = self._given
        environment = read_environment(flags={**values, **NOTHING_KEPT})
        app = build_app(environ=environment.values)
        loaded = await asyncio.to_thread(api.load, model, app=app, **engine)
        self._stack.push_async_callback(asyncio.to_thread, loaded.close)
        parts = Parts(app=app, engine=loaded)
        process = await self._stack.enter_async_context(open_process(settings_of(environment.values), parts, ()))
        self._executor = ServerExecutor(process)
        return str(ray.get_runtime_context().get_node_id())

    async def execute(self, item: WorkItem) -> Ran:
        assert self._executor is not None
        try:
            return await self._executor.execute(item)
        except Overloaded:
            return "full"
        except Unavailable:
            return "closing"


@dataclass(slots=True, eq=False)
class EngineActor:
    """One actor. busy: items that it has. node: once it is open."""

    actor: Any
    opening: asyncio.Task[None] | None = None
    node: str | None = None
    busy: int = 0
    is_gone: bool = False


@dataclass(slots=True, kw_only=True)
class RayExecutor:
    """count: how many actors. cpus, gpus: what each reserves. pipeline: items of an actor at once."""

    count: int
    cpus: float
    gpus: float
    pipeline: int
    values: Mapping[str, str]
    model: str | None
    engine: Mapping[str, Any]
    lost: int = 0
    _engines: list[EngineActor] = field(default_factory=list)
    _failures: int = 0
    _failed: EspalierError | None = None
    _broken: asyncio.Event = field(default_factory=asyncio.Event)

    async def start(self) -> None:
        """Returns when one actor is open; the others open meanwhile. Raises EspalierError where one could not."""
        self._engines = [self._begin() for _ in range(self.count)]
        while not any(engine.node for engine in self._engines):
            opening = [
                engine.opening for engine in self._engines if engine.opening is not None and not engine.opening.done()
            ]
            await asyncio.wait([*opening, asyncio.ensure_future(self._broken.wait())], return_when=FIRST)
            if self._failed is not None:
                raise self._failed

    async def broken(self) -> None:
        """Raises EspalierError once no actor can be had any more."""
        await self._broken.wait()
        raise self._failed or EspalierError("the actors are broken")

    def close(self) -> None:
        """End the actors."""
        for engine in self._engines:
            if engine.opening is not None:
                engine.opening.cancel()
            with suppress(RayError, ValueError):
                ray.kill(engine.actor)
        self._engines.clear()

    @property
    def nodes(self) -> dict[str, int]:
        """How many open actors each node has."""
        counts: dict[str, int] = {}
        for engine in self._engines:
            if engine.node is not None and not engine.is_gone:
                counts[engine.node] = counts.get(engine.node, 0) + 1
        return counts

    def check(self, endpoint: str, body: Mapping[str, Any], options: Mapping[str, Any], kind: str) -> ItemAnswer | None:
        """None: an actor checks an item when it runs it, with the same answer."""
        return None

    def check_job(self, endpoint: str, options: Mapping[str, Any], kind: str) -> InputFault | None:
        known = endpoint in DIALECTS
        return None if known else InputFault(code="invalid_endpoint", message=f"no route {endpoint}", param="endpoint")

    async def execute(self, item: WorkItem) -> ItemAnswer:
        """Raises Overloaded while no actor has room, ReplicaLost where the actor died meanwhile, Unavailable where no
        actor can be had."""
        if self._failed is not None:
            raise Unavailable("no actor can be had")
        ready = [
            engine
            for engine in self._engines
            if engine.node is not None and not engine.is_gone and engine.busy < self.pipeline
        ]
        if not ready:
            raise Overloaded("no actor of the cluster has room")
        engine = min(ready, key=lambda actor: actor.busy)
        engine.busy += 1
        running = engine.actor.execute.remote(item)
        try:
            ran: Ran = await running
        except asyncio.CancelledError:
            with suppress(RayError, ValueError):
                ray.cancel(running)
            raise
        except TaskCancelledError as error:
            raise Unavailable("the item was cancelled") from error
        except RayActorError as error:
            self._replace(engine)
            raise ReplicaLost(f"an actor died while it ran item {item.lease.line}") from error
        except RayTaskError:
            raise  # a fault of ours: the worker records it
        except RayError as error:
            raise Unavailable(f"the cluster does not answer: {error}") from error
        finally:
            engine.busy -= 1
        if ran == "full":
            raise Overloaded("the engine of the actor is full")
        if ran == "closing":
            raise Unavailable("the engine of the actor is closing")
        self._failures = 0
        return ran

    def _begin(self) -> EngineActor:
        options: dict[str, Any] = {"num_cpus": self.cpus, "num_gpus": self.gpus, "scheduling_strategy": "SPREAD"}
        engine = EngineActor(ray.remote(**options)(BatchActor).remote(dict(self.values), self.model, dict(self.engine)))
        engine.opening = asyncio.create_task(self._open(engine))
        return engine

    async def _open(self, engine: EngineActor) -> None:
        try:
            engine.node = await engine.actor.open.remote()
        except RayActorError:
            self._replace(engine)  # its node went while it was opened
        except (RayError, EspalierError) as error:
            self._break(failure(error))

    def _replace(self, engine: EngineActor) -> None:
        """Another actor in place of a dead one, once."""
        if engine.is_gone or engine not in self._engines:
            return
        engine.is_gone = True
        self.lost += 1
        self._failures += 1
        if self._failures > MOST_STARTS * self.count:
            self._break(EspalierError(f"{self._failures} actors died in a row", hint="Ray's logs say why"))
            return
        log.warning("an actor of the cluster is gone; another one takes its place")
        self._engines[self._engines.index(engine)] = self._begin()

    def _break(self, error: EspalierError) -> None:
        self._failed = self._failed or error
        self._broken.set()
