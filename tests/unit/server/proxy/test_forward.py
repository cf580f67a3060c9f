"""The proxy passes everything on, byte by byte, and says cleanly what it cannot."""

from __future__ import annotations

import asyncio
import gzip
import socket
import threading

import httpx2
import pytest

from tests.ports import free_port
from tests.proxies import OK, behind, proxied, proxy_settings, server_settings


async def echo(asked, writer):
    """The request line and the body."""
    body = asked.line.encode() + b"\n" + asked.body
    writer.write(
        OK + f"content-length: {len(body)}\r\n\r\n".encode() + (b"" if asked.line.startswith("HEAD") else body)
    )
    await writer.drain()


@pytest.fixture(scope="module")
def echoing():
    with behind(echo) as server, proxied(proxy_settings(server.url)) as url:
        yield server, url


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "HEAD"])
def test_every_method_and_path_is_passed_on(echoing, method):
    server, url = echoing
    reply = httpx2.request(method, url + "/any/p%20ath/%2F?a=1&b=%20", content=b"" if method == "HEAD" else b"body")
    line = f"{method} /any/p%20ath/%2F?a=1&b=%20 HTTP/1.1"
    assert server.asked[-1].line == line
    assert reply.status_code == 200
    assert reply.text == ("" if method == "HEAD" else f"{line}\nbody")


def test_headers_of_the_connection_stay_behind_and_all_others_pass():
    async def answer(asked, writer):
        writer.write(
            OK + b"connection: close, x-hop\r\nx-hop: 1\r\nkeep-alive: timeout=5\r\nset-cookie: a=1\r\n"
            b"Set-Cookie: b=2\r\nx-made: here\r\ncontent-length: 2\r\n\r\n{}"
        )
        await writer.drain()

    with behind(answer) as server, proxied(proxy_settings(server.url)) as url:
        given = {"x-mine": "1", "te": "trailers", "connection": "keep-alive, x-drop", "x-drop": "1", "user-agent": "me"}
        reply = httpx2.get(url + "/x", headers=given)
    names = {name.lower() for name, _ in server.asked[0].headers}
    assert {"x-mine", "user-agent", "host", "connection"} <= names
    assert not names & {"te", "x-drop"}
    assert server.asked[0].header("connection") == "close"
    assert server.asked[0].header("host") == server.url.removeprefix("http://")
    assert reply.headers.get_list("set-cookie") == ["a=1", "b=2"]
    assert reply.headers["x-made"] == "here"
    assert "x-hop" not in reply.headers
    assert "keep-alive" not in reply.headers


def test_an_encoded_reply_stays_encoded():
    packed = gzip.compress(b'{"text": "hello"}')

    async def answer(asked, writer):
        writer.write(OK + f"content-encoding: gzip\r\ncontent-length: {len(packed)}\r\n\r\n".encode() + packed)
        await writer.drain()

    with behind(answer) as server, proxied(proxy_settings(server.url)) as url:
        reply = httpx2.post(url + "/completion", json={})
        with httpx2.stream("POST", url + "/completion", json={}) as raw:
            assert b"".join(raw.iter_raw()) == packed
    assert reply.json() == {"text": "hello"}
    assert reply.headers["content-length"] == str(len(packed))


def test_a_body_of_ten_megabytes_passes_in_both_directions(echoing):
    _, url = echoing
    body = bytes(range(256)) * 40_000
    reply = httpx2.post(url + "/completion", content=body, timeout=60)
    assert reply.content == b"POST /completion HTTP/1.1\n" + body


def test_a_body_of_unknown_length_passes(echoing):
    server, url = echoing
    reply = httpx2.post(url + "/x", content=iter([b"one", b"two"]))
    assert reply.text.endswith("\nonetwo")
    assert server.asked[-1].header("transfer-encoding") == "chunked"


