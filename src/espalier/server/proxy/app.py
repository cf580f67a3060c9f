"""The proxy's application: `/traces` and what is below `/espalier/` are its own, every other path and method is the
llama-server's.

Nothing is asked of the server before the lifespan begins, and it need not be there then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager

from fastapi import Depends, FastAPI
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from espalier.errors import Cancelled, EspalierError
from espalier.server.apps import TRACE_ROUTERS
from espalier.server.asgi import Edge, OriginGuard
from espalier.server.http import errors
from espalier.server.http.browsers import allow_origins
from espalier.server.http.query import check_query
from espalier.server.observe import logs
from espalier.server.ports import Gate, TraceStore
from espalier.server.process.deps import caller_of, request_id_of
from espalier.server.process.opening import open_gate, open_kept_store, trace_limits
from espalier.server.process.pools import make_pools
from espalier.server.proxy.behind import server_x_ray
from espalier.server.proxy.exchange import ProxyExchange, Tracer, pass_only
from espalier.server.proxy.forward import IncomingRequest, Outgoing, Upstream, make_client
from espalier.server.proxy.keeping import MemoryStore, TraceKeeper
from espalier.server.proxy.log.auto import auto_mode
from espalier.server.proxy.log.mode import log_mode
from espalier.server.proxy.playground import Playground, playground
from espalier.server.proxy.settings import Mode, ProxySettings
from espalier.server.proxy.state import ProxyProcess
from espalier.server.settings import ServerSettings
from espalier.version import __version__

log = logging.getLogger(__name__)
PUBLIC = frozenset({"/health", "/v1/health"})
"""Paths that need no key, as at llama-server."""
TRACERS: Mapping[Mode, Callable[[ProxyProcess], AbstractAsyncContextManager[Tracer]]] = {
    "xray": server_x_ray,
    "off": pass_only,
    "log": log_mode,
    "auto": auto_mode,
}


def create_proxy_app(
    settings: ServerSettings,
    proxy: ProxySettings,
    *,
    is_kept: bool = True,
    gate: Gate | None = None,
    store: TraceStore | None = None,
    tracer: Callable[[ProxyProcess], AbstractAsyncContextManager[Tracer]] | None = None,
) -> FastAPI:
    """settings: keys, limits, database and log, as of `espalier serve`. is_kept: whether traces are stored; without it
    the latest are held in memory. Parts that are given stay open. tracer: in place of the one of `proxy.mode`."""

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            api.state.process = process = await _open_process(stack, settings, proxy, gate, store, is_kept=is_kept)
            api.state.playground = await stack.enter_async_context(playground(process))
            api.state.tracer = await stack.enter_async_context((tracer or TRACERS[proxy.mode])(process))
            yield

    api = FastAPI(
        title="Espalier proxy",
        version=__version__,
        lifespan=lifespan,
        dependencies=[Depends(check_query)],
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
    )
    for router in TRACE_ROUTERS:
        api.include_router(router)
    api.state.playground_path = "espalier/" if proxy.playground else None
    api.router.default = relay
    errors.install(api)
    # The last one added is the outermost.
    allow_origins(api, settings.cors_origins)
    api.add_middleware(OriginGuard, settings=settings)
    api.add_middleware(Edge)
    api.add_middleware(logs.AccessLog)
    return api


async def _open_process(
    stack: AsyncExitStack,
    settings: ServerSettings,
    proxy: ProxySettings,
    gate: Gate | None,
    store: TraceStore | None,
    *,
    is_kept: bool,
) -> ProxyProcess:
    traces: TraceStore
    if store is not None:
        traces = store
    elif is_kept:
        traces = await open_kept_store(stack, settings)
    else:
        traces = await asyncio.to_thread(MemoryStore, proxy.keep)
        stack.push_async_callback(asyncio.to_thread, traces.close)
    made = gate or open_gate(stack, settings, traces)
    pools = make_pools(waiting=settings.queue_size)
    stack.callback(pools.close)
    client = make_client(connect_seconds=proxy.connect_seconds, read_seconds=proxy.read_seconds)
    stack.push_async_callback(client.aclose)
    upstream = Upstream(client, proxy.llama_url, key=proxy.upstream_key, hides_key=not made.is_open)
    return ProxyProcess(
        settings=settings,
        proxy=proxy,
        gate=made,
        pools=pools,
        store=traces,
        upstream=upstream,
        keeper=TraceKeeper(traces, proxy.output_dir, limits=trace_limits(settings), texts=settings.trace_texts),
    )


async def relay(scope: Scope, receive: Receive, send: Send) -> None:
    """Whatever is not ours goes to the server behind the proxy, within the caller's limits."""
    if scope["type"] != "http":
        await send({"type": "websocket.close"})
        return
    ours: Playground | None = scope["app"].state.playground
    if ours is not None and ours.has(scope["path"]):
        await ours.serve(scope, receive, send)
        return
    request = Request(scope, receive)
    process: ProxyProcess = scope["app"].state.process
    incoming, outgoing = IncomingRequest(receive), Outgoing(scope, send)
    request_id, caller = request_id_of(request), None
    if not (scope["path"] in PUBLIC and scope["method"] in ("GET", "HEAD")):
        caller = caller_of(request)
    exchange = ProxyExchange(
        scope=scope,
        incoming=incoming,
        outgoing=outgoing,
        upstream=process.upstream,
        request_id=request_id,
        caller="" if caller is None else caller.name,
    )
    tracer: Tracer = scope["app"].state.tracer
    try:
        if caller is None:
            await exchange.pass_through()
        else:
            async with process.gate.admit(caller):
                await tracer.serve(exchange)
    except EspalierError as error:
        if not outgoing.has_begun:
            raise
        log.info("a reply was not finished: %s", error, extra={"fields": {"request_id": request_id}})
        if isinstance(error, Cancelled):
            await outgoing.cut()
        elif not outgoing.has_ended:
            await outgoing.fail(error)
        await asyncio.sleep(0)
