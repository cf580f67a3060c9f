"""Traces of replies in which nothing can be traced: the outputs with their texts, every step unknown, and the reason.

What the reply itself lists of a step stands there; it is held for no verdict.
"""

from __future__ import annotations

from dataclasses import replace

from espalier.trace.foreign.responses import ApiChoice, Response, ResponseError, read_response
from espalier.trace.foreign.steps import of_reply
from espalier.trace.records import Trace
from espalier.upstream.xray.record import CANCELLED, FROM, asked_constraint
from espalier.upstream.xray.wire.request import Asked


def untraceable(client_request: Asked, why: str, raw: bytes | None, *, is_cut: bool = False) -> list[tuple[int, Trace]]:
    """A trace of each output, by its index; one without text where the reply cannot be read. raw: the reply, whole or
    as a stream; None where it is not known. is_cut: whether it ended before its end."""
    end = CANCELLED if is_cut else "stop"
    why = f"{why}; the reply was cut" if is_cut else why
    try:
        reply = None if raw is None else read_response(raw)
    except ResponseError as error:
        reply, why = None, f"{why}; its reply cannot be read: {error.message}"
    if reply is None:
        return [(0, _trace(client_request, why, None, None, end=end))]
    return [(choice.index, _trace(client_request, why, reply, choice, end=end)) for choice in reply.choices]


def _trace(client_request: Asked, why: str, reply: Response | None, choice: ApiChoice | None, *, end: str) -> Trace:
    listed = () if choice is None or choice.steps is None else choice.steps
    steps = tuple(
        replace(of_reply(place, entry, None), exactness="untraceable", note=why) for place, entry in enumerate(listed)
    )
    return Trace(
        steps=steps,
        text="" if choice is None else choice.text,
        finish_reason=(None if choice is None else choice.finish_reason) or end,
        model="" if reply is None else reply.model,
        prompt="" if reply is None else reply.prompt,
        asked=client_request.last_said(0 if choice is None else choice.index),
        constraint=asked_constraint(client_request),
        sampling={"sampler": FROM},
        strategy="rejection",
        setup={
            "traced": "xray",
            "steps": {"exact": 0, "bounded": 0, "untraceable": len(steps)},
            "rejected": 0,
            "unknown": len(steps),
            "asked_again": 0,
            "reason": f"untraceable: {why}",
        },
    )
