"""JSON replies: compact, without NaN and lone surrogates, sent within a time limit. It does not know the content."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
DEPTH = 6
"""The depth at which steps of traces and tokens of log probabilities stand in a reply."""
PIECE = 65_536
"""Bytes passed to the ASGI server at once, which buffers them until the client reads."""
READ_SECONDS = 60.0
"""The default time limit for reading a reply."""
ABORT = "espalier.abort"
"""The ASGI extension of our protocol that cuts a connection at once and drops what is unread."""


def to_bytes(data: Any) -> bytes:
    """JSON without spaces. A lone surrogate, which UTF-8 cannot encode, becomes `\\ufffd`. Raises ValueError for NaN
    and infinities, which whoever builds a reply must replace."""
    return _encoded(ENCODER.encode(data))


def to_bytes_by_parts(data: Any) -> bytes:
    """The same bytes, for use in a thread: the encoder holds the GIL while it works, so it gets small parts."""
    return _encoded("".join(_parts(data, DEPTH)))


def _parts(data: Any, depth: int) -> Iterator[str]:
    if depth == 0 or not data or not isinstance(data, dict | list):
        yield ENCODER.encode(data)
        return
    is_object = isinstance(data, dict)
    yield "{" if is_object else "["
    for place, name in enumerate(data):
        if place:
            yield ","
        if is_object:
            yield f"{ENCODER.encode(name)}:"
        yield from _parts(data[name] if is_object else name, depth - 1)
    yield "}" if is_object else "]"


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").encode()


async def cut(scope: Scope) -> None:
    """Cut the connection of a client that does not read, if the server has ABORT. Other servers close a connection
    whose reply was not finished."""
    abort = scope.get("extensions", {}).get(ABORT)
    if abort is not None:
        abort()
        await asyncio.sleep(0)  # lets the server notice before we return


class JsonResponse(Response):
    """A JSON reply from data, or from bytes of `to_bytes`. limit_seconds: the time in which the client must read it."""

    media_type = "application/json"

    def __init__(
        self, content: Any, status_code: int = 200, headers: Mapping[str, str] | None = None, *,
        limit_seconds: float = READ_SECONDS,
    ) -> None:  # fmt: skip
        super().__init__(content, status_code, headers)
        self._limit_seconds = limit_seconds

    def render(self, content: Any) -> bytes:
        return content if isinstance(content, bytes) else to_bytes(content)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async with asyncio.timeout(self._limit_seconds):
                for start in range(0, max(1, len(self.body)), PIECE):
                    piece, end = bytes(self.body[start : start + PIECE]), start + PIECE
                    await send({"type": "http.response.body", "body": piece, "more_body": end < len(self.body)})
        except TimeoutError:
            await cut(scope)
