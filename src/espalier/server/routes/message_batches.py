"""Anthropic's `/v1/messages/batches`: create, list, read, cancel and delete; the results as JSON Lines.

They are batches as OpenAI's, with the same limits and workers; each request is an item of `/v1/messages`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.errors import InputError
from espalier.jobs.states import BatchState
from espalier.jobs.values import Batch, BatchPlan, Kind
from espalier.server.answering.messages.errors import error_type
from espalier.server.bodies.base import read_body
from espalier.server.bodies.messages import MessageBatchesBody
from espalier.server.http.body import in_thread_if_large, read_object
from espalier.server.http.errors import BadRequest, NotFound, UnsupportedParameter, documented
from espalier.server.http.query import BETA, limit_of, limit_parameter, parameter, query_of
from espalier.server.http.warnings import warning_header
from espalier.server.http.wire import JsonResponse, to_bytes
from espalier.server.routes.batch_store import PRIVATE, batch_store, in_store, page_json, streamed, wake, write_file
from espalier.server.routes.messages import ROUTE
from espalier.store.batches.files import HIDDEN
from espalier.store.batches.open import BatchStore

Json = dict[str, Any]
PATH = f"{ROUTE}/batches"
KIND: Kind = "anthropic"
INPUT = f"{HIDDEN}message_batch"
STATUSES = (400, 401, 404, 429, 500, 503)
LIMIT, MOST = 20, 1000
ENDED = frozenset({BatchState.COMPLETED, BatchState.FAILED, BatchState.EXPIRED, BatchState.CANCELLED})
NEVER_RUN = {"batch_cancelled": "canceled", "batch_expired": "expired"}
"""From our code of an item that never ran to the type of its result."""
UNFINISHED = {BatchState.EXPIRED: "expired", BatchState.FAILED: "errored"}
"""What requests without a result are counted as when a batch has ended; others are cancelled."""
LIST_PARAMETERS = query_of(
    limit_parameter(default=LIMIT, most=MOST),
    parameter("after_id", "The `last_id` of the previous page."),
    parameter("before_id", "Refused: lists go forward only."),
    BETA,
)

router = APIRouter(tags=["anthropic"])


@router.post(
    PATH,
    responses=documented(*STATUSES, 408, 413, 415),
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/MessageBatchesBody"}},
)
async def create_message_batch(request: Request) -> Response:
    """Answer each of a list of messages' bodies in the background."""
    async with batch_store(request) as (process, store, caller):
        data = await read_object(request, process.settings)

        def read() -> MessageBatchesBody:
            body = read_body(MessageBatchesBody, data, strict=process.settings.strict_fields)
            _check(body)
            return body

        body = await in_thread_if_large(request, read)

        def create() -> Batch:
            with write_file(store) as file:
                for item in body.requests:
                    line = {"custom_id": item.custom_id, "method": "POST", "url": ROUTE, "body": item.params}
                    file.write(to_bytes(line) + b"\n")
                row = store.files.add(file, caller=caller.name, filename="message_batch.jsonl", purpose=INPUT)
            plan = BatchPlan(
                caller=caller.name,
                endpoint=ROUTE,
                input_file=row["id"],
                kind=KIND,
                options={"requests": len(body.requests)},
            )
            return store.batches.create(plan, most_open=process.settings.batch_open_per_key)

        batch = await asyncio.shield(process.pools.saving.run(create, owner=caller.name))
        wake(process)
        return JsonResponse(_show(batch, request), headers=warning_header(body.told.lines()))


def _check(body: MessageBatchesBody) -> None:
    """Raises BadRequest for an id that stands twice, and for a stream."""
    seen: dict[str, int] = {}
    for index, item in enumerate(body.requests):
        before = seen.setdefault(item.custom_id, index)
        if before != index:
            raise BadRequest(f"requests[{before}] has the same custom_id", field=f"requests[{index}].custom_id")
        if item.params.get("stream"):
            raise BadRequest("an item of a batch cannot be a stream", field=f"requests[{index}].params.stream")


@router.get(PATH, responses=documented(*STATUSES), openapi_extra=LIST_PARAMETERS)
async def list_message_batches(request: Request) -> Response:
    """The caller's batches of messages, newest first."""
    limit, after = limit_of(request, default=LIMIT, most=MOST), request.query_params.get("after_id")
    if "before_id" in request.query_params:
        raise UnsupportedParameter("lists go forward only", hint="use after_id", field="before_id")

    def work(store: BatchStore, caller: str) -> list[Json]:
        inner = None if after is None else _inner(after)
        return [
            _show(batch, request)
            for batch in store.batches.page(caller=caller, limit=limit + 1, after=inner, kind=KIND)
        ]

    page = page_json(await in_store(request, work), limit=limit)
    return JsonResponse({name: value for name, value in page.items() if name != "object"}, headers=PRIVATE)


