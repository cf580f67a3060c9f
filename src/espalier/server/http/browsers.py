"""What pages of other origins may send: CORS for the origins that are named, with the headers of browsers' SDKs."""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import FastAPI
from starlette.datastructures import Headers, MutableHeaders
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response

HEADERS = (
    "authorization",
    "content-type",
    "x-request-id",
    "x-api-key",
    "api-key",
    "idempotency-key",
    "openai-organization",
    "openai-project",
    "openai-beta",
    "anthropic-version",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
    "user-agent",
    "traceparent",
    "tracestate",
    "mcp-session-id",
    "mcp-protocol-version",
    "last-event-id",
)
"""Headers that the SDKs of OpenAI, Anthropic and MCP send from a page."""
TRACE_HEADER = "x-espalier-trace"
"""The ids of a reply's stored traces."""
SHOWN = ("x-request-id", "retry-after", "warning", "x-espalier-truncated", TRACE_HEADER, "mcp-session-id")
"""Headers of replies that a page may read."""
PREFIX = "x-stainless-"
"""How the SDKs' headers about themselves begin; there are more with every version."""
ASKED = "access-control-request-headers"
ALLOWED = "access-control-allow-headers"


class BrowserAccess(CORSMiddleware):
    """CORS that also allows every header with the SDKs' prefix, to origins that are allowed."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """The reply to a preflight request."""
        asked = [header.strip().lower() for header in request_headers.get(ASKED, "").split(",") if header.strip()]
        own = [
            header
            for header in asked
            if header.startswith(PREFIX) and header.replace("-", "").isalnum() and header.isascii()
        ]
        rest = MutableHeaders(raw=list(request_headers.raw))
        if own:
            rest[ASKED] = ", ".join(header for header in asked if header not in own) or "content-type"
        response = super().preflight_response(rest)
        if own and self.is_allowed_origin(origin=request_headers["origin"]):
            response.headers[ALLOWED] = ", ".join([response.headers[ALLOWED], *own])
        return response


def allow_origins(api: FastAPI, origins: Sequence[str]) -> None:
    """Let pages of these origins send requests and read replies. Without any, no reply names an origin."""
    if origins:
        api.add_middleware(
            BrowserAccess,
            allow_origins=list(origins),
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=list(HEADERS),
            expose_headers=list(SHOWN),
        )
