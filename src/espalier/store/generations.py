"""Stores generations, one row each: who asked which model, token counts, times, how it ended."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import insert, select

from espalier.errors import InputError
from espalier.store import rows
from espalier.store.db import Database
from espalier.store.ids import Ids, is_id
from espalier.store.packing import pack, unpack
from espalier.store.tables import GENERATIONS
from espalier.store.traces import finite

PREFIX = "gen"

FIELDS: dict[str, Callable[[Any], Any]] = {
    "request_id": rows.column_text,
    "caller": rows.caller_text,
    "route": rows.optional_text,
    "model": rows.column_text,
    "constraint_kind": rows.optional_text,
    "streamed": lambda value: None if value is None else bool(value),
    "prompt_tokens": lambda value: None if value is None else int(value),
    "completion_tokens": lambda value: None if value is None else int(value),
    "queued": finite,
    "to_first_token": finite,
    "total": finite,
    "finish_reason": rows.optional_text,
    "valid": lambda value: None if value is None else bool(value),
    "error": rows.optional_text,
    "content": lambda value: None if value is None else pack(value, what="content"),
}
"""The fields of a row, and how each value is converted for its column. content: a JSON object of texts to keep."""

REQUIRED = ("request_id", "caller", "model")


def save(database: Database, ids: Ids, row: Mapping[str, Any]) -> str:
    """Insert one row and return its id. Raises InputError for an unknown, missing or wrongly typed field."""
    unknown = sorted(set(row) - set(FIELDS))
    if unknown:
        raise InputError(
            f"a generation has no field {unknown[0]!r}", hint=f"known: {', '.join(FIELDS)}", field=unknown[0]
        )
    missing = [name for name in REQUIRED if row.get(name) is None]
    if missing:
        raise InputError(f"a generation needs the field {missing[0]!r}", field=missing[0])
    values = {name: _converted(name, value) for name, value in row.items()}
    values["id"], values["created"] = ids.new(PREFIX)
    with database.writing() as connection:
        connection.execute(insert(GENERATIONS).values(values))
    return str(values["id"])


def page(database: Database, *, caller: str | None, limit: int, after: str | None) -> Sequence[Mapping[str, Any]]:
    """Newest first, without the content. Raises InputError for a wrong limit or `after`."""
    with database.reading() as connection:
        return rows.newest(
            connection, GENERATIONS, prefix=PREFIX, without="content", caller=caller, limit=limit, after=after
        )


def content(database: Database, generation_id: str) -> dict[str, Any] | None:
    """The texts of a generation; None if there is no such row, or no texts were kept."""
    if not is_id(generation_id, PREFIX):
        return None
    with database.reading() as connection:
        query = select(GENERATIONS.c.content).where(GENERATIONS.c.id == generation_id)
        packed = connection.execute(query).scalar_one_or_none()
    return None if packed is None else unpack(packed, what=f"generation {generation_id}")


def _converted(name: str, value: Any) -> Any:
    try:
        return FIELDS[name](value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} of a generation cannot be {value!r:.40}", field=name) from error
