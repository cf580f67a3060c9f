"""Routes of one stored trace: get it as JSON or as a page, delete it. `trace_list.py` lists them.

A caller sees its own traces only; another caller's trace is 404, like one that does not exist. `trace/` knows what a
trace holds and builds its page.
"""

from __future__ import annotations

import html
import re
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.errors import EspalierError
from espalier.server.asking.naming import field_names
from espalier.server.http.errors import NotFound, documented
from espalier.server.http.query import parameter, query_of
from espalier.server.http.wire import JsonResponse, to_bytes_by_parts
from espalier.server.ports import Caller, TraceStore
from espalier.server.routes.stored import PRIVATE, from_trace_store
from espalier.trace import page
from espalier.trace.records import Trace
from espalier.trace.report.diagnose import diagnose
from espalier.trace.report.export import EXPORTERS, exported

STATUSES = (400, 401, 404, 429, 500, 503)

AROUND_THE_PAGE = "frame-ancestors 'self'; sandbox allow-scripts allow-downloads"
"""Directives that a page cannot set itself. In the sandbox its script has an origin of its own: it cannot use this
server with the reader's key, whatever text a trace contains."""

_POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')

HTML_REPLY = {"description": "The trace as one self-contained HTML page.", "content": {"text/html": {}}}

router = APIRouter(tags=["traces"])


FORMAT_PARAMETER = parameter("format", "As text in this format, as `espalier trace export` has it; JSON if not given.")
TRACE_REPLY = {
    "description": "The trace as JSON, or in the format asked for.",
    "content": {"application/json": {}, "text/plain": {}},
}


@router.get(
    "/traces/{trace_id}",
    responses={200: TRACE_REPLY, **documented(*STATUSES, 501)},
    openapi_extra=query_of(FORMAT_PARAMETER),
)
async def get_trace(request: Request, trace_id: str) -> Response:
    """One trace, whole: what was asked, every step, and sums over them."""
    form = request.query_params.get("format")
    if form is not None:
        with field_names(otherwise="format"):
            EXPORTERS.require(form)

        def written(store: TraceStore, caller: Caller) -> str:
            return exported(Trace.from_json(_trace(store, caller, trace_id)), form)

        return Response(await from_trace_store(request, written), media_type="text/plain", headers=PRIVATE)

    def work(store: TraceStore, caller: Caller) -> bytes:
        # ASCII with escapes, so that a lone surrogate in a text is returned unchanged.
        return to_bytes_by_parts(_trace(store, caller, trace_id), is_ascii=True)

    return JsonResponse(await from_trace_store(request, work), headers=PRIVATE)


@router.get("/traces/{trace_id}/page", responses={200: HTML_REPLY, **documented(*STATUSES)})
async def show_trace(request: Request, trace_id: str) -> Response:
    """One trace as an HTML page."""

    def work(store: TraceStore, caller: Caller) -> tuple[str, str]:
        data = _trace(store, caller, trace_id)
        shown = page.render(data, findings=[finding.to_json("http") for finding in diagnose(Trace.from_json(data))])
        return shown, page_policy(shown)

    shown, policy = await from_trace_store(request, work)
    return Response(shown, media_type="text/html", headers={**PRIVATE, "content-security-policy": policy})


@router.delete("/traces/{trace_id}", responses=documented(*STATUSES))
async def delete_trace(request: Request, trace_id: str) -> Response:
    """Delete one trace for good."""

    def work(store: TraceStore, caller: Caller) -> bool:
        return store.delete_trace(trace_id, caller=caller.sees)

    if not await from_trace_store(request, work):
        raise _unknown()
    return JsonResponse({"id": trace_id, "object": "trace.deleted", "deleted": True}, headers=PRIVATE)


def page_policy(shown: str) -> str:
    """The Content-Security-Policy of a page: its own, which allows its script and its style by hash, and
    AROUND_THE_PAGE."""
    own = _POLICY.search(shown)
    if own is None:
        raise EspalierError("the page of a trace has no policy")
    return f"{html.unescape(own[1])}; {AROUND_THE_PAGE}"


def _trace(store: TraceStore, caller: Caller, trace_id: str) -> Mapping[str, Any]:
    trace = store.trace(trace_id, caller=caller.sees)
    if trace is None:
        raise _unknown()
    return trace


def _unknown() -> NotFound:
    return NotFound("there is no such trace", field="trace_id")
