"""ASGI middleware: request ids, replies to unexpected exceptions, and loopback-only access while no API key is set.

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
from espalier.server.admit.auth import has_weak_token, refuses_stranger
from espalier.server.http.errors import BadRequest, ErrorShape, internal_error, openai_shape

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


class LocalOnly:
    """Refuses requests from other hosts while the server has no API key, or one that examples show: whatever program
    serves the application, at whatever address."""

    def __init__(self, app: ASGIApp, *, shape: ErrorShape = openai_shape) -> None:
        self.app = app
        self._shape = shape

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        process = getattr(scope["app"].state, "process", None) if scope["type"] == "http" else None
        if process is not None and scope["path"] not in PUBLIC and (why := _open_to_all(process)):
            server = (scope.get("server") or (None,))[0]
            if refuses_stranger(server, Headers(scope=scope).get("host")):
                error = Forbidden(
                    f"{why}, so it answers to its own machine only", hint="set SECRET_TOKEN or API_KEYS_FILE"
                )
                await self._shape(error, Request(scope, receive))(scope, receive, send)
                return
        await self.app(scope, receive, send)


def _open_to_all(process: Any) -> str | None:
    """Why the server keeps nobody out, None if it does."""
    if process.gate.is_open:
        return "this server has no API key"
    return "SECRET_TOKEN of this server is a value from examples" if has_weak_token(process.settings) else None
