"""Log mode: each reply gets its own rejections from the log of a patched server, and no other's."""

from __future__ import annotations

import asyncio
import json
import math
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import pytest

from espalier.trace.foreign.read import read_any
from tests.proxies import OK, behind, files_of, proxied, proxy_settings

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven"]


def candidate(number, prob):
    return {"id": number, "token": WORDS[number], "bytes": list(WORDS[number].encode()), "logprob": math.log(prob)}


class Patched:
    """A patched server. Each request has tokens of its own; at step 1 the second word was drawn and refused. together:
    how many requests wait for one another before the first of their tokens is sent. hold: what a stream waits for
    before its second token."""

    def __init__(self, path, *, has_events=True, together=1, hold=None):
        self.path, self._has_events = path, has_events
        self._lock = threading.Lock()
        self._task = 0
        self._together = asyncio.Barrier(together)
        self._hold = hold
        path.write_text('{"log_version":"1","timestamp":"2026-01-01T00:00:00Z","events":[')

    async def __call__(self, asked, writer):
        body = json.loads(asked.body)
        kind = body["messages"][0]["content"]
        own = 3 + int(kind)  # the token that only this request takes
        await self._together.wait()
        with self._lock:
            self._task += 1
            task = self._task
            if self._has_events:
                self._append(task, own)
        await self._together.wait()
        steps = [[candidate(0, 0.9), candidate(1, 0.1)], [candidate(2, 0.9), candidate(own, 0.01 + 0.01 * own)]]
        content = [{**steps[0][0], "top_logprobs": steps[0]}, {**steps[1][1], "top_logprobs": steps[1]}]
        if not body.get("logprobs"):
            content = None
        if body.get("stream"):
            await self._stream(writer, f"chatcmpl-{kind}-{task}", content, own)
            return
        reply = {
            "id": f"chatcmpl-{kind}-{task}",
            "created": 1,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "finish_reason": "stop",
                    "message": {"role": "assistant", "content": "zero" + WORDS[own]},
                    "logprobs": content and {"content": content},
                }
            ],
            "usage": {"completion_tokens": 2},
        }
        raw = json.dumps(reply).encode()
        writer.write(OK + f"content-length: {len(raw)}\r\n\r\n".encode() + raw)
        await writer.drain()

    async def _stream(self, writer, name, content, own):
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
        for place, word in enumerate(("zero", WORDS[own])):
            if place == 1 and self._hold is not None:
                await asyncio.to_thread(self._hold.wait)
            choice = {"index": 0, "delta": {"content": word}, "finish_reason": None}
            choice |= {} if content is None else {"logprobs": {"content": [content[place]]}}
            writer.write(b"data: " + json.dumps({"id": name, "choices": [choice]}).encode() + b"\n\n")
            await writer.drain()
        end = {"id": name, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}
        writer.write(b"data: " + json.dumps(end).encode() + b"\n\ndata: [DONE]\n\n")
        await writer.drain()

    def _append(self, task, own):
        def named(number, prob):
            return {"id": number, "text": WORDS[number], "prob": prob}

        event = {
            "task_id": task,
            "slot_id": task % 4,
            "step": 1,
            "rejected": named(2, 0.9),
            "pre_masking": [named(2, 0.9), named(own, 0.01 + 0.01 * own)],
            "post_grammar": [],
            "post_chain": [],
            "resampled": named(own, 1.0),
        }
        with self.path.open("a") as file:
            file.write(json.dumps(event) + ",")


def asked_of(kind, **more):
    return {"messages": [{"role": "user", "content": str(kind)}], "logprobs": 5, **more}


def ask(url, kind, **more):
    return httpx2.post(url + "/v1/chat/completions", json=asked_of(kind, **more), timeout=60)


def streamed(url, kind):
    return httpx2.stream("POST", url + "/v1/chat/completions", json=asked_of(kind, stream=True), timeout=60)


def leave_at(mark, url, kind):
    """Ask for a stream, and leave as soon as the mark is in it."""
    host, _, port = url.removeprefix("http://").partition(":")
    body = json.dumps(asked_of(kind, stream=True)).encode()
    with socket.create_connection((host, int(port)), timeout=60) as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # gone, and not half closed
        head = b"POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n"
        client.sendall(head % len(body) + body)
        heard = b""
        while mark not in heard:
            heard += (piece := client.recv(4096))
            assert piece, heard


def until(found, what):
    """Look again until it is there. Raises AssertionError after a minute."""
    end, never = time.monotonic() + 60, threading.Event()
    while not (result := found()):
        assert time.monotonic() < end, what
        never.wait(0.05)
    return result


def second_step(file):
    return json.loads(file.read_text())["steps"][1]


