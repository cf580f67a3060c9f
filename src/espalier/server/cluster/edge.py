"""Stands before the application on each proxy of Ray Serve: tells the router how a prompt begins, and ends a request
that no replica can answer any more in an error that says so.

A proxy alone would cut a stream whose replica is gone, and answer in plain text where it has none to ask. Here a stream
ends with an error event, in the shape of its route, and everything else with 503 and `retry-after`. Answers that come
from a replica pass unchanged. It imports no Ray.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterable
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from espalier.errors import EspalierError, ReplicaLost, Unavailable
from espalier.server.answering.messages.errors import messages_error
from espalier.server.answering.ollama.errors import PREFIX as OLLAMA
from espalier.server.answering.ollama.errors import ollama_error
from espalier.server.answering.stream_errors import MESSAGES, write_error_event
from espalier.server.cluster.prefixes import LAST, marks
from espalier.server.http.errors import NotFound, error_body, error_headers
from espalier.server.http.wire import JsonResponse

REPLICA = "x-espalier-replica"
"""The header that says which replica has answered."""
SESSION = os.environ.get("RAY_SERVE_SESSION_ID_HEADER_KEY", "x-session-id").lower()
"""The header that Ray Serve hands to our router."""
AGAIN = "send the request again"
JOBS = "/v1/batch/jobs"
STREAMS = ("text/event-stream", "application/x-ndjson")
STATUSES: dict[int, EspalierError] = {
    404: NotFound("there is no application here", hint="it is starting, or was deleted"),
    408: Unavailable("the request took longer than Ray Serve lets it", hint="request_timeout_s of its HTTP options"),
    429: Unavailable("too many requests wait in the cluster", hint="try again"),
    503: Unavailable("no replica can take the request now", hint="try again"),
}


def middlewares() -> list[Middleware]:
    """What Ray Serve's proxies ask for."""
    return [Middleware(ClusterEdge)]


class ClusterEdge:
    """ASGI middleware of a proxy."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"].startswith("/-/"):  # Ray Serve's own: healthz, routes
            await self.app(scope, receive, send)
            return
        passing = _Passing(send)
        try:
            if scope["method"] == "POST":
                scope, receive = await _mark_prompt(scope, receive)
            await self.app(scope, receive, passing.send)
        except Exception:
            if passing.has_begun and not passing.is_stream:
                raise
        if passing.is_whole:
            return
        if not passing.has_begun:
            error = passing.error or ReplicaLost(hint=AGAIN)
            await _reply(error, _path(scope))(scope, receive, send)
        elif passing.is_stream:
            body = passing.end_of_piece(_path(scope)) + write_error_event(ReplicaLost(hint=AGAIN), _path(scope))
            await send({"type": "http.response.body", "body": body, "more_body": False})
        # What had begun and is no stream stays incomplete: the server cuts it, and the client sees that.


async def _mark_prompt(scope: Scope, receive: Receive) -> tuple[Scope, Receive]:
    """The same request; where it has a prompt and names no session, digests of how the prompt begins are in its
    head."""
    headers = Headers(scope=scope)
    if SESSION in headers or "json" not in headers.get("content-type", ""):
        return scope, receive
    begun: deque[Message] = deque()
    body = bytearray()
    while len(body) < LAST:
        message = await receive()
        begun.append(message)
        body += message.get("body", b"")
        if not message.get("more_body", False):
            break

    async def again() -> Message:
        return begun.popleft() if begun else await receive()

    if digests := marks(body):
        scope = {**scope, "headers": [*scope["headers"], (SESSION.encode(), digests.encode())]}
    return scope, again


class _Passing:
    """What came of the answer so far. error: for an answer that no replica gave."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.has_begun = self.is_whole = self.is_stream = False
        self.error: EspalierError | None = None
        self._ends_line = True

    def end_of_piece(self, path: str) -> bytes:
        """What ends half an event, or half a line of Ollama's, whose clients read no empty lines."""
        if not path.startswith(OLLAMA):
            return b"\n\n"
        return b"" if self._ends_line else b"\n"

    async def send(self, message: Message) -> None:
        if self.error is not None:
            return
        if message["type"] == "http.response.start":
            headers = Headers(raw=message["headers"])
            if REPLICA not in headers:
                self.error = STATUSES.get(message["status"], ReplicaLost(hint=AGAIN))
                return
            self.has_begun = True
            message = {**message, "headers": _once(message["headers"])}
            self.is_stream = headers.get("content-type", "").startswith(STREAMS)
        elif message["type"] == "http.response.body":
            self.is_whole = not message.get("more_body", False)
            if data := message.get("body"):
                self._ends_line = data.endswith(b"\n")
        await self._send(message)


def _once(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Without the second x-request-id, which Ray Serve adds to the one that is there."""
    sent_headers: list[tuple[bytes, bytes]] = []
    for name, value in headers:
        if name.lower() != b"x-request-id" or all(name_sent != b"x-request-id" for name_sent, _ in sent_headers):
            sent_headers.append((name.lower(), value))
    return sent_headers


def _path(scope: Scope) -> str:
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path


def _reply(error: EspalierError, path: str) -> JsonResponse:
    """As the route at this path answers an error."""
    body: dict[str, Any] = error_body(error)
    if path.startswith(MESSAGES):
        body = messages_error(error)
    elif path.startswith(OLLAMA):
        body = ollama_error(error)
    elif path.startswith(JOBS):
        body = {"detail": error_body(error)["error"]["message"]}
    return JsonResponse(body, status_code=error.http_status, headers=error_headers(error))


class NameMiddleware:
    """ASGI middleware of a replica: its answers bear its name, so that a proxy knows them from its own. name: of the
    replica, known once it runs."""

    def __init__(self, app: ASGIApp, name: str) -> None:
        self.app, self.name = app, name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return

        async def named(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REPLICA] = self.name
            await send(message)

        await self.app(scope, receive, named)
