"""Keeps the tax and the removed mass of requests in our store: a generation log for each, as `espalier logs` reads, and
a trace without steps, which adds to the sums of `espalier costs` as every trace does.

Rows are written by a thread of their own, so that no step waits for the database. A request that left without a
finished text may come back, as one that was preempted does; its row waits for that a while.
"""

from __future__ import annotations

import atexit
import logging
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from espalier.integrations.vllm.report import StepReport
from espalier.store.open import open_store
from espalier.store.writer import RowWriter
from espalier.trace.records import Trace
from espalier.trace.summary import TraceSummary

log = logging.getLogger(__name__)
WAITING_SECONDS = 60.0
"""After which a request that left without a finished text does not come back."""
MOST_WAITING = 1_000
TRACE = "trace"
"""Of a row: the Trace that is stored beside the log."""
UNTOLD = "unknown"
"""vLLM does not say why a text ended that is not finished: it may be the limit, or the client."""


@dataclass(slots=True)
class _Sums:
    """began, left: seconds of the clock; left is None while it runs. changed: steps at which the model's top choice was
    not allowed."""

    began: float
    steps: int = 0
    tokens: int = 0
    tax: float = 0.0
    mass: float = 0.0
    changed: int = 0
    constraint: Mapping[str, Any] | None = None
    failure: str = ""
    left: float | None = None


class TraceReporter:
    """A Reporter. put: has a row made and written. clock: seconds. closed: called at the end."""

    def __init__(
        self,
        put: Callable[[Callable[[], Mapping[str, Any]]], None],
        *,
        model: str,
        clock: Callable[[], float] = time.monotonic,
        closed: Callable[[], object] = lambda: None,
    ) -> None:
        self._put, self._model, self._clock, self._closed = put, model, clock, closed
        self._open: dict[str, _Sums] = {}

    def __call__(self, step: StepReport) -> None:
        now = self._clock()
        if step.left and step.id not in self._open:  # it failed, and has its row
            return
        sums = self._open.setdefault(step.id, _Sums(began=now))
        sums.constraint = sums.constraint or step.constraint
        if step.failure:
            sums.failure, sums.tokens = step.failure, step.step
            self._end(step.id, None)
        elif step.left:
            sums.tokens, sums.left = step.step, now
            if step.left == "finished":
                self._end(step.id, "stop")
        else:
            sums.left = None
            sums.steps += 1
            sums.tax += step.tax_nats
            sums.mass += step.removed_mass
            sums.changed += step.was_changed
        self._sweep(now)

    def close(self) -> None:
        """Rows of all that has not ended, and the end of the writing."""
        for name in list(self._open):
            self._end(name, None)
        self._closed()

    def _sweep(self, now: float) -> None:
        gone = [name for name, row in self._open.items() if row.left is not None and now - row.left > WAITING_SECONDS]
        waiting = [name for name, row in self._open.items() if row.left is not None and name not in gone]
        for name in (*gone, *waiting[: max(0, len(waiting) - MOST_WAITING)]):
            self._end(name, None)

    def _end(self, name: str, reason: str | None) -> None:
        sums = self._open.pop(name)
        row = {
            "request_id": name or "unnamed",
            "caller": "vllm",
            "route": "vllm",
            "model": self._model,
            "engine": "vllm",
            "completion_tokens": sums.tokens,
            "tax_nats": sums.tax,
            "removed_mass": sums.mass / sums.steps if sums.steps else None,
            "total": self._clock() - sums.began,
            "finish_reason": reason,
            "error": sums.failure or None,
            "constraint_kind": None if sums.constraint is None else sums.constraint.get("kind"),
            TRACE: _trace(sums, self._model, reason) if math.isfinite(sums.tax) else None,
        }
        self._put(lambda: row)


def _trace(sums: _Sums, model: str, reason: str | None) -> Trace:
    """The sums of a request as a trace of level `summary`: its texts and steps are not known here."""
    return Trace(
        model=model,
        constraint=sums.constraint,
        finish_reason=reason or UNTOLD,
        level="summary",
        text="",
        steps=(),
        setup={"traced": "vllm"},
        sums=TraceSummary(
            total_steps=sums.tokens,
            total_tax_nats=sums.tax,
            mean_removed_mass=sums.mass / sums.steps if sums.steps else 0.0,
            changed_steps=sums.changed,
            rejected_steps=0,
            forced_steps=0,
            mean_entropy_before=0.0,
            mean_entropy_after=0.0,
        ),
    )


def save_row(store: Any, row: Mapping[str, Any]) -> str:
    """Store the trace of a request, then its log, which names the trace. A request of which a step left nothing has no
    sum, and no trace."""
    log_row = {name: value for name, value in row.items() if name != TRACE}
    if row[TRACE] is not None:
        log_row["trace_id"] = store.save_trace(
            row[TRACE].to_json(),
            request_id=row["request_id"],
            caller=row["caller"],
            index=0,
            route=row["route"],
            total=row["total"],
        )
    return str(store.save_generation(log_row))


def store_reporter(url: str, *, model: str) -> TraceReporter:
    """Keeps reports in the database at a URL, which is opened now, so that a wrong one is told at the start. Raises
    what `open_store` raises."""
    store = open_store(url)
    writer = RowWriter(lambda: store, save_row, what="generations", tell=log.warning, tells_all=True)

    def put(make: Callable[[], Mapping[str, Any]]) -> None:
        writer.put(make)
        atexit.unregister(writer.close)  # which would run before ours, and take no more rows

    keeper = TraceReporter(put, model=model, closed=writer.close)
    atexit.register(keeper.close)
    return keeper
