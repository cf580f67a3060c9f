"""Bodies that are too large, too deep, too slow or not JSON; the shape of errors; request ids."""

from __future__ import annotations

import asyncio
import io
import json
import socket
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

import pytest

pytest.importorskip("fastapi")

from fastapi import Request

from espalier.errors import Cancelled, EspalierError
from espalier.server.http.body import depth, parse_object, read_bytes
from espalier.server.http.errors import BadRequest, BodyTimeout, BodyTooLarge
from espalier.server.http.uploads import read_upload
from espalier.server.settings import ServerSettings
from tests.server_app import client, make_app, settings

T = TypeVar("T")
ROUTE = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}
JSON = {"content-type": "application/json"}


@pytest.mark.parametrize(
    ("body", "said"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"[]", "a list, not an object"),
        (b"null", "null, not an object"),
        (b"true", "true or false, not an object"),
        (b'{"a": NaN}', "NaN is no JSON number"),
        (b'{"a": -Infinity}', "no JSON number"),
        (b'{"a": 1, "a": 2}', "the key 'a' appears twice"),
        (b'{"a": "\\ud800"}', "a lone surrogate"),
        (b'{"\\udc00": 1}', "a lone surrogate"),
        (b'{"a": "\xff"}', "not UTF-8 at byte 7"),
        (b'{"a": ' + b"1" * 5000 + b"}", "not JSON"),
        (b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}", "nested deeper than 128"),
        (b"[" * 100_000, "nested deeper than 128"),
        (b'{"a": ' * 100_000, "nested deeper than 128"),
    ],
)
def test_what_is_no_json_of_ours_is_refused(body: bytes, said: str) -> None:
    with pytest.raises(BadRequest) as found:
        parse_object(body, max_depth=128)
    assert said in found.value.message


def test_brackets_in_strings_are_not_deep() -> None:
    assert depth(json.dumps({"a": '[[[{{"[[', "b": [1, {"c": "]]"}]}).encode()) == 3
    assert depth(b"") == 0
    assert depth(b'"[[[[ never closed') == 0
    assert depth(b'{"a\\\\": [[]]}') == 3
    assert depth(b'{"a\\"[[": []}') == 2
    assert depth(b'["\\\\\\"[[[", [], "\\\\"]') == 2


def test_a_whole_emoji_by_its_escapes_is_taken() -> None:
    assert parse_object(b'{"a": "\\ud83d\\ude00"}', max_depth=2) == {"a": "\U0001f600"}


class Pieces:
    """A body that arrives in pieces; `None` waits for ever, `b""` leaves."""

    def __init__(self, *pieces: bytes | None) -> None:
        self._pieces = list(pieces)

    async def receive(self) -> Any:
        if not self._pieces:
            return {"type": "http.request", "body": b"", "more_body": False}
        piece = self._pieces.pop(0)
        if piece is None:
            await asyncio.Event().wait()
        if piece == b"":
            return {"type": "http.disconnect"}
        return {"type": "http.request", "body": piece, "more_body": True}


def read(pieces: Pieces, config: ServerSettings, **headers: str) -> bytes:
    scope = {
        "type": "http",
        "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
    }
    return asyncio.run(read_bytes(Request(scope, pieces.receive), config))


def test_a_body_is_counted_as_it_comes_whatever_its_length_is_said_to_be() -> None:
    config = settings(max_body_bytes="10")
    assert read(Pieces(b"12345", b"67890"), config) == b"1234567890"
    for headers in ({}, {"content_length": "3"}, {"content_length": "nonsense"}):
        with pytest.raises(BodyTooLarge):
            read(Pieces(b"12345", b"67890", b"1"), config, **headers)


@pytest.mark.parametrize("length", ["11", "9" * 30])
def test_a_body_that_says_it_is_too_large_is_not_read(length: str) -> None:
    with pytest.raises(BodyTooLarge):
        read(Pieces(None), settings(max_body_bytes="10"), content_length=length)


def test_a_slow_body_is_given_up() -> None:
    with pytest.raises(BodyTimeout) as found:
        read(Pieces(b"{", None), settings(body_seconds="0.01"))
    assert found.value.http_status == 408


