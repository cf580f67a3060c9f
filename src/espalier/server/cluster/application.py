"""The application for Ray Serve: each replica is the ASGI application of `apps.py` over an engine of its own.

`application` is what `espalier serve --ray` deploys, and the import path that a file of Ray Serve names. Settings are
those of the server, by their variables: what the caller names goes before the environment of the replica's node.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Receive, Scope, Send

from espalier.errors import InputError
from espalier.optional import optional_imports
from espalier.server import apps
from espalier.server.cluster import joining
from espalier.server.cluster.edge import NameMiddleware
from espalier.server.cluster.plan import check_machines, deployment_options, read_plan
from espalier.server.environment import read_environment
from espalier.server.process.state import Process
from espalier.server.settings import settings_of
from espalier.wiring import build_app

with optional_imports("ray"):
    from ray import serve

    from espalier.server.cluster.siblings import Siblings


def application(args: Mapping[str, Any]) -> serve.Application:
    """args: `settings`, variables of the server with their values; `home`, the address of the machine that a SQLite
    file is on; and the fields of `ClusterPlan`. Raises InputError."""
    given = dict(args)
    values = {str(name): str(value) for name, value in dict(given.pop("settings", None) or {}).items()}
    home = given.pop("home", None)
    plan = read_plan(given)
    settings = settings_of(read_environment(flags=values).values)
    made = serve.deployment(**deployment_options(plan, settings))(Replica)
    return made.bind(values, home)


@serve.ingress()  # the application is made on the replica
class Replica:
    """One replica. Its constructor ends when the model is loaded; what goes wrong is raised there, and Ray shows it."""

    async def __init__(self, values: dict[str, str], home: str | None) -> None:  # type: ignore[misc]  # Ray awaits it
        environment = read_environment(flags=values)
        settings = settings_of(environment.values)
        check_machines(settings, joining.machines())
        here = joining.home()
        if home is not None and here != home:
            raise InputError(
                f"a replica has started on {here}, and the SQLite file is on {home}",
                hint="DATABASE_URL=postgresql://… (the extra postgres)",
                field="DATABASE_URL",
            )
        api = apps.create_app(settings, app=build_app(environ=environment.values), replicas=Siblings(self.own_metrics))
        self._opened = BackgroundLifespan(api)
        await self._opened.start()

    async def own_metrics(self) -> tuple[str, bytes]:
        """Its name, and its metrics alone: what `Siblings` asks all replicas for."""
        return serve.get_replica_context().replica_tag, await self._opened.metrics()

    def __serve_build_asgi_app__(self) -> ASGIApp:
        return NameMiddleware(self._opened, serve.get_replica_context().replica_tag)


class BackgroundLifespan:
    """The lifespan of an application, in a task of its own: begun and ended by hand, with errors as they are. As an
    ASGI application it is that one, opened already; the shutdown that Ray sends to a drained replica ends it."""

    def __init__(self, api: FastAPI) -> None:
        self._api = api
        self._closing = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Raises what opening the application raises."""
        begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task = asyncio.create_task(self._run(begun))
        await asyncio.wait({begun, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if self._task.done():
            self._task.result()

    async def metrics(self) -> bytes:
        """The metrics of this process, in Prometheus' text format."""
        process: Process = self._api.state.process
        return await process.pools.replies.run(process.meter.text, owner="")

    async def _run(self, begun: asyncio.Future[None]) -> None:
        async with self._api.router.lifespan_context(self._api):
            begun.set_result(None)
            await self._closing.wait()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._api(scope, receive, send)
            return
        await receive()
        await send({"type": "lifespan.startup.complete"})
        await receive()
        self._closing.set()
        if self._task is not None:
            await self._task
        await send({"type": "lifespan.shutdown.complete"})
