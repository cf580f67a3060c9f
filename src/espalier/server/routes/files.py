"""OpenAI's `/v1/files`: upload the input of a batch, list, read and delete files. A caller sees its own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, BinaryIO

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.errors import InputError
from espalier.server.bodies.batches import LEAST_SECONDS, MOST_SECONDS, file_json, inner_file_id, shown_file_id
from espalier.server.http.errors import BadRequest, NotFound, documented
from espalier.server.http.query import AFTER, ORDER, limit_of, limit_parameter, parameter, query_of
from espalier.server.http.wire import JsonResponse
from espalier.server.routes.batch_store import (
    PRIVATE,
    batch_store,
    in_store,
    multipart_form,
    page_json,
    streamed,
    upload,
)
from espalier.store.batches.open import BatchStore

MOST = 10_000
STATUSES = (400, 401, 404, 429, 500, 503, 507)
FORM = multipart_form(file={"type": "string", "format": "binary"}, purpose={"type": "string", "enum": ["batch"]})
LIST_PARAMETERS = query_of(
    limit_parameter(default=MOST, most=MOST), AFTER, ORDER, parameter("purpose", "Of this purpose alone.")
)

router = APIRouter(tags=["openai"])


@router.post("/v1/files", responses=documented(*STATUSES, 408, 413, 415), openapi_extra=FORM)
async def create_file(request: Request) -> Response:
    """Upload a file of JSON Lines, the input of a batch."""
    async with batch_store(request) as (process, store, caller):

        def keep(file: BinaryIO, filename: str, fields: Mapping[str, str]) -> Mapping[str, Any]:
            unknown = sorted(set(fields) - {"purpose", "expires_after[anchor]", "expires_after[seconds]"})
            if unknown:
                raise BadRequest(f"the form has no field {unknown[0][:60]!r}", field=unknown[0][:60])
            if fields.get("purpose") != "batch":
                raise BadRequest("purpose must be batch: files are read by batches alone", field="purpose")
            seconds = _expiry(fields)
            return store.files.add(file, caller=caller.name, filename=filename, seconds=seconds)

        return JsonResponse(file_json(await upload(request, process, store, caller, keep)))


@router.get("/v1/files", responses=documented(*STATUSES), openapi_extra=LIST_PARAMETERS)
async def list_files(request: Request) -> Response:
    """The caller's files, newest first unless `order=asc`."""
    query = request.query_params
    limit, after = limit_of(request, default=MOST, most=MOST), query.get("after")
    if query.get("order", "desc") not in ("asc", "desc"):
        raise InputError("order is asc or desc", field="order")

    def work(store: BatchStore, caller: str) -> list[dict[str, Any]]:
        rows = store.files.page(
            caller=caller,
            limit=limit + 1,
            after=None if after is None else inner_file_id(after),
            purpose=query.get("purpose"),
            oldest_first=query.get("order") == "asc",
        )
        return [file_json(row) for row in rows]

    return JsonResponse(page_json(await in_store(request, work), limit=limit), headers=PRIVATE)


@router.get("/v1/files/{file_id}", responses=documented(*STATUSES))
async def get_file(request: Request, file_id: str) -> Response:
    """What is known of a file."""
    return JsonResponse(file_json(await in_store(request, lambda store, caller: _row(store, file_id, caller))))


@router.get("/v1/files/{file_id}/content", responses=documented(*STATUSES))
async def get_file_content(request: Request, file_id: str) -> Response:
    """The content of a file: an input as it was uploaded, or the results of a batch in the order of its input."""

    def work(store: BatchStore, caller: str) -> tuple[Iterator[bytes], str]:
        row = _row(store, file_id, caller)
        if row["batch_id"] is None:
            return _chunks(store.files.open(row["id"])), row["filename"]
        wanted = "error" if row["filename"].endswith("_error.jsonl") else "output"
        return store.results.lines(row["batch_id"], wanted), row["filename"]  # type: ignore[arg-type]  # a literal

    lines, filename = await in_store(request, work)
    return streamed(lines, media_type="application/jsonl", filename=filename)


@router.delete("/v1/files/{file_id}", responses=documented(*STATUSES))
async def delete_file(request: Request, file_id: str) -> Response:
    """Delete a file for good."""

    def work(store: BatchStore, caller: str) -> str | None:
        row = _row(store, file_id, caller)
        store.files.remove(row["id"], caller=caller)
        return shown_file_id(row["id"])

    return JsonResponse({"id": await in_store(request, work), "object": "file", "deleted": True})


def _row(store: BatchStore, file_id: str, caller: str) -> Mapping[str, Any]:
    file = store.files.get(inner_file_id(file_id), caller=caller)
    if file is None:
        raise NotFound("there is no such file", field="file_id")
    return file


def _chunks(file: BinaryIO) -> Iterator[bytes]:
    with closing(file):
        while piece := file.read(1 << 20):
            yield piece


def _expiry(fields: Mapping[str, str]) -> float | None:
    anchor, given = fields.get("expires_after[anchor]"), fields.get("expires_after[seconds]")
    if anchor is None and given is None:
        return None
    if anchor != "created_at":
        raise BadRequest("the anchor must be created_at", field="expires_after[anchor]")
    if given is None or not given.isdigit() or len(given) > 9 or not LEAST_SECONDS <= int(given) <= MOST_SECONDS:
        raise BadRequest(f"seconds are from {LEAST_SECONDS} to {MOST_SECONDS}", field="expires_after[seconds]")
    return float(given)
