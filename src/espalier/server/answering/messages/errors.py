"""Errors as Anthropic writes them. It knows no body."""

from __future__ import annotations

from typing import Any

from espalier.errors import EspalierError
from espalier.server.http.errors import code_of, error_body

TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}
"""`type` by status. Other statuses below 500 are `invalid_request_error`, from 500 on `api_error`."""


def error_type(status: int) -> str:
    """Anthropic's name of an error, by status."""
    return TYPES.get(status, "invalid_request_error" if status < 500 else "api_error")


def messages_error(error: EspalierError, request_id: str | None = None) -> dict[str, Any]:
    """`{"type": "error", "error": {...}}`, for replies and for events of a stream. `param` and `code` are ours."""
    body: dict[str, Any] = {
        "type": "error",
        "error": {
            "type": error_type(error.http_status),
            "message": error_body(error)["error"]["message"],
            "param": error.field,
            "code": code_of(error),
        },
    }
    return body if request_id is None else {**body, "request_id": request_id}
