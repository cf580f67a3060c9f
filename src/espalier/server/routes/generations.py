"""Routes of generation logs: list and search them, get one.

A caller sees its own logs only; another caller's log is 404, like one that does not exist.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.server.http.errors import NotFound, documented
from espalier.server.http.query import AFTER, limit_of, limit_parameter, number_of, parameter, query_of
from espalier.server.http.wire import JsonResponse, to_bytes_by_parts
from espalier.server.ports import Caller, LogStore
from espalier.server.routes.stored import PRIVATE, from_store, page_bytes, stored_row
from espalier.server.routes.trace_list import LIMIT, MAX_LIMIT
from espalier.store.generations import GenerationFilter

T = TypeVar("T")
STATUSES = (400, 401, 404, 429, 500, 503)


LIST_PARAMETERS = query_of(
    limit_parameter(default=LIMIT, most=MAX_LIMIT),
    AFTER,
    parameter("q", 'Words, "phrases", beginnings*, -exclusions, OR.'),
    parameter("request_id", "Of this request: the `x-request-id` of its reply."),
    parameter("model", "Of this model alone."),
    parameter("since", "Unix seconds.", kind="number"),
)

router = APIRouter(tags=["logs"])


@router.get("/logs", responses=documented(*STATUSES), openapi_extra=LIST_PARAMETERS)
async def list_logs(request: Request) -> Response:
    """The caller's generation logs, newest first, without request and content."""
    query_params = request.query_params
    limit = limit_of(request, default=LIMIT, most=MAX_LIMIT)
    wanted = partial(
        GenerationFilter,
        request_id=query_params.get("request_id"),
        model=query_params.get("model"),
        since=number_of(request, "since"),
        query=query_params.get("q"),
        after=query_params.get("after"),
    )

    def work(store: LogStore, caller: Caller) -> bytes:
        rows = store.generations(wanted(caller=caller.sees), limit=limit + 1)
        return page_bytes(rows, caller, "log", limit=limit)

    return JsonResponse(await _from_store(request, work), headers=PRIVATE)


@router.get("/logs/{log_id}", responses=documented(*STATUSES))
async def get_log(request: Request, log_id: str) -> Response:
    """One generation log: what was asked, what it cost, and the texts where these are kept."""

    def work(store: LogStore, caller: Caller) -> bytes:
        row = store.generation(log_id, caller=caller.sees)
        if row is None:
            raise NotFound("there is no such log", field="log_id")
        # ASCII, so that a lone surrogate in a text is an escape.
        return to_bytes_by_parts(stored_row(row, caller, "log"), is_ascii=True)

    return JsonResponse(await _from_store(request, work), headers=PRIVATE)


async def _from_store(request: Request, work: Callable[[LogStore, Caller], T]) -> T:
    """Raises what `from_store` raises."""
    return await from_store(
        request,
        lambda process: process.logs,
        work,
        none="generations are not logged here",
        hint="set STORE_GENERATIONS=figures or content",
    )
