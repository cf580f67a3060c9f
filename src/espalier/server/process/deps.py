"""What routes ask of the process and of the caller. It knows no body."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from fastapi import Request

from espalier.errors import Cancelled, Unavailable
from espalier.sampling.presets.catalogue import Presets
from espalier.server.observe.telemetry import Spans
from espalier.server.ports import Caller
from espalier.server.process.state import Serving
from espalier.server.process.workers import Workers
from espalier.wiring import App

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tools:
    """What the routes for generating need beside `Serving`. workers: where rendering and compiling block.
    spans: for telemetry. fingerprint: of the model and this version."""

    app: App
    presets: Presets
    workers: Workers
    spans: Spans
    fingerprint: str


def serving_of(request: Request) -> Serving:
    """What this process holds. Raises Unavailable before it is there and once it closes."""
    found = getattr(request.app.state, "serving", None)
    if not isinstance(found, Serving):
        raise Unavailable("the model is not loaded yet")
    return found


def tools_of(request: Request) -> Tools:
    """What goes with `serving_of`, and is there as soon as it is."""
    found: Tools = request.app.state.tools
    return found


def caller_of(request: Request) -> Caller:
    """Who asks. Raises Unauthorized."""
    gate = serving_of(request).gate
    caller = gate.identify(request.headers.get("authorization"), request.query_params.get("token"))
    request.state.caller = caller  # for the log
    return caller


def request_id_of(request: Request) -> str:
    """The id that the log, the reply and the store have of this request."""
    found: str = request.state.request_id
    return found


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """What `work` returns. Where the client leaves before, the work is cancelled and Cancelled is raised. The body must
    have been read."""
    task = asyncio.ensure_future(work)
    watch = asyncio.ensure_future(_gone(request))
    try:
        await asyncio.wait({task, watch}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return task.result()
        raise Cancelled("the client has gone")
    finally:
        for one in (task, watch):
            one.cancel()
        await asyncio.gather(task, watch, return_exceptions=True)


async def _gone(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
