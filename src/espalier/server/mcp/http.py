"""The protocol over streamable HTTP, at `/mcp`: keys, limits, logs and the check of origins are those of every
route."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from fastapi import Depends, FastAPI
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, AuthorizationContext
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http import StreamableHTTPServerTransport
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from espalier.errors import TooManyRequests
from espalier.server.asgi import Edge, OriginGuard
from espalier.server.http import errors
from espalier.server.http.browsers import allow_origins
from espalier.server.http.loading import Failed, Loading, beside
from espalier.server.http.query import check_query
from espalier.server.mcp.calls import ROUTE
from espalier.server.mcp.protocol import Context, Found, make_server
from espalier.server.observe import logs
from espalier.server.process.deps import caller_of, process_of
from espalier.server.process.opening import Parts, open_process
from espalier.server.routes import health
from espalier.server.settings import ServerSettings
from espalier.version import __version__

MOST_SESSIONS = 1_000
SESSIONS_PER_KEY = 100
IDLE_SECONDS = 1_800.0


def create_mcp_app(settings: ServerSettings, parts: Parts, failed: Failed | None = None) -> FastAPI:
    """The application. failed: as of `create_app`."""
    manager = SessionManager(
        app=make_server(_find_process),
        max_request_body_size=settings.max_body_bytes,
        max_sessions=MOST_SESSIONS,
        session_idle_timeout=IDLE_SECONDS,
    )

    @asynccontextmanager
    async def lifespan(api: FastAPI) -> AsyncIterator[None]:
        opening = _open_lifespan(api, settings, parts)
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(opening if failed is None else beside(api, opening, failed))
            await stack.enter_async_context(manager.run())
            yield

    api = FastAPI(
        title="Espalier MCP",
        version=__version__,
        lifespan=lifespan,
        dependencies=[Depends(check_query)],
        openapi_url=None,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        root_path=settings.root_path,
    )
    api.include_router(health.router)
    api.router.routes.append(Route(ROUTE, endpoint=Endpoint(manager)))
    errors.install(api)
    # The last one added is the outermost.
    allow_origins(api, settings.cors_origins)
    api.add_middleware(Loading)
    api.add_middleware(OriginGuard, settings=settings)
    api.add_middleware(Edge)
    api.add_middleware(logs.AccessLog)
    api.state.closing = False
    return api


class SessionManager(StreamableHTTPSessionManager):
    """Sessions of all keys, of which one key has SESSIONS_PER_KEY at most. It extends a private method of the SDK;
    `tests/unit/server/test_mcp.py` holds it."""

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        if sum(owner == requestor for owner in self._session_owners.values()) >= SESSIONS_PER_KEY:
            raise TooManyRequests(
                f"this key has {SESSIONS_PER_KEY} sessions open",
                retry_after=IDLE_SECONDS,
                hint="end those that are not used: DELETE with Mcp-Session-Id",
            )
        return super()._admit_session(requestor)


class Endpoint:
    """The ASGI application of the route: who calls is found out here, for every message."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        caller = caller_of(request)
        process_of(request).gate.admit_cheap(caller)
        # A session belongs to the key that began it.
        scope["user"] = AuthenticatedUser(AccessToken(token="", client_id=caller.name, scopes=[]))
        await self._manager.handle_request(scope, receive, send)


async def _find_process(ctx: Context) -> Found:
    request: Any = ctx.request
    return process_of(request), caller_of(request)


@asynccontextmanager
async def _open_lifespan(api: FastAPI, settings: ServerSettings, parts: Parts) -> AsyncIterator[None]:
    async with open_process(settings, parts, ()) as process:
        api.state.process = process
        try:
            yield
        finally:
            api.state.closing = True
