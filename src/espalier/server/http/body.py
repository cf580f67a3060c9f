"""Reads request bodies within a size and a time limit, and parses them as strict JSON. It knows no field."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import numpy as np
from fastapi import Request
from starlette.requests import ClientDisconnect

from espalier.errors import Cancelled
from espalier.server.http.errors import BadRequest, BodyTimeout, BodyTooLarge, WrongMediaType
from espalier.server.http.patience import Patience
from espalier.server.settings import ServerSettings

DEPTHS = bytes({"[": 1, "{": 1, "]": 255, "}": 255}.get(chr(byte), 0) for byte in range(256))
"""By byte value: the change of the nesting depth as a signed byte, 1 for an opening and -1 for a closing bracket."""
SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
IN_A_THREAD = 16_384
"""Bodies of this many bytes or more are parsed in a thread, off the event loop."""
IN_TURN = 200_000
"""Bodies of this many bytes or more, which take the interpreter for some hundredths of a second in one step, are parsed
one after the other, and the model makes steps between them."""
BODY_BYTES = "espalier.body_bytes"
"""The key of the body's size in `scope["state"]`."""
T = TypeVar("T")


async def read_object(request: Request, settings: ServerSettings) -> dict[str, Any]:
    """The JSON object in the body of a request. Raises BodyTooLarge, BodyTimeout, WrongMediaType, BadRequest, and
    Cancelled if the client disconnects before the end of the body."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind != "application/json" and not (kind.startswith("application/") and kind.endswith("+json")):
        raise WrongMediaType(hint="content-type: application/json")
    return await _read_json(request, settings)


async def read_untyped(request: Request, settings: ServerSettings) -> dict[str, Any]:
    """As `read_object`, whatever the content type, as for clients of Ollama, which ignores it."""
    return await _read_json(request, settings)


async def _read_json(request: Request, settings: ServerSettings) -> dict[str, Any]:
    raw = await read_bytes(request, settings)
    return await in_thread_if_large(request, partial(parse_object, raw, max_depth=settings.max_json_depth))


async def read_bytes(request: Request, settings: ServerSettings) -> bytes:
    """The body, at most `max_body_bytes` long whatever content-length says. Raises what `read_object` raises."""
    limit = settings.max_body_bytes
    length = request.headers.get("content-length", "")
    if length.isascii() and length.isdigit() and (len(length) > 18 or int(length) > limit):
        raise BodyTooLarge(f"the body has {length[:20]} bytes; the limit is {limit}")
    pieces: list[bytes] = []
    size = 0
    try:
        async with Patience(settings.body_seconds) as patience:
            async for piece in request.stream():
                patience.heard()
                size += len(piece)
                if size > limit:
                    raise BodyTooLarge(f"the body has more than {limit} bytes")
                pieces.append(piece)
    except TimeoutError:
        raise BodyTimeout(f"the body did not arrive within {settings.body_seconds:g} s") from None
    except ClientDisconnect:
        raise Cancelled("the client disconnected before the end of its request") from None
    request.scope.setdefault("state", {})[BODY_BYTES] = size
    return b"".join(pieces)


async def in_thread_if_large(request: Request, work: Callable[[], T], *, may_block: bool = False) -> T:
    """Run `work`, in a thread for bodies if the one that was read is large, or the work may wait for something; it
    belongs to the caller's share."""
    state = request.scope.get("state", {})
    if state.get(BODY_BYTES, 0) < IN_A_THREAD and not may_block:
        return work()
    process = getattr(request.scope["app"].state, "process", None) if "app" in request.scope else None
    if process is None:
        return await asyncio.to_thread(work)
    read: T = await process.pools.bodies.run(
        work, owner=getattr(state.get("caller"), "name", ""), heavy=state.get(BODY_BYTES, 0) >= IN_TURN
    )
    return read


def parse_object(raw: bytes, *, max_depth: int) -> dict[str, Any]:
    """The JSON object in these bytes. Raises BadRequest for anything but strict JSON (NaN, numbers of thousands of
    digits, duplicate keys and lone surrogates are refused) and for nesting deeper than max_depth."""
    if depth(raw) > max_depth:
        raise BadRequest(f"the body is nested deeper than {max_depth} levels")
    try:
        text = raw.decode()
        data = json.loads(text, parse_constant=_refuse, object_pairs_hook=_distinct)
    except UnicodeDecodeError as error:
        raise BadRequest(f"the body is not UTF-8 at byte {error.start}") from error
    except (ValueError, RecursionError) as error:
        raise BadRequest(f"the body is not JSON: {_first_line(error)}") from error
    if not isinstance(data, dict):
        raise BadRequest(f"the body is {_article(data)}, not an object")
    if SURROGATE.search(text):
        try:
            json.dumps(data, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise BadRequest("the body has a lone surrogate, which is no character") from error
    return data


def depth(raw: bytes) -> int:
    """The nesting depth of objects and arrays, without parsing. Brackets inside strings do not count. A few passes over
    the bytes, most of them in numpy, which lets other threads run meanwhile."""
    if b"\\" in raw:  # pairs first: what they leave of a row of backslashes escapes the quote behind it
        raw = raw.replace(b"\\\\", b"").replace(b'\\"', b"")
    steps = np.frombuffer(raw.translate(DEPTHS), dtype=np.int8)
    is_inside = np.logical_xor.accumulate(np.frombuffer(raw, dtype=np.uint8) == ord('"'))
    return int(np.cumsum(steps[(steps != 0) & ~is_inside], dtype=np.int64).max(initial=0))


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON number")


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    fields = dict(pairs)
    if len(fields) != len(pairs):
        left = dict(fields)
        twice = next(name for name, _ in pairs if left.pop(name, left) is left)
        raise ValueError(f"the key {twice[:60]!r} appears twice")
    return fields


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0][:200] if str(error) else type(error).__name__


def _article(value: Any) -> str:
    kinds = {list: "a list", str: "a text", bool: "true or false", int: "a number", float: "a number"}
    return kinds.get(type(value), "null")
