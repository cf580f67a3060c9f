"""Writes log lines to stderr, as JSON objects or text, and one line per response. No prompts, keys or query strings.

It replaces uvicorn's access log, which would show `?token=`. Prompts and answers are logged at DEBUG, and only with
LOG_CONTENT=true. It knows no route; a route adds fields to its line with `add_fields`.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Mapping, MutableMapping
from datetime import UTC, datetime
from typing import Any, TextIO

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from espalier.errors import EspalierError
from espalier.server.settings import ServerSettings

ACCESS = logging.getLogger("espalier.access")
CONTENT = logging.getLogger("espalier.content")
OURS = ("espalier", "uvicorn", "uvicorn.error", "uvicorn.asgi")
HIDDEN = "***"
SECRETS = re.compile(
    r"(?P<name>\b(?:token|api[_-]?key|secret_token)\b[\"']?\s*[=:]\s*[\"']?|\b(?:bearer|basic)\s+)[^\s&\"',;}]+",
    re.IGNORECASE,
)
PASSWORD = re.compile(r"(?P<name>\b[a-z][a-z0-9+.-]{0,30}://[^\s:/@]{0,256}:)[^\s@]{1,2048}(?=@)", re.IGNORECASE)
CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029]")
QUIET = frozenset({"/health", "/v1/health", "/ready", "/metrics"})
"""Routes that are polled every few seconds: logged at DEBUG unless they fail."""
_FIELDS = "espalier.log"
_START_FAILED = re.compile(
    r"\ATraceback \(most recent call last\):\n.*\nespalier\.[\w.]+\.(\w+): (.*?)\s*\Z", re.DOTALL
)
"""uvicorn logs a failed start as the text of a traceback; of an error of ours only the message is kept."""
_USUAL = frozenset({*vars(logging.makeLogRecord({})), "message", "asctime", "taskName", "color_message", "fields"})
"""Attributes that every record has. Others were passed in `extra`, one by one or together as `fields`; those that begin
with an underscore are marks of libraries, such as Ray's."""


class Lines(logging.Formatter):
    """Formats a record as one line. secrets: texts to hide, besides everything that looks like a secret."""

    def __init__(self, form: str = "json", secrets: Iterable[str] = ()) -> None:
        super().__init__()
        self._is_json = form == "json"
        self._secrets = sorted((secret for secret in secrets if len(secret) >= 4), key=len, reverse=True)

    def format(self, record: logging.LogRecord) -> str:
        fields: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": _START_FAILED.sub(r"\1: \2", record.getMessage()),
            **{name: value for name, value in vars(record).items() if name not in _USUAL and not name.startswith("_")},
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = _error(record.exc_info[1], with_stack=True)
        fields = {name: self._hide(value) for name, value in fields.items()}
        if self._is_json:
            return json.dumps(fields, ensure_ascii=True, default=str)
        plain = {name: CONTROLS.sub(_escape, str(value)) for name, value in fields.items()}
        head = " ".join(plain.pop(name) for name in ("time", "level", "message"))
        plain.pop("logger")
        return " ".join([head, *(f"{name}={value}" for name, value in plain.items())])

    def _hide(self, value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: self._hide(item) for name, item in value.items()}
        if not isinstance(value, str):
            return value
        for secret in self._secrets:
            value = value.replace(secret, HIDDEN)
        return PASSWORD.sub(rf"\g<name>{HIDDEN}", SECRETS.sub(rf"\g<name>{HIDDEN}", value))