@contextmanager
def log_mode(answer, log, out):
    with ExitStack() as stack:
        server = stack.enter_context(behind(answer))
        yield stack.enter_context(proxied(proxy_settings(server.url, mode="log", rejection_log=log, output_dir=out)))


@pytest.fixture
def log(tmp_path):
    return tmp_path / "rejection_log.json"


def test_the_rejections_of_a_reply_come_from_an_unclosed_log(tmp_path, log):
    out = tmp_path / "traces"
    with behind(Patched(log)) as server:
        proxy = proxy_settings(server.url, mode="log", rejection_log=log, output_dir=out)
        with proxied(proxy) as url:
            reply = ask(url, 1)
            listed = httpx2.get(url + "/traces").json()["data"]
    (file,) = files_of(out)
    assert reply.headers["x-combined-data-available"] == str(file)
    assert reply.json()["id"] == "chatcmpl-1-1"
    data = json.loads(file.read_text())
    assert data["steps"][1]["rejection_sampling"]["rejected"]["text"] == "two"
    assert data["metadata"]["link"]["by"] != "none"
    assert listed[0]["rejected_steps"] == 1
    assert read_any(file).steps[1].was_rejected


def test_eight_clients_at_once_get_their_own(tmp_path, log):
    out = tmp_path / "traces"
    with behind(Patched(log)) as server:
        proxy = proxy_settings(server.url, mode="log", rejection_log=log, output_dir=out)
        with proxied(proxy) as url, ThreadPoolExecutor(8) as clients:
            replies = list(clients.map(lambda kind: ask(url, kind), [0, 1, 2, 3, 4] * 2))
    files = {
        json.loads(one.read_text())["metadata"]["request_id"]: json.loads(one.read_text()) for one in files_of(out)
    }
    assert len(files) == len(replies)
    for reply in replies:
        sampled = files[reply.json()["id"]]["steps"][1]["rejection_sampling"]
        own = reply.json()["choices"][0]["logprobs"]["content"][1]["id"]
        if sampled["was_rejected"]:  # otherwise it is unknown: another request's is never shown
            assert sampled["resampled"]["id"] == own
        else:
            assert sampled["was_rejected"] is None or sampled.get("verdict") == "unknown"


def test_a_log_that_is_not_there_leaves_steps_unknown(tmp_path, log):
    with behind(Patched(log, has_events=False)) as server:
        proxy = proxy_settings(server.url, mode="log", rejection_log=tmp_path / "none.json", output_dir=tmp_path / "o")
        with proxied(proxy) as url:
            assert ask(url, 1).status_code == 200
    (file,) = files_of(tmp_path / "o")
    assert json.loads(file.read_text())["summary"]["rejected_steps"] == 0
    assert json.loads(file.read_text())["summary"]["unknown_steps"] >= 1


