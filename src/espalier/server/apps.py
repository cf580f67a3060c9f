"""The applications: routes, middleware and error handlers put together. The lifespan opens the Process and closes it.

Nothing is loaded before the lifespan begins. `process/opening.py` opens the engine and all else.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from fastapi import APIRouter, Depends, FastAPI

from espalier.api import LoadedEngine
from espalier.constraints.judging import Judge
from espalier.constraints.words.spec import Wordlist
from espalier.engines.protocols import Engine, ServingEngine
from espalier.server.asgi import Edge, OriginGuard
from espalier.server.batching.working import working
from espalier.server.bodies import openapi
from espalier.server.environment import read_environment
from espalier.server.http import errors
from espalier.server.http.browsers import allow_origins
from espalier.server.http.loading import Failed, Loading, beside
from espalier.server.http.query import check_query
from espalier.server.observe import logs
from espalier.server.ports import Gate, Meter, Replicas, TraceStore
from espalier.server.process.deps import count_public
from espalier.server.process.opening import Parts, open_process
from espalier.server.process.prebuild import wanted_lists
from espalier.server.routes import (
    aliases,
    batches,
    chat,
    completions,
    costs,
    embeddings,
    feedback,
    files,
    generations,
    health,
    llama,
    llama_state,
    logging_server,
    message_batches,
    messages,
    models,
    ollama,
    pooling,
    responses,
    tgi,
    tokens,
    trace_list,
    traces,
    uploads,
    web,
    wordlist_jobs,
)
from espalier.server.routes.wordlist_server import wordlist_server_shape
from espalier.server.settings import ServerSettings, settings_of
from espalier.version import __version__
from espalier.wiring import App

TRACE_ROUTERS = (trace_list.router, traces.router, costs.router, feedback.router)
CHAT_ROUTERS = (
    health.router,
    chat.router,
    completions.router,
    models.router,
    *TRACE_ROUTERS,
    generations.router,
    web.router,
    llama.router,
    tokens.router,
    responses.router,
    messages.router,
    embeddings.router,
    pooling.router,
    llama_state.router,
    ollama.router,
    tgi.router,
    aliases.router,
)
BATCH_ROUTERS = (files.router, uploads.router, batches.router, message_batches.router, wordlist_jobs.router)
ROUTERS = (*CHAT_ROUTERS, *BATCH_ROUTERS)


def create_app(
    settings: ServerSettings | None = None,
    *,
    app: App | None = None,
    engine: LoadedEngine | None = None,
    serve: Callable[[Engine], ServingEngine] | None = None,
    gate: Gate | None = None,
    meter: Meter | None = None,
    store: TraceStore | None = None,
    judge: Judge | None = None,
    failed: Failed | None = None,
    replicas: Replicas | None = None,
) -> FastAPI:
    """The whole server. Without an engine, the model of the settings is loaded when the application starts.

    Parts that are given stay open. serve: makes the ServingEngine. judge: judges outputs, in place of worker processes.
    failed: with it, the application starts before the
    model is loaded, and `failed` is called with the error if loading fails. replicas: those that serve
    beside it and share its database. Raises InputError for a wrong setting.
    """
    parts = Parts(
        app=app, engine=engine, serve=serve, gate=gate, meter=meter, store=store, judge=judge, replicas=replicas
    )
    return _build("Espalier", settings or settings_of(read_environment().values), parts, failed, ROUTERS)


def create_chat_app(
    settings: ServerSettings | None = None, *, engine: LoadedEngine | None = None, failed: Failed | None = None
) -> FastAPI:
    """The server without batch jobs; any number of processes of it may run."""
    parts = Parts(engine=engine, takes_batches=False)
    return _build("Espalier chat", settings or settings_of(read_environment().values), parts, failed, CHAT_ROUTERS)


def create_batch_app(
    settings: ServerSettings | None = None, *, engine: LoadedEngine | None = None, failed: Failed | None = None
) -> FastAPI:
    """Batch jobs alone, beside a server for chat. Any number of processes of it may run on one database."""
    routers = (health.router, models.router, *TRACE_ROUTERS, generations.router, *BATCH_ROUTERS)
    settings = settings or settings_of(read_environment().values)
    return _build("Espalier batch", settings, Parts(engine=engine), failed, routers)


def _build(
    title: str, settings: ServerSettings, parts: Parts, failed: Failed | None, routers: Sequence[APIRouter]
) -> FastAPI:
    lists = wanted_lists(settings)

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        opening = _open_lifespan(api, settings, parts, lists)
        async with opening if failed is None else beside(api, opening, failed):
            yield

    api = FastAPI(
        title=title,
        version=__version__,
        description="OpenAI's API over a local model whose output keeps to a constraint.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        openapi_url=None,  # ours passes the gate
        dependencies=[Depends(check_query)],
        root_path=settings.root_path,
        redirect_slashes=False,
    )
    if settings.wordlist_server_compat and chat.router in routers:
        routers = (*routers, logging_server.router)
    for router in (*routers, aliases.aliases_of(routers)):
        api.include_router(router)

    api.openapi = openapi.describe(api)  # type: ignore[method-assign]  # as FastAPI's own documentation does it
    openapi.add_routes(api, count_public)
    shape = wordlist_jobs.jobs_shape(wordlist_server_shape if settings.wordlist_server_compat else errors.openai_shape)
    shape = tgi.tgi_shape(ollama.ollama_shape(messages.messages_shape(shape)))
    errors.install(api, shape)
    # The last one added is the outermost.
    allow_origins(api, settings.cors_origins)
    api.add_middleware(Loading, shape=shape)
    api.add_middleware(OriginGuard, settings=settings, shape=shape)
    api.add_middleware(Edge, shape=shape)
    api.add_middleware(logs.AccessLog)
    api.state.closing = False
    return api


@asynccontextmanager
async def _open_lifespan(
    api: FastAPI, settings: ServerSettings, parts: Parts, lists: tuple[Wordlist, ...]
) -> AsyncIterator[None]:
    async with open_process(settings, parts, lists) as process, working(process):
        api.state.process = process
        try:
            yield
        finally:
            api.state.closing = True
