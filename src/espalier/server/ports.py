"""Protocols that the routes need of the gate, the meter and the trace store, which `process/opening.py` makes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from espalier.engines.base import Result
from espalier.store.costs.report import ConstraintCosts, PathWindow
from espalier.store.costs.window import CostWindow
from espalier.store.generations import GenerationFilter
from espalier.store.trace_filter import TraceFilter
from espalier.trace.text_policy import TextPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who sent a request. name: the name of the API key (never the key itself), `anonymous` without one. has_key:
    whether a valid key came with it."""

    name: str
    may_read_metrics: bool = True
    has_key: bool = False
    #: Whether it sees what is stored for all keys.
    is_admin: bool = False

    @property
    def sees(self) -> str | None:
        """Whose stored traces and logs it sees: its own, None for everybody's."""
        return None if self.is_admin else self.name


class Gate(Protocol):
    """Identifies callers and holds their rate and concurrency limits."""

    @property
    def is_open(self) -> bool:
        """Whether no API key is set, so that requests need none."""
        ...

    def identify(self, authorization: str | None, query_token: str | None) -> Caller:
        """The caller, from the Authorization header or `?token=`. Raises Unauthorized."""
        ...

    def admit(self, caller: Caller, *, requests: int = 1, sequences: int = 0) -> AbstractAsyncContextManager[None]:
        """Held open while a generation runs. requests: how many outputs. Raises TooManyRequests with `retry_after`."""
        ...

    def admit_cheap(self, caller: Caller) -> None:
        """Count a request of a route that costs nearly nothing. Raises TooManyRequests with `retry_after`."""
        ...

    def charge(self, name: str, seconds: float) -> None:
        """CPU seconds were spent for the caller of this name. Any thread may call it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """One output that has ended, for the meter. Times are seconds. preparing: from arrival until the engine took it
    (read, rendered, compiled). queued: after that, until it ran. to_first_token, total: from arrival. error: the code
    of what went wrong. gaps: from one token to the next, if measured. is_first: the first output of its prompt, for
    which the prompt is counted."""

    route: str
    model: str
    result: Result | None
    error: str | None
    queued: float
    to_first_token: float | None
    total: float
    constraint: str | None
    streamed: bool
    gaps: tuple[float, ...] = ()
    preparing: float = 0.0
    is_first: bool = True


class Meter(Protocol):
    """Counts. No method raises."""

    def started(self, *, route: str, max_tokens: int, outputs: int) -> None: ...

    def compiled(self, *, constraint: str, seconds: float) -> None: ...

    def finished(self, finish: Finish) -> None: ...

    def refused(self, *, route: str, code: str) -> None: ...

    def unrecorded(self) -> None:
        """A recorder failed."""
        ...

    def unkept(self) -> None:
        """A trace was not stored."""
        ...

    def answered(self, *, route: str, status: int) -> None:
        """A response was sent. route: the declared path of the route, never the path of the request."""
        ...

    def text(self) -> bytes:
        """The body of `/metrics`."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaMetrics:
    """texts: the metrics of each replica, by its name. lost: how many did not answer."""

    texts: Mapping[str, bytes]
    lost: int = 0


class Replicas(Protocol):
    """The replicas that serve one application, this process among them."""

    async def metrics(self) -> ReplicaMetrics:
        """The metrics of all that answer, of this one at the least. Does not raise."""
        ...


class ResponseStore(Protocol):
    """Stores replies of `/v1/responses`. Every method blocks: call it in a thread."""

    def save_response(self, response_id: str, body: Mapping[str, Any], *, caller: str) -> None: ...

    def response(self, response_id: str, *, caller: str) -> Mapping[str, Any] | None:
        """What was stored, None if this caller has no response with the id."""
        ...

    def delete_response(self, response_id: str, *, caller: str) -> bool:
        """Whether there was one."""
        ...


class TraceStore(Protocol):
    """Stores traces. Every method blocks but `new_trace_id`: call it in a thread. caller: None for every
    caller."""

    def new_trace_id(self) -> str:
        """An id for `save_trace`."""
        ...

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
        """Store a trace (`Trace.to_json()`) and return its id. index: which output of the request. more: see
        `trace_columns.columns_of`."""
        ...

    def traces(self, wanted: TraceFilter, *, limit: int) -> Sequence[Mapping[str, Any]]:
        """Newest first, without steps. Raises InputError for a wrong `after` or query."""
        ...

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
        """Whether the request is flagged now, None if it is not stored."""
        ...

    def feedback(self, request_id: str, *, caller: str | None) -> Sequence[Mapping[str, Any]]:
        """What clients said of a request."""
        ...

    def trace(self, trace_id: str, *, caller: str | None) -> Mapping[str, Any] | None:
        """The whole trace as it was stored, None if there is none of this caller."""
        ...

    def costs(self, window: CostWindow) -> Sequence[ConstraintCosts]:
        """The costs of each constraint in a window, that with the greatest tax first."""
        ...

    def cost_paths(self, window: CostWindow, fingerprint: str) -> Sequence[PathWindow]:
        """The costs of each path of a constraint, the dearest first."""
        ...

    def cost_constraint(self, fingerprint: str, *, caller: str | None) -> Mapping[str, Any] | None:
        """`kind`, `title` and `spec` of a constraint, None if no answer of this caller had it."""
        ...

    def delete_trace(self, trace_id: str, *, caller: str | None) -> bool:
        """Delete a trace; returns whether it existed."""
        ...

    def close(self) -> None: ...


class LogStore(Protocol):
    """Stores generation logs. Every method blocks: call it in a thread. caller: None for every caller."""

    def save_generation(self, row: Mapping[str, Any]) -> str:
        """Store a row of `api/log_rows.py` and return its id."""
        ...

    def generations(self, wanted: GenerationFilter, *, limit: int) -> Sequence[Mapping[str, Any]]:
        """Newest first, without request and content. Raises InputError for a wrong `after` or query."""
        ...

    def generation(self, generation_id: str, *, caller: str | None) -> Mapping[str, Any] | None:
        """A whole row, None if there is none of this caller."""
        ...
