"""Stores what clients say of answers: a score or a text for a request, by a name. It flags the request's traces and
logs, which retention then keeps longer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Table, delete, func, select, update

from espalier.errors import InputError
from espalier.store import rows
from espalier.store.tables import FEEDBACK, GENERATION_LOGS, TRACES

GOOD = 0.5
"""From this score on an answer is not flagged, if the client does not say."""
MOST_NAMES = 20
"""Feedback of different names on one request."""


class FeedbackRows(rows.StoreRows):
    """The feedback of all processes on one database."""

    def save_feedback(
        self,
        request_id: str,
        *,
        caller: str | None,
        name: str,
        score: float | None = None,
        text: str | None = None,
        flag: bool | None = None,
    ) -> bool | None:
        """Store what is said of a request under a name, in place of what was said before under it. flag: whether the
        answer is bad; None: it is if there is no score, or one below GOOD. Returns whether the request is flagged now;
        None: this caller (None: everybody) has no stored request of that id. Raises InputError without score and text,
        and for the 21st name."""
        if score is None and not text:
            raise InputError("feedback needs a score or a text", field="score")
        request_id, name = rows.column_text(request_id), rows.column_text(name)
        values = {
            "created": self._clock(),
            "score": score,
            "text": rows.optional_text(text),
            "flag": (score is None or score < GOOD) if flag is None else flag,
        }
        with self.database.writing() as connection:
            owners = _owners(connection, request_id, caller)
            for owner in owners:
                names = _names(connection, owner, request_id)
                if name not in names and len(names) >= MOST_NAMES:
                    raise InputError(f"a request has feedback of at most {MOST_NAMES} names", field="name")
                key = {"caller": owner, "request_id": request_id, "name": name}
                put = self.database.insert(FEEDBACK).values(key | values)
                connection.execute(put.on_conflict_do_update(index_elements=list(key), set_=values))
            flagged = [_flag(connection, owner, request_id) for owner in owners]
        return any(flagged) if owners else None

    def feedback(self, request_id: str, *, caller: str | None) -> Sequence[Mapping[str, Any]]:
        """What was said of a request, oldest first: `name`, `score`, `text`, `flag`, `created`."""
        its = FEEDBACK.c
        query = select(its.name, its.score, its.text, its.flag, its.created).order_by(its.created, its.name)
        query = query.where(its.request_id == rows.column_text(request_id))
        if caller is not None:
            query = query.where(its.caller == rows.caller_text(caller))
        with self.database.reading() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]


def remove_orphans(connection: Connection, requests: Iterable[tuple[str, str]]) -> None:
    """Delete the feedback on requests, each a caller and a request id, of which neither a trace nor a log is left."""
    for caller, request_id in set(requests):
        if not _owners(connection, request_id, caller):
            its = FEEDBACK.c
            connection.execute(delete(FEEDBACK).where(its.caller == caller, its.request_id == request_id))


def _owners(connection: Connection, request_id: str, caller: str | None) -> list[str]:
    """Whose requests have this id."""
    owners: set[str] = set()
    for table in (TRACES, GENERATION_LOGS):
        query = select(table.c.caller).where(table.c.request_id == request_id).distinct()
        if caller is not None:
            query = query.where(table.c.caller == rows.caller_text(caller))
        owners.update(connection.execute(query).scalars())
    return sorted(owners)


def _names(connection: Connection, owner: str, request_id: str) -> set[str]:
    its = FEEDBACK.c
    query = select(its.name).where(its.caller == owner, its.request_id == request_id)
    return set(connection.execute(query).scalars())


def _flag(connection: Connection, owner: str, request_id: str) -> bool:
    """Flag the rows of a request if their verdict or any feedback says so. Returns whether feedback does."""
    its = FEEDBACK.c
    query = select(func.count()).where(its.caller == owner, its.request_id == request_id, its.flag.is_(True))
    is_bad = bool(connection.execute(query).scalar_one())
    for table in (TRACES, GENERATION_LOGS):
        _set_flag(connection, table, owner, request_id, is_bad=is_bad)
    return is_bad


def _set_flag(connection: Connection, table: Table, owner: str, request_id: str, *, is_bad: bool) -> None:
    its = table.c
    value = True if is_bad else func.coalesce(its.valid.is_(False), False)
    which = (its.caller == owner, its.request_id == request_id)
    connection.execute(update(table).where(*which).values(flagged=value))
