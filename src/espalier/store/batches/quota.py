"""How much one caller may take of the disk: by uploads, those that are kept and those that are being written; and by
the results of a batch."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, func, select, update

from espalier.errors import InputError
from espalier.jobs.states import BatchState, ItemState
from espalier.jobs.values import InputFault
from espalier.store import rows
from espalier.store.batches.tables import BATCHES, FILES, ITEMS, RESULTS
from espalier.store.db import Database
from espalier.store.packing import pack

LOOK_SHARE = 1 / 16
"""The share of a quota that is added before what others added is looked up."""
MOST_KNOWN = 1_000
"""Batches whose sizes are remembered."""


class UploadQuotaFull(InputError):
    """The uploads of this key take as much as they may."""

    http_status = 429


class UploadQuota:
    """most_bytes, most_files: of one caller; None for no limit. What is being written counts in this process alone,
    until it is kept. From any thread."""

    def __init__(self, database: Database, *, most_bytes: int | None = None, most_files: int | None = None) -> None:
        self._database, self._most_bytes, self._most_files = database, most_bytes, most_files
        self._writing: Counter[str] = Counter()
        self._lock = threading.Lock()

    @contextmanager
    def writing(self, caller: str) -> Iterator[Callable[[int], None]]:
        """While open, an upload is written; the function is called with each further number of bytes, and raises
        UploadQuotaFull. So does the beginning where there is no room at all. Blocks."""
        name, size = rows.caller_text(caller), 0
        with self._database.reading() as connection:
            files, stored = self._stored(connection, name)
        self._check(stored + self._writing[name] + 1, files + 1)

        def take(count: int) -> None:
            nonlocal size
            size += count
            with self._lock:
                self._writing[name] += count
                total = self._writing[name]
            self._check(stored + total)  # the number of files was checked at the beginning

        try:
            yield take
        finally:
            with self._lock:
                self._writing[name] -= size
                if not self._writing[name]:
                    del self._writing[name]

    def check(self, connection: Connection, caller: str, size: int) -> None:
        """Raises UploadQuotaFull if one more upload of this size is too much; in the transaction that adds it."""
        if self._most_bytes is not None or self._most_files is not None:
            files, stored = self._stored(connection, rows.caller_text(caller))
            self._check(stored + size, files + 1)

    def _stored(self, connection: Connection, name: str) -> tuple[int, int]:
        query = select(func.count(), func.coalesce(func.sum(FILES.c.bytes), 0)).where(
            FILES.c.caller == name, FILES.c.batch_id.is_(None)
        )
        files, stored = connection.execute(query).one()
        return int(files), int(stored)

    def _check(self, size: int, files: int = 0) -> None:
        hint = "delete files that no batch needs any more: DELETE /v1/files/{file_id}"
        if self._most_files is not None and files > self._most_files:
            raise UploadQuotaFull(f"this key may keep {self._most_files:,} uploads", hint=hint, field="file")
        if self._most_bytes is not None and size > self._most_bytes:
            raise UploadQuotaFull(
                f"the uploads of this key may have {self._most_bytes:,} bytes together", hint=hint, field="file"
            )


class ResultQuota:
    """most_bytes: of the results of one batch, as they lie in the database; None for no limit. A batch that has more is
    cancelled. What other workers add is looked up again after each LOOK_SHARE of the quota that this one adds."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self._most = most_bytes
        self._known: dict[str, tuple[int, int]] = {}  # by batch: the size at the last look, and what was added since
        self._lock = threading.Lock()

    def count(self, connection: Connection, results: Sequence[Mapping[str, Any]], now: float) -> None:
        """These rows of results were added in this transaction. Cancels what waits of batches that have too much."""
        if self._most is None:
            return
        added: Counter[str] = Counter()
        for row in results:
            added[row["batch_id"]] += len(row["answer"]) + len(row["figures"] or b"")
        for batch_id, size in sorted(added.items()):
            with self._lock:
                looked, since = self._known.get(batch_id, (0, self._most))
            since += size
            if since >= self._most * LOOK_SHARE:
                looked, since = self._size(connection, batch_id), 0
            with self._lock:
                self._known.pop(batch_id, None)  # what was counted last stands last
                self._known[batch_id] = looked, since
                if len(self._known) > MOST_KNOWN:
                    del self._known[next(iter(self._known))]
            if looked + since > self._most:
                self._cancel(connection, batch_id, now)

    def _size(self, connection: Connection, batch_id: str) -> int:
        size = func.length(RESULTS.c.answer) + func.coalesce(func.length(RESULTS.c.figures), 0)
        query = select(func.sum(size)).where(RESULTS.c.batch_id == batch_id)
        return int(connection.execute(query).scalar_one())

    def _cancel(self, connection: Connection, batch_id: str, now: float) -> None:
        fault = InputFault(code="batch_output_too_large", message=f"the results have over {self._most:,} bytes")
        errors = pack({"data": [fault.to_json()]}, what="errors")
        runs = BATCHES.c.id == batch_id, BATCHES.c.state == BatchState.IN_PROGRESS
        values = {"state": BatchState.CANCELLING, "cancelling_at": now, "errors": errors}
        if connection.execute(update(BATCHES).where(*runs).values(values)).rowcount:
            waiting = update(ITEMS).where(ITEMS.c.batch_id == batch_id, ITEMS.c.state == ItemState.PENDING)
            connection.execute(waiting.values(state=ItemState.CANCELLED))
