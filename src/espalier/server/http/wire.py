"""JSON on the wire: compact, never NaN, never half a character; and a reply that nobody reads is cut. It knows nothing
of what is said."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
DEPTH = 6
"""How deep the steps of traces and the tokens of log probabilities lie."""
PIECE = 65_536
"""Bytes that are handed to the server at once: it holds what it is handed until it is read."""
READ_SECONDS = 60.0
"""For a reader of a small reply."""
ABORT = "espalier.abort"
"""The extension by which our protocol lets a connection be cut at once, what is still unread included."""


def to_bytes(data: Any) -> bytes:
    """JSON without blanks. A lone surrogate, which UTF-8 cannot say, becomes `\\ufffd`. Raises ValueError for NaN and
    infinities: whoever makes a reply puts null or a number in their place."""
    return _encoded(ENCODER.encode(data))


def to_bytes_by_parts(data: Any) -> bytes:
    """The same bytes, for a thread: the encoder lets nobody else run while it works, so it is given small parts."""
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
    """End the connection of a reader that takes nothing, where the server can. Elsewhere the reply stays unfinished,
    which every server answers by closing."""
    abort = scope.get("extensions", {}).get(ABORT)
    if abort is not None:
        abort()
        await asyncio.sleep(0)  # so that the server knows before we return


class JsonResponse(Response):
    """A reply in JSON, made of data or of what `to_bytes` made. limit_seconds: within which it must have been read."""

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
