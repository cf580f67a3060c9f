"""Reads a body of `/v1/responses/compact` as one of `/v1/responses` that asks the model for a summary."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from espalier.server.asking.responses.ask import ParsedResponsesRequest, ask_responses
from espalier.server.bodies.base import read_body
from espalier.server.bodies.responses import CompactBody, ResponsesBody
from espalier.server.http.errors import BadRequest
from espalier.server.process.state import Process

Json = dict[str, Any]
SUMMARIZE = (
    "Summarize this conversation so that it can go on from the summary alone: what was asked, what was found and "
    "decided, what is still to do. Write the summary and nothing else."
)
"""The message behind the conversation."""


def ask_compact(body: CompactBody, process: Process, *, history: Sequence[Json] = ()) -> ParsedResponsesRequest:
    """Read a body. history: the items of earlier responses. Raises what `ask_responses` raises."""
    fields = body.model_dump(exclude_unset=True, exclude_none=True, by_alias=True)
    own = fields.get("input", [])
    if isinstance(own, str):
        own = [{"type": "message", "role": "user", "content": own}]
    if not own and not history:
        raise BadRequest("there is no conversation", hint="input or previous_response_id", field="input")
    fields |= {"input": [*own, {"type": "message", "role": "user", "content": SUMMARIZE}], "store": False}
    return ask_responses(read_body(ResponsesBody, fields), process, history=history)
