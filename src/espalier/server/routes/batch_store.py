"""Shared by the routes of files, batches and jobs: the store, the caller, pages, and uploads to the disk."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from typing import Any, BinaryIO, TypeVar

from fastapi import Request
from starlette.responses import StreamingResponse

from espalier.server.http.errors import NotFound
from espalier.server.http.uploads import read_upload
from espalier.server.ports import Caller
from espalier.server.process.deps import admitted
from espalier.server.process.state import Process
from espalier.store.batches.files import writable
from espalier.store.batches.open import BatchStore

T = TypeVar("T")
PIECE = 65_536
PRIVATE = {"cache-control": "private, no-store", "x-content-type-options": "nosniff"}


@asynccontextmanager
async def batch_store(request: Request) -> AsyncIterator[tuple[Process, BatchStore, Caller]]:
    """The store of this process, within the caller's limits. Raises NotFound where there are no batch jobs."""
    async with admitted(request) as (process, caller):
        if process.batches is None:
            raise NotFound("there are no batch jobs here", hint="set BATCH_JOBS=true")
        yield process, process.batches, caller


async def in_store(request: Request, work: Callable[[BatchStore, str], T]) -> T:
    """What the work gets from the store, in a thread for reading."""
    async with batch_store(request) as (process, store, caller):
        return await process.pools.reading.run(lambda: work(store, caller.name), owner=caller.name)


def wake(process: Process) -> None:
    """Tell the workers of this process that there is something new."""
    for waker in process.wakers:
        waker()


@contextmanager
def write_file(store: BatchStore) -> Iterator[BinaryIO]:
    """A file for what the server itself writes; it is removed at the end unless `store.files.add` took it."""
    with store.files.writing() as file, writable(store.files.folder):
        yield file


def multipart_form(**fields: dict[str, Any]) -> dict[str, Any]:
    """What documents a form whose fields are all required. fields: the schema of each."""
    schema = {"type": "object", "required": list(fields), "properties": fields}
    return {"requestBody": {"required": True, "content": {"multipart/form-data": {"schema": schema}}}}


async def upload(
    request: Request,
    process: Process,
    store: BatchStore,
    caller: Caller,
    keep: Callable[[Any, str, Mapping[str, str]], T],
    *,
    name: str = "file",
) -> T:
    """Write the form's file to the disk; `keep` gets it with its name and the form's other fields, in a thread. name:
    of the form's field that has the file. Raises UploadQuotaFull too."""
    with ExitStack() as stack:
        take = await asyncio.to_thread(stack.enter_context, store.files.quota.writing(caller.name))
        file = await asyncio.to_thread(stack.enter_context, store.files.writing())
        with writable(store.files.folder):
            filename, fields = await read_upload(request, process.settings, file, take, name=name)
        return await asyncio.to_thread(keep, file, filename, fields)


def streamed(lines: Iterator[bytes], *, media_type: str, filename: str | None = None) -> StreamingResponse:
    """A reply in pieces, which are read in threads while the client takes them."""
    headers = dict(PRIVATE)
    if filename is not None:
        headers["content-disposition"] = f'attachment; filename="{re.sub(r"[^A-Za-z0-9._-]", "_", filename)}"'
    return StreamingResponse(_pieces(lines), media_type=media_type, headers=headers)


def _pieces(lines: Iterator[bytes]) -> Iterator[bytes]:
    waiting = bytearray()
    for line in lines:
        waiting += line
        if len(waiting) >= PIECE:
            yield bytes(waiting)
            waiting.clear()
    if waiting:
        yield bytes(waiting)


def page_json(rows: list[dict[str, Any]], *, limit: int) -> dict[str, Any]:
    """A cursor list of up to `limit` of the rows, which are one more if there are more."""
    shown = rows[:limit]
    return {
        "object": "list",
        "data": shown,
        "first_id": shown[0]["id"] if shown else None,
        "last_id": shown[-1]["id"] if shown else None,
        "has_more": len(rows) > limit,
    }
