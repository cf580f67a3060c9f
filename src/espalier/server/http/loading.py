"""Answering while the model is still being loaded: `/health`, `/ready` and `/version` say so, all else is 503.

What is loaded, and how, is given to it; it knows no route but those three.
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
PUBLIC = frozenset({"/health", "/ready", "/version"})

Failed = Callable[[Exception], None]
"""Told why loading has failed: there will never be a model, so the server is to end."""


@asynccontextmanager
async def beside(api: FastAPI, opening: AbstractAsyncContextManager[None], failed: Failed) -> AsyncIterator[None]:
    """While it is open, `opening` is entered in a task of its own, and left by it at the end: a model that is still
    being loaded then is waited for, since nothing can stop it. `app.state.is_loading` says whether it is."""
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
                raise  # in closing
            if isinstance(error, EspalierError):
                log.error("%s: %s", type(error).__name__, error)
            else:
                log.exception("the server could not start")
            failed(error)

    task = asyncio.create_task(hold())
    try:
        yield
    finally:
        ended.set()
        await task


class Loading:
    """ASGI middleware: until the model is there, nothing is asked that needs it."""

    def __init__(self, app: ASGIApp, *, shape: ErrorShape = openai_shape) -> None:
        self._app, self._shape = app, shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_loading = scope["type"] == "http" and getattr(scope["app"].state, "is_loading", False)
        if is_loading and scope["path"].removeprefix(scope.get("root_path", "")) not in PUBLIC:
            error = Unavailable("the model is being loaded", hint="try again in a few seconds")
            await self._shape(error, Request(scope, receive))(scope, receive, send)
            return
        await self._app(scope, receive, send)
