"""The last event of a stream that cannot be finished, as the route at its path writes an error; for a proxy, which does
not have the routes.

It imports no route: a proxy of a cluster starts in a second without the application.
"""

from __future__ import annotations

from espalier.errors import EspalierError
from espalier.server.answering.messages.errors import messages_error
from espalier.server.answering.ollama.errors import PREFIX as OLLAMA
from espalier.server.answering.ollama.errors import ollama_error
from espalier.server.http.errors import code_of, error_body
from espalier.server.http.sse import event
from espalier.server.http.wire import to_bytes

MESSAGES, RESPONSES = "/v1/messages", "/v1/responses"
"""Routes, beside those of Ollama, whose errors have shapes of their own."""


def write_error_event(error: EspalierError, path: str) -> bytes:
    """path: of the request."""
    if path == MESSAGES:
        return event(messages_error(error), name="error")
    if path == RESPONSES:
        return event(
            {"type": "error", "code": code_of(error), "message": error_body(error)["error"]["message"], "param": None},
            name="error",
        )
    if path.startswith(OLLAMA):
        return to_bytes(ollama_error(error)) + b"\n"
    return event(error_body(error))
