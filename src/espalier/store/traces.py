"""Stores traces: the values that lists show as columns, and the whole trace packed into one column."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import delete, insert, select

from espalier.errors import InputError
from espalier.store import rows
from espalier.store.ids import is_id
from espalier.store.packing import pack, unpack
from espalier.store.tables import TRACES

PREFIX = "trc"
SHOWN = 200
"""Characters of prompt and output that stand in a list."""


class TraceRows(rows.StoreRows):
    """The traces of all processes on one database."""

    def save_trace(
        self, trace: Mapping[str, Any], *, request_id: str, caller: str, index: int, route: str | None = None
    ) -> str:
        """Store `Trace.to_json()` and return its id, `trc_…`. index: which output of the request. Raises InputError if
        it is no trace."""
        body = pack(trace, what="trace")  # before the transaction: packing a long trace takes time
        values = columns_of(trace, request_id=request_id, caller=caller, index=index, route=route)
        trace_id, created = self._ids.new(PREFIX)
        values.update(id=trace_id, created=created, body=body)
        with self.database.writing() as connection:
            connection.execute(insert(TRACES).values(values))
        return trace_id

    def traces(self, *, caller: str | None, limit: int, after: str | None) -> Sequence[Mapping[str, Any]]:
        """Columns of the traces of a caller (None: of every caller), newest first, older than the id `after`.

        Raises InputError for a limit below 1 and an `after` that is no id.
        """
        with self.database.reading() as connection:
            return rows.newest(
                connection, TRACES, prefix=PREFIX, without="body", caller=caller, limit=limit, after=after
            )

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
        statement = delete(TRACES).where(TRACES.c.id == trace_id)
        if caller is not None:
            statement = statement.where(TRACES.c.caller == rows.caller_text(caller))
        with self.database.writing() as connection:
            return connection.execute(statement).rowcount > 0


def columns_of(
    trace: Mapping[str, Any], *, request_id: str, caller: str, index: int, route: str | None
) -> dict[str, Any]:
    """The columns of a list but for `id` and `created`, from the trace and its request. Raises InputError if a value is
    missing."""
    try:
        metadata, summary = trace["metadata"], trace["summary"]
        verdict, constraint = metadata["verdict"], metadata["constraint"]
        return {
            "model": rows.column_text(metadata["model"]),
            "strategy": rows.column_text(metadata["strategy"]),
            "constraint_kind": None if constraint is None else rows.optional_text(constraint.get("kind")),
            "finish_reason": rows.column_text(metadata["finish_reason"]),
            "valid": None if verdict is None else bool(verdict["valid"]),
            "tokens": len(trace["steps"]),
            "tax_nats": finite(summary["total_tax_nats"]),
            "removed_mass": finite(summary["mean_removed_mass"]),
            "rejected_steps": summary["rejected_steps"],
            "changed_steps": summary["changed_steps"],
            "unknown_steps": summary.get("unknown_steps"),
            "prompt": beginning(metadata.get("asked") or metadata["prompt"]),
            "text": beginning(trace["text"]),
            "bounded_steps": sum(step.get("exactness") == "bounded" for step in trace["steps"]),
            "request_id": rows.column_text(request_id),
            "caller": rows.caller_text(caller),
            "output_index": index,
            "route": rows.optional_text(route),
        }
    except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
        raise InputError(f"this is not a trace: {type(error).__name__} {error}", field="trace") from error


def beginning(text: Any) -> str:
    """The first characters of a text, which a list shows on one line."""
    return rows.column_text(" ".join(str(text)[:SHOWN].split()))


def finite(value: Any) -> float | None:
    """The number if it is finite, else None."""
    return float(value) if value is not None and math.isfinite(value) else None
