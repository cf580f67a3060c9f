"""Opens a store, writes requests into it and reads them. One transaction for a request: it is whole or not there.

One process writes at a time (LMDB sees to that); any number read, also while it is written. A map is addresses, not
memory or disk: it is as large as the system gives, so that it need never grow under a reader.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

import numpy.typing as npt

from espalier.activations.lmdb_check import damage
from espalier.activations.lmdb_file import shortfall
from espalier.activations.store import layout
from espalier.activations.store.locks import shared_lock
from espalier.activations.store.record import CapturedVectors, RequestRecord, new_key
from espalier.errors import InputError, LimitExceeded, OutputError
from espalier.files.json_shape import check_shape
from espalier.files.limits import ACTIVATION_ENTRY
from espalier.optional import optional_imports

T = TypeVar("T")
LARGEST_MAP, SMALLEST_MAP = 1 << 40, 1 << 28
MAX_READERS = 512
TIME_BYTES = 8
SALVAGE = "espalier activations salvage copies what is left of it"


@dataclass(frozen=True, slots=True)
class StoreSize:
    """requests: how many. used: bytes of pages in use. file: bytes of the file."""

    requests: int
    used: int
    file: int


class ActivationStore:
    """A store in a folder. A context manager; safe across threads.

    write: whether it may be written (and is made where it is not there). max_bytes: the most bytes of pages in use; a
    request beyond it is refused with LimitExceeded. Raises InputError for a folder that is something else or a store of
    a newer version, OutputError where it cannot be made, MissingDependency without lmdb.
    """

    def __init__(self, path: str | Path, *, write: bool = False, max_bytes: int | None = None) -> None:
        self.path = Path(path).expanduser()
        self._lmdb = _lmdb()
        self._max_bytes = max_bytes
        self._lock = -1
        self._base = self._open(write)
        try:
            self._check_pages()
            self._databases = self._open_databases(write)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> ActivationStore:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Idempotent."""
        self._base.close()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def put(self, captured: CapturedVectors, key: str | None = None) -> str:
        """Store a request with its vectors, in one transaction. key: a new one is made without it; one that is there is
        replaced, its vectors with it. Returns the key. Raises ValueError for vectors that their dtype cannot hold,
        InputError, LimitExceeded, OutputError where the disk is full; the store is then as it was."""
        record = captured.record
        layout.check_codec(record.compression)
        key = new_key(record) if key is None else _check_key(key)
        chunks = {
            layout.chunk_key(key, site, layer): layout.pack(values, record.dtype, record.compression)
            for (site, layer), values in captured.vectors.items()
        }
        text = json.dumps(record.to_json(), ensure_ascii=True, allow_nan=False).encode()
        needed = len(text) + sum(map(len, chunks.values()))
        if self._max_bytes is not None and self.size().used + needed > self._max_bytes:
            raise LimitExceeded(
                f"the store {self.path} would have more than {self._max_bytes:,} bytes",
                hint="prune it, or raise its quota",
            )

        def write(writing: Any) -> None:
            self._remove(writing, key)
            writing.put(key.encode(), text, db=self._databases["requests"])
            for name, chunk in chunks.items():
                writing.put(name, chunk, db=self._databases["chunks"])
            for database, index in layout.indices(record.prompt, record.timestamp, record.request_id, key):
                writing.put(index, b"", db=self._databases[database])

        self._write_transaction(write)
        return key

    def remove(self, key: str) -> bool:
        """Remove a request and its vectors. Returns whether it was there. Raises OutputError."""
        return self._write_transaction(lambda writing: self._remove(writing, key))

    def record(self, key: str) -> RequestRecord:
        """Raises InputError for a key that is not there, or a record that is damaged."""
        with self._reading() as reading:
            return self._record(reading, key)

    def vectors(self, key: str, site: str, layer: int) -> npt.NDArray[Any]:
        """`(positions, hidden)` of float16 or float32. Raises InputError where there are none, layout.DamagedChunk."""
        with self._reading() as reading:
            chunk = reading.get(layout.chunk_key(_check_key(key), site, layer), db=self._databases["chunks"])
            if chunk is None:
                raise InputError(
                    f"the request {key} has no vectors of {site} {layer}",
                    hint="its record names what it has",
                    field="layer",
                )
            return layout.unpack(chunk)

    def captured(self, key: str) -> CapturedVectors:
        """A request with all its vectors, from one moment. Raises as `record` and `vectors`."""
        with self._reading() as reading:
            record = self._record(reading, key)
            vectors = {}
            for site in record.sites if record.positions else ():
                for layer in record.layers:
                    chunk = reading.get(layout.chunk_key(key, site, layer), db=self._databases["chunks"])
                    if chunk is None:
                        raise layout.DamagedChunk(f"{site} {layer} of {key} is not there")
                    vectors[site, layer] = layout.unpack(chunk)
            return CapturedVectors(record, vectors)

    def keys(self, *, prompt: str | None = None, request_id: str | None = None) -> Iterator[str]:
        """Keys in the order of time, as of the first; those of a prompt or of a request id."""
        database, prefix = "by_time", b""
        if prompt is not None or request_id is not None:
            database = "by_prompt" if prompt is not None else "by_request"
            prefix = layout.text_key(prompt if prompt is not None else str(request_id), "")
        skipped = len(prefix) or TIME_BYTES
        with self._reading() as reading, reading.cursor(db=self._databases[database]) as cursor:
            is_placed = cursor.set_range(prefix) if prefix else cursor.first()
            while is_placed and bytes(cursor.key()[: len(prefix)]) == prefix:
                try:
                    key = bytes(cursor.key()[skipped:]).decode()
                except UnicodeDecodeError as error:
                    raise InputError(f"the store {self.path} is damaged: a key is not UTF-8", hint=SALVAGE) from error
                yield key
                is_placed = cursor.next()

    def raw_chunks(self) -> Iterator[tuple[bytes, bytes]]:
        """Every chunk with its key, as bytes: for `verify`."""
        with self._reading() as reading, reading.cursor(db=self._databases["chunks"]) as cursor:
            for name, chunk in cursor:
                yield bytes(name), bytes(chunk)

    def raw_keys(self, database: str) -> Iterator[bytes]:
        """Every key of a database of `layout.DATABASES`: for `verify`."""
        with self._reading() as reading, reading.cursor(db=self._databases[database]) as cursor:
            for name, _ in cursor:
                yield bytes(name)

    def size(self) -> StoreSize:
        """Pages that were freed and will be used again do not count as used."""
        with self._reading() as reading:
            pages = [reading.stat(db=database) for database in self._databases.values()]
            used = sum(
                (page["branch_pages"] + page["leaf_pages"] + page["overflow_pages"]) * page["psize"] for page in pages
            )
            count = reading.stat(db=self._databases["requests"])["entries"]
        return StoreSize(count, used, (self.path / "data.mdb").stat().st_size)

    def copy(self, target: Path) -> None:
        """A compact copy into a new folder, without stopping writers. Raises InputError where the folder is there,
        OutputError."""
        if target.exists():
            raise InputError(f"{target} is there already", field="target")
        try:
            target.mkdir(parents=True)
            self._base.copy(str(target), compact=True)
        except (OSError, self._lmdb.Error) as error:
            raise OutputError(f"cannot write {target}: {error}") from error

    def _open(self, write: bool) -> Any:
        data = self.path / "data.mdb"
        if not write and not data.is_file():
            raise InputError(f"there is no store of activations at {self.path}", field="store")
        if self.path.exists() and not self.path.is_dir():
            raise InputError(f"{self.path} is not a folder", field="store")
        if write and self.path.is_dir() and not data.is_file() and any(self.path.iterdir()):
            raise InputError(f"the folder {self.path} holds other files", hint="name a new folder", field="store")
        try:
            # A file that was cut would end the process once it is mapped.
            if data.is_file() and (lack := shortfall(data, may_be_new=write)):
                raise InputError(f"cannot open the store {self.path}: {lack}", hint=SALVAGE, field="store")
            if write:
                self.path.mkdir(parents=True, exist_ok=True)
                self._lock = shared_lock(self.path)
            size = LARGEST_MAP
            while True:
                try:
                    return self._lmdb.open(
                        str(self.path),
                        map_size=size,
                        max_dbs=len(layout.DATABASES),
                        max_readers=MAX_READERS,
                        readonly=not write,
                        create=write,
                        readahead=False,
                        lock=write or (self.path / "lock.mdb").exists(),
                    )
                except (MemoryError, self._lmdb.MemoryError):
                    if size <= SMALLEST_MAP:
                        raise
                    size //= 4
        except (OSError, MemoryError, self._lmdb.Error) as error:
            kind = OutputError if write else InputError
            raise kind(f"cannot open the store {self.path}: {error}") from error

    def _check_pages(self) -> None:
        """Raises InputError for damaged pages, which would end the process when they are read."""
        data = self.path / "data.mdb"
        try:
            with self._base.begin() as reading:
                fault = damage(data, reading)
        except (OSError, self._lmdb.Error) as error:
            raise InputError(f"cannot read the store {data}: {error}", hint=SALVAGE, field="store") from error
        if fault:
            raise InputError(f"the store {data} is damaged: {fault}", hint=SALVAGE, field="store")

    def _open_databases(self, write: bool) -> dict[str, Any]:
        try:
            databases = {name: self._base.open_db(name.encode(), create=write) for name in layout.DATABASES}
        except self._lmdb.Error as error:
            raise InputError(
                f"{self.path} is an LMDB environment, but no store of activations",
                field="store",
                hint="espalier reconstruct reads those of others",
            ) from error
        stated = {"format": layout.FORMAT, "version": layout.VERSION}
        if write:
            self._write_transaction(
                lambda writing: writing.put(
                    b"layout", json.dumps(stated).encode(), db=databases["info"], overwrite=False
                )
            )
        with self._base.begin() as reading:
            try:
                said = json.loads(reading.get(b"layout", db=databases["info"]) or b"{}")
            except ValueError:
                said = None
        if (
            not isinstance(said, dict)
            or said.get("format") != layout.FORMAT
            or not isinstance(said.get("version"), int)
        ):
            raise InputError(f"{self.path} is no store of activations", field="store")
        if said["version"] > layout.VERSION:
            raise InputError(
                f"the store {self.path} has version {said['version']}, and this program reads {layout.VERSION}",
                hint="use a newer espalier",
                field="store",
            )
        return databases

    def _reading(self) -> Any:
        """A moment of the store."""
        return self._base.begin(buffers=True)

    def _write_transaction(self, write: Callable[[Any], T]) -> T:
        """One transaction. Raises OutputError; nothing of it is then there."""
        try:
            with self._base.begin(write=True) as writing:
                return write(writing)
        except (OSError, self._lmdb.Error) as error:
            raise OutputError(f"cannot write to the store {self.path}: {error}") from error

    def _record(self, reading: Any, key: str) -> RequestRecord:
        record = reading.get(_check_key(key).encode(), db=self._databases["requests"])
        if record is None:
            raise InputError(f"the store {self.path} has no request {key}", field="request")
        text = bytes(record)
        check_shape(text, ACTIVATION_ENTRY, key)
        try:
            value = json.loads(text)
        except ValueError as error:
            raise InputError(f"the record of {key} is damaged: {error}", field="request") from error
        return RequestRecord.from_json(value)

    def _remove(self, writing: Any, key: str) -> bool:
        name = _check_key(key).encode()
        if writing.get(name, db=self._databases["requests"]) is None:
            return False
        record = self._record(writing, key)
        with writing.cursor(db=self._databases["chunks"]) as cursor:
            prefix = name + b"\0"
            is_placed = cursor.set_range(prefix)
            while is_placed and bytes(cursor.key()[: len(prefix)]) == prefix:
                is_placed = cursor.delete()
        for database, index in layout.indices(record.prompt, record.timestamp, record.request_id, key):
            writing.delete(index, db=self._databases[database])
        writing.delete(name, db=self._databases["requests"])
        return True


def _check_key(key: str) -> str:
    """Raises InputError for what cannot be a key."""
    if not key or "\0" in key or len(key.encode()) > layout.MAX_KEY:
        raise InputError(f"{key[:80]!r} is no key of a request", field="request")
    return key


def _lmdb() -> Any:
    with optional_imports("activations"):
        import lmdb  # noqa: PLC0415  # an extra
    return lmdb
