"""Routes of feedback: a client says what an answer was worth, by the id of its request; bad answers are flagged."""

from __future__ import annotations

from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.server.bodies.base import read_body
from espalier.server.bodies.feedback import FeedbackBody
from espalier.server.http.body import read_object
from espalier.server.http.errors import NotFound, documented
from espalier.server.http.query import parameter, query_of
from espalier.server.http.warnings import warning_header
from espalier.server.http.wire import JsonResponse
from espalier.server.ports import Caller, TraceStore
from espalier.server.process.deps import admitted, while_connected
from espalier.server.routes.stored import PRIVATE, from_trace_store, no_traces

STATUSES = (400, 401, 404, 429, 500, 503)
OF_REQUEST = parameter("request_id", "The `x-request-id` of the reply.")
router = APIRouter(tags=["traces"])


@router.post(
    "/v1/feedback",
    responses=documented(*STATUSES, 408, 413, 415, 507),
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/FeedbackBody"}},
)
async def give_feedback(request: Request) -> Response:
    """Say what an answer was worth. A flagged answer's trace stays when others are deleted."""
    async with admitted(request) as (process, caller):
        store: TraceStore | None = process.store
        if store is None:
            raise no_traces()
        settings = process.settings
        body = read_body(FeedbackBody, await read_object(request, settings), strict=settings.strict_fields)
        save = partial(
            store.save_feedback,
            body.request_id,
            caller=caller.sees,
            name=body.name,
            score=body.score,
            text=body.text,
            flag=body.flag,
        )
        flagged = await while_connected(request, process.pools.saving.run(save, owner=caller.name))
    if flagged is None:
        raise _unknown()
    reply = {"object": "feedback", "request_id": body.request_id, "name": body.name, "flagged": flagged}
    return JsonResponse(reply, headers={**PRIVATE, **warning_header(body.told.lines())})


@router.get("/v1/feedback", responses=documented(*STATUSES), openapi_extra=query_of(OF_REQUEST))
async def list_feedback(request: Request) -> Response:
    """What was said of the answers of one request."""
    request_id = request.query_params.get("request_id", "")

    def work(store: TraceStore, caller: Caller) -> list[dict[str, Any]]:
        return [dict(row) for row in store.feedback(request_id, caller=caller.sees)]

    rows = await from_trace_store(request, work)
    return JsonResponse({"object": "list", "request_id": request_id, "data": rows}, headers=PRIVATE)


def _unknown() -> NotFound:
    return NotFound(
        "no stored trace or log has this request id", hint="the x-request-id header of a reply", field="request_id"
    )
