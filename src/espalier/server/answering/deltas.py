"""`deltas_of`: a finished turn as deltas, so that whole replies are built as streams are. It knows no reply."""

from __future__ import annotations

from collections.abc import Iterator

from espalier.chat.reading.deltas import ArgumentsDelta, CallBegun, CallEnded, ContentDelta, Delta, ReasoningDelta
from espalier.engines.base import Result


def deltas_of(result: Result) -> Iterator[Delta]:
    """A finished turn as the deltas of which it could have been made."""
    if result.reasoning:
        yield ReasoningDelta(result.reasoning)
    if result.content:
        yield ContentDelta(result.content)
    for place, call in enumerate(result.tool_calls):
        yield CallBegun(place, call.name, call.id)
        yield ArgumentsDelta(place, call.arguments)
        if call.is_complete:
            yield CallEnded(place)
