"""Routes of generation logs: list and search them, get one.

A caller sees its own logs only; another caller's log is 404, like one that does not exist.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TypeVar

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.errors import InputError
from espalier.server.http.errors import NotFound, documented
from espalier.server.http.wire import JsonResponse, to_bytes_by_parts
from espalier.server.ports import LogStore
from espalier.server.routes.stored import from_store
from espalier.server.routes.traces import LIMIT, MAX_LIMIT, PRIVATE, page_limit
from espalier.store.generations import Wanted

T = TypeVar("T")
STATUSES = (400, 401, 404, 429, 500, 503)


def _parameter(name: str, description: str, **schema: Any) -> dict[str, Any]:
    return {"name": name, "in": "query", "description": description, "schema": schema}


LIST_PARAMETERS = [
    _parameter("limit", "How many, newest first.", type="integer", minimum=1, maximum=MAX_LIMIT, default=LIMIT),
    _parameter("after", "The `last_id` of the previous page.", type="string"),
    _parameter("q", 'Words, "phrases", beginnings*, -exclusions, OR.', type="string"),
    _parameter("model", "Of this model alone.", type="string"),
    _parameter("since", "Unix seconds.", type="number"),
]

router = APIRouter(tags=["logs"])


@router.get("/logs", responses=documented(*STATUSES), openapi_extra={"parameters": LIST_PARAMETERS})
async def list_logs(request: Request) -> Response:
    """The caller's generation logs, newest first, without request and content."""
    query_params = request.query_params
    limit = page_limit(query_params.get("limit"))
    wanted = partial(
        Wanted,
        model=query_params.get("model"),
        since=_since(query_params.get("since")),
        query=query_params.get("q"),
        after=query_params.get("after"),
    )

    def work(store: LogStore, caller: str) -> bytes:
        rows = store.generations(wanted(caller=caller), limit=limit + 1)
        shown = [_list_row(row) for row in rows[:limit]]
        last = shown[-1]["id"] if shown else None
        return to_bytes_by_parts({"object": "list", "data": shown, "has_more": len(rows) > limit, "last_id": last})

    return JsonResponse(await _from_store(request, work), headers=PRIVATE)


@router.get("/logs/{log_id}", responses=documented(*STATUSES))
async def get_log(request: Request, log_id: str) -> Response:
    """One generation log: what was asked, what it cost, and the texts where these are kept."""

    def work(store: LogStore, caller: str) -> bytes:
        row = store.generation(log_id, caller=caller)
        if row is None:
            raise NotFound("there is no such log", field="log_id")
        return to_bytes_by_parts(_list_row(row), is_ascii=True)  # a lone surrogate in a text is an escape

    return JsonResponse(await _from_store(request, work), headers=PRIVATE)


async def _from_store(request: Request, work: Callable[[LogStore, str], T]) -> T:
    """Raises what `from_store` raises."""
    return await from_store(
        request, lambda process: process.logs, work,
        none="generations are not logged here", hint="set STORE_GENERATIONS=figures or content",
    )  # fmt: skip


def _since(given: str | None) -> float | None:
    try:
        moment = None if given is None else float(given)
    except ValueError:
        moment = math.nan
    if moment is not None and not math.isfinite(moment):
        raise InputError("since must be a number of Unix seconds", field="since")
    return moment


def _list_row(row: Mapping[str, Any]) -> dict[str, Any]:
    """A row without the caller, who is the reader."""
    return {"id": row["id"], "object": "log", **{k: v for k, v in row.items() if k not in ("id", "caller")}}
