"""The entries of a store on disk, found by the hash of their prompt or by their request: memory stays flat.

A temporary SQLite file, gone when it is closed.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from espalier.activations.foreign.entry import StoredRequest
from espalier.errors import OutputError

_TABLE = """
CREATE TABLE entries (
  place INTEGER PRIMARY KEY, key TEXT UNIQUE NOT NULL, hash BLOB NOT NULL, request TEXT, run TEXT, model TEXT NOT NULL,
  time REAL, sample INTEGER, body TEXT NOT NULL, used INTEGER NOT NULL DEFAULT 0
)"""
_INSERT = """
INSERT INTO entries (key, hash, request, run, model, time, sample, body) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (key) DO UPDATE SET hash = excluded.hash, request = excluded.request, run = excluded.run,
  model = excluded.model, time = excluded.time, sample = excluded.sample, body = excluded.body"""
_ORDER = "ORDER BY time, sample, place"
"""The order of logging, as far as the store knows it. SQLite puts those without a time first."""


def prompt_hash(prompt: str) -> bytes:
    """SHA-256 of the exact text, `(32,)` bytes."""
    return hashlib.sha256(prompt.encode()).digest()


class Index:
    """Use as a context manager, from one thread."""

    def __init__(self, folder: Path | None = None) -> None:
        """folder: where the file lies while it is needed. Raises OutputError."""
        try:
            self._folder = tempfile.TemporaryDirectory(prefix=".espalier-", dir=folder)
        except OSError as error:
            raise OutputError(f"cannot write into {folder}: {error.strerror or error}") from error
        self._base = sqlite3.connect(Path(self._folder.name) / "index.sqlite", isolation_level=None)
        self._base.execute("PRAGMA journal_mode = OFF")
        self._base.execute("PRAGMA synchronous = OFF")
        self._base.execute(_TABLE)
        self._base.execute("BEGIN")

    def __enter__(self) -> Index:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._base.close()
        self._folder.cleanup()

    def add(self, entry: StoredRequest) -> None:
        """An entry whose key is there replaces it. Raises OutputError where the disk is full."""
        values = (
            entry.key,
            prompt_hash(entry.prompt),
            entry.request,
            entry.run,
            entry.model,
            entry.timestamp,
            entry.sample,
            json.dumps(entry.to_json()),
        )
        try:
            self._base.execute(_INSERT, values)
        except sqlite3.OperationalError as error:
            raise OutputError(f"cannot keep the store's entries in {self._folder.name}: {error}") from error

    def finish(self) -> None:
        """After the last `add`: makes the look-ups quick."""
        for column in ("hash", "request"):
            self._base.execute(f"CREATE INDEX by_{column} ON entries ({column})")

    def by_hash(self, digest: bytes, *, run: str | None = None) -> list[tuple[int, StoredRequest]]:
        """Place and entry of each that has this prompt (and run), in the order of logging."""
        if run is None:
            return self._entries(f"SELECT place, body FROM entries WHERE hash = ? {_ORDER}", (digest,))
        return self._entries(f"SELECT place, body FROM entries WHERE hash = ? AND run = ? {_ORDER}", (digest, run))

    def by_request(self, request: str) -> list[tuple[int, StoredRequest]]:
        """Place and entry of each that has this request id, in the order of logging."""
        return self._entries(f"SELECT place, body FROM entries WHERE request = ? {_ORDER}", (request,))

    def _entries(self, sql: str, values: tuple[object, ...]) -> list[tuple[int, StoredRequest]]:
        rows = self._base.execute(sql, values).fetchall()
        return [(place, StoredRequest.from_json(json.loads(body))) for place, body in rows]

    def use(self, place: int) -> None:
        """Count this entry as one that a row was made of."""
        self._base.execute("UPDATE entries SET used = 1 WHERE place = ?", (place,))

    def counts(self) -> tuple[int, int]:
        """How many entries there are, and how many are used."""
        total, used = self._base.execute("SELECT count(*), coalesce(sum(used), 0) FROM entries").fetchone()
        return total, used

    def models(self) -> dict[str, int]:
        """Entries of each model, most first."""
        sql = "SELECT model, count(*) FROM entries GROUP BY model ORDER BY count(*) DESC, model LIMIT 100"
        return dict(self._base.execute(sql).fetchall())

    def unused(self, limit: int) -> Iterator[str]:
        """Prompts of entries of which no row was made."""
        for (body,) in self._base.execute("SELECT body FROM entries WHERE used = 0 LIMIT ?", (limit,)):
            yield StoredRequest.from_json(json.loads(body)).prompt
