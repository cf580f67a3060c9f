"""Shared by all that the store keeps: the base class, text that every database can hold, pages of a list.

Lists are ordered by id, which means by time. A page continues after the last id of the previous one, even if that row
is gone, so that rows inserted or deleted between two pages make no other row repeat or disappear.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, select

from espalier.errors import InputError
from espalier.store.db import Database
from espalier.store.ids import Ids, is_id

TEXT_LIMIT = 1_000
"""The most characters of a text column, since names of models and requests come from clients."""
_UNSTORABLE = re.compile("[\0\ud800-\udfff]")


class StoreRows:
    """Base of the rows of one table. Every method blocks and may be called from any thread; all raise OutputError if
    the database cannot be written or is damaged, Unavailable if it is unreachable or closed."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        #: Also for other things that workers share, such as counters.
        self.database = database
        self._clock = clock
        self._ids = Ids(clock)


def column_text(value: object) -> str:
    """Text for a column: NUL and lone surrogates replaced, cut to TEXT_LIMIT."""
    return _UNSTORABLE.sub("\ufffd", str(value)[:TEXT_LIMIT])


def optional_text(value: object) -> str | None:
    return None if value is None else column_text(value)


def caller_text(caller: str) -> str:
    """A caller's name, unchanged, so that two callers never become one. Raises InputError if it cannot be stored."""
    if caller != column_text(caller):
        raise InputError(f"the name of a caller cannot be stored: {caller!r:.80}", field="caller")
    return caller


def newest(
    connection: Connection,
    table: Table,
    *,
    prefix: str,
    without: str,
    caller: str | None,
    limit: int,
    after: str | None,
) -> Sequence[Mapping[str, Any]]:
    """At most `limit` rows of a caller (None: of every caller), newest first, that are older than the id `after`.

    Raises InputError for a limit below 1 and an `after` that is no id.
    """
    if limit < 1:
        raise InputError("the limit must be at least 1", field="limit")
    query = select(*(c for c in table.c if c.name != without)).order_by(table.c.id.desc()).limit(limit)
    if caller is not None:
        query = query.where(table.c.caller == caller_text(caller))
    if after is not None:
        if not is_id(after, prefix):
            raise InputError("`after` is not an id of this list", hint="give the `last_id` of a page", field="after")
        query = query.where(table.c.id < after)
    return [dict(row) for row in connection.execute(query).mappings()]
