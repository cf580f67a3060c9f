"""Shared by the routes of what the store keeps for a caller: traces, generation logs, responses."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from fastapi import Request
from starlette.responses import HTMLResponse, Response

from espalier.server.http.errors import NotFound
from espalier.server.http.wire import to_bytes_by_parts
from espalier.server.ports import Caller, TraceStore
from espalier.server.process.deps import admitted, count_public, while_connected
from espalier.server.process.state import Process

Kept = TypeVar("Kept")
T = TypeVar("T")
NO_TRACES, TRACES_HINT = "no traces are stored here", "set TRACE_LEVEL to asked, summary, steps or full"
PRIVATE = {"cache-control": "private, no-store", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
"""Prompts stay out of caches, and an address with a token is not passed on as a referrer."""


async def from_store(
    request: Request,
    store_of: Callable[[Process], Kept | None],
    work: Callable[[Kept, Caller], T],
    *,
    none: str,
    hint: str,
) -> T:
    """What the work gets from a store, for this caller, in a thread for reading. none, hint: the message where there is
    no such store. Raises Unauthorized, TooManyRequests, and NotFound without a store."""
    async with admitted(request) as (process, caller):
        store = store_of(process)
        if store is None:
            raise NotFound(none, hint=hint)
        reading = process.pools.reading.run(partial(work, store, caller), owner=caller.name)
        return await while_connected(request, reading)


async def from_trace_store(request: Request, work: Callable[[TraceStore, Caller], T]) -> T:
    """What the work gets from the store of traces. Raises what `from_store` raises."""
    return await from_store(request, lambda process: process.store, work, none=NO_TRACES, hint=TRACES_HINT)


def stored_row(row: Mapping[str, Any], caller: Caller, kind: str) -> dict[str, Any]:
    """A row as replies have it; whose it is stands there for an admin, who sees everybody's. kind: its `object`."""
    hidden = ("id",) if caller.is_admin else ("id", "caller")
    return {"id": row["id"], "object": kind, **{name: row[name] for name in row if name not in hidden}}


def page_bytes(rows: Sequence[Mapping[str, Any]], caller: Caller, kind: str, *, limit: int) -> bytes:
    """A cursor list of up to `limit` of the rows, which are one more if there are more, as JSON."""
    shown = [stored_row(row, caller, kind) for row in rows[:limit]]
    last = shown[-1]["id"] if shown else None
    return to_bytes_by_parts({"object": "list", "data": shown, "has_more": len(rows) > limit, "last_id": last})


def page_reply(request: Request, shown: str, policy: str) -> Response:
    """A page that is public and has nothing of this server: its script asks for the rows with the reader's key."""
    count_public(request)
    headers = {
        **PRIVATE,
        "content-security-policy": policy,
        "vary": "accept",
        "cross-origin-opener-policy": "same-origin",
    }
    return HTMLResponse(shown, headers=headers)


def no_traces() -> NotFound:
    """The error where no traces are stored."""
    return NotFound(NO_TRACES, hint=TRACES_HINT)
