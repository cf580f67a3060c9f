"""OpenAI's `/v1/uploads`: a file that comes in parts, each a request of its own. Completed, it is one of `/v1/files`.

Until then the upload and its parts are files that no list shows; they expire after an hour.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any, BinaryIO

from fastapi import APIRouter, Request
from starlette.responses import Response

from espalier.server.bodies.base import read_body
from espalier.server.bodies.batches import CompleteBody, UploadBody, file_json
from espalier.server.http.body import read_object
from espalier.server.http.errors import BadRequest, BodyTooLarge, NotFound, documented
from espalier.server.http.warnings import warning_header
from espalier.server.http.wire import JsonResponse, to_bytes
from espalier.server.routes.batch_store import PIECE, PRIVATE, batch_store, multipart_form, upload, write_file
from espalier.store.batches.files import HIDDEN
from espalier.store.batches.open import BatchStore

Json = dict[str, Any]
PATH = "/v1/uploads"
UPLOAD, PART = f"{HIDDEN}upload", f"{HIDDEN}part"
SECONDS = 3600.0
"""How long an upload may take, as at OpenAI."""
STATUSES = (400, 401, 404, 408, 413, 415, 429, 500, 503, 507)
DATA = multipart_form(data={"type": "string", "format": "binary"})
router = APIRouter(tags=["openai"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingUpload:
    """row: of the store. body: what the upload was begun with."""

    row: Mapping[str, Any]
    body: UploadBody

    def show(self, status: str, file: Mapping[str, Any] | None = None) -> Json:
        """OpenAI's upload object."""
        return {
            "id": _shown(self.row["id"], "upload"),
            "object": "upload",
            "bytes": self.body.bytes,
            "created_at": int(self.row["created"]),
            "expires_at": int(self.row["expires"]),
            "filename": self.body.filename,
            "purpose": self.body.purpose,
            "status": status,
            "file": None if file is None else file_json(file),
        }


@router.post(
    PATH,
    responses=documented(*STATUSES),
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/UploadBody"}},
)
async def create_upload(request: Request) -> Response:
    """Begin a file whose parts come one by one."""
    async with batch_store(request) as (process, store, caller):
        data = await read_object(request, process.settings)
        body = read_body(UploadBody, data, strict=process.settings.strict_fields)
        if body.bytes > process.settings.batch_max_bytes:
            raise BodyTooLarge(f"the file would have over {process.settings.batch_max_bytes} bytes", field="bytes")

        def create() -> Mapping[str, Any]:
            with write_file(store) as file:
                file.write(to_bytes(body.model_dump(exclude_none=True)))
                return store.files.add(
                    file, caller=caller.name, filename=body.filename, purpose=UPLOAD, seconds=SECONDS
                )

        row = await process.pools.saving.run(create, owner=caller.name)
        shown = PendingUpload(row=row, body=body).show("pending")
        return JsonResponse(shown, headers={**PRIVATE, **warning_header(body.told.lines())})


@router.post(PATH + "/{upload_id}/parts", responses=documented(*STATUSES), openapi_extra=DATA)
async def add_part(request: Request, upload_id: str) -> Response:
    """One part of the file, in the field `data` of a form. Parts may come in any order and at once."""
    async with batch_store(request) as (process, store, caller):

        def find() -> PendingUpload:
            return _pending(store, upload_id, caller.name)

        pending = await process.pools.reading.run(find, owner=caller.name)  # before anything is written

        def keep(file: BinaryIO, _: str, fields: Mapping[str, str]) -> Mapping[str, Any]:
            if fields:
                name = min(fields)[:60]
                raise BadRequest(f"the form has no field {name!r}", field=name)
            left = max(1.0, pending.row["expires"] - pending.row["created"])
            return store.files.add(file, caller=caller.name, filename=pending.row["id"], purpose=PART, seconds=left)

        row = await upload(request, process, store, caller, keep, name="data")
    part = {"id": _shown(row["id"], "part"), "object": "upload.part", "created_at": int(row["created"])}
    return JsonResponse({**part, "upload_id": upload_id}, headers=PRIVATE)


