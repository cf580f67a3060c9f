"""The log: one line per response, without keys and content, and uvicorn's access log silent."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import time

import pytest

pytest.importorskip("fastapi", reason="the extra [server] is not installed")
pytest.importorskip("httpx", reason="httpx is not installed")

from fastapi import FastAPI, Request
from starlette.testclient import TestClient

from espalier.errors import DeadEnd
from espalier.server.observe.logs import PASSWORD, AccessLog, add_fields, configure, content
from espalier.server.ports import Caller
from espalier.server.settings import settings_of

SECRET = "s3cret-of-the-server"


@pytest.fixture
def stream():
    """Where log lines go; afterwards the loggers are as they were."""
    names = ("espalier", "espalier.content", "uvicorn", "uvicorn.error", "uvicorn.asgi", "uvicorn.access")
    before = {n: (list((g := logging.getLogger(n)).handlers), g.propagate, g.level) for n in names}
    yield io.StringIO()
    for name, (handlers, propagate, level) in before.items():
        logger = logging.getLogger(name)
        logger.handlers[:], logger.propagate = handlers, propagate
        logger.setLevel(level)


def lines_of(stream: io.StringIO) -> list[dict]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def set_up(stream: io.StringIO, **given: str) -> None:
    configure(settings_of({"SECRET_TOKEN": SECRET, **given}), stream)


class Meter:
    def __init__(self) -> None:
        self.seen: list[tuple[str, int]] = []

    def answered(self, *, route: str, status: int) -> None:
        self.seen.append((route, status))


def client_of(**more) -> TestClient:
    app = FastAPI()

    @app.get("/items/{name}")
    async def item(request: Request, name: str) -> dict:
        request.state.caller = Caller(name="team")
        add_fields(request.scope["state"], tokens=5, finish_reason="stop")
        return {}

    @app.get("/health")
    async def health() -> dict:
        return {}

    @app.get("/fails")
    async def fails() -> dict:
        raise ZeroDivisionError("the words of a prompt")

    class Holder:
        meter = Meter()

    app.state.process = Holder()
    client = TestClient(AccessLog(app, clock=iter([1.0, 1.25, 2.0, 2.5]).__next__), raise_server_exceptions=False)
    client.meter = Holder.meter
    return client


@pytest.mark.parametrize("form", ["json", "text"])
def test_what_a_library_marks_records_with_is_not_shown(stream, form):
    """Ray marks every record of a process that has imported it."""
    set_up(stream, LOG_FORMAT=form)
    logging.getLogger("espalier").warning("hello", extra={"_ray_mark": 17, "route": "/x"})
    assert "ray" not in stream.getvalue()
    assert "/x" in stream.getvalue()


def test_a_response_is_one_line_with_what_is_known_of_it(stream):
    set_up(stream)
    client = client_of()
    client.get("/items/a?token=abcdef", headers={"Authorization": "Bearer abcdef"})
    (line,) = lines_of(stream)
    assert line.pop("time").endswith("+00:00")
    assert line == {
        "level": "INFO",
        "logger": "espalier.access",
        "message": "GET /items/{name} 200",
        "request_id": None,
        "caller": "team",
        "method": "GET",
        "route": "/items/{name}",
        "status": 200,
        "seconds": 0.25,
        "tokens": 5,
        "finish_reason": "stop",
    }
    assert client.meter.seen == [("/items/{name}", 200)]


def test_what_no_route_took_is_not_quoted(stream):
    set_up(stream)
    client = client_of()
    client.get("/some/secret-path?token=abcdef")
    assert "secret-path" not in stream.getvalue()
    assert client.meter.seen == [("unmatched", 404)]


def test_what_fails_is_a_line_with_the_kind_and_no_words(stream):
    set_up(stream)
    client_of().get("/fails")
    (line,) = lines_of(stream)
    assert (line["status"], line["error"]) == (500, {"type": "ZeroDivisionError"})
    assert "the words" not in stream.getvalue()


def test_health_is_quiet_but_for_debug(stream):
    set_up(stream)
    client_of().get("/health")
    assert lines_of(stream) == []
    set_up(stream, LOG_LEVEL="DEBUG")
    client_of().get("/health")
    assert [line["route"] for line in lines_of(stream)] == ["/health"]


@pytest.mark.parametrize(
    "text",
    [
        f"key {SECRET} shown",
        "GET /v1/models?a=1&token=abc123def&b=2",
        "Authorization: Bearer abc123def",
        "authorization: basic abc123def",
        "{'api_key': 'abc123def'}",
        'SECRET_TOKEN="abc123def"',
        "postgresql://user:abc123def@host/name",
    ],
)
@pytest.mark.parametrize("form", ["json", "text"])
def test_no_key_is_in_a_line_however_it_came_there(stream, text, form):
    set_up(stream, LOG_FORMAT=form)
    logging.getLogger("espalier.x").warning("%s", text)
    logging.getLogger("uvicorn.error").warning("x", extra={"more": {"deep": text}})
    logged = stream.getvalue()
    assert "***" in logged
    assert "abc123def" not in logged
    assert SECRET not in logged
    assert sum("***" in line for line in logged.splitlines()) == 2


def test_a_word_that_only_looks_like_one_is_left(stream):
    set_up(stream)
    logging.getLogger("espalier").warning("tokens=5 max_tokens: 64")
    assert lines_of(stream)[0]["message"] == "tokens=5 max_tokens: 64"


def test_errors_of_ours_keep_their_words_and_others_only_their_place(stream):
    set_up(stream)
    for error in (DeadEnd("no token is allowed"), ValueError("the words of a prompt")):
        try:
            raise error
        except (DeadEnd, ValueError):
            logging.getLogger("espalier").exception("failed", extra={"fields": {"request_id": "req-1"}})
    ours, theirs = lines_of(stream)
    assert ours["error"] == {"type": "DeadEnd", "message": "no token is allowed"}
    assert theirs["error"]["type"] == "ValueError"
    assert "test_logs.py" in theirs["error"]["stack"][-1]
    assert theirs["request_id"] == "req-1"
    assert "the words" not in stream.getvalue()


def test_text_lines_are_one_line_each_whatever_is_in_them(stream):
    set_up(stream, LOG_FORMAT="text")
    logging.getLogger("espalier").warning("a\nb\x1b[31m\u2028c", extra={"route": "/x\r\ny"})
    (line,) = stream.getvalue().splitlines()
    assert line.endswith(r" WARNING a\nb\x1b[31m\u2028c route=/x\r\ny")


def test_content_is_logged_only_where_it_was_asked_for_and_that_is_said(stream):
    set_up(stream, LOG_LEVEL="DEBUG")
    content("req-1", prompt="the words of a prompt")
    assert stream.getvalue() == ""
    set_up(stream, LOG_LEVEL="DEBUG", LOG_CONTENT="true")
    content("req-1", prompt="the words of a prompt")
    warning, line = lines_of(stream)
    assert warning["level"] == "WARNING"
    assert "LOG_CONTENT" in warning["message"]
    assert (line["level"], line["prompt"], line["request_id"]) == ("DEBUG", "the words of a prompt", "req-1")


def test_content_needs_the_level_debug_too(stream):
    set_up(stream, LOG_CONTENT="true")
    content("req-1", prompt="the words of a prompt")
    assert "the words" not in stream.getvalue()


def test_uvicorns_own_access_log_is_silent_and_its_other_lines_are_ours(stream):
    access = logging.getLogger("uvicorn.access")
    access.addHandler(logging.StreamHandler(stream))
    set_up(stream)
    assert not access.hasHandlers()  # what uvicorn looks at
    logging.getLogger("uvicorn.error").info("Started", extra={"color_message": "in colour"})
    (line,) = lines_of(stream)
    assert (line["message"], line["logger"]) == ("Started", "uvicorn.error")
    assert "color_message" not in line


def test_a_request_that_uvicorn_ends_itself_is_no_fault(stream: io.StringIO) -> None:
    set_up(stream)
    theirs = logging.getLogger("uvicorn.error")
    for error in (asyncio.CancelledError("Task cancelled"), RuntimeError("broken")):
        theirs.error("Exception in ASGI application", exc_info=error)
    assert [one["error"]["type"] for one in lines_of(stream)] == ["RuntimeError"]


@pytest.mark.slow
@pytest.mark.parametrize("text", ["a." * 200_000, "a://" * 100_000, "a://b:" * 50_000])
def test_hiding_passwords_looks_at_every_character_a_bounded_number_of_times(text: str) -> None:
    began = time.thread_time()
    PASSWORD.sub("", text[:20_000])
    part = time.thread_time() - began
    began = time.thread_time()
    PASSWORD.sub("", text[:200_000])
    assert time.thread_time() - began < 100 * max(part, 0.001)  # squared it would be a hundred times


def test_a_password_in_an_address_is_hidden() -> None:
    assert PASSWORD.sub(r"\g<name>***", "at postgresql+psycopg://me:s3cret@host/db") == (
        "at postgresql+psycopg://me:***@host/db"
    )


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_lines_for_people_and_anything_else_json(stream):
    set_up(stream)
    logging.getLogger("espalier").warning("hello")
    assert lines_of(stream)[0]["message"] == "hello"
    terminal = Terminal()
    set_up(terminal)
    logging.getLogger("espalier").warning("hello")
    assert terminal.getvalue().endswith(" WARNING hello\n")
