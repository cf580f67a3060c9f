"""What the routes need from the parts around them. Owned by the routes; each part is made in `apps.py`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from espalier.engines.base import Result


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks. name: of the key, `anonymous` without one; never the key itself."""

    name: str
    may_read_metrics: bool = True


class Gate(Protocol):
    """Lets callers in, as many and as often as they may."""

    @property
    def is_open(self) -> bool:
        """Whether nobody is asked for a key."""
        ...

    def identify(self, authorization: str | None, query_token: str | None) -> Caller:
        """Who asks, by the header and `?token=`. Raises Unauthorized."""
        ...

    def admit(self, caller: Caller, *, requests: int = 1) -> AbstractAsyncContextManager[None]:
        """Held while a generation runs. Raises TooManyRequests with its `retry_after` seconds."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Finish:
    """One output that has ended, as the meter counts it. Times in seconds, from the arrival of the request but for
    `queued`, the time spent waiting for a place, after the `preparing`: reading, rendering, compiling. error: the code
    of what went wrong. gaps: between one token and the next, where that was measured. is_first: of its prompt's
    outputs, so that the prompt is counted once."""

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
    """Counts. Never raises for what it is told."""

    def started(self, *, route: str, max_tokens: int, outputs: int) -> None: ...

    def compiled(self, *, constraint: str, seconds: float) -> None: ...

    def finished(self, finish: Finish) -> None: ...

    def refused(self, *, route: str, code: str) -> None: ...

    def unrecorded(self) -> None:
        """A recorder has failed to write something down."""
        ...

    def answered(self, *, route: str, status: int) -> None:
        """A response has been sent. route: the path as it was declared, never one that was asked for."""
        ...

    def text(self) -> bytes:
        """What `/metrics` answers."""
        ...


class TraceStore(Protocol):
    """Traces and generations, kept for a while. Every method blocks: call it in a worker thread."""

    def save_trace(
        self, trace: Mapping[str, Any], *, request_id: str, caller: str, index: int, route: str | None = None
    ) -> str:
        """Returns its id."""
        ...

    def save_generation(self, row: Mapping[str, Any]) -> None: ...

    def traces(self, *, caller: str | None, limit: int, after: str | None) -> Sequence[Mapping[str, Any]]:
        """Newest first, without steps."""
        ...

    def trace(self, trace_id: str, *, caller: str | None) -> Mapping[str, Any] | None:
        """The whole trace as `Trace.to_json` gave it, or None."""
        ...

    def delete_trace(self, trace_id: str, *, caller: str | None) -> bool:
        """Whether there was one."""
        ...

    def close(self) -> None: ...
