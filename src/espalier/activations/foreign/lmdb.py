"""LMDB stores: the pair of environments, of which the one for metadata is read, and the single one of the oldest logs.

A worker process reads piece by piece, since a damaged file can end the process that maps it. `lmdb_pages.py` is what
runs there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from espalier.activations.foreign.entry import StoredRequest
from espalier.activations.foreign.lmdb_pages import read_piece
from espalier.activations.foreign.store import DamagedEntry, Found, store_error
from espalier.activations.lmdb_file import shortfall
from espalier.confined.pool import ConfinedError, Processes
from espalier.optional import check_extra
from espalier.time_limit import OutOfTime

SUFFIX = "_metadata"
"""Ends the name of the environment for metadata, beside that for vectors."""
PIECE_SECONDS = 30.0
"""CPU time for one piece of a store."""
SALVAGE = "--salvage reads what is left of a damaged one"
WORKER_BYTES = 2_000_000_000
"""Address space of a worker beside the file that it maps."""


@dataclass(frozen=True, slots=True)
class LmdbStore:
    """environment: the folder or file that is read. kind: as `lmdb_pages.read_piece` takes it."""

    path: Path
    environment: Path
    layout: str
    kind: str

    def found(self) -> Iterator[Found]:
        """Raises InputError where the file is damaged, MissingDependency without lmdb."""
        check_extra("activations")
        data = data_file(self.environment)
        if lack := shortfall(data):  # before it is mapped
            hint = f"a store in use is copied whole by mdb_copy; {SALVAGE}"
            raise store_error(self.environment, lack, hint=hint)
        size = data.stat().st_size
        with closing(Processes(count=1, memory_bytes=WORKER_BYTES + size)) as workers:
            after, is_end = "", False
            while not is_end:
                given = {"path": str(self.environment), "kind": self.kind, "after": after}
                try:
                    piece = workers.call(read_piece, given, seconds=PIECE_SECONDS, what="reading the store")
                except (ConfinedError, OutOfTime) as error:
                    place = f" after the key {bytes.fromhex(after)!r}" if after else ""
                    reason = f"it is damaged{place} ({error.message})"
                    raise store_error(self.environment, reason, hint=SALVAGE) from error
                if "fault" in piece:
                    raise store_error(self.environment, piece["fault"], hint=SALVAGE)
                yield from (StoredRequest.from_json(entry) for entry in piece["entries"])
                yield from (DamagedEntry(key, reason) for key, reason in piece["problems"])
                after, is_end = piece["last"], piece["is_end"]


def lmdb_store(path: Path) -> LmdbStore | None:
    """The LMDB store at a path: that of vectors, that of metadata, or the single one of the oldest logs. None where
    there is none."""
    beside = path.with_name(path.name + SUFFIX)
    if _is_environment(beside):
        return LmdbStore(path, beside, "lmdb", "metadata")
    if not _is_environment(path):
        return None
    if path.name.endswith(SUFFIX):
        return LmdbStore(path, path, "lmdb", "metadata")
    return LmdbStore(path, path, "lmdb-single", "single")


def _is_environment(path: Path) -> bool:
    return data_file(path).is_file() and (path.is_dir() or path.suffix in (".mdb", ".lmdb"))


def data_file(path: Path) -> Path:
    """The file of an environment, which is a folder or the file itself."""
    return path / "data.mdb" if path.is_dir() else path
