"""The store behind `espalier batch`: opened without a model, its batches, uploads, and the folder of a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from espalier.cli.flags.server import read_server
from espalier.errors import InputError
from espalier.optional import check_extra

if TYPE_CHECKING:
    from espalier.jobs.values import Batch
    from espalier.store.batches.open import BatchStore

PIECE = 1 << 20


@contextmanager
def opened(database_url: str | None, env_file: str | None) -> Iterator[BatchStore]:
    """The store of the settings, without a model."""
    check_extra("server")
    flags = {} if database_url is None else {"DATABASE_URL": database_url}
    _, settings = read_server(flags, env_file)
    from espalier.server.process.opening import open_batches  # noqa: PLC0415  # the extra [server]
    from espalier.store.open import open_store  # noqa: PLC0415

    store = open_store(settings.database_url)
    try:
        yield open_batches(store, settings)
    finally:
        store.close()


def known(store: BatchStore, batch_id: str) -> Batch:
    """The batch. Raises InputError if there is none."""
    batch = store.batches.get(batch_id, caller=None)
    if batch is None:
        raise InputError(f"there is no batch {batch_id[:60]!r}", hint="espalier batch list", field="batch")
    return batch


def upload(store: BatchStore, path: Path, caller: str) -> str:
    """Copy a file of requests into the store. Raises InputError for one that cannot be read, and OutputError."""
    from espalier.store.batches.files import writable  # noqa: PLC0415  # the extra [server]

    try:
        with path.open("rb") as given, store.files.writing() as file:
            while piece := given.read(PIECE):
                with writable(store.files.folder):  # a full disk is no fault of the file that is read
                    file.write(piece)
            return str(store.files.add(file, caller=caller, filename=path.name)["id"])
    except OSError as error:
        raise InputError(f"cannot read {str(path)!r}: {error.strerror}", field="file") from error


def folder_of(out: Path) -> Path:
    """Where a run keeps its state until it is finished."""
    return out.with_name(f"{out.name}.batch")
