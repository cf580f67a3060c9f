"""The list of stored traces: as JSON for programs and as a page for browsers, both from one query.

A caller sees its own traces only, unless its key is an admin's.
"""

from __future__ import annotations

from functools import cache, partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.server.http.errors import documented
from espalier.server.http.query import AFTER, choice_of, limit_of, limit_parameter, number_of, parameter, query_of
from espalier.server.http.wire import JsonResponse
from espalier.server.ports import Caller, TraceStore
from espalier.server.routes.stored import PRIVATE, from_trace_store, page_bytes, page_reply
from espalier.store.trace_filter import VERDICTS, TraceFilter
from espalier.trace import list_page

LIMIT, MAX_LIMIT = 20, 100
STATUSES = (400, 401, 404, 429, 500, 503)
LIST_PARAMETERS = query_of(
    limit_parameter(default=LIMIT, most=MAX_LIMIT),
    AFTER,
    parameter("request_id", "Of this request: the `x-request-id` of its reply."),
    parameter("model", "Of this model alone."),
    parameter("constraint", "Its kind, its fingerprint, or how its title begins; `none`: free text."),
    parameter("verdict", "`flagged`: invalid, or with feedback that flags it.", enum=list(VERDICTS)),
    parameter("finish", "Why the output ended."),
    parameter("since", "Unix seconds.", kind="number"),
    parameter("until", "Unix seconds.", kind="number"),
    parameter("min_tokens", "At least so many tokens.", kind="integer"),
    parameter("min_tax", "At least this tax, in nats.", kind="number"),
    parameter("path", "The worst path is this one, or below it; `*` for an index."),
    parameter("q", 'Words of prompt and output, "phrases", beginnings*, -exclusions, OR.'),
)
TWO_REPLIES: dict[int | str, dict[str, Any]] = {
    200: {"description": "The list as JSON; for browsers a page.", "content": {"application/json": {}, "text/html": {}}}
}

router = APIRouter(tags=["traces"])


@router.get("/traces", responses={**TWO_REPLIES, **documented(*STATUSES)}, openapi_extra=LIST_PARAMETERS)
async def list_traces(request: Request) -> Response:
    """The caller's traces, newest first, without their steps; `prompt` and `text` are the beginnings of both."""
    if "text/html" in request.headers.get("accept", ""):
        return page_reply(request, *_rendered(getattr(request.app.state, "playground_path", "./")))
    query = request.query_params
    limit = limit_of(request, default=LIMIT, most=MAX_LIMIT)
    tokens = number_of(request, "min_tokens", is_whole=True)
    wanted = partial(
        TraceFilter,
        request_id=query.get("request_id"),
        model=query.get("model"),
        constraint=query.get("constraint"),
        verdict=choice_of(request, "verdict", VERDICTS),
        finish=query.get("finish"),
        since=number_of(request, "since"),
        until=number_of(request, "until"),
        min_tokens=None if tokens is None else int(tokens),
        min_tax=number_of(request, "min_tax"),
        path=query.get("path"),
        query=query.get("q"),
        after=query.get("after"),
    )

    def work(store: TraceStore, caller: Caller) -> bytes:
        rows = store.traces(wanted(caller=caller.sees), limit=limit + 1)
        return page_bytes(rows, caller, "trace", limit=limit)

    return JsonResponse(await from_trace_store(request, work), headers={**PRIVATE, "vary": "accept"})


@cache
def _rendered(playground: str | None) -> tuple[str, str]:
    """The page and its policy."""
    return list_page.render(playground=playground)