def read_while_it_stands_still(work: Callable[[Request], Coroutine[Any, Any, T]], sent: bytes, **headers: str) -> T:
    """What `work` reads from a client whose body came while the event loop stood still for an hour."""
    ahead = 0.0

    async def main() -> T:
        nonlocal ahead
        loop = asyncio.get_running_loop()
        usual = loop.time
        loop.time = lambda: usual() + ahead  # type: ignore[method-assign]
        ours, theirs = socket.socketpair()
        with ours, theirs:
            ours.setblocking(False)

            async def receive() -> Any:
                piece = await loop.sock_recv(ours, 8)
                return {"type": "http.request", "body": piece, "more_body": bool(piece)}

            scope = {
                "type": "http",
                "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
            }
            reading = asyncio.create_task(work(Request(scope, receive)))
            for _ in range(10):  # until it waits for the socket
                await asyncio.sleep(0)
            theirs.sendall(sent)
            theirs.shutdown(socket.SHUT_WR)
            ahead = 3600.0
            return await reading

    return asyncio.run(main())


def test_a_standstill_of_the_server_is_no_silence_of_the_client() -> None:
    """The body lies in the socket when the time is over."""
    sent = b'{"messages": "in several pieces"}'
    assert read_while_it_stands_still(lambda asked: read_bytes(asked, settings()), sent) == sent


def test_a_standstill_of_the_server_ends_no_upload() -> None:
    sent = b'--x\r\ncontent-disposition: form-data; name="file"; filename="a"\r\n\r\nof the file\r\n--x--\r\n'
    file = io.BytesIO()
    kind = "multipart/form-data; boundary=x"
    found = read_while_it_stands_still(
        lambda asked: read_upload(asked, settings(), file, lambda _: None), sent, content_type=kind
    )
    assert found == ("a", {})
    assert file.getvalue() == b"of the file"


def test_a_body_that_drips_is_given_up_after_its_time_as_a_whole() -> None:
    async def main() -> None:
        ahead, loop = 0.0, asyncio.get_running_loop()
        usual = loop.time
        loop.time = lambda: usual() + ahead  # type: ignore[method-assign]

        async def receive() -> Any:
            nonlocal ahead
            ahead += 2.0  # less than the time of a body, again and again
            for _ in range(100):
                await asyncio.sleep(0)
            return {"type": "http.request", "body": b"1", "more_body": True}

        await read_bytes(Request({"type": "http", "headers": []}, receive), settings(body_seconds="30"))

    with pytest.raises(BodyTimeout):
        asyncio.run(main())


def test_a_client_that_leaves_in_the_middle_of_its_body_is_no_fault_of_ours() -> None:
    with pytest.raises(Cancelled):
        read(Pieces(b"{", b""), settings())


def test_too_large_a_body_is_a_413() -> None:
    with client(config=settings(max_body_bytes="200")) as c:
        reply = c.post(ROUTE, json=ASK | {"user": "x" * 200})
    assert (reply.status_code, reply.json()["error"]["code"]) == (413, "body_too_large")


def test_a_form_is_no_body() -> None:
    with client() as c:
        reply = c.post(ROUTE, data={"messages": "hi"})
        assert c.post(
            ROUTE, content=json.dumps(ASK), headers={"content-type": "Application/JSON; charset=utf-8"}
        ).is_success
    assert (reply.status_code, reply.json()["error"]["code"]) == (415, "wrong_media_type")


def test_an_error_with_what_no_utf8_can_say_is_still_answered() -> None:
    with client() as c:
        reply = c.post(ROUTE, content=b'{"model": "\\ud800"}', headers=JSON)
    assert reply.status_code == 400


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nonsense", 404, "not_found"),
        ("GET", ROUTE, 405, "method_not_allowed"),
        ("GET", "/v1/models/nonsense", 404, "model_not_found"),
        ("POST", "/v1/models", 405, "method_not_allowed"),
        ("POST", ROUTE + "/", 404, "not_found"),
    ],
)
def test_addresses_and_methods_that_are_not_there_have_the_shape_of_an_error(
    method: str, path: str, status: int, code: str
) -> None:
    with client() as c:
        reply = c.request(method, path)
    error = reply.json()["error"]
    assert (reply.status_code, error["code"]) == (status, code)
    assert set(error) == {"message", "type", "param", "code"}
    assert status != 405 or reply.headers["allow"]


def test_a_request_id_is_taken_over_where_it_is_sane_and_made_where_it_is_not() -> None:
    with client() as c:
        assert c.get("/v1/models", headers={"x-request-id": "my-id.1"}).headers["x-request-id"] == "my-id.1"
        for given in ("", "x" * 200, "a b", "<script>"):
            assert c.get("/nonsense", headers={"x-request-id": given}).headers["x-request-id"].startswith("req-")


