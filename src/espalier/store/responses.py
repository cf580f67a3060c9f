"""Stores replies of `/v1/responses`, each with the items of its whole conversation. It does not read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, Double, LargeBinary, Table, Text, delete, insert, select

from espalier.errors import InputError
from espalier.store import rows
from espalier.store.db import Database
from espalier.store.ids import is_id
from espalier.store.packing import pack, unpack
from espalier.store.tables import ID, METADATA

PREFIX = "resp"

RESPONSES = Table(
    "responses",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("created", Double, nullable=False),  # Unix seconds
    Column("caller", Text, nullable=False),
    Column("body", LargeBinary, nullable=False),  # packing.py
)


def save(database: Database, response_id: str, body: Mapping[str, Any], *, created: float, caller: str) -> None:
    """Store a response under the id that its reply has. Raises InputError for one that is no id of a response."""
    if not is_id(response_id, PREFIX):
        raise InputError(f"{response_id!r:.60} is no id of a response", field="id")
    packed = pack(body, what="response")
    values = {"id": response_id, "created": created, "caller": rows.caller_text(caller), "body": packed}
    with database.writing() as connection:
        connection.execute(insert(RESPONSES).values(values))


def load(database: Database, response_id: str, *, caller: str) -> dict[str, Any] | None:
    """What was stored; None if this caller has no response with the id. Raises OutputError if it is damaged."""
    if not is_id(response_id, PREFIX):
        return None
    query = select(RESPONSES.c.body).where(RESPONSES.c.id == response_id)
    query = query.where(RESPONSES.c.caller == rows.caller_text(caller))
    with database.reading() as connection:
        body = connection.execute(query).scalar_one_or_none()
    return None if body is None else unpack(body, what=f"response {response_id}")


def remove(database: Database, response_id: str, *, caller: str) -> bool:
    """Delete a response of this caller; returns whether it existed."""
    if not is_id(response_id, PREFIX):
        return False
    statement = delete(RESPONSES).where(RESPONSES.c.id == response_id)
    statement = statement.where(RESPONSES.c.caller == rows.caller_text(caller))
    with database.writing() as connection:
        return connection.execute(statement).rowcount > 0
