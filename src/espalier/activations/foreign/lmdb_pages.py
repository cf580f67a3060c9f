"""Reads a piece of an LMDB store. Runs in a worker process: a damaged file can end the process that maps it.

The environment is opened read-only, and with its lock file only where that is there and can be written: nothing is
created, and a writer that is at work is not disturbed.
"""

from __future__ import annotations

import os
from typing import Any

from espalier.activations.foreign.entry import BadEntry, entry_of
from espalier.activations.foreign.pickles import load_inert, load_plain
from espalier.time_limit import check

PIECE_BYTES = 4_000_000
"""Texts of one piece, roughly."""
PIECE_ENTRIES = 2_000
MAX_VALUE = {"metadata": 64 << 20, "single": 1 << 30}
"""Bytes of one value, by the kind of environment."""


def read_piece(given: dict[str, Any]) -> dict[str, Any]:
    """Entries after a key. given: path, kind (`metadata`, or `single` for the oldest logs), after (hex of the last key,
    "" at the start). Returns entries, problems as (key, reason), last (hex of the last key read), is_end, count (of the
    environment), or fault alone: why the environment cannot be read. Raises ImportError without lmdb."""
    import lmdb  # noqa: PLC0415  # an extra

    try:
        with _open_file(given["path"]) as environment:
            return _piece(environment, given["kind"], bytes.fromhex(given["after"]))
    except (lmdb.Error, OSError) as error:
        return {"fault": str(error)}


def _piece(environment: Any, kind: str, after: bytes) -> dict[str, Any]:
    load = load_plain if kind == "metadata" else load_inert
    entries: list[dict[str, Any]] = []
    problems: list[tuple[str, str]] = []
    size, last, is_end = 0, after, True
    with environment.begin(buffers=True) as reading, reading.cursor() as cursor:
        is_placed = cursor.set_range(after + b"\0") if after else cursor.first()
        while is_placed:
            if size > PIECE_BYTES or len(entries) + len(problems) >= PIECE_ENTRIES:
                is_end = False
                break
            check()
            last = bytes(cursor.key())
            key, value = last.decode("utf-8", "backslashreplace"), cursor.value()
            try:
                if len(value) > MAX_VALUE[kind]:
                    raise BadEntry(f"it has {len(value):,} bytes, and the limit is {MAX_VALUE[kind]:,}")
                fields = load(bytes(value))
                if kind == "single" and isinstance(fields, dict) and isinstance(fields.get("data"), dict):
                    fields = fields["data"]  # as the environment of vectors wraps it
                entry = entry_of(key, fields).to_json()
                size += len(entry["prompt"]) + len(entry["response"])
                entries.append(entry)
            except BadEntry as reason:
                problems.append((key, str(reason)))
            is_placed = cursor.next()
    count = environment.stat()["entries"]
    return {"entries": entries, "problems": problems, "last": last.hex(), "is_end": is_end, "count": count}


def _open_file(path: str) -> Any:
    import lmdb  # noqa: PLC0415  # an extra

    is_folder = os.path.isdir(path)
    lock = os.path.join(path, "lock.mdb") if is_folder else f"{path}-lock"
    return lmdb.open(
        path,
        readonly=True,
        create=False,
        subdir=is_folder,
        max_dbs=0,
        readahead=False,
        lock=os.path.exists(lock) and os.access(lock, os.W_OK),
    )
