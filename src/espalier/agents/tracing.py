"""The verbs about stored traces: `list_traces`, `explain_trace`. A caller sees its own only."""

from __future__ import annotations

from espalier.agents.generating import EXPLANATION
from espalier.agents.verb import Answer, Arguments, Desk, JsonMapping, Verb
from espalier.api.explaining import explained
from espalier.errors import UnknownName
from espalier.store.trace_filter import TraceFilter
from espalier.trace.records import Trace

LIMIT, MOST = 20, 100


def stored_trace(desk: Desk, trace_id: str) -> JsonMapping:
    """A trace as it was stored. Raises NotAvailable, and UnknownName if this caller has none of that id."""
    trace = desk.stored().trace(trace_id, caller=desk.caller)
    if trace is None:
        raise UnknownName(f"there is no trace {trace_id!r:.80}", hint="list_traces", field="trace_id")
    return trace


def stored_rows(desk: Desk, *, limit: int, after: str | None = None) -> tuple[list[dict[str, object]], bool]:
    """Rows without steps, newest first, and whether there are more. Raises NotAvailable, InputError."""
    stored = desk.stored().traces(TraceFilter(caller=desk.caller, after=after), limit=limit + 1)
    rows = [{name: value for name, value in trace.items() if name != "caller"} for trace in stored[:limit]]
    return rows, len(stored) > limit


def _list_traces(arguments: Arguments, desk: Desk) -> Answer:
    rows, has_more = stored_rows(desk, limit=arguments.get("limit", LIMIT), after=arguments.get("after"))
    return {"traces": rows, "has_more": has_more}


def _explain_trace(arguments: Arguments, desk: Desk) -> Answer:
    return explained(Trace.from_json(stored_trace(desk, arguments["trace_id"])), "tool")


LIST_TRACES = Verb(
    name="list_traces",
    title="List traces",
    about="List the stored traces, newest first: what each constraint did, in sums.",
    properties={
        "limit": {"type": "integer", "minimum": 1, "maximum": MOST, "description": f"Default: {LIMIT}."},
        "after": {"type": "string", "description": "The last id of the page before."},
    },
    output={"traces": {"type": "array", "items": {"type": "object"}}, "has_more": {"type": "boolean"}},
    always=("traces", "has_more"),
    answers=_list_traces,
    reads_store=True,
)
EXPLAIN_TRACE = Verb(
    name="explain_trace",
    title="Explain a trace",
    about="Explain what the constraint of a stored generation cost: where, why, and what to do about it.",
    properties={"trace_id": {"type": "string", "description": "An id of list_traces, or of a generation."}},
    required=("trace_id",),
    output=EXPLANATION,
    always=tuple(EXPLANATION),
    answers=_explain_trace,
    reads_store=True,
)