@router.get(PATH + "/{batch_id}", responses=documented(*STATUSES), openapi_extra=query_of(BETA))
async def get_message_batch(request: Request, batch_id: str) -> Response:
    """One batch as it stands."""
    batch = await in_store(request, lambda store, caller: _batch(store, batch_id, caller))
    return JsonResponse(_show(batch, request), headers=PRIVATE)


@router.post(PATH + "/{batch_id}/cancel", responses=documented(*STATUSES))
async def cancel_message_batch(request: Request, batch_id: str) -> Response:
    """Stop a batch: running items end within a step, and what was finished can be fetched."""

    def work(store: BatchStore, caller: str) -> Batch:
        return store.batches.cancel(_batch(store, batch_id, caller).id, caller=caller) or _missing()

    async with batch_store(request) as (process, store, caller):
        batch = await process.pools.reading.run(lambda: work(store, caller.name), owner=caller.name)
        wake(process)
    return JsonResponse(_show(batch, request), headers=PRIVATE)


@router.delete(PATH + "/{batch_id}", responses=documented(*STATUSES))
async def delete_message_batch(request: Request, batch_id: str) -> Response:
    """Delete a batch that has ended, with its results."""
    await in_store(
        request, lambda store, caller: store.batches.remove(_batch(store, batch_id, caller).id, caller=caller)
    )
    return JsonResponse({"id": batch_id, "type": "message_batch_deleted"})


@router.get(PATH + "/{batch_id}/results", responses=documented(*STATUSES), openapi_extra=query_of(BETA))
async def get_message_batch_results(request: Request, batch_id: str) -> Response:
    """The results of a batch that has ended, one a line, in the order of the requests."""

    def work(store: BatchStore, caller: str) -> Iterator[bytes]:
        batch = _batch(store, batch_id, caller)
        if batch.state not in ENDED:
            raise InputError("the batch has not ended", hint="wait for processing_status ended", field="batch_id")
        return (_result(json.loads(line)) for line in store.results.lines(batch.id, "all"))

    return streamed(await in_store(request, work), media_type="application/x-jsonl")


def _result(line: Mapping[str, Any]) -> bytes:
    """A line of Anthropic's from one of OpenAI's."""
    response, error = line["response"], line["error"]
    if error is not None and error["code"] in NEVER_RUN:
        result: Json = {"type": NEVER_RUN[error["code"]]}
    elif error is None and 200 <= response["status_code"] < 300:
        result = {"type": "succeeded", "message": response["body"]}
    else:
        status = 500 if response is None else response["status_code"]
        detail = error or (response["body"] or {}).get("error") or {}
        shown = {"type": error_type(status), **{name: detail.get(name) for name in ("message", "param", "code")}}
        request_id = None if response is None else response["request_id"]
        result = {"type": "errored", "error": {"type": "error", "error": shown, "request_id": request_id}}
    return to_bytes({"custom_id": line["custom_id"], "result": result}) + b"\n"


def _show(batch: Batch, request: Request) -> Json:
    """Anthropic's batch object."""
    counts, shown_id = batch.counts, batch.id.replace("batch_", "msgbatch_", 1)
    has_ended = batch.state in ENDED
    is_stopping = batch.state == BatchState.CANCELLING
    ended = next((batch.at[state] for state in ENDED if state in batch.at), None)
    total = max(counts.total, batch.plan.options["requests"])
    tally = {"processing": 0, "succeeded": counts.completed, "errored": counts.failed, "canceled": 0, "expired": 0}
    left = total - counts.completed - counts.failed
    # A batch may end before its requests are read.
    tally[UNFINISHED.get(batch.state, "canceled") if has_ended else "processing"] += left
    return {
        "id": shown_id,
        "type": "message_batch",
        "processing_status": "ended" if has_ended else "canceling" if is_stopping else "in_progress",
        "request_counts": tally,
        "created_at": _time(batch.created),
        "expires_at": _time(batch.created if batch.expires is None else batch.expires),
        "ended_at": _time(ended),
        "cancel_initiated_at": _time(batch.at.get(BatchState.CANCELLING)),
        "archived_at": None,
        "results_url": f"{request.base_url}{PATH[1:]}/{shown_id}/results" if has_ended else None,
    }


def _time(seconds: float | None) -> str | None:
    return None if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat()


def _inner(shown_id: str) -> str:
    return shown_id.removeprefix("msg") if shown_id.startswith("msgbatch_") else shown_id


def _batch(store: BatchStore, shown_id: str, caller: str) -> Batch:
    batch = store.batches.get(_inner(shown_id), caller=caller)
    return batch if batch is not None and batch.plan.kind == KIND else _missing()


def _missing() -> Batch:
    raise NotFound("there is no such batch of messages", field="batch_id")