def test_a_stream_passes_as_it_comes():
    go_on = threading.Event()

    async def answer(asked, writer):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"9\r\ndata: 1\n\n\r\n")
        await writer.drain()
        await asyncio.to_thread(go_on.wait, 30)
        writer.write(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n")
        await writer.drain()

    with (
        behind(answer) as server,
        proxied(proxy_settings(server.url)) as url,
        httpx2.stream("POST", url + "/x", json={}) as reply,
    ):
        pieces = reply.iter_raw()
        assert next(pieces) == b"data: 1\n\n"  # while the second is not written yet
        go_on.set()
        assert b"".join(pieces) == b"data: 2\n\n"


def test_a_server_that_is_down_is_a_clean_502():
    with proxied(proxy_settings(f"http://127.0.0.1:{free_port()}")) as url:
        reply = httpx2.post(url + "/completion", json={})
    assert reply.status_code == 502
    assert reply.json()["error"]["code"] == "bad_gateway"
    assert reply.headers["x-request-id"]


def test_a_server_that_never_answers_is_a_504():
    async def answer(asked, writer):
        await asyncio.Event().wait()

    with behind(answer) as server, proxied(proxy_settings(server.url, read_seconds=0.2)) as url:
        reply = httpx2.post(url + "/completion", json={})
    assert reply.status_code == 504
    assert reply.json()["error"]["code"] == "gateway_timeout"
    assert reply.json()["error"]["message"] == f"{server.url} has sent nothing for 0.2 seconds (a longer --timeout)"
    assert server.asked[0].gone.wait(60)


@pytest.mark.parametrize(("times", "status"), [(1, 200), (2, 200), (3, 504)])
def test_a_connection_that_was_late_is_tried_again_since_the_proxy_may_have_slept(echoing, monkeypatch, times, status):
    """A proxy that gets no CPU for five seconds finds its own clock run out."""
    send, late = httpx2.AsyncClient.send, []

    async def sent(client, request, **more):
        if len(late) < times:
            late.append(request)
            raise httpx2.ConnectTimeout("")
        return await send(client, request, **more)

    monkeypatch.setattr(httpx2.AsyncClient, "send", sent)
    server, url = echoing
    reply = httpx2.post(url + "/completion", content=iter([b"whole ", b"body"]))
    assert (reply.status_code, len(late)) == (status, times)
    if status == 200:
        assert reply.content.endswith(b"whole body")
    else:
        assert reply.json()["error"]["message"] == f"no connection to {server.url} within 15 seconds"


def test_what_is_no_http_is_a_502():
    async def answer(asked, writer):
        writer.write(b"hello there\r\n\r\n")
        await writer.drain()

    with behind(answer) as server, proxied(proxy_settings(server.url)) as url:
        assert httpx2.get(url + "/x").status_code == 502


@pytest.mark.parametrize(
    "head", [b"transfer-encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n", b"content-length: 99\r\n\r\nab"]
)
def test_a_server_that_dies_in_mid_stream_leaves_no_reply_that_looks_whole(head):
    async def answer(asked, writer):
        writer.write(OK + head)
        await writer.drain()

    with behind(answer) as server, proxied(proxy_settings(server.url)) as url:
        with pytest.raises(httpx2.HTTPError):
            httpx2.post(url + "/x", json={})
        assert httpx2.get(url + "/traces").status_code == 200  # it goes on


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("/v1/chat/completions", b'data: {"error":{"message":'),
        ("/v1/messages", b'event: error\ndata: {"type":"error","error":{'),
        ("/v1/responses", b'event: error\ndata: {"type":"error","code":"bad_gateway"'),
    ],
)
@pytest.mark.parametrize("begun", [b"data: 1\n\n", b"data: 1\n\ndata: {half"])
def test_a_stream_that_the_server_ends_early_ends_with_an_error_event(path, error, begun):
    async def answer(asked, writer):
        head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        writer.write(head + b"%x\r\n%s\r\n" % (len(begun), begun))
        await writer.drain()

    with behind(answer) as server, proxied(proxy_settings(server.url)) as url:
        reply = httpx2.post(url + path, json={})
    assert reply.status_code == 200
    whole = begun if begun.endswith(b"\n\n") else begun + b"\n\n"
    assert reply.content.startswith(whole + error)
    assert b"has ended its reply early" in reply.content
    assert reply.content.endswith(b"\n\n")


