"""What keeps a store in order: `verify` finds damage, `prune` removes what is old or too much, `compact` gives freed
pages back to the disk."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from espalier.activations.store import layout
from espalier.activations.store.base import ActivationStore
from espalier.activations.store.locks import lock_alone
from espalier.errors import EspalierError, OutputError


@dataclass(frozen=True, slots=True)
class StoreFault:
    """Something that is not as it was stored. key: of the request, or of the index. reason: a clause."""

    key: str
    reason: str


def verify(store: ActivationStore) -> Iterator[StoreFault]:
    """Read every record and every chunk: checksums, shapes, what is missing, what belongs to nothing, indices."""
    named: set[bytes] = set()
    indices: dict[str, set[bytes]] = {"by_time": set(), "by_prompt": set(), "by_request": set()}
    for raw in store.raw_keys("requests"):
        key = raw.decode("utf-8", "backslashreplace")
        try:
            record = store.record(key)
        except EspalierError as error:
            yield StoreFault(key, error.message)
            continue
        indices["by_time"].add(layout.time_key(record.timestamp, key))
        indices["by_prompt"].add(layout.text_key(record.prompt, key))
        if record.request_id is not None:
            indices["by_request"].add(layout.text_key(record.request_id, key))
        if record.has_activations:
            named |= {layout.chunk_key(key, site, layer) for site in record.sites for layer in record.layers}
    for raw, chunk in store.raw_chunks():
        key = raw.decode("utf-8", "backslashreplace").replace("\0", " ")
        if raw not in named:
            yield StoreFault(key, "these vectors belong to no request")
            continue
        named.discard(raw)
        try:
            layout.unpack(chunk)
        except layout.DamagedChunk as error:
            yield StoreFault(key, str(error))
    for raw in sorted(named):
        yield StoreFault(raw.decode().replace("\0", " "), "these vectors are not there")
    for database, expected in indices.items():
        keys = {*store.raw_keys(database)}
        if keys != expected:
            yield StoreFault(
                database, f"the index lacks {len(expected - keys)} keys and has {len(keys - expected)} too many"
            )


def prune(
    store: ActivationStore,
    *,
    before: float | None = None,
    max_bytes: int | None = None,
    max_requests: int | None = None,
) -> int:
    """Remove requests from before a time (epoch seconds), then the oldest until the store has at most so many bytes in
    use and so many requests. Returns how many were removed. Raises OutputError."""
    removed = 0
    for key in [*store.keys()]:
        size = store.size()
        is_old = before is not None and store.record(key).timestamp < before
        is_much = (max_bytes is not None and size.used > max_bytes) or (
            max_requests is not None and size.requests > max_requests
        )
        if not (is_old or is_much):
            break
        removed += store.remove(key)
    return removed


def compact(path: str | Path) -> tuple[int, int]:
    """Replace a store by a compact copy. Returns the bytes of the file before and after. Raises InputError while it is
    open for writing elsewhere, OutputError; the store is then as it was."""
    folder = Path(path).expanduser()
    with ActivationStore(folder) as store:
        before = store.size().file
        draft = folder.with_name(f".espalier-{secrets.token_hex(8)}.tmp")
        try:
            lock = lock_alone(folder)
            try:
                store.copy(draft)
                (draft / "data.mdb").replace(folder / "data.mdb")
            finally:
                os.close(lock)
            return before, (folder / "data.mdb").stat().st_size
        except OSError as error:
            raise OutputError(f"cannot compact {folder}: {error.strerror or error}") from error
        finally:
            shutil.rmtree(draft, ignore_errors=True)
