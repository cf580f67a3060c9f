"""Log mode: each reply gets its own rejections from the log of a patched server, and no other's."""

from __future__ import annotations

import json
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx2
import pytest

from espalier.trace.foreign.read import read_any
from tests.proxies import OK, behind, files_of, proxied, proxy_settings

WORDS = ["zero", "one", "two", "three", "four", "five", "six", "seven"]


def candidate(number, prob):
    return {"id": number, "token": WORDS[number], "bytes": list(WORDS[number].encode()), "logprob": math.log(prob)}


class Patched:
    """A patched server. Each request has tokens of its own; at step 1 the second word was drawn and refused."""

    def __init__(self, path, *, has_events=True):
        self.path, self._has_events = path, has_events
        self._lock = threading.Lock()
        self._task = 0
        path.write_text('{"log_version":"1","timestamp":"2026-01-01T00:00:00Z","events":[')

    async def __call__(self, asked, writer):
        kind = json.loads(asked.body)["messages"][0]["content"]
        own = 3 + int(kind)  # the token that only this request takes
        with self._lock:
            self._task += 1
            task = self._task
            if self._has_events:
                self._append(task, own)
        steps = [[candidate(0, 0.9), candidate(1, 0.1)], [candidate(2, 0.9), candidate(own, 0.01 + 0.01 * own)]]
        content = [
            {**steps[0][0], "top_logprobs": steps[0]},
            {**steps[1][1], "top_logprobs": steps[1]},
        ]
        reply = {"id": f"chatcmpl-{kind}-{task}", "created": 1, "model": "m", "choices": [
            {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "x"},
             "logprobs": {"content": content}}]}  # fmt: skip
        raw = json.dumps(reply).encode()
        writer.write(OK + f"content-length: {len(raw)}\r\n\r\n".encode() + raw)
        await writer.drain()

    def _append(self, task, own):
        def named(number, prob):
            return {"id": number, "text": WORDS[number], "prob": prob}

        event = {"task_id": task, "slot_id": task % 4, "step": 1, "rejected": named(2, 0.9),
                 "pre_masking": [named(2, 0.9), named(own, 0.01 + 0.01 * own)], "post_grammar": [], "post_chain": [],
                 "resampled": named(own, 1.0)}  # fmt: skip
        with self.path.open("a") as file:
            file.write(json.dumps(event) + ",")


def ask(url, kind):
    body = {"messages": [{"role": "user", "content": str(kind)}], "logprobs": 5}
    return httpx2.post(url + "/v1/chat/completions", json=body, timeout=60)


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


def test_a_reply_without_probabilities_is_passed_on_and_not_traced(log, tmp_path):
    async def plain(asked, writer):
        raw = b'{"choices": [{"index": 0, "message": {"content": "x"}}]}'
        writer.write(OK + f"content-length: {len(raw)}\r\n\r\n".encode() + raw)
        await writer.drain()

    with behind(plain) as server:
        proxy = proxy_settings(server.url, mode="log", rejection_log=log, output_dir=tmp_path)
        with proxied(proxy) as url:
            assert ask(url, 0).json()["choices"][0]["message"]["content"] == "x"
    assert files_of(tmp_path) == []
