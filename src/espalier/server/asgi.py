"""ASGI middleware: request ids, replies to unexpected exceptions, and whose requests are refused for where they come
from: pages of other origins, unknown host names, other machines while no API key is set.

Pure ASGI, so that streams and disconnects pass through unchanged. It knows no route but the public ones.
"""

from __future__ import annotations

import logging
import re
import secrets
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from espalier.errors import Forbidden
from espalier.server.admit.auth import has_weak_token
from espalier.server.admit.origins import is_foreign_page, is_known_host, refuses_connection
from espalier.server.http.errors import BadRequest, ErrorShape, internal_error, openai_shape
from espalier.server.settings import ServerSettings

log = logging.getLogger(__name__)
PUBLIC = frozenset({"/health", "/v1/health", "/ready"})
"""Open to every host, for the probes of orchestrators."""
SANE = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
"""Request ids of clients that are kept: nothing that could break a log line or a header."""


class Edge:
    """Sets `request.state.request_id` and the header x-request-id, and replies 500 to unexpected exceptions."""

    def __init__(self, app: ASGIApp, *, shape: ErrorShape = openai_shape) -> None:
        self.app = app
        self._shape = shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if SANE.fullmatch(given) else new_id("req-")
        scope.setdefault("state", {})["request_id"] = request_id
        has_begun = False

        async def send_with_id(message: Message) -> None:
            nonlocal has_begun
            if message["type"] == "http.response.start":
                has_begun = True
                MutableHeaders(scope=message)["x-request-id"] = request_id
            await send(message)

        try:
            if sum(name == b"host" for name, _ in scope["headers"]) > 1:  # proxies and checks would read another one
                error = BadRequest("the request has more than one Host header")
                await self._shape(error, Request(scope, receive))(scope, receive, send_with_id)
                return
            await self.app(scope, receive, send_with_id)
        except Exception:
            # The log gets the traceback, with the id that the client sees.
            log.exception("request failed", extra={"fields": {"request_id": request_id}})
            if has_begun:
                raise  # the server must cut the connection, or the client would take half a reply for a whole one
            answer = self._shape(internal_error(request_id), Request(scope, receive))
            await answer(scope, receive, send_with_id)


def new_id(prefix: str) -> str:
    """A random id that cannot be guessed."""
    return f"{prefix}{secrets.token_hex(16)}"


class OriginGuard:
    """Refuses what a page of another origin sends, and a `Host` that is no name of the server; while the server has no
    API key, or one that examples show, also what does not come from its own machine: whatever program serves the
    application, at whatever address."""

    def __init__(self, app: ASGIApp, *, settings: ServerSettings, shape: ErrorShape = openai_shape) -> None:
        self.app = app
        self._settings, self._shape = settings, shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] in ("http", "websocket") and scope["path"] not in PUBLIC and (error := self._check(scope)):
            if scope["type"] == "websocket":
                await send({"type": "websocket.close", "code": 1008, "reason": error.message})
            else:
                await self._shape(error, Request(scope, receive))(scope, receive, send)
            return
        await self.app(scope, receive, send)

    def _check(self, scope: Scope) -> Forbidden | None:
        headers, settings = Headers(scope=scope), self._settings
        process = getattr(scope["app"].state, "process", None)
        why = None if process is None else _open_to_all(process)
        server = (scope.get("server") or (None,))[0]
        host = headers.get("host")
        if why and refuses_connection(server):
            return Forbidden(f"{why}, so it answers to its own machine only", hint="set SECRET_TOKEN or API_KEYS_FILE")
        if (why or settings.allowed_hosts) and not is_known_host(
            host, (*settings.allowed_hosts, settings.host), server=server
        ):
            return Forbidden(
                f"{why}, so it answers to names of its own machine only"
                if why
                else "this server has no such host name",
                hint=f"ALLOWED_HOSTS names further ones{', or set SECRET_TOKEN or API_KEYS_FILE' if why else ''}",
            )
        if is_foreign_page(scope.get("method", "CONNECT"), headers, settings.cors_origins):
            return Forbidden(
                "pages of another origin may not send requests to this server", hint="CORS_ORIGINS names those that may"
            )
        return None


def _open_to_all(process: Any) -> str | None:
    """Why the server keeps nobody out, None if it does."""
    if process.gate.is_open:
        return "this server has no API key"
    return "SECRET_TOKEN of this server is a value from examples" if has_weak_token(process.settings) else None
