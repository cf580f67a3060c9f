"""Errors as HTTP answers them: OpenAI's shape, the status of the error, nothing of our insides.

It knows every error of `espalier.errors` by its status alone, and adds those that only a server has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from espalier.errors import EspalierError, InputError, UnknownModel
from espalier.server.http.wire import JsonResponse


class BadRequest(InputError):
    """The body is not what this route takes."""


class UnknownParameter(InputError):
    """There is no such field."""


class UnsupportedParameter(InputError):
    """This field cannot be had here, so it is refused."""


class TooCostly(InputError):
    """Preparing this takes more time or room than a request is given."""


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


class MethodNotAllowed(InputError):
    """This address does not take this method."""

    http_status = 405


CODES: Mapping[type[EspalierError], str] = {UnknownModel: "model_not_found"}
"""Where OpenAI has a name of its own."""
TYPES = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error",
         499: "cancelled_error", 503: "unavailable_error", 504: "timeout_error"}  # fmt: skip
"""By status; below 500 the others are `invalid_request_error`, from 500 on `server_error`."""
LONGEST = 1000
"""Characters of a message."""
RETRY_AFTER = 1
"""Seconds, where the error does not say."""
STATUSES: Mapping[int, type[EspalierError]] = {404: NotFound, 405: MethodNotAllowed}
"""What the router itself says, as errors of ours."""

ErrorShape: TypeAlias = Callable[[EspalierError, Request], Response]
"""Makes the answer to an error; a server may have another than OpenAI's."""


def code_of(error: EspalierError) -> str:
    """A stable snake_case name for machines, OpenAI's where it has one."""
    return CODES.get(type(error), error.code)


def error_body(error: EspalierError) -> dict[str, Any]:
    """`{"error": {...}}`, as in an answer and in a stream."""
    status = error.http_status
    kind = TYPES.get(status, "invalid_request_error" if status < 500 else "server_error")
    message = str(error)
    if len(message) > LONGEST:  # it shows what was sent, of which nobody wants all back
        message = f"{message[:LONGEST]}…"
    return {"error": {"message": message, "type": kind, "param": error.field, "code": code_of(error)}}


def error_headers(error: EspalierError) -> dict[str, str]:
    """What tells a client when to come again, and how to show who it is."""
    if error.http_status in (429, 503):
        return {"retry-after": str(max(1, round(getattr(error, "retry_after", RETRY_AFTER))))}
    return {"www-authenticate": "Bearer"} if error.http_status == 401 else {}


def openai_shape(error: EspalierError, _request: Request) -> Response:
    """OpenAI's answer to an error."""
    return JsonResponse(error_body(error), status_code=error.http_status, headers=error_headers(error))


def internal_error(request_id: str) -> EspalierError:
    """What a client is told of a fault of ours: where it can be found in the log, and nothing else."""
    return EspalierError("something went wrong in the server", hint=f"the log has it under {request_id}")


def install(app: FastAPI, shape: ErrorShape = openai_shape) -> None:
    """Every error of ours, and what the router refuses, gets this shape. What is none of ours is caught further out,
    in `asgi.py`."""

    async def ours(request: Request, error: Exception) -> Response:
        assert isinstance(error, EspalierError)
        return shape(error, request)

    async def routers(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        made = STATUSES.get(error.status_code, BadRequest)
        said = made(None if made is not BadRequest else error.detail, field=None)
        answer = shape(said, request)
        for name, value in (error.headers or {}).items():
            answer.headers[name] = value
        return answer

    async def fields(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        first = error.errors()[0]
        path = field_path(tuple(first["loc"][1:]))  # the first part says whether it is in the path, query or body
        return shape(BadRequest(f"{path}: {first['msg']}" if path else str(first["msg"]), field=path or None), request)

    app.add_exception_handler(RequestValidationError, fields)
    app.add_exception_handler(EspalierError, ours)
    app.add_exception_handler(HTTPException, routers)


def field_path(loc: tuple[int | str, ...]) -> str:
    """`("messages", 0, "content", "str")` -> `messages[0].content`: without the members of unions, which pydantic
    names too."""
    path = ""
    for part in loc:
        if isinstance(part, int):
            path += f"[{part}]"
        elif part not in UNIONS and not part.startswith(("list[", "dict[", "literal[", "function-")):
            path += f".{part}" if path else part
    return path


UNIONS = frozenset({"str", "int", "float", "bool", "none", "[key]"})
"""Names of the members of unions, as pydantic has them. No field is called so."""


def documented(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For `responses=` of a route: each with the shape of an error."""
    content = {"application/json": {"schema": {"$ref": "#/components/schemas/ErrorReply"}}}
    return {status: {"description": MEANINGS[status], "content": content} for status in statuses}


MEANINGS = {400: "What is asked is wrong; `param` names the field.", 401: "The key is missing or wrong.",
            403: "This key may not.", 404: "There is no such model or address.",
            405: "Another method is taken here.", 408: "The body did not arrive in time.",
            413: "The body is too large.", 415: "The body is not sent as application/json.",
            429: "Too many requests: come again after `retry-after` seconds.", 499: "The client has gone.",
            500: "A fault in the server; the log has it by the request id.",
            501: "An optional part is not installed.",
            503: "The server is full, starting or closing: come again.",
            504: "It took longer than a request is given."}  # fmt: skip
GENERATION_ERRORS = (400, 401, 403, 404, 405, 408, 413, 415, 429, 499, 500, 501, 503, 504)
READING_ERRORS = (400, 401, 403, 404, 405, 500, 503)
