"""Our own application over the llama-server behind a proxy, below `/espalier/`: the playground, its API, its traces.

It opens when somebody first asks for more than its page, and again when another model answers there. Keys, limits and
the store of traces are the proxy's. It knows no tracer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace

from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import Receive, Scope, Send

from espalier.api import LoadedEngine
from espalier.errors import EspalierError
from espalier.server.apps import CHAT_ROUTERS
from espalier.server.bodies import openapi
from espalier.server.environment import read_environment
from espalier.server.http import errors
from espalier.server.http.query import check_query
from espalier.server.process.deps import caller_of, count_public
from espalier.server.process.opening import Parts, open_process
from espalier.server.proxy.state import ProxyProcess
from espalier.server.routes import messages
from espalier.server.settings import ServerSettings
from espalier.upstream.llama_server.client import LlamaServer, Props
from espalier.upstream.llama_server.engine import LlamaServerEngine
from espalier.version import __version__
from espalier.wiring import App, build_app

log = logging.getLogger(__name__)
PREFIX = "/espalier"
PAGE = frozenset({"/", "/favicon.ico", "/docs", "/openapi.json"})
"""Paths that say nothing of the server, and do not wait for it; and all below `/playground/`."""
STATE = frozenset({"/ready", "/health", "/v1/health", "/version"})
"""Paths that answer also while there is no server."""
LOOK_SECONDS = 5.0
"""How long the server is taken for the same, or for gone, without another look at it."""


class Playground:
    """process: the proxy's, which outlives it. clock: seconds."""

    def __init__(self, process: ProxyProcess, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._process, self._clock = process, clock
        self._server = LlamaServer(process.link())
        self._api = _make_application()
        self._stack: AsyncExitStack | None = None
        self._app: App | None = None
        self._props: Props | None = None
        self._error: EspalierError | None = None
        self._looked = -float("inf")
        self._looking: asyncio.Task[None] | None = None

    @staticmethod
    def has(path: str) -> bool:
        """Whether a path of the proxy belongs to it."""
        return path == PREFIX or path.startswith(f"{PREFIX}/")

    async def serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. Raises Unauthorized, and before the reply has begun what opening the server raises."""
        own = scope["path"].removeprefix(PREFIX)
        if not own:  # addresses in the page are relative
            await RedirectResponse(f"{PREFIX.lstrip('/')}/", status_code=308)(scope, receive, send)
            return
        if own not in PAGE and not own.startswith("/playground/"):
            if own not in STATE:
                caller_of(Request(scope))
            try:
                await self._ready()
            except EspalierError:
                if own not in STATE:
                    raise
        await self._api(dict(scope), receive, send)

    async def _ready(self) -> None:
        """Returns when the server is open, and is the one that was opened. Raises what opening it raised."""
        if self._looking is None and self._clock() - self._looked >= LOOK_SECONDS:
            self._looking = asyncio.ensure_future(self._look())
            self._looking.add_done_callback(self._has_looked)
        if self._looking is not None:
            await asyncio.shield(self._looking)
        if self._error is not None:
            raise self._error

    def _has_looked(self, _task: asyncio.Task[None]) -> None:
        self._looking, self._looked = None, self._clock()

    async def _look(self) -> None:
        """Open the server, if it is not the one that is open."""
        try:
            props = await asyncio.to_thread(self._server.props)
            if props != self._props:
                await self._open(props)
            self._error = None
        except EspalierError as error:
            if self._error is None:
                log.warning("the playground has no server: %s", error)
            self._error = error

    async def _open(self, props: Props) -> None:
        if self._app is None:
            self._app = await asyncio.to_thread(lambda: build_app(environ=read_environment().values))
        app = self._app
        async with AsyncExitStack() as stack:
            opened = await asyncio.to_thread(LlamaServerEngine, self._server, folders=app.folders)
            engine = LoadedEngine(opened, app.presets, kind="llama-server")
            stack.push_async_callback(asyncio.to_thread, engine.close)
            parts = Parts(
                app=app,
                engine=engine,
                gate=self._process.gate,
                store=self._process.store,
                takes_batches=False,
                takes_signals=False,
            )
            settings = own_settings(self._process.settings, opened.name)
            self._api.state.process = await stack.enter_async_context(open_process(settings, parts, ()))
            before, self._stack = self._stack, stack.pop_all()
        self._props = props
        log.info("the playground has the model %s of %s", opened.name, self._server.link.url)
        if before is not None:
            await before.aclose()

    async def close(self) -> None:
        """End what runs."""
        if self._looking is not None:
            await asyncio.wait({self._looking})
        if self._stack is not None:
            await self._stack.aclose()


def own_settings(settings: ServerSettings, model: str) -> ServerSettings:
    """The proxy's settings without those of a server with a model of its own. What runs at the end has had the proxy's
    time to finish."""
    return replace(
        settings,
        model_name=model,
        model_alias=(),
        rejection_log=None,
        activations_store=None,
        strategy="mask",
        drafts=(),
        drain_seconds=0.0,
    )


def _make_application() -> FastAPI:
    """The application. The proxy's middleware has served a request before it comes here."""
    api = FastAPI(
        title="Espalier",
        version=__version__,
        dependencies=[Depends(check_query)],
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    api.root_path = PREFIX
    for router in CHAT_ROUTERS:
        api.include_router(router)
    api.openapi = openapi.describe(api)  # type: ignore[method-assign]  # as in `apps.py`
    openapi.add_routes(api, count_public)
    errors.install(api, messages.messages_shape(errors.openai_shape))
    api.state.closing = False
    return api


@asynccontextmanager
async def playground(process: ProxyProcess) -> AsyncIterator[Playground | None]:
    """None where the proxy is to have none."""
    if not process.proxy.playground:
        yield None
        return
    playground = Playground(process)
    try:
        yield playground
    finally:
        await playground.close()
