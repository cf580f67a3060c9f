"""Files of batch jobs: a row each, and for an upload a file in a folder, which is written whole or not at all.

An upload goes to a temporary name, is flushed to the disk and then renamed, before its row exists. What a killed
process leaves behind is removed by `sweep`. Files of results are rows alone: their lines are in the database.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import delete, or_, select

from espalier.errors import DiskFull, InputError, OutputError
from espalier.files.writing import sync_folder
from espalier.store import rows
from espalier.store.batches.quota import UploadQuota
from espalier.store.batches.tables import BATCHES, FILES
from espalier.store.db import Database
from espalier.store.ids import Ids, is_id

PREFIX = "file"
TEMPORARY = ".part"
LEFT_SECONDS = 86_400.0
"""After which a temporary file has no writer any more."""
HIDDEN = "."
"""How the purpose of a file begins that the server keeps for itself, and no list shows."""


class Files:
    """Uploads of all callers. folder: made if it is missing; machines that share a database share it too. Every method
    blocks. Raises OutputError where nothing can be written."""

    def __init__(
        self,
        database: Database,
        folder: Path,
        ids: Ids,
        clock: Callable[[], float] = time.time,
        quota: UploadQuota | None = None,
    ) -> None:
        self._database, self.folder, self._ids, self._clock = database, folder, ids, clock
        self.quota = quota or UploadQuota(database)

    @contextlib.contextmanager
    def writing(self) -> Iterator[BinaryIO]:
        """A temporary file for an upload; it is removed at the end unless `add` took it."""
        with writable(self.folder):
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            path = self.folder / f"{secrets.token_hex(12)}{TEMPORARY}"
            file = open(path, "x+b")  # noqa: SIM115  # closed below
            os.chmod(path, 0o600)
        try:
            yield file
        finally:
            with contextlib.suppress(OSError):  # a full disk fails again on close
                file.close()
            path.unlink(missing_ok=True)

    def add(
        self, file: BinaryIO, *, caller: str, filename: str, purpose: str = "batch", seconds: float | None = None
    ) -> Mapping[str, Any]:
        """Keep a file that `writing` gave, for so many seconds at most. Returns its row. Raises UploadQuotaFull."""
        file_id, created = self._ids.new(PREFIX)
        with writable(self.folder):
            file.flush()
            os.fsync(file.fileno())
            size = os.fstat(file.fileno()).st_size
            os.rename(file.name, self.folder / file_id)
            sync_folder(self.folder)
        row = {
            "id": file_id,
            "created": created,
            "caller": rows.caller_text(caller),
            "filename": rows.column_text(filename),
            "purpose": rows.column_text(purpose),
            "bytes": float(size),
            "expires": None if seconds is None else created + seconds,
            "batch_id": None,
        }
        try:
            with self._database.writing() as connection:
                self.quota.check(connection, caller, size)
                connection.execute(FILES.insert().values(row))
        except BaseException:
            (self.folder / file_id).unlink(missing_ok=True)
            raise
        return row

    def page(
        self,
        *,
        caller: str | None,
        limit: int,
        after: str | None = None,
        purpose: str | None = None,
        oldest_first: bool = False,
    ) -> Sequence[Mapping[str, Any]]:
        """Newest first, without those that are the server's own. Raises InputError for a wrong limit or `after`."""
        if limit < 1:
            raise InputError("the limit must be at least 1", field="limit")
        query = select(FILES).order_by(FILES.c.id if oldest_first else FILES.c.id.desc()).limit(limit)
        query = query.where(self._is_current())
        if caller is not None:
            query = query.where(FILES.c.caller == rows.caller_text(caller))
        if purpose is not None:
            query = query.where(FILES.c.purpose == purpose)
        query = query.where(FILES.c.purpose.not_like(f"{HIDDEN}%"))
        if after is not None:
            if not is_id(after, PREFIX):
                raise InputError("`after` is not the id of a file", hint="give the `last_id` of a page", field="after")
            query = query.where(FILES.c.id > after if oldest_first else FILES.c.id < after)
        with self._database.reading() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def get(self, file_id: str, *, caller: str | None) -> Mapping[str, Any] | None:
        """The row of a file that this caller may see."""
        if not is_id(file_id, PREFIX):
            return None
        query = select(FILES).where(FILES.c.id == file_id, self._is_current())
        if caller is not None:
            query = query.where(FILES.c.caller == rows.caller_text(caller))
        with self._database.reading() as connection:
            row = connection.execute(query).mappings().one_or_none()
        return None if row is None else dict(row)

    def open(self, file_id: str) -> BinaryIO:
        """The content of an upload. Raises InputError if this machine has no such file."""
        try:
            return (self.folder / file_id).open("rb")
        except OSError as error:
            raise InputError(
                f"the file {file_id} cannot be read: {error.strerror}",
                hint="machines that share a database share BATCH_JOB_TEMP_DIR too",
                field="input_file_id",
            ) from error

    def remove(self, file_id: str, *, caller: str | None) -> bool:
        """Whether there was one. A file of results takes their lines with it only when its batch is deleted."""
        if self.get(file_id, caller=caller) is None:
            return False
        with self._database.writing() as connection:
            is_gone = connection.execute(delete(FILES).where(FILES.c.id == file_id)).rowcount > 0
        (self.folder / file_id).unlink(missing_ok=True)
        return is_gone

    def sweep(self, before: float | None) -> int:
        """Remove what has expired, what was uploaded before that time and no open batch reads, and what was left
        behind. Returns how many files."""
        now = self._clock()
        is_old = FILES.c.expires <= now
        if before is not None:
            is_old = or_(is_old, FILES.c.created < before)
        reads = select(BATCHES.c.input_file).where(BATCHES.c.state == "validating")
        with self._database.writing() as connection:
            old = select(FILES.c.id).where(is_old, FILES.c.batch_id.is_(None), FILES.c.id.not_in(reads)).limit(1000)
            ids = list(connection.execute(old).scalars())
            expired = delete(FILES).where(FILES.c.batch_id.is_not(None), FILES.c.expires <= now)
            count = connection.execute(expired).rowcount
            connection.execute(delete(FILES).where(FILES.c.id.in_(ids)))
        for file_id in ids:
            (self.folder / file_id).unlink(missing_ok=True)
        return count + len(ids) + self._sweep_left(now)

    def _sweep_left(self, now: float) -> int:
        count = 0
        for path in self.folder.glob(f"*{TEMPORARY}") if self.folder.is_dir() else ():
            with contextlib.suppress(OSError):
                if path.stat().st_mtime < now - LEFT_SECONDS:
                    path.unlink()
                    count += 1
        return count

    def _is_current(self) -> Any:
        return or_(FILES.c.expires.is_(None), FILES.c.expires > self._clock())


@contextlib.contextmanager
def writable(folder: Path) -> Iterator[None]:
    """Turns errors of writing into OutputError, which says what is full or read-only, and how to go on."""
    try:
        yield
    except OSError as error:
        message = f"cannot write to {os.fspath(folder)!r}: {error.strerror or error}"
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(message, hint="free some space", field="BATCH_JOB_TEMP_DIR") from error
        hint = "name a folder that can be written: BATCH_JOB_TEMP_DIR"
        raise OutputError(message, hint=hint, field="BATCH_JOB_TEMP_DIR") from error
