"""HTTP to servers of others: every way in which they fail is an error of ours, and nothing hangs."""

from __future__ import annotations

import threading

import pytest

from espalier.errors import (
    Cancelled,
    EspalierError,
    InputError,
    TooManyRequests,
    Unavailable,
    UpstreamError,
    UpstreamTimeout,
)
from espalier.upstream import link
from espalier.upstream.link import ServerLink
from espalier.upstream.llama_server.client import LlamaServer, Props
from tests.scripted_server import STREAM, Hang, event, reply, scripted_server

CHUNK = {"content": "a", "tokens": [1], "stop": False}


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("localhost:8080", "not the address"),
        ("ftp://host/", "not the address"),
        ("http://", "not the address"),
        ("http://host:99999", "not an address"),
        ("http://user:secret@host", "no user and password"),
        ("http://host/?key=1", "not the address"),
    ],
)
def test_an_address_that_is_none_is_refused(url, said):
    with pytest.raises(InputError, match=said) as caught:
        ServerLink(url)
    assert caught.value.field == "url"
    assert "secret" not in str(caught.value)


def test_a_key_is_sent_as_a_header_and_stands_in_no_message():
    with (
        scripted_server(lambda asked: [reply({"error": {"message": "no"}}, "401 Unauthorized")]) as server,
        pytest.raises(UpstreamError, match="refuses the key") as caught,
    ):
        ServerLink(server.address, key="sk-secret").get("/health")
    assert server.asked[0].headers["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in repr(caught.value) + str(caught.value)
    with pytest.raises(InputError, match="not one line") as wrong:
        ServerLink(server.address, key="sk-secret\r\nX: y")
    assert "sk-secret" not in str(wrong.value)


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        ("400 Bad Request", InputError),
        ("404 Not Found", UpstreamError),
        ("429 Too Many", TooManyRequests),
        ("500 Oops", UpstreamError),
        ("503 Loading", Unavailable),
        ("307 Elsewhere", UpstreamError),
    ],
)
def test_a_status_of_failure_is_an_error_that_says_what_the_server_said(status, kind):
    said = {"error": {"code": 1, "message": "the reason", "type": "x"}}
    with (
        scripted_server(lambda asked: [reply(said, status, Location="http://example.org/")]) as server,
        pytest.raises(kind) as caught,
    ):
        ServerLink(server.address).post("/completion", {})
    assert "the reason" in str(caught.value) or status.startswith("3")


def test_a_server_that_is_not_there_is_an_error_with_a_hint():
    with scripted_server(lambda asked: []) as server:
        pass
    with pytest.raises(UpstreamError, match="no server answers") as caught:
        ServerLink(server.address).get("/health")
    assert caught.value.http_status == 502


def test_a_server_that_never_answers_is_a_time_out():
    with scripted_server(lambda asked: [Hang()]) as server, pytest.raises(UpstreamTimeout, match="does not answer"):
        ServerLink(server.address, silence=0.05).get("/health")


@pytest.mark.parametrize(
    "answer",
    [
        [],
        [b"HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{"],
        [b"what is HTTP?\r\n\r\n"],
        [reply(b"<html>not json</html>")],
        [reply(b'{"a": NaN}')],
        [reply(b"[" * 100_000)],
        [reply(b"\xff\xfe\xfd")],
    ],
    ids=["closed", "half", "no HTTP", "html", "NaN", "deep", "bytes"],
)
def test_a_broken_reply_is_an_error_of_ours(answer):
    with scripted_server(lambda asked: answer) as server, pytest.raises(UpstreamError):
        ServerLink(server.address).get("/props")


@pytest.mark.parametrize(
    "pieces",
    [
        [event(CHUNK)],
        [event(CHUNK), event("[DONE]")],
        [event(CHUNK), b'data: {"content": "b'],
        [event(CHUNK), event({"error": {"message": "slot lost"}})],
        [event(CHUNK), event("nonsense")],
        [event(CHUNK), event({"tokens": [1]})],
        [event(CHUNK), b"data: \xff\n\n"],
    ],
    ids=["ends early", "done early", "half", "error", "no json", "no content", "no UTF-8"],
)
def test_a_stream_that_breaks_off_is_an_error_and_never_an_end(pieces):
    with scripted_server(lambda asked: [STREAM, *pieces]) as server:
        chunks = iter(LlamaServer(ServerLink(server.address)).stream({"prompt": "a"}))
        assert next(chunks)["content"] == "a"
        with pytest.raises(UpstreamError):
            next(chunks)


@pytest.mark.parametrize(
    "pieces",
    [
        [STREAM, b'data: {"content": "' + b"a" * 30_000],
        [STREAM, b"data: 1\n" * 30_000],
        [STREAM, *[event(CHUNK)] * 30_000],
        [b"HTTP/1.1 200 OK\r\n\r\n[" + b"1," * 50_000],
        [b"HTTP/1.1 200 OK\r\nx-a: " + b"a" * 200_000],
        [b"HTTP/1.1 200 OK\r\n" + b"x-a: a\r\n" * 1_000],
    ],
    ids=["line", "event", "events", "body", "header", "headers"],
)
def test_an_endless_reply_is_an_error_and_memory_stays(monkeypatch, pieces):
    monkeypatch.setattr(link, "MOST_LINE", 20_000)
    monkeypatch.setattr(link, "MOST_BYTES", 60_000)
    with scripted_server(lambda asked: pieces) as server:
        asked = ServerLink(server.address).exchange("POST", "/completion", {})
        with asked as exchange, pytest.raises(UpstreamError):
            list(exchange.events()) if pieces[0] == STREAM else exchange.json()


def test_a_stream_that_hangs_is_interrupted_from_another_thread_and_the_server_sees_it():
    with scripted_server(lambda asked: [STREAM, event(CHUNK), Hang()]) as server:
        stream = LlamaServer(ServerLink(server.address)).stream({"prompt": "a"})
        chunks = iter(stream)
        next(chunks)
        threading.Timer(0.05, stream.interrupt).start()
        with pytest.raises(Cancelled):
            next(chunks)
        assert server.left.wait(60)


def test_a_server_that_is_not_llama_server_is_told_apart():
    with (
        scripted_server(lambda asked: [reply({"object": "list"})]) as server,
        pytest.raises(UpstreamError, match="not llama-server's"),
    ):
        LlamaServer(ServerLink(server.address)).props()
    shown = {"default_generation_settings": {"n_ctx": 8}, "model_path": "/a/b.gguf", "model_alias": "/a/b.gguf"}
    assert Props.from_json(shown).model == "b.gguf"


def test_errors_of_servers_fit_on_a_line():
    with (
        scripted_server(lambda asked: [reply(b"x\n\x1b[31m" * 5000, "500 Oops")]) as server,
        pytest.raises(EspalierError) as caught,
    ):
        ServerLink(server.address).get("/health")
    assert len(caught.value.message) < 500
    assert caught.value.message.isprintable()
