"""Accessors for routes: the process, the caller and the request id; and work that a disconnect cancels."""

from __future__ import annotations

from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from fastapi import Request

from espalier.errors import Unauthorized, Unavailable
from espalier.server.admit.auth import ANONYMOUS
from espalier.server.http.leaving import unless_gone
from espalier.server.ports import Caller
from espalier.server.process.state import Process

T = TypeVar("T")


def process_of(request: Request) -> Process:
    """What this process holds. Raises Unavailable until the model is loaded."""
    process: Process | None = getattr(request.app.state, "process", None)
    if process is None:
        raise Unavailable("the model is not loaded yet")
    return process


def caller_of(request: Request) -> Caller:
    """Who sent the request: by its bearer token, or by Anthropic's `x-api-key`. Raises Unauthorized."""
    gate = process_of(request).gate
    key = request.headers.get("x-api-key")
    given = request.headers.get("authorization") or (f"Bearer {key}" if key else None)
    caller = gate.identify(given, request.query_params.get("token"))
    request.state.caller = caller  # for the log
    return caller


def request_id_of(request: Request) -> str:
    """The request's id in the log, the reply and the store."""
    request_id: str = request.state.request_id
    return request_id


def cheap_caller_of(request: Request) -> Caller:
    """As `caller_of`, for a route that costs nearly nothing: within the caller's limit on such requests. Raises
    TooManyRequests too."""
    caller = caller_of(request)
    process_of(request).gate.admit_cheap(caller)
    return caller


def count_public(request: Request) -> None:
    """Count a request of a public route for the caller, or among those of all who have no right key; while the model is
    loading there are no limits yet. Raises TooManyRequests."""
    try:
        gate = process_of(request).gate
    except Unavailable:
        return
    try:
        caller = caller_of(request)
    except Unauthorized:
        caller = Caller(name=ANONYMOUS)
    gate.admit_cheap(caller)


@asynccontextmanager
async def admitted(request: Request) -> AsyncIterator[tuple[Process, Caller]]:
    """The process and the caller of a route that generates nothing, within the caller's limits. Raises Unauthorized,
    TooManyRequests."""
    process, caller = process_of(request), caller_of(request)
    async with process.gate.admit(caller):
        yield process, caller


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Await `work` and return its result. If the client disconnects first, cancel it and raise Cancelled. The body must
    have been read before."""
    return await unless_gone(work, _wait_for_disconnect(request))


async def _wait_for_disconnect(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
