"""What a salvaged store of ours needs beside its rows: which database a row belongs to, and the look-up tables.

It reads no damaged file; `foreign/salvage.py` does.
"""

from __future__ import annotations

import json
from typing import Any

from espalier.activations.store import layout
from espalier.activations.store.record import RequestRecord
from espalier.errors import InputError


def database_of(value: bytes) -> bytes | None:
    """The database whose values look like this one; None for a row of a look-up table, which is written anew."""
    if value.startswith(layout.MAGIC):
        return b"chunks"
    return None if record_of(value) is None else b"requests"


def record_of(value: bytes) -> RequestRecord | None:
    """The record of a request; None for anything else."""
    try:
        record = json.loads(value)
        return RequestRecord.from_json(record) if isinstance(record, dict) else None
    except (ValueError, RecursionError, InputError):
        return None


def complete(environment: Any, named: dict[bytes, Any]) -> None:
    """Write the look-up tables anew from the requests, whichever of them were lost, and what version the store has.
    named: its databases so far."""
    for name in layout.DATABASES:
        if name.encode() not in named:
            named[name.encode()] = environment.open_db(name.encode())
    stated = json.dumps({"format": layout.FORMAT, "version": layout.VERSION}).encode()
    with environment.begin(write=True) as writing:
        writing.put(b"layout", stated, db=named[b"info"])
        for key, value in writing.cursor(db=named[b"requests"]):
            record = record_of(value)
            if record is not None:
                for database, index in layout.indices(record.prompt, record.timestamp, record.request_id, key.decode()):
                    writing.put(index, b"", db=named[database.encode()])