def configure(settings: ServerSettings, stream: TextIO | None = None) -> None:
    """Send our loggers and uvicorn's to one handler, and silence uvicorn's access log. May be called again."""
    handler = logging.StreamHandler(stream or sys.stderr)
    form = settings.log_format
    if form == "auto":
        form = "text" if handler.stream is not None and handler.stream.isatty() else "json"
    handler.setFormatter(Lines(form, [settings.secret_token or ""]))
    handler.addFilter(_is_no_shutdown_cancel)
    for name in OURS:
        logger = logging.getLogger(name)
        logger.handlers[:] = [handler] if name in ("espalier", "uvicorn") else []
        logger.propagate = name not in ("espalier", "uvicorn")
        logger.setLevel(settings.log_level if name == "espalier" else logging.NOTSET)
    logging.getLogger("uvicorn").setLevel(max(logging.INFO, logging.getLevelName(settings.log_level)))
    theirs = logging.getLogger("uvicorn.access")
    theirs.handlers[:], theirs.propagate = [], False
    CONTENT.setLevel(settings.log_level if settings.log_content else logging.CRITICAL)
    if settings.log_content:
        logging.getLogger("espalier").warning(
            "LOG_CONTENT=true: prompts and answers are written to the log at level DEBUG"
        )


def _is_no_shutdown_cancel(record: logging.LogRecord) -> bool:
    """False for uvicorn's report of a request that it cancelled because the server stops."""
    return not (
        record.name == "uvicorn.error"
        and record.exc_info is not None
        and isinstance(record.exc_info[1], asyncio.CancelledError)
    )


def add_fields(state: MutableMapping[str, Any], **fields: Any) -> None:
    """Add fields to the log line of a response, such as `finish_reason`. state: `scope["state"]`."""
    state.setdefault(_FIELDS, {}).update(fields)


def content(request_id: str, **texts: object) -> None:
    """Log prompts and answers, if LOG_CONTENT is on."""
    CONTENT.debug("content", extra={"request_id": request_id, **texts})


class AccessLog:
    """ASGI middleware, the outermost: logs a line and counts for every response.

    The caller is read from `state.caller`, the request id from the response's x-request-id, the route from the scope.
    clock: monotonic seconds.
    """

    def __init__(self, app: ASGIApp, *, clock: Callable[[], float] = time.perf_counter) -> None:
        self._app = app
        self._clock = clock

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = self._clock()
        seen: dict[str, Any] = {"status": None, "id": None}
        scope.setdefault("state", {})

        async def watch(message: Message) -> None:
            if message["type"] == "http.response.start":
                seen["status"] = message["status"]
                seen["id"] = Headers(raw=message["headers"]).get("x-request-id")
            await send(message)

        failed: BaseException | None = None
        try:
            await self._app(scope, receive, watch)
        except BaseException as error:
            failed = error
            raise
        finally:
            self._write(scope, seen, self._clock() - began, failed)

    def _write(self, scope: Scope, seen: Mapping[str, Any], seconds: float, failed: BaseException | None) -> None:
        status = seen["status"] or (500 if isinstance(failed, Exception) else 499)
        route = route_of(scope)
        caller = scope["state"].get("caller")
        fields = {
            "request_id": seen["id"] or scope["state"].get("request_id"),
            "caller": getattr(caller, "name", caller),
            "method": scope["method"],
            "route": route,
            "status": status,
            "seconds": round(seconds, 4),
            **scope["state"].get(_FIELDS, {}),
        }
        if failed is not None:
            fields["error"] = _error(failed, with_stack=False)
        level = logging.DEBUG if route in QUIET and status < 400 else logging.INFO
        ACCESS.log(level, "%s %s %s", scope["method"], route, status, extra=fields)
        process = getattr(getattr(scope.get("app"), "state", None), "process", None)
        if process is not None:
            process.meter.answered(route=route, status=status)


def route_of(scope: Scope) -> str:
    """The declared path of the route, `unmatched` if no route matched. Never the path of the request, which may hold
    anything."""
    path = getattr(scope.get("route"), "path", None)
    return path if isinstance(path, str) else "unmatched"


def _error(error: BaseException, *, with_stack: bool) -> dict[str, Any]:
    """The type of an error, and the message of an error of ours. Other messages may quote prompts."""
    fields: dict[str, Any] = {"type": type(error).__name__}
    if isinstance(error, EspalierError):
        fields["message"] = str(error)
    elif with_stack:
        fields["stack"] = [f"{f.filename}:{f.lineno} {f.name}" for f in traceback.extract_tb(error.__traceback__)]
    return fields


def _escape(match: re.Match[str]) -> str:
    return match[0].encode("unicode_escape").decode()
