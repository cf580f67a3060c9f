"""Turns errors into HTTP replies in OpenAI's shape, and adds the errors that only a server has.

It knows the errors of `espalier.errors` by their status and code alone.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from espalier.errors import EspalierError, InputError, PromptTooLong, UnknownModel
from espalier.server.http.wire import JsonResponse
from espalier.wording import in_words

log = logging.getLogger(__name__)


class BadRequest(InputError):
    """The request body is not valid."""


class UnknownParameter(InputError):
    """There is no such field."""


class UnsupportedParameter(InputError):
    """This field is not supported here."""


class TooCostly(InputError):
    """Preparing this request takes more time or memory than a request may use."""


class BodyTooLarge(InputError):
    """The body is too large."""

    http_status = 413


class BodyTimeout(InputError):
    """The body did not arrive in time."""

    http_status = 408


class WrongMediaType(InputError):
    """The body must be sent as application/json."""

    http_status = 415


class NotFound(InputError):
    """There is nothing here."""

    http_status = 404


class PreviousResponseNotFound(InputError):
    """There is no such response to go on from."""


class MethodNotAllowed(InputError):
    """This address does not take this method."""

    http_status = 405


class BadGateway(EspalierError):
    """The server behind this proxy does not answer."""

    http_status = 502


class GatewayTimeout(EspalierError):
    """The server behind this proxy did not answer in time."""

    http_status = 504


CODES: Mapping[type[EspalierError], str] = {UnknownModel: "model_not_found", PromptTooLong: "context_length_exceeded"}
"""Errors for which OpenAI has a code of its own."""
TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    499: "cancelled_error",
    501: "not_supported_error",
    503: "unavailable_error",
    504: "timeout_error",
    507: "storage_error",
}
"""`type` by status. Other statuses below 500 are `invalid_request_error`, from 500 on `server_error`."""
LONGEST = 1000
"""The most characters of a message; the rest is cut."""
RETRY_AFTER = 1
"""Seconds, if the error has no `retry_after`."""
MAY_PASS = frozenset({408, 429, 500, 502, 503, 504})
"""Statuses of faults that another try may not meet: a slow sender, a full server, a fault of ours or of an upstream."""
STATUSES: Mapping[int, type[EspalierError]] = {404: NotFound, 405: MethodNotAllowed}
"""Our errors for the statuses of Starlette's router."""

ErrorShape: TypeAlias = Callable[[EspalierError, Request], Response]
"""Makes the reply to an error. WORDLIST_SERVER_COMPAT uses another than OpenAI's."""


def code_of(error: EspalierError) -> str:
    """A stable snake_case name for machines; OpenAI's name if it has one."""
    return CODES.get(type(error), error.code)


def error_body(error: EspalierError) -> dict[str, Any]:
    """`{"error": {...}}`, for replies and for events of a stream."""
    status = error.http_status
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    message = in_words(error.message, "http")
    message = f"{message} ({in_words(error.hint, 'http')})" if error.hint else message
    if len(message) > LONGEST:  # messages quote what the client sent, which may be long
        message = f"{message[:LONGEST]}…"
    return {"error": {"message": message, "type": kind, "param": error.field, "code": code_of(error)}}


def error_headers(error: EspalierError) -> dict[str, str]:
    """`retry-after` for 429 and 503, `www-authenticate` for 401, and `x-should-retry: false` where another try would
    end the same: SDKs repeat a 501 for more than a minute otherwise."""
    if error.http_status in (429, 503):
        return {"retry-after": str(max(1, round(getattr(error, "retry_after", RETRY_AFTER))))}
    headers = {} if error.http_status in MAY_PASS else {"x-should-retry": "false"}
    return headers | ({"www-authenticate": "Bearer"} if error.http_status == 401 else {})


LLAMA_ROUTES = frozenset({"/completion", "/completions", "/infill", "/apply-template"})
LLAMA_TOO_LONG = "exceed_context_size_error"


