"""JSON replies: compact, without NaN and lone surrogates, sent within a time limit. It does not know the content."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from json.encoder import encode_basestring
from typing import Any

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from espalier.time_limit import check

ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))
ASCII = json.JSONEncoder(ensure_ascii=True, allow_nan=False, separators=(",", ":"))
SLICE = 256
"""Items of a list that are encoded at once, and members of an object."""
DEPTH = 6
"""Below this depth, values are encoded whole: what a step of a trace or a token holds is small."""
PIECE = 65_536
"""Bytes passed to the ASGI server at once, which buffers them until the client reads."""
READ_SECONDS = 60.0
"""The default time limit for reading a reply."""
ABORT = "espalier.abort"
"""The ASGI extension of our protocol that cuts a connection at once and drops what is unread."""


def to_bytes(data: Any) -> bytes:
    """JSON without spaces. A lone surrogate, which UTF-8 cannot encode, becomes `\\ufffd`. Raises ValueError for NaN
    and infinities, which whoever builds a reply must replace."""
    return _encode_text(ENCODER.encode(data))


def text_to_bytes(text: str) -> bytes:
    """The bytes of `to_bytes` for a text."""
    return _encode_text(encode_basestring(text))


def to_bytes_by_parts(data: Any, *, is_ascii: bool = False) -> bytes:
    """The same bytes, for use in a thread: the encoder holds the GIL while it works, so it gets small parts, and looks
    at the time limit between them. is_ascii: with escapes for all else, so that a lone surrogate stays as it is."""
    encode = (ASCII if is_ascii else ENCODER).encode
    return b"".join(_join_chunks(_parts(data, DEPTH, encode)))


def _join_chunks(parts: Iterator[str]) -> Iterator[bytes]:
    """Few large pieces from many small ones."""
    waiting, size = [], 0
    for part in parts:
        check()
        waiting.append(part)
        size += len(part)
        if size > PIECE:
            yield _encode_text("".join(waiting))
            waiting, size = [], 0
    yield _encode_text("".join(waiting))


def _parts(data: Any, depth: int, encode: Callable[[Any], str]) -> Iterator[str]:
    if depth == 0 or not data or not isinstance(data, dict | list):
        yield encode(data)
    elif isinstance(data, dict):
        for place, (name, value) in enumerate(data.items()):
            yield f"{',' if place else '{'}{encode(name)}:"
            yield from _parts(value, depth - 1, encode)
        yield "}"
    else:
        for start in range(0, len(data), SLICE):
            some = data[start : start + SLICE]
            yield "," if start else "["
            if all(_is_flat(part) for part in some):
                yield encode(some)[1:-1]
                continue
            for place, piece in enumerate(some):
                if place:
                    yield ","
                yield from _parts(piece, depth - 1, encode)
        yield "]"


def _is_flat(value: Any) -> bool:
    """A value of a few hundred bytes: no text of any length, and nothing nested."""
    if isinstance(value, str):
        return len(value) <= SLICE
    if isinstance(value, dict):
        return len(value) <= 8 and all(
            type(item) in FLAT or (type(item) is str and len(item) <= SLICE) for item in value.values()
        )
    return type(value) in FLAT


FLAT = frozenset({int, float, bool, type(None)})


def _encode_text(text: str) -> bytes:
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
        self,
        content: Any,
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        *,
        limit_seconds: float = READ_SECONDS,
    ) -> None:
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
