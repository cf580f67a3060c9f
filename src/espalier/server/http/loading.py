"""Serves while the model is still loading: `/health`, `/ready` and `/version` reply, everything else is 503.

It does not know what is loaded. It knows no route but these three.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from fastapi import FastAPI
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from espalier.errors import EspalierError, Unavailable
from espalier.server.http.errors import ErrorShape, openai_shape

log = logging.getLogger(__name__)
PUBLIC = frozenset({"/health", "/v1/health", "/ready", "/version"})

Failed = Callable[[Exception], None]
"""Called with the error if loading fails: the server must then end."""


@asynccontextmanager
async def beside(api: FastAPI, opening: AbstractAsyncContextManager[None], failed: Failed) -> AsyncIterator[None]:
    """While open, hold `opening` open in a task of its own, so that the application starts before the model is loaded.
    Closing waits for a model that is still loading, since loading cannot be interrupted. `app.state.is_loading` is
    true meanwhile."""
    ended = asyncio.Event()
    api.state.is_loading = True

    async def hold() -> None:
        try:
            async with opening:
                api.state.is_loading = False
                log.info("ready")
                await ended.wait()
        except Exception as error:
            if not api.state.is_loading:
                raise  # it failed while closing, not while loading
            if not isinstance(error, EspalierError):  # ours says all in its message, which the caller prints
                log.exception("the server could not start")
            failed(error)

    task = asyncio.create_task(hold())
    try:
        yield
    finally:
        ended.set()
        await task


class Loading:
    """ASGI middleware: replies 503 until the model is loaded."""

    def __init__(self, app: ASGIApp, *, shape: ErrorShape = openai_shape) -> None:
        self._app, self._shape = app, shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_loading = scope["type"] == "http" and getattr(scope["app"].state, "is_loading", False)
        if is_loading and scope["path"].removeprefix(scope.get("root_path", "")) not in PUBLIC:
            error = Unavailable("the model is still loading", hint="try again in a few seconds")
            await self._shape(error, Request(scope, receive))(scope, receive, send)
            return
        await self._app(scope, receive, send)
