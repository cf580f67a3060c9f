"""Adds the server's own recorders, such as the rejection log, to the requests of everyone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from espalier.engines.base import Request
from espalier.server.process.state import Process
from espalier.trace.records import LEVELS

CANDIDATES = 10
"""Candidates of each stage that recorders get, if MAX_CANDIDATES leaves room."""


def recorded(requests: Sequence[Request], process: Process, *, request_id: str) -> tuple[Request, ...]:
    """The requests with the server's recorders, and with as many candidates as these need."""
    if not process.recorders:
        return tuple(requests)
    wants_steps = any(LEVELS.index(recorder.level) >= LEVELS.index("steps") for recorder in process.recorders)
    most = max(1, process.engine.capabilities.max_context)
    tokens = sum(min(request.sampling.max_tokens, most) * request.decoding.num_return_sequences for request in requests)
    room = min(CANDIDATES, process.settings.max_candidates // max(1, tokens)) if wants_steps else 0
    return tuple(
        replace(
            request,
            recorders=(*request.recorders, *process.recorders),
            request_id=request_id,
            trace_top_k=max(request.trace_top_k, room),
        )
        for request in requests
    )
