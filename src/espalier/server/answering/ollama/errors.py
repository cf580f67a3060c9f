"""Errors as Ollama writes them. It knows no body."""

from __future__ import annotations

from typing import Any

from espalier.errors import EspalierError
from espalier.server.http.errors import code_of, error_body

PREFIX = "/api/"
"""How the paths of Ollama's routes begin."""


def ollama_error(error: EspalierError) -> dict[str, Any]:
    """`{"error": message}`, for replies and for the last line of a stream. `param` and `code` are ours."""
    return {"error": error_body(error)["error"]["message"], "param": error.field, "code": code_of(error)}
