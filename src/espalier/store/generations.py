"""Stores generation logs, one row each: who asked which model for what, what it cost, how it ended; texts only if they
are given. It makes no row: `api/log_rows.py` does."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Connection, column, delete, func, insert, literal, select, table

from espalier.errors import InputError
from espalier.store import rows
from espalier.store.db import Database
from espalier.store.feedback import remove_orphans
from espalier.store.ids import first_id, is_id
from espalier.store.packing import pack, unpack
from espalier.store.search.conditions import condition
from espalier.store.search.query import read_query
from espalier.store.search.words import word_column
from espalier.store.tables import GENERATION_LOGS, SEARCH_INDEX
from espalier.store.trace_columns import finite

PREFIX = "gen"
_FTS5 = table(SEARCH_INDEX, column("rowid"), column("words"), column(SEARCH_INDEX))
PACKED = ("request", "content")


def _whole(value: Any) -> int | None:
    return None if value is None else int(value)


def _switch(value: Any) -> bool | None:
    return None if value is None else bool(value)


FIELDS: dict[str, Callable[[Any], Any]] = {
    "request_id": rows.column_text,
    "caller": rows.caller_text,
    "route": rows.optional_text,
    "model": rows.column_text,
    "engine": rows.optional_text,
    "strategy": rows.optional_text,
    "constraint_kind": rows.optional_text,
    "streamed": _switch,
    "prompt_tokens": _whole,
    "completion_tokens": _whole,
    "tax_nats": finite,
    "removed_mass": finite,
    "rejection_rate": finite,
    "queued": finite,
    "to_first_token": finite,
    "total": finite,
    "finish_reason": rows.optional_text,
    "valid": _switch,
    "error": rows.optional_text,
    "trace_id": rows.optional_text,
    "request": lambda value: None if value is None else pack(value, what="request"),
    "content": lambda value: None if value is None else pack(value, what="content"),
    "words": word_column,
}
"""The fields of a row, and how each value is converted for its column. request: a JSON object that says what was asked,
without texts. content: a JSON object of texts to keep. words: the texts that a search finds the row by."""

REQUIRED = ("request_id", "caller", "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationFilter:
    """Which rows. caller: of this API key, None for all. model: by its exact name. since: Unix seconds. query: see
    `search/query.py`. after: older than this id."""

    caller: str | None = None
    request_id: str | None = None
    model: str | None = None
    since: float | None = None
    query: str | None = None
    after: str | None = None


class GenerationRows(rows.StoreRows):
    """The generation logs of all processes on one database."""

    def save_generation(self, row: Mapping[str, Any]) -> str:
        """Store one row with the fields of `FIELDS` and return its id, `gen_…`. Raises InputError for an unknown,
        missing or wrongly typed field."""
        unknown = sorted(set(row) - set(FIELDS))
        if unknown:
            raise InputError(
                f"a generation has no field {unknown[0]!r}", hint=f"known: {', '.join(FIELDS)}", field=unknown[0]
            )
        missing = [name for name in REQUIRED if row.get(name) is None]
        if missing:
            raise InputError(f"a generation needs the field {missing[0]!r}", field=missing[0])
        values = {name: _convert_field(name, value) for name, value in row.items()}
        values.setdefault("words", "")
        values["flagged"] = values.get("valid") is False
        values["id"], values["created"] = self._ids.new(PREFIX)
        with self.database.writing() as connection:
            done = connection.execute(insert(GENERATION_LOGS).values(values))
            if self.database.is_sqlite:
                connection.execute(insert(_FTS5).values(rowid=done.lastrowid, words=values["words"]))
        return str(values["id"])

    def generations(self, wanted: GenerationFilter, *, limit: int) -> Sequence[Mapping[str, Any]]:
        """The columns of generation logs, newest first, without request and content. Raises InputError for a limit
        below 1, an `after` that is no id, and a search without words."""
        if limit < 1:
            raise InputError("the limit must be at least 1", field="limit")
        shown = [column for column in GENERATION_LOGS.c if column.name not in (*PACKED, "words", "number")]
        query = select(*shown).order_by(GENERATION_LOGS.c.id.desc()).limit(limit)
        for clause in _conditions(wanted, is_sqlite=self.database.is_sqlite):
            query = query.where(clause)
        with self.database.reading() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def generation(self, generation_id: str, *, caller: str | None) -> Mapping[str, Any] | None:
        """One generation log with its request and content (None where they were not kept), or None: there is none of
        that id that this caller may see."""
        if not is_id(generation_id, PREFIX):
            return None
        query = select(*(column for column in GENERATION_LOGS.c if column.name not in ("words", "number")))
        query = query.where(GENERATION_LOGS.c.id == generation_id)
        if caller is not None:
            query = query.where(GENERATION_LOGS.c.caller == rows.caller_text(caller))
        with self.database.reading() as connection:
            row = connection.execute(query).mappings().one_or_none()
        if row is None:
            return None
        packed = {name: row[name] for name in PACKED if row[name] is not None}
        opened = {name: unpack(value, what=f"{name} of generation {generation_id}") for name, value in packed.items()}
        return {**row, **opened}

    def generation_ids(self, beginning: str, *, limit: int) -> Sequence[str]:
        """The newest ids of generation logs that begin so."""
        query = select(GENERATION_LOGS.c.id).order_by(GENERATION_LOGS.c.id.desc()).limit(limit)
        if beginning:
            query = query.where(GENERATION_LOGS.c.id.startswith(rows.column_text(beginning), autoescape=True))
        with self.database.reading() as connection:
            return list(connection.execute(query).scalars())

    def count_generations(self) -> tuple[int, int]:
        """How many generation logs there are, and how many of them have content."""
        with self.database.reading() as connection:
            row = connection.execute(select(func.count(), func.count(GENERATION_LOGS.c.content))).one()
        return int(row[0]), int(row[1])


def remove(connection: Connection, database: Database, which: ColumnElement[bool]) -> int:
    """Delete the rows of a condition, what the index has of them, and the feedback on requests of which nothing is
    left. Returns how many."""
    its = GENERATION_LOGS.c
    requests = [
        (row.caller, row.request_id) for row in connection.execute(select(its.caller, its.request_id).where(which))
    ]
    if database.is_sqlite:
        gone = select(literal("delete"), GENERATION_LOGS.c.number, GENERATION_LOGS.c.words).where(which)
        connection.execute(insert(_FTS5).from_select([SEARCH_INDEX, "rowid", "words"], gone))
    removed = connection.execute(delete(GENERATION_LOGS).where(which)).rowcount
    remove_orphans(connection, requests)
    return removed


def _conditions(wanted: GenerationFilter, *, is_sqlite: bool) -> list[Any]:
    """Raises InputError."""
    its, conditions = GENERATION_LOGS.c, []
    if wanted.caller is not None:
        conditions.append(its.caller == rows.caller_text(wanted.caller))
    if wanted.request_id is not None:
        conditions.append(its.request_id == rows.column_text(wanted.request_id))
    if wanted.model is not None:
        conditions.append(its.model == rows.column_text(wanted.model))
    if wanted.since is not None:
        conditions.append(its.id >= first_id(PREFIX, wanted.since))
    if wanted.after is not None:
        if not is_id(wanted.after, PREFIX):
            raise InputError("`after` is not an id of this list", hint="give the `last_id` of a page", field="after")
        conditions.append(its.id < wanted.after)
    if wanted.query is not None:
        said = read_query(wanted.query)
        conditions.append(condition(said, words=its.words, number=its.number, index=SEARCH_INDEX, is_sqlite=is_sqlite))
    return conditions


def _convert_field(name: str, value: Any) -> Any:
    try:
        return FIELDS[name](value)
    except (TypeError, ValueError, OverflowError) as error:
        raise InputError(f"{name} of a generation cannot be {value!r:.40}", field=name) from error
