"""How much the uploads of one caller may take of the disk: those that are kept, and those that are being written."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from sqlalchemy import Connection, func, select

from espalier.errors import InputError
from espalier.store import rows
from espalier.store.batches.tables import FILES
from espalier.store.db import Database


class UploadQuotaExceeded(InputError):
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
        UploadQuotaExceeded. So does the beginning where there is no room at all. Blocks."""
        name, size = rows.caller_text(caller), 0
        with self._database.reading() as connection:
            files, kept = self._kept(connection, name)
        self._check(files + 1, kept + self._writing[name] + 1)

        def take(count: int) -> None:
            nonlocal size
            size += count
            with self._lock:
                self._writing[name] += count
                total = self._writing[name]
            self._check(files + 1, kept + total)

        try:
            yield take
        finally:
            with self._lock:
                self._writing[name] -= size
                if not self._writing[name]:
                    del self._writing[name]

    def check(self, connection: Connection, caller: str, size: int) -> None:
        """Raises UploadQuotaExceeded if one more upload of this size is too much; in the transaction that adds it."""
        if self._most_bytes is not None or self._most_files is not None:
            files, kept = self._kept(connection, rows.caller_text(caller))
            self._check(files + 1, kept + size)

    def _kept(self, connection: Connection, name: str) -> tuple[int, int]:
        query = select(func.count(), func.coalesce(func.sum(FILES.c.bytes), 0)).where(
            FILES.c.caller == name, FILES.c.batch_id.is_(None)
        )
        files, kept = connection.execute(query).one()
        return int(files), int(kept)

    def _check(self, files: int, size: int) -> None:
        hint = "delete files that no batch needs any more: DELETE /v1/files/{file_id}"
        if self._most_files is not None and files > self._most_files:
            raise UploadQuotaExceeded(f"this key may keep {self._most_files:,} uploads", hint=hint, field="file")
        if self._most_bytes is not None and size > self._most_bytes:
            raise UploadQuotaExceeded(
                f"the uploads of this key may have {self._most_bytes:,} bytes together", hint=hint, field="file"
            )
