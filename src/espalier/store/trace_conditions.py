"""The SQL conditions of a `TraceFilter`. Values are bound, never part of the SQL."""

from __future__ import annotations

from typing import Any

from sqlalchemy import func, or_, select

from espalier.errors import InputError
from espalier.store import rows
from espalier.store.ids import first_id, is_id
from espalier.store.search.conditions import condition
from espalier.store.search.query import read_query
from espalier.store.tables import TRACE_SEARCH, TRACE_WORDS, TRACES
from espalier.store.trace_filter import PREFIX, TraceFilter, Verdict


def conditions_of(wanted: TraceFilter, *, is_sqlite: bool) -> list[Any]:
    """Raises InputError for an `after` that is no id, and a search without words."""
    its, conditions = TRACES.c, []
    equal = {"request_id": wanted.request_id, "model": wanted.model, "finish_reason": wanted.finish}
    conditions += [its[name] == rows.column_text(value) for name, value in equal.items() if value is not None]
    if wanted.caller is not None:
        conditions.append(its.caller == rows.caller_text(wanted.caller))
    if wanted.constraint == "none":
        conditions.append(its.constraint_kind.is_(None))
    elif wanted.constraint is not None:
        name = rows.column_text(wanted.constraint)
        conditions.append(or_(its.constraint_kind == name, its.fingerprint == name, _begins(its.title, name)))
    if wanted.verdict is not None:
        conditions.append(_verdict(wanted.verdict))
    if wanted.since is not None:
        conditions.append(its.id >= first_id(PREFIX, wanted.since))
    if wanted.until is not None:
        conditions.append(its.id < first_id(PREFIX, wanted.until))
    if wanted.min_tokens is not None:
        conditions.append(its.tokens >= wanted.min_tokens)
    if wanted.min_tax is not None:
        conditions.append(its.tax_nats >= wanted.min_tax)
    if wanted.path is not None:
        path = rows.column_text(wanted.path)
        conditions.append(or_(its.worst_path == path, _begins(its.worst_path, f"{path}/")))
    if wanted.after is not None:
        if not is_id(wanted.after, PREFIX):
            raise InputError("`after` is not an id of this list", hint="give the `last_id` of a page", field="after")
        conditions.append(its.id < wanted.after)
    if wanted.query is not None:
        words = TRACE_WORDS.c
        holds = condition(
            read_query(wanted.query), words=words.words, number=words.number, index=TRACE_SEARCH, is_sqlite=is_sqlite
        )
        conditions.append(its.id.in_(select(words.trace_id).where(holds)))
    return conditions


def _begins(column: Any, text: str) -> Any:
    """Whether a column begins with a text, in its very letters: LIKE takes other cases for the same in SQLite, and not
    in PostgreSQL."""
    return func.substr(column, 1, len(text)) == text


def _verdict(verdict: Verdict) -> Any:
    its = TRACES.c
    if verdict == "flagged":
        return its.flagged.is_(True)
    return its.valid.is_({"valid": True, "invalid": False, "unknown": None}[verdict])
