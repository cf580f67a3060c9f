"""Stores vocabularies by their fingerprint: one row each, as JSON. It does not know what a token is."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Double, Integer, LargeBinary, Table, Text, delete, select

from espalier.errors import InputError
from espalier.store import rows
from espalier.store.db import Database
from espalier.store.packing import pack, unpack
from espalier.store.tables import METADATA

FINGERPRINT = re.compile(r"[0-9a-f]{64}")
BEGINNING = re.compile(r"[0-9a-f]{4,64}")

VOCAB_CACHE = Table(
    "vocab_cache",
    METADATA,
    Column("fingerprint", Text, primary_key=True),
    Column("created", Double, nullable=False),  # Unix seconds
    Column("used", Double, nullable=False),
    Column("name", Text, nullable=False),
    Column("width", Integer, nullable=False),
    Column("tokens", Integer, nullable=False),
    Column("body", LargeBinary, nullable=False),  # packing.py
)
_COLUMNS = [column for column in VOCAB_CACHE.columns if column.name != "body"]


class VocabRows(rows.StoreRows):
    """Vocabularies by their fingerprint."""

    def save_vocab(self, fingerprint: str, body: Mapping[str, Any], *, tokens: int) -> None:
        """Store a vocabulary, once for each fingerprint; the newest name counts. body: with `name` and `width`."""
        if not FINGERPRINT.fullmatch(fingerprint):
            raise InputError(f"{fingerprint!r:.80} is no fingerprint of a vocabulary", field="fingerprint")
        now = self._clock()
        latest = {"used": now, "name": rows.column_text(body["name"])}
        values = {"width": int(body["width"]), "tokens": tokens, "body": pack(body, what="vocabulary")}
        statement = self.database.insert(VOCAB_CACHE).values(fingerprint=fingerprint, created=now, **latest, **values)
        with self.database.writing() as connection:
            connection.execute(statement.on_conflict_do_update(index_elements=["fingerprint"], set_=latest))

    def vocab(self, beginning: str) -> tuple[str, Mapping[str, Any]]:
        """The fingerprint and the JSON of the vocabulary whose fingerprint begins so. Raises InputError if there is
        none or more than one."""
        fingerprint = _one(self.database, beginning)
        with self.database.writing() as connection:
            where = VOCAB_CACHE.c.fingerprint == fingerprint
            connection.execute(VOCAB_CACHE.update().where(where).values(used=self._clock()))
            body = connection.execute(select(VOCAB_CACHE.c.body).where(where)).scalar_one_or_none()
        if body is None:
            raise _none(beginning)
        return fingerprint, unpack(body, what=f"vocabulary {fingerprint[:12]}")

    def vocabs(self) -> Sequence[Mapping[str, Any]]:
        """The columns of all vocabularies, the last used first."""
        with self.database.reading() as connection:
            query = select(*_COLUMNS).order_by(VOCAB_CACHE.c.used.desc(), VOCAB_CACHE.c.fingerprint)
            return [dict(row) for row in connection.execute(query).mappings()]

    def remove_vocab(self, beginning: str) -> str:
        """Delete the vocabulary whose fingerprint begins so, and return its fingerprint. Raises InputError as
        `vocab`."""
        fingerprint = _one(self.database, beginning)
        with self.database.writing() as connection:
            connection.execute(delete(VOCAB_CACHE).where(VOCAB_CACHE.c.fingerprint == fingerprint))
        return fingerprint


def _one(database: Database, beginning: str) -> str:
    if not BEGINNING.fullmatch(beginning):
        raise InputError(f"{beginning!r:.80} does not begin a fingerprint", hint="4 to 64 of 0-9a-f", field="vocab")
    query = select(VOCAB_CACHE.c.fingerprint).where(VOCAB_CACHE.c.fingerprint.startswith(beginning)).limit(2)
    with database.reading() as connection:
        keys = list(connection.execute(query).scalars())
    if not keys:
        raise _none(beginning)
    if len(keys) > 1:
        raise InputError(f"several vocabularies begin with {beginning}", hint="more of its characters", field="vocab")
    return str(keys[0])


def _none(beginning: str) -> InputError:
    hint = "`espalier vocab --kept` lists those there are"
    return InputError(f"no vocabulary is kept under {beginning}", hint=hint, field="vocab")
