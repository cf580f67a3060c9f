"""`x-should-retry: false` on every error that another try cannot cure, in every dialect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from starlette.testclient import TestClient

from espalier import errors
from espalier.errors import EspalierError
from espalier.server.admit import gate
from espalier.server.http import errors as http_errors
from espalier.server.http.errors import MAY_PASS, error_headers
from tests.server_app import client

assert gate  # its errors count too


@pytest.fixture(scope="module")
def api() -> Iterator[TestClient]:
    with client() as started:
        yield started


def every_error(cls: type[EspalierError] = EspalierError) -> Iterator[type[EspalierError]]:
    yield cls
    for child in cls.__subclasses__():
        yield from every_error(child)


@pytest.mark.parametrize("status", sorted({cls.http_status for cls in every_error()}))
def test_a_status_says_whether_another_try_may_help(status: int) -> None:
    class Failure(EspalierError):
        http_status = status

    headers = error_headers(Failure("it failed"))
    assert ("x-should-retry" in headers) != (status in MAY_PASS)
    assert headers.get("x-should-retry", "false") == "false"


def test_what_a_server_lacks_is_not_tried_again_and_a_full_server_is() -> None:
    for lacking in (errors.NotHere, http_errors.NotFound):
        assert error_headers(lacking("x"))["x-should-retry"] == "false"
    for passing in (errors.Unavailable("x"), errors.TooManyRequests("x", retry_after=1), http_errors.BodyTimeout("x")):
        assert "x-should-retry" not in error_headers(passing)


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("/v1/chat/completions", {"messages": []}, 400),
        ("/v1/completions", {}, 400),
        ("/completion", {"prompt": 3}, 400),
        ("/v1/responses", {"input": 3}, 400),
        ("/v1/messages", {"messages": 3}, 400),
        ("/api/chat", {"messages": 3}, 400),
        ("/v1/nothing", {}, 404),
        ("/v1/models", {}, 405),
        ("/v1/rerank", {"query": "a", "documents": ["b"]}, 501),
    ],
)
def test_every_dialect_says_it(api: TestClient, path: str, body: dict[str, Any], status: int) -> None:
    reply = api.post(path, json=body)
    assert (reply.status_code, reply.headers.get("x-should-retry")) == (status, "false"), reply.text
