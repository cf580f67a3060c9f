"""The applications: what a process holds is opened when it starts and closed when it ends, and the routes are put
together here. Nothing is loaded before the lifespan begins."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import multiprocessing
import os
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from fastapi import FastAPI, Request
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

from espalier.api import LoadedEngine
from espalier.constraints.words.spec import Wordlist
from espalier.engines.base import Engine, ServingEngine
from espalier.engines.local.engine import LocalEngine
from espalier.engines.serving.service import Service
from espalier.errors import CapabilityError
from espalier.server.admit.gate import make_gate
from espalier.server.admit.limits import LEASE_SECONDS
from espalier.server.answering.recording import Guarded
from espalier.server.asgi import Edge, LocalOnly
from espalier.server.bodies import openapi
from espalier.server.environment import export_for_libraries, read_environment
from espalier.server.http import errors
from espalier.server.http.loading import Failed, Loading, beside
from espalier.server.observe import logs, telemetry
from espalier.server.observe.metrics import MOST_TOKENS, make_meter
from espalier.server.ports import Gate, Meter, TraceStore
from espalier.server.process.prebuild import check_lists, prebuilding, wanted_lists
from espalier.server.process.state import Process
from espalier.server.process.workers import Workers
from espalier.server.routes import chat, completions, health, llama, models, tokens, traces, web
from espalier.server.routes.seed import seed_shape
from espalier.server.settings import ServerSettings
from espalier.store.counters import StoredCounters
from espalier.store.open import Store, open_store
from espalier.store.retention import Limits, keep
from espalier.trace.recorders.protocol import Recorder
from espalier.trace.recorders.rejection_log import RejectionLog
from espalier.version import __version__
from espalier.wiring import App, build_app

ROUTERS = (
    health.router, chat.router, completions.router, models.router, traces.router, web.router, llama.router,
    tokens.router,
)  # fmt: skip
"""What other parts make of a body, in order."""
REJECTION = "rejection"
"""The strategy of requests that name none, where there is a rejection log: another would leave it empty."""
RETENTION_SECONDS = 300.0
DAY = 86_400.0
WORK_THREADS = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What a caller of `create_app` brings; what is None is made from the settings. A brought engine stays open, and
    so does a brought store. serve: makes the ServingEngine. failed: see `create_app`."""

    app: App | None = None
    engine: LoadedEngine | None = None
    serve: Callable[[Engine], ServingEngine] | None = None
    gate: Gate | None = None
    meter: Meter | None = None
    store: TraceStore | None = None
    failed: Failed | None = None


def create_app(
    settings: ServerSettings | None = None,
    *,
    app: App | None = None,
    engine: LoadedEngine | None = None,
    serve: Callable[[Engine], ServingEngine] | None = None,
    gate: Gate | None = None,
    meter: Meter | None = None,
    store: TraceStore | None = None,
    failed: Failed | None = None,
) -> FastAPI:
    """The whole server. Without an engine, the model of the settings is loaded when the application starts. failed:
    with it, the application has started before the model is there, and it is told if that never will be.

    Raises InputError for a setting that is wrong.
    """
    parts = Parts(app=app, engine=engine, serve=serve, gate=gate, meter=meter, store=store, failed=failed)
    return _build("Espalier", settings or ServerSettings(), parts)


def create_chat_app(
    settings: ServerSettings | None = None, *, engine: LoadedEngine | None = None, failed: Failed | None = None
) -> FastAPI:
    """The server without batch jobs, of which any number of processes may run."""
    return _build("Espalier chat", settings or ServerSettings(), Parts(engine=engine, failed=failed))


def _build(title: str, settings: ServerSettings, parts: Parts) -> FastAPI:
    lists = wanted_lists(settings)

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        opening = _open(api, settings, parts, lists)
        async with opening if parts.failed is None else beside(api, opening, parts.failed):
            yield

    api = FastAPI(
        title=title,
        version=__version__,
        description="OpenAI's API over a local model whose output keeps to a constraint.",
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        root_path=settings.root_path,
        redirect_slashes=False,
    )
    for router in ROUTERS:
        api.include_router(router)

    @api.get("/docs", include_in_schema=False)
    def docs(_request: Request) -> Response:
        return openapi.docs_page(api)

    api.openapi = openapi.describe(api)  # type: ignore[method-assign]  # as FastAPI's own documentation does it
    shape = seed_shape if settings.seed_compat else errors.openai_shape
    errors.install(api, shape)
    # Each is put around those before it.
    if settings.cors_origins:
        api.add_middleware(
            CORSMiddleware,
            allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["authorization", "content-type", "x-request-id"],
            expose_headers=["x-request-id", "retry-after", "warning", "x-espalier-truncated"],
        )
    api.add_middleware(Loading, shape=shape)
    api.add_middleware(LocalOnly, shape=shape)
    api.add_middleware(Edge, shape=shape)
    api.add_middleware(logs.AccessLog)
    api.state.closing = False
    return api


