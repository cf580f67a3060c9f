"""Routes of stored traces: list them, get one as JSON or as a page, delete one.

A caller sees its own traces only; another caller's trace is 404, like one that does not exist. `trace/` knows what a
trace holds and builds its page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.errors import EspalierError, InputError
from espalier.server.asking.naming import field_names
from espalier.server.http.errors import NotFound, documented
from espalier.server.http.wire import JsonResponse, to_bytes_by_parts
from espalier.server.ports import TraceStore
from espalier.server.routes.stored import from_store
from espalier.trace import page
from espalier.trace.records import Trace
from espalier.trace.report.diagnose import diagnose
from espalier.trace.report.export import EXPORTERS, exported

T = TypeVar("T")
LIMIT, MAX_LIMIT = 20, 100
STATUSES = (400, 401, 404, 429, 500, 503)

PRIVATE = {"cache-control": "private, no-store", "x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
"""Prompts stay out of caches, and an address with a token is not passed on as a referrer."""

AROUND_THE_PAGE = "frame-ancestors 'self'; sandbox allow-scripts allow-downloads"
"""Directives that a page cannot set itself. In the sandbox its script has an origin of its own: it cannot use this
server with the reader's key, whatever text a trace contains."""

_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')

LIST_PARAMETERS = [
    {
        "name": "limit",
        "in": "query",
        "description": "The number of traces, newest first.",
        "schema": {"type": "integer", "minimum": 1, "maximum": MAX_LIMIT, "default": LIMIT},
    },
    {
        "name": "after",
        "in": "query",
        "description": "The `last_id` of the previous page.",
        "schema": {"type": "string"},
    },
]
HTML_REPLY = {"description": "The trace as one self-contained HTML page.", "content": {"text/html": {}}}

router = APIRouter(tags=["traces"])


@router.get("/traces", responses=documented(*STATUSES), openapi_extra={"parameters": LIST_PARAMETERS})
async def list_traces(request: Request) -> Response:
    """The caller's traces, newest first, without their steps; `prompt` and `text` are the beginnings of both."""
    limit, after = page_limit(request.query_params.get("limit")), request.query_params.get("after")

    def work(store: TraceStore, caller: str) -> bytes:
        rows = store.traces(caller=caller, limit=limit + 1, after=after)
        shown = [_list_row(row) for row in rows[:limit]]
        last = shown[-1]["id"] if shown else None
        return to_bytes_by_parts({"object": "list", "data": shown, "has_more": len(rows) > limit, "last_id": last})

    return JsonResponse(await _from_store(request, work), headers=PRIVATE)


FORMAT_PARAMETER = {
    "name": "format",
    "in": "query",
    "description": "As text in this format, as `espalier trace export` has it; JSON if not given.",
    "schema": {"type": "string"},
}
TRACE_REPLY = {
    "description": "The trace as JSON, or in the format asked for.",
    "content": {"application/json": {}, "text/plain": {}},
}


@router.get(
    "/traces/{trace_id}",
    responses={200: TRACE_REPLY, **documented(*STATUSES, 501)},
    openapi_extra={"parameters": [FORMAT_PARAMETER]},
)
async def get_trace(request: Request, trace_id: str) -> Response:
    """One trace, whole: what was asked, every step, and sums over them."""
    form = request.query_params.get("format")
    if form is not None:
        with field_names(otherwise="format"):
            EXPORTERS.require(form)

        def written(store: TraceStore, caller: str) -> str:
            return exported(Trace.from_json(_trace(store, caller, trace_id)), form)

        return Response(await _from_store(request, written), media_type="text/plain", headers=PRIVATE)

    def work(store: TraceStore, caller: str) -> bytes:
        # ASCII with escapes, so that a lone surrogate in a text is returned unchanged.
        return to_bytes_by_parts(_trace(store, caller, trace_id), is_ascii=True)

    return JsonResponse(await _from_store(request, work), headers=PRIVATE)


@router.get("/traces/{trace_id}/page", responses={200: HTML_REPLY, **documented(*STATUSES)})
async def show_trace(request: Request, trace_id: str) -> Response:
    """One trace as an HTML page."""

    def work(store: TraceStore, caller: str) -> tuple[str, str]:
        data = _trace(store, caller, trace_id)
        shown = page.render(data, findings=[finding.to_json("http") for finding in diagnose(Trace.from_json(data))])
        return shown, page_policy(shown)

    shown, policy = await _from_store(request, work)
    return Response(shown, media_type="text/html", headers={**PRIVATE, "content-security-policy": policy})


@router.delete("/traces/{trace_id}", responses=documented(*STATUSES))
async def delete_trace(request: Request, trace_id: str) -> Response:
    """Delete one trace for good."""

    def work(store: TraceStore, caller: str) -> bool:
        return store.delete_trace(trace_id, caller=caller)

    if not await _from_store(request, work):
        raise _unknown()
    return JsonResponse({"id": trace_id, "object": "trace.deleted", "deleted": True}, headers=PRIVATE)


def page_policy(shown: str) -> str:
    """The Content-Security-Policy of a page: its own, which allows its script and its style by hash, and
    AROUND_THE_PAGE."""
    own = _POLICY.search(shown)
    if own is None:
        raise EspalierError("the page of a trace has no policy")
    return f"{html.unescape(own[1])}; {AROUND_THE_PAGE}"


def _trace(store: TraceStore, caller: str, trace_id: str) -> Mapping[str, Any]:
    trace = store.trace(trace_id, caller=caller)
    if trace is None:
        raise _unknown()
    return trace


async def _from_store(request: Request, work: Callable[[TraceStore, str], T]) -> T:
    """Raises what `from_store` raises."""
    return await from_store(
        request,
        lambda process: process.store,
        work,
        none="no traces are stored here",
        hint="set STORE_TRACES=asked or STORE_TRACES=always",
    )


def _unknown() -> NotFound:
    return NotFound("there is no such trace", field="trace_id")


def page_limit(given: str | None) -> int:
    """How many rows a page has. Raises InputError."""
    if given is None:
        return LIMIT
    if not re.fullmatch(r"[0-9]{1,4}", given) or not 1 <= int(given) <= MAX_LIMIT:
        raise InputError(f"limit must be a whole number from 1 to {MAX_LIMIT}", field="limit")
    return int(given)


def _list_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row of the list, without the caller, who is the reader."""
    return {"id": row["id"], "object": "trace", **{k: v for k, v in row.items() if k not in ("id", "caller")}}
