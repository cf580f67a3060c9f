"""Stores replies of `/v1/responses`, each with the items of its whole conversation. It does not read them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sqlalchemy import Column, Double, LargeBinary, Table, Text, delete, insert, select

from espalier.errors import InputError
from espalier.store import rows
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


class ResponseRows(rows.StoreRows):
    """The replies of `/v1/responses`."""

    def save_response(self, response_id: str, body: Mapping[str, Any], *, caller: str) -> None:
        """Store a reply with its items, under its id. Raises InputError for one that is no id of a response."""
        if not is_id(response_id, PREFIX):
            raise InputError(f"{response_id!r:.60} is no id of a response", field="id")
        packed = pack(body, what="response")
        values = {"id": response_id, "created": self._clock(), "caller": rows.caller_text(caller), "body": packed}
        with self.database.writing() as connection:
            connection.execute(insert(RESPONSES).values(values))

    def response(self, response_id: str, *, caller: str) -> Mapping[str, Any] | None:
        """What was stored of a response, None if this caller has none with the id."""
        if not is_id(response_id, PREFIX):
            return None
        query = select(RESPONSES.c.body).where(RESPONSES.c.id == response_id)
        query = query.where(RESPONSES.c.caller == rows.caller_text(caller))
        with self.database.reading() as connection:
            body = connection.execute(query).scalar_one_or_none()
        return None if body is None else unpack(body, what=f"response {response_id}")

    def delete_response(self, response_id: str, *, caller: str) -> bool:
        """Whether there was one that this caller could delete."""
        if not is_id(response_id, PREFIX):
            return False
        statement = delete(RESPONSES).where(RESPONSES.c.id == response_id)
        statement = statement.where(RESPONSES.c.caller == rows.caller_text(caller))
        with self.database.writing() as connection:
            return connection.execute(statement).rowcount > 0