def test_a_fault_of_ours_is_a_500_without_its_insides_and_with_its_id(caplog: pytest.LogCaptureFixture) -> None:
    app = make_app()

    @app.get("/broken")
    def broken() -> None:
        raise RuntimeError("secret insides")

    from starlette.testclient import TestClient

    with TestClient(app, raise_server_exceptions=False) as c:
        reply = c.get("/broken", headers={"x-request-id": "abc"})
    assert reply.status_code == 500
    assert "secret" not in reply.text
    assert "abc" in reply.json()["error"]["message"]
    assert "secret insides" in caplog.text
    assert reply.headers["x-request-id"] == "abc"


def test_every_error_of_ours_has_a_status_that_is_documented() -> None:
    from espalier.server.http.errors import MEANINGS

    def below(cls: type[EspalierError]) -> set[type[EspalierError]]:
        return {cls, *(one for child in cls.__subclasses__() for one in below(child))}

    assert {one.http_status for one in below(EspalierError)} <= set(MEANINGS)


FIELD = b"--x\r\ncontent-disposition: form-data; name=%s"
HOSTILE_FORMS = {
    "a boundary of 60,000 bytes": ("multipart/form-data; boundary=" + "b" * 60_000, b"--b"),
    "an empty boundary": ("multipart/form-data; boundary=", b"--"),
    "a quoted boundary that is open": ('multipart/form-data; boundary="x', b"--x\r\n"),
    "a boundary that is no ASCII": ("multipart/form-data; boundary=\xff\xfe", b"--\xff\xfe\r\n"),
    "a boundary in two pieces": ("multipart/form-data; boundary*0=a; boundary*1=b", b"--ab\r\n"),
    "an encoded boundary": ("multipart/form-data; boundary*=utf-8''%ff", b"--\xff\r\n"),
    "two boundaries": ("multipart/form-data; boundary=a; boundary=b", b"--a\r\n"),
    "parameters without end": ("multipart/form-data" + ";" * 10_000, b""),
    "no line end": ("multipart/form-data; boundary=x", b"--x" * 1000),
    "a header without a colon": ("multipart/form-data; boundary=x", b"--x\r\nabc\r\n\r\n1\r\n--x--"),
    "a header of nothing": ("multipart/form-data; boundary=x", b"--x\r\n: \r\n\r\n1\r\n--x--"),
    "a header that never ends": ("multipart/form-data; boundary=x", b"--x\r\n" + b"a" * 100_000),
    "a disposition of bytes": (
        "multipart/form-data; boundary=x",
        b"--x\r\ncontent-disposition: form-data; name=\"\xff\x00\"; filename*=utf-8''%ff%00\r\n\r\n1\r\n--x--\r\n",
    ),
    "a file name of slashes": (
        "multipart/form-data; boundary=x",
        b'--x\r\ncontent-disposition: form-data; name="file"; filename="../../'
        + b"/" * 5000
        + b'"\r\n\r\n1\r\n--x--\r\n',
    ),
    "21 parts": (
        "multipart/form-data; boundary=x",
        b'--x\r\ncontent-disposition: form-data; name="a"\r\n\r\n\r\n' * 21,
    ),
    "a part without headers": ("multipart/form-data; boundary=x", b"--x\r\n\r\n1\r\n--x--\r\n"),
    "after the end": ("multipart/form-data; boundary=x", b"--x--\r\n--x\r\n\r\n"),
    "nothing": ("multipart/form-data; boundary=x", b""),
    "another type": ("multipart/mixed; boundary=x", b"--x--"),
    "no type": ("", b"--x--"),
    "no ASCII": ("\xe9", b"--x--"),
}


@pytest.mark.parametrize("name", HOSTILE_FORMS)
@pytest.mark.parametrize("path", ["/v1/files", "/v1/batch/jobs", "/v1/uploads/upload_1/parts"])
def test_a_hostile_form_is_refused_and_never_a_fault(path: str, name: str, tmp_path_factory) -> None:
    kind, body = HOSTILE_FORMS[name]
    folder = tmp_path_factory.mktemp("forms")
    config = settings(batch_jobs="true", database_url=f"sqlite:///{folder}/e.db")
    with client(config=config) as c:
        headers = [("content-type", kind.encode("latin-1"))]
        reply = c.post(path, content=body, headers=headers)  # type: ignore[arg-type]
        assert 400 <= reply.status_code < 500 or (name == "a file name of slashes" and reply.status_code == 200), (
            reply.text
        )
        left = list((folder / "batches").glob("*.part")) if (folder / "batches").is_dir() else []
        assert left == []
