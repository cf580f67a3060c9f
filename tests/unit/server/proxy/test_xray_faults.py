"""Faults around x-ray mode: slow and silent ends, long and encoded bodies. Nothing hangs, and no bytes are lost."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import os
import resource
import shutil
import socket
import subprocess

import httpx2
import pytest

from espalier.server.http.errors import BadGateway
from espalier.server.proxy import forward
from espalier.server.proxy.forward import ReplyBudget
from tests.proxies import OK, behind, files_of, proxied, proxy_settings
from tests.unit.server.proxy.test_xray_mode import BODY, entry, llama

EVENTS = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"


def event(text):
    body = {
        "index": 0,
        "content": text,
        "tokens": [1],
        "stop": False,
        "tokens_predicted": 1,
        "completion_probabilities": [entry(1)],
    }
    return b"data: " + json.dumps(body).encode() + b"\n\n"


def streaming(write):
    """A server that answers streams by `write(writer)`, and all else as `llama`."""

    async def answer(asked, writer):
        if b'"stream": true' in asked.body:
            writer.write(EVENTS)
            await write(writer)
        else:
            await llama(asked, writer)

    return answer


def test_a_client_that_reads_slowly_gets_every_byte_and_the_server_waits_for_it():
    chunk, count = "x" * 256_000, 40
    written = []

    async def write(writer):
        for number in range(count):
            writer.write(event(chunk))
            await writer.drain()
            written.append(number)

    with behind(streaming(write)) as server, proxied(proxy_settings(server.url, mode="xray")) as url:
        host, _, port = url.removeprefix("http://").partition(":")
        body = json.dumps(BODY | {"stream": True}).encode()
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            one.connect((host, int(port)))
            one.sendall(
                f"POST /completion HTTP/1.1\r\nhost: {host}\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body
            )
            first = one.recv(1)
            assert len(written) < count  # 10 MB do not fit between a client that waits and the server
            rest = first
            while piece := one.recv(1 << 20):
                rest += piece
                if rest.endswith(b"0\r\n\r\n"):
                    break
    assert rest.count(b"x") >= count * len(chunk)
    assert b"completion_probabilities" not in rest


def test_a_server_that_falls_silent_in_mid_stream_is_cut_and_nothing_hangs():
    async def write(writer):
        writer.write(event("a"))
        await writer.drain()
        await asyncio.Event().wait()

    # As long as a busy machine may take for the answers that do come, also to what x-ray asks.
    proxy = {"mode": "xray", "read_seconds": 3}
    with behind(streaming(write)) as server, proxied(proxy_settings(server.url, **proxy)) as url:
        reply = httpx2.post(url + "/completion", json=BODY | {"stream": True}, timeout=60)
        last = reply.text.split("\n\n")[-2].removeprefix("data: ")
        assert json.loads(last)["error"]["code"] == "bad_gateway"
        assert httpx2.post(url + "/completion", json=BODY).status_code == 200
        whole, cut = httpx2.get(url + "/traces").json()["data"]
        assert (whole["finish_reason"], cut["finish_reason"]) == ("stop", "cancelled")
        assert (whole["unknown_steps"], cut["unknown_steps"]) == (0, 1)


def test_a_request_of_ten_megabytes_is_passed_on_untraced():
    body = BODY | {"more": "y" * 10_000_000}

    async def answer(asked, writer):
        if len(asked.body) > 10_000_000:
            raw = str(len(asked.body)).encode()
            writer.write(OK + f"content-length: {len(raw)}\r\n\r\n".encode() + raw)
            await writer.drain()
        else:
            await llama(asked, writer)

    with behind(answer) as server, proxied(proxy_settings(server.url, mode="xray")) as url:
        raw = json.dumps(body).encode()
        reply = httpx2.post(url + "/completion", content=raw, timeout=60)
        assert reply.text == str(len(raw))
        assert httpx2.get(url + "/traces").json()["data"] == []


def test_a_reply_beyond_the_limit_is_a_502_that_says_so(monkeypatch):
    monkeypatch.setattr(ReplyBudget.__init__, "__defaults__", (200, 400))
    with behind(llama) as server, proxied(proxy_settings(server.url, mode="xray")) as url:
        reply = httpx2.post(url + "/completion", json=BODY)
    assert reply.status_code == 502
    assert "more than 200 bytes" in reply.json()["error"]["message"]


@pytest.mark.parametrize("kind", ["line", "events"])
def test_an_endless_stream_ends_with_an_error_event_and_memory_stays(monkeypatch, kind):
    """By a line that never ends, and by events that never do: what is held of them has a limit."""
    monkeypatch.setattr(ReplyBudget.__init__, "__defaults__", (3_000_000, 4_000_000))
    monkeypatch.setattr(forward, "MOST_EVENT", 1_000_000)

    async def write(writer):
        writer.write(b'data: {"content": "' if kind == "line" else b"")
        while True:
            writer.write(b"a" * 65536 if kind == "line" else event("a" * 1000) * 60)
            await writer.drain()

    with behind(streaming(write)) as server, proxied(proxy_settings(server.url, mode="xray")) as url:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        reply = httpx2.post(url + "/completion", json=BODY | {"stream": True}, timeout=60)
        *_, last = [block for block in reply.text.split("\n\n") if block]
        error = json.loads(last.removeprefix("data: "))["error"]
        assert error["code"] == "bad_gateway"
        assert ("1,000,000" if kind == "line" else "3,000,000") in error["message"]
        assert server.asked[-1].gone.wait(60)
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000  # kB
        assert httpx2.post(url + "/completion", json=BODY).status_code == 200  # what was held is given back


def test_what_is_held_of_all_replies_has_a_limit_too():
    budget = ReplyBudget(most=10, total=15)
    with budget.reply() as first:
        first.take(10)
        with budget.reply() as second, pytest.raises(BadGateway, match="more than 15 bytes are traced at once"):
            second.take(6)
        assert budget.held == 10
    assert budget.held == 0


def test_an_encoded_request_and_an_encoded_reply_pass_as_they_are():
    packed = gzip.compress(json.dumps(BODY).encode())
    seen = []

    async def answer(asked, writer):
        seen.append(asked)
        if asked.line.startswith("POST /completion") and b"n_probs" in asked.body and b"1073741824" not in asked.body:
            raw = gzip.compress(b'{"content": "packed"}')
            writer.write(OK + f"content-encoding: gzip\r\ncontent-length: {len(raw)}\r\n\r\n".encode() + raw)
            await writer.drain()
        elif asked.header("content-encoding") == "gzip":
            writer.write(OK + f"content-length: {len(asked.body)}\r\n\r\n".encode() + asked.body)
            await writer.drain()
        else:
            await llama(asked, writer)

    with behind(answer) as server, proxied(proxy_settings(server.url, mode="xray")) as url:
        head = {"content-encoding": "gzip", "content-type": "application/json"}
        assert httpx2.post(url + "/completion", content=packed, headers=head).content == packed
        assert httpx2.post(url + "/completion", json=BODY).json() == {"content": "packed"}
        assert seen[-1].header("accept-encoding") == "identity"


@pytest.fixture
def full_disk(tmp_path):
    """A folder on a file system that has no room left."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if not hasattr(os, "geteuid") or os.geteuid() or shutil.which("mount") is None:
        pytest.skip("a small disk is mounted by root alone")
    made = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(folder)], check=False, capture_output=True
    )
    if made.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {made.stderr.decode().strip()}")
    try:
        with (folder / "filler").open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4096))
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def test_a_disk_that_is_really_full_costs_the_file_and_neither_the_reply_nor_the_stored_trace(full_disk, caplog):
    proxy = {"mode": "xray", "output_dir": full_disk}
    with behind(llama) as server, proxied(proxy_settings(server.url, **proxy)) as url:
        replies = [httpx2.post(url + "/completion", json=BODY) for _ in range(2)]
        (full_disk / "filler").unlink()
        replies.append(httpx2.post(url + "/completion", json=BODY))
        listed = httpx2.get(url + "/traces").json()["data"]
    assert [one.status_code for one in replies] == [200, 200, 200]
    assert ["x-combined-data-available" in one.headers for one in replies] == [False, False, True]
    assert len(listed) == 3
    assert len(files_of(full_disk)) == 1
    assert not list(full_disk.glob(".espalier-*"))
    assert "No space left" in caplog.text