def test_headers_about_origins_stay_behind_in_both_directions():
    async def answer(asked, writer):
        more = (
            b"access-control-allow-origin: *\r\naccess-control-allow-credentials: true\r\ncontent-length: 2\r\n\r\n{}"
        )
        writer.write(OK + more)
        await writer.drain()

    with behind(answer) as server, proxied(proxy_settings(server.url)) as url:
        own = {"origin": url, "sec-fetch-site": "same-origin", "access-control-request-method": "POST"}
        reply = httpx2.post(url + "/x", headers=own, json={})
        assert reply.status_code == 200
        assert not [name for name in reply.headers if name.startswith("access-control-")]
        sent = {name.lower() for name, _ in server.asked[0].headers}
        assert not sent & {"origin", "sec-fetch-site", "access-control-request-method"}
        assert httpx2.post(url + "/x", headers={"origin": "https://evil.example"}, json={}).status_code == 403
        assert httpx2.get(url + "/props", headers={"host": "evil"}).status_code == 403
        assert len(server.asked) == 1


def test_a_client_that_leaves_ends_the_request_behind_the_proxy():
    async def answer(asked, writer):
        writer.write(OK + b"transfer-encoding: chunked\r\n\r\n")
        while True:
            writer.write(b"2\r\n{}\r\n")
            await writer.drain()

    with behind(answer) as server, proxied(proxy_settings(server.url)) as url:
        with httpx2.stream("POST", url + "/x", json={}) as reply:
            next(reply.iter_raw())
        assert server.asked[0].gone.wait(60)


def test_a_client_that_leaves_before_the_answer_ends_it_too():
    async def answer(asked, writer):
        await asyncio.Event().wait()

    with behind(answer) as server, proxied(proxy_settings(server.url)) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        with socket.create_connection((host, int(port))) as one:
            one.sendall(b"GET /slots HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert server.arrived.acquire(timeout=60)
        assert server.asked[0].gone.wait(60)


def test_keys_are_checked_here_and_stay_here():
    async def answer(asked, writer):
        writer.write(OK + b"content-length: 2\r\n\r\n{}")
        await writer.drain()

    own = proxy_settings("http://x", upstream_key="theirs")
    with behind(answer) as server:
        for key, seen in ((None, None), ("theirs", "Bearer theirs")):
            proxy = proxy_settings(server.url, upstream_key=key)
            with proxied(proxy, settings=server_settings(secret_token="our-secret-key")) as url:
                assert httpx2.post(url + "/completion", json={}).status_code == 401
                assert httpx2.get(url + "/props", headers={"authorization": "Bearer wrong"}).status_code == 401
                assert httpx2.get(url + "/health").status_code == 200  # public, as at llama-server
                reply = httpx2.post(url + "/x", json={}, headers={"authorization": "Bearer our-secret-key"})
                assert reply.status_code == 200
                assert server.asked[-1].header("authorization") == seen
    assert "theirs" not in repr(own)


def test_without_keys_of_ours_the_clients_key_is_the_servers(echoing):
    server, url = echoing
    httpx2.get(url + "/props", headers={"authorization": "Bearer sk-llama"})
    assert server.asked[-1].header("authorization") == "Bearer sk-llama"


def test_without_keys_a_page_of_another_name_is_refused(echoing):
    _, url = echoing
    assert httpx2.get(url + "/props", headers={"host": "evil.example"}).status_code == 403


def test_limits_hold(echoing):
    server, _ = echoing
    limits = server_settings(secret_token="our-secret-key", requests_per_minute="1")
    with proxied(proxy_settings(server.url), settings=limits) as url:
        key = {"authorization": "Bearer our-secret-key"}
        assert httpx2.post(url + "/x", json={}, headers=key).status_code == 200
        refused = httpx2.post(url + "/x", json={}, headers=key)
    assert refused.status_code == 429
    assert int(refused.headers["retry-after"]) >= 1


def test_requests_of_a_time_do_not_wait_for_one_another():
    both = threading.Barrier(2)

    async def answer(asked, writer):
        await asyncio.to_thread(both.wait, 30)
        writer.write(OK + b"content-length: 2\r\n\r\n{}")
        await writer.drain()

    with behind(answer) as server, proxied(proxy_settings(server.url)) as url:
        replies = []
        threads = [threading.Thread(target=lambda: replies.append(httpx2.post(url + "/x", json={}))) for _ in range(2)]
        for one in threads:
            one.start()
        for one in threads:
            one.join()
    assert [one.status_code for one in replies] == [200, 200]