@router.post(
    PATH + "/{upload_id}/complete",
    responses=documented(*STATUSES),
    openapi_extra={"requestBody": {"$ref": "#/components/requestBodies/CompleteBody"}},
)
async def complete_upload(request: Request, upload_id: str) -> Response:
    """Put the parts together, in the order in which they are named. The upload then has its `file`."""
    async with batch_store(request) as (process, store, caller):
        data = await read_object(request, process.settings)
        body = read_body(CompleteBody, data, strict=process.settings.strict_fields)

        def complete() -> Json:
            pending = _pending(store, upload_id, caller.name)
            parts = _parts(store, pending, body.part_ids, caller.name)
            row = _join(store, pending, parts, body.md5, caller.name)
            for used in (*parts, pending.row):
                store.files.remove(used["id"], caller=caller.name)
            return pending.show("completed", row)

        shown = await process.pools.saving.run(complete, owner=caller.name)
        return JsonResponse(shown, headers={**PRIVATE, **warning_header(body.told.lines())})


@router.post(PATH + "/{upload_id}/cancel", responses=documented(*STATUSES))
async def cancel_upload(request: Request, upload_id: str) -> Response:
    """Give an upload up. Its parts are deleted when they expire."""

    def cancel(store: BatchStore, caller: str) -> Json:
        pending = _pending(store, upload_id, caller)
        store.files.remove(pending.row["id"], caller=caller)
        return pending.show("cancelled")

    async with batch_store(request) as (process, store, caller):
        shown = await process.pools.saving.run(lambda: cancel(store, caller.name), owner=caller.name)
    return JsonResponse(shown, headers=PRIVATE)


def _pending(store: BatchStore, upload_id: str, caller: str) -> PendingUpload:
    """Raises NotFound, also for one that is completed, cancelled or expired."""
    row = store.files.get(_inner(upload_id, "upload"), caller=caller)
    if row is None or row["purpose"] != UPLOAD:
        raise NotFound("there is no such upload", hint="it may be completed, cancelled or expired", field="upload_id")
    with closing(store.files.open(row["id"])) as file:
        return PendingUpload(row=row, body=UploadBody.model_validate(json.load(file)))


def _parts(store: BatchStore, pending: PendingUpload, part_ids: Sequence[str], caller: str) -> list[Mapping[str, Any]]:
    """The rows of the parts. Raises NotFound and BadRequest naming the part, BadRequest for a wrong sum of bytes."""
    rows = []
    for index, part_id in enumerate(part_ids):
        field = f"part_ids[{index}]"
        row = store.files.get(_inner(part_id, "part"), caller=caller)
        if row is None or row["purpose"] != PART or row["filename"] != pending.row["id"]:
            raise NotFound("the upload has no such part", field=field)
        if part_id in part_ids[:index]:
            raise BadRequest("the part is named twice", field=field)
        rows.append(row)
    size = int(sum(row["bytes"] for row in rows))
    if size != pending.body.bytes:
        raise BadRequest(f"the parts have {size} bytes, not {pending.body.bytes} as the upload says", field="part_ids")
    return rows


def _join(
    store: BatchStore, pending: PendingUpload, parts: Sequence[Mapping[str, Any]], md5: str | None, caller: str
) -> Mapping[str, Any]:
    """The row of the whole file. Raises BadRequest for another checksum."""
    expiry, digest = pending.body.expires_after, hashlib.md5(usedforsecurity=False)
    with write_file(store) as file:
        for part in parts:
            with closing(store.files.open(part["id"])) as source:
                while piece := source.read(PIECE):
                    file.write(piece)
                    digest.update(piece)
        if md5 is not None and digest.hexdigest() != md5.lower():
            raise BadRequest("the file has another checksum", field="md5")
        return store.files.add(
            file,
            caller=caller,
            filename=pending.body.filename,
            seconds=None if expiry is None else float(expiry.seconds),
        )


def _shown(file_id: str, kind: str) -> str:
    """`file_…` of the store as `upload_…` or `part_…`."""
    return f"{kind}_{file_id.partition('_')[2]}"


def _inner(shown: str, kind: str) -> str:
    return f"file_{shown.removeprefix(f'{kind}_')}" if shown.startswith(f"{kind}_") else shown
