"""OpenAI's `/v1/batches`: create, list, read and cancel; beyond them pause, resume, priority, and deletion."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.jobs.report import report_of
from espalier.jobs.report_page import TRACES, render
from espalier.jobs.values import Batch, BatchPlan
from espalier.server.bodies.base import read_body
from espalier.server.bodies.batches import BatchBody, PriorityBody, batch_json, inner_file_id
from espalier.server.http.body import read_object
from espalier.server.http.errors import BadRequest, NotFound, documented
from espalier.server.http.query import AFTER, limit_of, limit_parameter, query_of
from espalier.server.http.warnings import warning_header
from espalier.server.http.wire import JsonResponse
from espalier.server.ports import Caller
from espalier.server.process.state import Process
from espalier.server.routes.batch_store import PRIVATE, batch_store, in_store, page_json, wake
from espalier.store.batches.open import BatchStore
from espalier.trace.report.page import policy

ENDPOINTS = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings", "/completion")
STATUSES = (400, 401, 404, 429, 500, 503)
LIMIT, MOST = 20, 100
HOUR = 3600.0
LIST_PARAMETERS = query_of(limit_parameter(default=LIMIT, most=MOST), AFTER)

router = APIRouter(tags=["openai"])


@router.post(
    "/v1/batches",
    responses=documented(*STATUSES, 408, 413, 415),
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/BatchBody"}},
)
async def create_batch(request: Request) -> Response:
    """Run every line of an uploaded file. Its lines are checked at once: `status` becomes `failed` or `in_progress`."""
    async with batch_store(request) as (process, store, caller):
        data = await read_object(request, process.settings)
        body = read_body(BatchBody, data, strict=process.settings.strict_fields)
        if body.endpoint not in ENDPOINTS:
            raise BadRequest(f"a batch is for one of {', '.join(ENDPOINTS)}", field="endpoint")
        made = await process.pools.saving.run(lambda: _create(body, store, caller, process), owner=caller.name)
        wake(process)
        return JsonResponse(batch_json(made), headers=warning_header(body.told.lines()))


def _create(body: BatchBody, store: BatchStore, caller: Caller, process: Process) -> Batch:
    file_id = inner_file_id(body.input_file_id)
    row = store.files.get(file_id, caller=caller.name)
    if row is None or row["batch_id"] is not None:
        raise NotFound("there is no such input file", field="input_file_id")
    ours, expiry = body.espalier, body.output_expires_after
    plan = BatchPlan(
        caller=caller.name,
        endpoint=body.endpoint,
        input_file=file_id,
        metadata=body.metadata,
        window=int(body.completion_window[:-1]) * HOUR,
        priority=0 if ours is None else ours.priority,
        output_seconds=None if expiry is None else float(expiry.seconds),
    )
    is_paused = ours is not None and ours.paused
    return store.batches.create(plan, most_open=process.settings.batch_open_per_key, paused=is_paused)


@router.get("/v1/batches", responses=documented(*STATUSES), openapi_extra=LIST_PARAMETERS)
async def list_batches(request: Request) -> Response:
    """The caller's batches, newest first."""
    limit, after = limit_of(request, default=LIMIT, most=MOST), request.query_params.get("after")

    def work(store: BatchStore, caller: str) -> list[dict[str, Any]]:
        page = store.batches.page(caller=caller, limit=limit + 1, after=after, kind="openai")
        return [batch_json(batch) for batch in page]

    return JsonResponse(page_json(await in_store(request, work), limit=limit), headers=PRIVATE)


@router.get("/v1/batches/{batch_id}", responses=documented(*STATUSES))
async def get_batch(request: Request, batch_id: str) -> Response:
    """One batch as it stands."""
    return await _change_batch(request, lambda store, caller: store.batches.get(batch_id, caller=caller), wakes=False)


@router.post("/v1/batches/{batch_id}/cancel", responses=documented(*STATUSES))
async def cancel_batch(request: Request, batch_id: str) -> Response:
    """Stop a batch: running items end within a step, and what was finished can be fetched."""
    return await _change_batch(request, lambda store, caller: store.batches.cancel(batch_id, caller=caller))


@router.post("/v1/batches/{batch_id}/pause", responses=documented(*STATUSES))
async def pause_batch(request: Request, batch_id: str) -> Response:
    """Stop running items, to be run again when the batch is resumed."""
    return await _change_batch(request, lambda store, caller: store.batches.pause(batch_id, caller=caller, paused=True))


@router.post("/v1/batches/{batch_id}/resume", responses=documented(*STATUSES))
async def resume_batch(request: Request, batch_id: str) -> Response:
    """Go on with a paused batch."""
    return await _change_batch(
        request, lambda store, caller: store.batches.pause(batch_id, caller=caller, paused=False)
    )


@router.post(
    "/v1/batches/{batch_id}/priority",
    responses=documented(*STATUSES, 408, 413, 415),
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/PriorityBody"}},
)
async def prioritise_batch(request: Request, batch_id: str) -> Response:
    """Run it before those of a lower priority."""
    async with batch_store(request) as (process, _, _):
        data = await read_object(request, process.settings)
        body = read_body(PriorityBody, data, strict=process.settings.strict_fields)

    def work(store: BatchStore, caller: str) -> Batch | None:
        return store.batches.prioritise(batch_id, caller=caller, priority=body.priority)

    response = await _change_batch(request, work)
    response.headers.update(warning_header(body.told.lines()))
    return response


@router.get("/v1/batches/{batch_id}/report", responses=documented(*STATUSES))
async def get_report(request: Request, batch_id: str) -> Response:
    """Verdicts, costs by path over all items that have ended, the most expensive values, findings with remedies,
    outliers."""
    return JsonResponse(await in_store(request, lambda store, caller: _report(store, batch_id, caller)))


@router.get("/v1/batches/{batch_id}/report/page", responses=documented(*STATUSES))
async def show_report(request: Request, batch_id: str) -> Response:
    """The report as an HTML page."""

    def work(store: BatchStore, caller: str) -> str:
        return render(_report(store, batch_id, caller), title=f"Report of {batch_id}", traces=TRACES)

    headers = {**PRIVATE, "content-security-policy": f"{policy()}; frame-ancestors 'none'"}
    return Response(await in_store(request, work), media_type="text/html", headers=headers)


def _report(store: BatchStore, batch_id: str, caller: str) -> dict[str, Any]:
    if store.batches.get(batch_id, caller=caller) is None:
        raise _unknown()
    return report_of(store.results.figures(batch_id))


@router.delete("/v1/batches/{batch_id}", responses=documented(*STATUSES))
async def delete_batch(request: Request, batch_id: str) -> Response:
    """Delete a batch that has ended, with its results."""
    if not await in_store(request, lambda store, caller: store.batches.remove(batch_id, caller=caller)):
        raise _unknown()
    return JsonResponse({"id": batch_id, "object": "batch", "deleted": True})


async def _change_batch(
    request: Request, work: Callable[[BatchStore, str], Batch | None], *, wakes: bool = True
) -> Response:
    async with batch_store(request) as (process, store, caller):
        batch = await process.pools.reading.run(lambda: work(store, caller.name), owner=caller.name)
        if wakes:
            wake(process)
    if batch is None:
        raise _unknown()
    return JsonResponse(batch_json(batch), headers=PRIVATE)


def _unknown() -> NotFound:
    return NotFound("there is no such batch", field="batch_id")
