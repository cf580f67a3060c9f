"""Stores traces: the values that lists show as columns, and the whole trace packed into one column.

`trace_columns.py` works the columns out; `trace_filter.py` says which rows a list has.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Connection, bindparam, column, delete, insert, literal, select, table

from espalier.errors import InputError
from espalier.store import rows
from espalier.store.costs.adding import CostSums
from espalier.store.costs.answer import sums_of
from espalier.store.db import Database
from espalier.store.feedback import remove_orphans
from espalier.store.ids import is_id, moment_of
from espalier.store.packing import pack, unpack
from espalier.store.search.words import word_column
from espalier.store.tables import TRACE_SEARCH, TRACE_WORDS, TRACES
from espalier.store.trace_columns import columns_of, searched_texts, stored_form
from espalier.store.trace_conditions import conditions_of
from espalier.store.trace_filter import PREFIX, TraceFilter
from espalier.trace.text_policy import TextPolicy

_FTS5 = table(TRACE_SEARCH, column("rowid"), column("words"), column(TRACE_SEARCH))
# Made once: building a statement of 35 columns takes longer than the database does.
_INSERT, _INSERT_WORDS = insert(TRACES), insert(TRACE_WORDS)
_INSERT_FTS5 = insert(_FTS5).values(rowid=bindparam("rowid"), words=bindparam("words"))
LISTED = [column for column in TRACES.c if column.name != "body"]


class TraceRows(rows.StoreRows):
    """The traces of all processes on one database."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(database, clock=clock)
        self._sums = CostSums(database)

    def new_trace_id(self) -> str:
        """An id for a trace that is stored later, so that a reply can name it from its first byte on."""
        return self._ids.new(PREFIX)[0]

    def save_trace(
        self,
        trace: Mapping[str, Any],
        *,
        request_id: str,
        caller: str,
        index: int,
        route: str | None = None,
        trace_id: str | None = None,
        texts: TextPolicy = "yes",
        **more: Any,
    ) -> str:
        """Store `Trace.to_json()` and return its id, `trc_…`. index: which output of the request. trace_id: of
        `new_trace_id`. texts: whether prompt and output are kept. more: what else `columns_of` takes. Raises InputError
        if it is no trace."""
        stored = stored_form(trace, texts)
        columns = columns_of(stored, trace, request_id=request_id, caller=caller, index=index, route=route, **more)
        body = pack(stored, what="trace")  # before the transaction: packing a long trace takes time
        words = word_column(searched_texts(stored, columns))
        if trace_id is None:
            trace_id, created = self._ids.new(PREFIX)
        else:
            created = moment_of(trace_id)
        columns |= {"id": trace_id, "created": created, "body": body}
        answer = sums_of(stored, columns, has_texts=texts == "yes")
        with self.database.writing() as connection:
            connection.execute(_INSERT, columns)
            done = connection.execute(_INSERT_WORDS, {"trace_id": trace_id, "words": words})
            if self.database.is_sqlite:
                connection.execute(_INSERT_FTS5, {"rowid": done.lastrowid, "words": words})
            met = self._sums.add(connection, answer, columns)
        self._sums.keep(met)
        return trace_id

    def traces(self, wanted: TraceFilter, *, limit: int) -> Sequence[Mapping[str, Any]]:
        """Columns of the traces of a filter, newest first. Raises InputError for a limit below 1, an `after` that is no
        id, and a search without words."""
        if limit < 1:
            raise InputError("the limit must be at least 1", field="limit")
        query = select(*LISTED).order_by(TRACES.c.id.desc()).limit(limit)
        for clause in conditions_of(wanted, is_sqlite=self.database.is_sqlite):
            query = query.where(clause)
        with self.database.reading() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]

    def trace(self, trace_id: str, *, caller: str | None) -> Mapping[str, Any] | None:
        """The whole trace as it was given, or None: there is none of that id that this caller may see."""
        if not is_id(trace_id, PREFIX):
            return None
        query = select(TRACES.c.body).where(TRACES.c.id == trace_id)
        if caller is not None:
            query = query.where(TRACES.c.caller == rows.caller_text(caller))
        with self.database.reading() as connection:
            body = connection.execute(query).scalar_one_or_none()
        return None if body is None else unpack(body, what=f"trace {trace_id}")

    def delete_trace(self, trace_id: str, *, caller: str | None) -> bool:
        """Whether there was one that this caller could delete."""
        if not is_id(trace_id, PREFIX):
            return False
        which = TRACES.c.id == trace_id
        if caller is not None:
            which &= TRACES.c.caller == rows.caller_text(caller)
        with self.database.writing() as connection:
            return remove(connection, self.database, which) > 0


def remove(connection: Connection, database: Database, which: ColumnElement[bool]) -> int:
    """Delete the traces of a condition, what the search has of them, and the feedback on requests of which nothing is
    left. Returns how many."""
    gone = list(connection.execute(select(TRACES.c.id, TRACES.c.caller, TRACES.c.request_id).where(which)))
    if not gone:
        return 0
    ids = [row.id for row in gone]
    if database.is_sqlite:
        words = select(literal("delete"), TRACE_WORDS.c.number, TRACE_WORDS.c.words)
        old = words.where(TRACE_WORDS.c.trace_id.in_(ids))
        connection.execute(insert(_FTS5).from_select([TRACE_SEARCH, "rowid", "words"], old))
    connection.execute(delete(TRACE_WORDS).where(TRACE_WORDS.c.trace_id.in_(ids)))
    removed = connection.execute(delete(TRACES).where(TRACES.c.id.in_(ids))).rowcount
    remove_orphans(connection, ((row.caller, row.request_id) for row in gone))
    return removed