@asynccontextmanager
async def _open(
    api: FastAPI, settings: ServerSettings, parts: Parts, lists: tuple[Wordlist, ...]
) -> AsyncIterator[None]:
    """Everything that a process holds, closed in the reverse order."""
    async with AsyncExitStack() as stack:
        if parts.engine is None:
            logs.configure(settings)
        app = parts.app if parts.app is not None else await asyncio.to_thread(_make_app)
        engine = parts.engine
        if engine is None:
            opened = await asyncio.to_thread(app.open, settings.model_name)
            engine = LoadedEngine(opened, app.presets)
            stack.push_async_callback(asyncio.to_thread, engine.close)
        if lists and isinstance(engine.engine, LocalEngine):
            check_lists(lists, engine.engine.compiler)
        store = parts.store
        if store is None and _needs_store(settings):
            own = await asyncio.to_thread(open_store, settings.database_url)
            stack.push_async_callback(asyncio.to_thread, own.close)
            await stack.enter_async_context(_kept_small(own, settings))
            store = own
        scheduler = (parts.serve or _server(settings))(engine.engine)
        stack.push_async_callback(asyncio.to_thread, scheduler.close, drain=settings.drain_seconds)
        names = _names(settings, app, engine)
        gate = parts.gate
        if gate is None:
            counters = None
            if isinstance(store, Store) and _is_one_of_several(settings):
                counters = StoredCounters(store.database, lease=LEASE_SECONDS)
            own_gate = make_gate(settings, counters)
            stack.push_async_callback(own_gate.close)
            api.state.is_open = own_gate.is_open
            gate = own_gate
        meter = parts.meter
        if meter is None:
            own_meter = make_meter(
                model=names[0], load=scheduler.load, queue_size=settings.queue_size,
                max_tokens=engine.capabilities.max_context or MOST_TOKENS,
            )  # fmt: skip
            stack.callback(own_meter.close)
            meter = own_meter
        recorders: tuple[Recorder, ...] = ()
        if settings.rejection_log is not None:
            opened_log = await asyncio.to_thread(RejectionLog, settings.rejection_log, settings.rejection_log_bytes)
            stack.push_async_callback(asyncio.to_thread, opened_log.close)
            recorders = (Guarded(opened_log, failed=meter.unrecorded),)
        spans = telemetry.make_spans(is_on=settings.otel)
        stack.push_async_callback(asyncio.to_thread, spans.close)
        workers = Workers(threads=min(WORK_THREADS, 2 * (os.cpu_count() or 1)), waiting=settings.queue_size)
        stack.callback(workers.close)
        api.state.process = Process(
            settings=settings, app=app, engine=engine, scheduler=scheduler, names=names, gate=gate, meter=meter,
            workers=workers, spans=spans, store=store if parts.store is not None or _keeps(settings) else None,
            started=int(time.time()), fingerprint=_fingerprint(engine), recorders=recorders,
            default_strategy=REJECTION if recorders else None,
        )  # fmt: skip
        if lists and isinstance(engine.engine, LocalEngine):
            begun = prebuilding(settings, engine.engine.compiler, lists)
            api.state.prebuild = await stack.enter_async_context(begun)
        try:
            yield
        finally:
            api.state.closing = True


def _make_app() -> App:
    found = read_environment()
    export_for_libraries(found)
    return build_app(environ=found.values)


def _server(settings: ServerSettings) -> Callable[[Engine], ServingEngine]:
    def serve(engine: Engine) -> ServingEngine:
        if not isinstance(engine, LocalEngine):
            raise CapabilityError(f"{engine.name} does not run in this process, so it cannot be served")
        return Service(
            engine, queue_size=settings.queue_size, step_seconds=settings.step_seconds,
            plan_seconds=settings.plan_seconds, prefix_tokens=settings.prefix_tokens,
        )  # fmt: skip

    return serve


def _is_one_of_several(settings: ServerSettings) -> bool:
    """Whether other worker processes serve beside this one: `uvicorn --workers` starts them as children."""
    return settings.workers > 1 or multiprocessing.parent_process() is not None


def _needs_store(settings: ServerSettings) -> bool:
    return _keeps(settings) or _is_one_of_several(settings)


def _keeps(settings: ServerSettings) -> bool:
    return settings.store_traces != "never" or settings.store_generations


@asynccontextmanager
async def _kept_small(store: Store, settings: ServerSettings) -> AsyncIterator[None]:
    """While it is open, what is too old or too much is deleted now and then."""
    seconds = None if settings.retention_days is None else settings.retention_days * DAY
    limits = Limits(seconds=seconds, rows=settings.retention_rows)
    task = asyncio.create_task(keep(store.retention(limits), every=RETENTION_SECONDS))
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task


def _names(settings: ServerSettings, app: App, engine: LoadedEngine) -> tuple[str, ...]:
    """Aliases first; then the model as it was asked for, a path by its last part: nobody need know where it lies."""
    given = settings.model_name or app.settings.model or engine.name
    path = Path(given).expanduser()
    names = (path.resolve().name,) if path.exists() else (given,)
    return tuple(dict.fromkeys((*settings.model_alias, *names)))


def _fingerprint(engine: LoadedEngine) -> str:
    """The same for the same model under the same version."""
    told = f"{__version__} {engine.name} {engine.vocab.fingerprint}"
    return f"fp_{hashlib.blake2b(told.encode(), digest_size=8).hexdigest()}"