def test_a_log_that_is_cut_in_mid_event_and_begun_again_is_followed(tmp_path, log):
    out = tmp_path / "traces"
    with behind(patched := Patched(log)) as server:
        proxy = proxy_settings(server.url, mode="log", rejection_log=log, output_dir=out)
        with proxied(proxy) as url:
            ask(url, 1)
            with log.open("a") as file:
                file.write('{"task_id": 9, "st')
            log.rename(tmp_path / "rejection_log.json.1")
            Patched.__init__(patched, log)
            ask(url, 2)
    second = json.loads(files_of(out)[1].read_text())
    assert second["steps"][1]["rejection_sampling"]["was_rejected"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_without_probabilities_is_traced_from_the_log_alone_and_says_so(log, tmp_path, stream):
    out = tmp_path / "traces"
    with log_mode(Patched(log), log, out) as url:
        assert ask(url, 1, logprobs=None, stream=stream).status_code == 200
    (file,) = files_of(out)
    data = json.loads(file.read_text())
    assert "no log probabilities" in data["metadata"]["note"]
    assert data["steps"][1]["rejection_sampling"]["rejected"]["text"] == "two"
    assert data["steps"][1]["token"]["text"] == "four"
    assert read_any(file).steps[1].was_rejected


def test_a_stream_is_traced_and_its_file_is_there_when_it_ends(tmp_path, log):
    out = tmp_path / "traces"
    with log_mode(Patched(log), log, out) as url:
        for kind in range(4):
            reply = ask(url, kind, stream=True)
            assert reply.text.endswith("data: [DONE]\n\n")
            file = Path(reply.headers["x-combined-data-available"])
            assert second_step(file)["rejection_sampling"]["was_rejected"]
        assert len(httpx2.get(url + "/traces").json()["data"]) == 4


@pytest.mark.parametrize("stream", [False, True])
def test_four_at_once_get_their_own(tmp_path, log, stream):
    out = tmp_path / "traces"
    with behind(Patched(log, together=4)) as server:
        proxy = proxy_settings(server.url, mode="log", rejection_log=log, output_dir=out)
        with proxied(proxy) as url, ThreadPoolExecutor(4) as clients:
            list(clients.map(lambda kind: ask(url, kind, stream=stream), range(4)))
            until(lambda: len(httpx2.get(url + "/traces").json()["data"]) == 4, "four traces")
    for file in files_of(out):
        step = second_step(file)
        assert step["rejection_sampling"]["resampled"]["id"] == step["token"]["id"]
    assert len(files_of(out)) == 4


def test_four_at_once_that_say_the_same_share_what_their_tasks_have_in_common(tmp_path, log):
    out = tmp_path / "traces"
    with behind(Patched(log, together=4)) as server:
        proxy = proxy_settings(server.url, mode="log", rejection_log=log, output_dir=out)
        with proxied(proxy) as url, ThreadPoolExecutor(4) as clients:
            list(clients.map(lambda _: ask(url, 1), range(4)))
            until(lambda: len(httpx2.get(url + "/traces").json()["data"]) == 4, "four traces")
    for file in files_of(out):
        data = json.loads(file.read_text())
        assert (data["metadata"]["link"]["by"], len(data["metadata"]["link"]["candidates"])) == ("shared", 4)
        assert [one["rejection_sampling"]["was_rejected"] for one in data["steps"]] == [False, True]


def test_an_ambiguous_reply_beside_a_request_that_does_not_end_is_listed(tmp_path, log, monkeypatch):
    monkeypatch.setattr("espalier.server.proxy.log.mode.LATEST_SECONDS", 0.1)
    out, hold = tmp_path / "traces", threading.Event()
    patched = Patched(log, together=3, hold=hold)
    with log_mode(patched, log, out) as url, ThreadPoolExecutor(3) as clients:
        endless = clients.submit(ask, url, 1, stream=True)
        try:
            assert all(one.status_code == 200 for one in clients.map(lambda _: ask(url, 1), range(2)))
            until(lambda: len(httpx2.get(url + "/traces").json()["data"]) == 2, "the traces of two replies")
            assert not endless.done()
            links = [json.loads(one.read_text())["metadata"]["link"] for one in files_of(out)]
        finally:
            hold.set()
        assert endless.result().status_code == 200
        until(lambda: len(httpx2.get(url + "/traces").json()["data"]) == 3, "the trace of the third")
    assert [(one["by"], len(one["candidates"])) for one in links] == [("shared", 3)] * 2
    assert len(files_of(out)) == 3


def test_a_reply_while_the_log_cannot_be_read_gets_no_earlier_task(tmp_path, log):
    out = tmp_path / "traces"
    with log_mode(patched := Patched(log), log, out) as url:
        ask(url, 1)
        ask(url, 2)
        patched._has_events = False
        log.write_text("no log")
        assert ask(url, 1).status_code == 200
    links = [json.loads(one.read_text())["metadata"]["link"] for one in files_of(out)]
    assert [one.get("task_id") for one in links] == [1, 2, None]


def test_a_client_that_leaves_after_the_last_event_or_before_is_traced(tmp_path, log):
    out, hold = tmp_path / "traces", threading.Event()
    with behind(Patched(log, hold=hold)) as server:
        proxy = proxy_settings(server.url, mode="log", rejection_log=log, output_dir=out)
        with proxied(proxy) as url:
            leave_at(b"zero", url, 1)
            (early,) = until(lambda: files_of(out), "the trace of a client that left early")
            hold.set()
            leave_at(b"[DONE]", url, 2)  # as SDKs do
            until(lambda: len(files_of(out)) == 2, "the trace of a client that left at the end")
            late = next(one for one in files_of(out) if one != early)
    assert json.loads(early.read_text())["summary"]["total_steps"] == 1
    assert second_step(late)["rejection_sampling"]["was_rejected"]


def test_a_slow_client_is_traced(tmp_path, log):
    out, never = tmp_path / "traces", threading.Event()
    with behind(Patched(log)) as server:
        proxy = proxy_settings(server.url, mode="log", rejection_log=log, output_dir=out)
        with proxied(proxy) as url, streamed(url, 1) as reply:
            for _ in reply.iter_bytes(chunk_size=64):
                never.wait(0.02)
    assert second_step(files_of(out)[0])["rejection_sampling"]["was_rejected"]


@pytest.mark.slow
def test_a_request_without_rejections_has_none_once_the_log_is_known_to_live(tmp_path, log):
    out = tmp_path / "traces"
    with log_mode(patched := Patched(log), log, out) as url:
        for kind, patched._has_events in enumerate((False, True, False)):
            ask(url, kind)
    rates = [json.loads(one.read_text())["summary"]["rejection_rate"] for one in files_of(out)]
    assert rates == [None, 0.5, 0.0]