def path_of(request: Request) -> str:
    """The path of a request below the server's root path."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", ""))


def shape_where(is_own: Callable[[str, Request], bool], write: ErrorShape, other: ErrorShape) -> ErrorShape:
    """Errors as `write` has them where `is_own` of the path and the request, and in the other shape elsewhere."""

    def shape(error: EspalierError, request: Request) -> Response:
        return (write if is_own(path_of(request), request) else other)(error, request)

    return shape


def openai_shape(error: EspalierError, request: Request) -> Response:
    """The reply to an error, as OpenAI writes it. On llama-server's routes a prompt that is too long has its type and
    counts."""
    body = error_body(error)
    if isinstance(error, PromptTooLong) and path_of(request) in LLAMA_ROUTES:
        body["error"] |= {"type": LLAMA_TOO_LONG, "n_prompt_tokens": error.tokens, "n_ctx": error.context}
    return JsonResponse(body, status_code=error.http_status, headers=error_headers(error))


def tell_cause(error: EspalierError, request: Request) -> None:
    """The cause of a 500 goes to the log, with the id that the client sees."""
    fields = {"fields": {"request_id": getattr(request.state, "request_id", None)}}
    log.error("%s: %s", type(error).__name__, error, extra=fields, exc_info=error)


def internal_error(request_id: str) -> EspalierError:
    """The error for a fault in the server: it names the request id, under which the log has the details, and no
    more."""
    return EspalierError("something went wrong in the server", hint=f"the log has the details under {request_id}")


def install(app: FastAPI, shape: ErrorShape = openai_shape) -> None:
    """Reply to our errors and to the router's in this shape. Unexpected exceptions are handled in `asgi.py`."""

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, EspalierError)
        if error.http_status == 500:
            tell_cause(error, request)
        return shape(error, request)

    async def routers(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        made = STATUSES.get(error.status_code, BadRequest)
        answer = shape(made(None if made is not BadRequest else error.detail, field=None), request)
        for name, value in (error.headers or {}).items():
            answer.headers[name] = value
        return answer

    async def fields(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        path = field_path(tuple(first["loc"][1:]))  # the first part is "path", "query" or "body"
        return shape(BadRequest(f"{path}: {first['msg']}" if path else str(first["msg"]), field=path or None), request)

    app.add_exception_handler(RequestValidationError, fields)
    app.add_exception_handler(EspalierError, ours)
    app.add_exception_handler(HTTPException, routers)


def field_path(loc: tuple[int | str, ...]) -> str:
    """`("messages", 0, "content", "str")` -> `messages[0].content`. Names of union members, which pydantic adds, are
    left out."""
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part not in UNIONS and not part.startswith(("list[", "dict[", "literal[", "function-")):
            path += f".{part}" if path else part
    return path


UNIONS = frozenset({"str", "int", "float", "bool", "none", "[key]"})
"""Pydantic's names of union members. No field has one of these names."""


def documented(*statuses: int, schema: str = "ErrorReply") -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route: the statuses, each with the schema of an error."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {status: {"description": MEANINGS[status], "content": content} for status in statuses}


MEANINGS = {
    400: "The request is wrong; `param` names the field.",
    401: "The key is missing or wrong.",
    403: "This key is not allowed to do this.",
    404: "There is no such model or route.",
    405: "The route does not take this method.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not sent as application/json.",
    429: "Too many requests: retry after `retry-after` seconds.",
    499: "The client disconnected.",
    500: "A fault in the server; the log has the details under the request id.",
    501: "This model cannot do it, or an optional dependency is not installed.",
    502: "The server behind this one failed, or did not keep the constraint.",
    503: "The server is full, starting or closing: retry later.",
    504: "The request took longer than its limit.",
    507: "The disk of the server is full.",
}
GENERATION_ERRORS = (400, 401, 403, 404, 405, 408, 413, 415, 429, 499, 500, 501, 502, 503, 504)
READING_ERRORS = (400, 401, 403, 404, 405, 500, 503)
