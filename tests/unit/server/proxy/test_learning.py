"""A server that is started again with another model is noticed: nothing is traced with the tokens of the old one."""

from __future__ import annotations

import asyncio
import json

import httpx2
import pytest

from espalier.errors import UpstreamError
from espalier.server.proxy.learning import AGAIN_SECONDS, LOOK_SECONDS, RETRY_SECONDS, Learning
from espalier.upstream.link import BrokeOff, ServerLink
from espalier.upstream.llama_server.client import LlamaServer
from espalier.upstream.xray.wire.request import UntracedRequest
from tests.proxies import OK, behind, files_of, proxied, proxy_settings
from tests.unit.server.proxy.test_xray_mode import BODY, TOKENS, entry, llama


class Swapped:
    """A llama-server whose model can be exchanged: the other one spells its tokens otherwise."""

    def __init__(self):
        self.name, self.is_other, self.is_there = "m", False, True
        self.drops = 0  # of the next connections

    async def __call__(self, asked, writer):
        path, body = asked.line.split()[1], json.loads(asked.body) if asked.body else {}
        if self.drops:
            self.drops -= 1
            return
        if path == "/props" and self.is_there:
            found = {"default_generation_settings": {"n_ctx": 64}, "eos_token": "<end>", "model_path": self.name}
        elif path == "/props":
            return
        elif body.get("n_probs", 0) > 1000 and self.is_other:
            listed = entry(1)
            for one in listed["top_logprobs"]:
                one["bytes"] = list(TOKENS[one["id"]].swapcase())
            found = {
                "content": "a",
                "completion_probabilities": [listed],
                "generation_settings": {"logit_bias": [{"token": 0}]},
            }
        else:
            await llama(asked, writer)
            return
        raw = json.dumps(found).encode()
        writer.write(OK + f"content-length: {len(raw)}\r\n\r\n".encode() + raw)
        await writer.drain()


@pytest.fixture
def learning():
    """The server, what is learned of it at a moment, and a list that holds the moment."""
    server, now = Swapped(), [0.0]
    with behind(server) as where:
        found = Learning(LlamaServer(ServerLink(where.url)), has_self_test=False, clock=lambda: now[0])
        yield server, found, now, where


def spelled(found):
    return asyncio.run(found.known()).vocab.bytes_of(1)


def test_another_model_is_seen_at_the_next_look(learning):
    server, found, now, _ = learning
    assert spelled(found) == b"a"
    server.name, server.is_other = "other", True
    now[0] = LOOK_SECONDS
    assert spelled(found) == b"A"


def test_another_model_of_the_same_name_is_seen_when_a_reply_does_not_fit(learning):
    server, found, now, _ = learning
    assert spelled(found) == b"a"
    server.is_other = True
    now[0] = AGAIN_SECONDS
    assert spelled(found) == b"a"
    found.doubt()
    assert spelled(found) == b"A"


def test_replies_that_never_fit_do_not_make_all_tokens_be_read_for_each(learning):
    _, found, now, where = learning
    spelled(found)
    for moment in range(1, 5):
        now[0] = moment
        found.doubt()
        spelled(found)
    asked = [one.line.split()[1] for one in where.asked]
    assert (asked.count("/completion"), asked.count("/props")) == (1, 1 + 1 + 4)


def test_a_connection_that_a_busy_server_drops_costs_no_trace(learning):
    server, found, _, _ = learning
    server.drops = 1
    assert spelled(found) == b"a"


def test_a_connection_that_broke_off_keeps_the_code_of_errors_of_the_server_behind():
    assert BrokeOff("x").code == UpstreamError("x").code


def test_a_server_that_is_gone_for_a_while_is_not_traced_meanwhile(learning):
    server, found, now, _ = learning
    spelled(found)
    server.is_there, now[0] = False, LOOK_SECONDS
    with pytest.raises(UntracedRequest):
        asyncio.run(found.known())
    server.is_there, server.is_other, server.name, now[0] = True, True, "other", LOOK_SECONDS + RETRY_SECONDS
    assert spelled(found) == b"A"


def test_the_proxy_traces_the_new_model(tmp_path, monkeypatch):
    monkeypatch.setattr("espalier.server.proxy.learning.LOOK_SECONDS", 0.0)
    server = Swapped()
    with behind(server) as where, proxied(proxy_settings(where.url, mode="xray", output_dir=tmp_path)) as url:
        httpx2.post(url + "/completion", json=BODY, timeout=60).raise_for_status()
        server.name, server.is_other = "other", True
        httpx2.post(url + "/completion", json=BODY | {"grammar": "root ::= [AB]+"}, timeout=60).raise_for_status()
    texts = [json.loads(one.read_text())["espalier"]["steps"][0]["token"]["text"] for one in files_of(tmp_path)]
    assert texts == ["a", "A"]


def test_a_server_with_the_routes_of_openai_alone_is_passed_on_and_named(caplog):
    async def speaks(asked, writer):
        path = asked.line.split()[1]
        found, status = {"detail": "Not Found"}, "404 Not Found"
        if path == "/version":
            found, status = {"version": "0.32.0"}, "200 OK"
        raw = json.dumps(found).encode()
        writer.write(f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\n".encode())
        writer.write(f"content-length: {len(raw)}\r\n\r\n".encode() + raw)
        await writer.drain()

    with behind(speaks) as where:
        found = Learning(LlamaServer(ServerLink(where.url)), has_self_test=True)
        with pytest.raises(UntracedRequest):
            asyncio.run(found.known())
    (said,) = [record.getMessage() for record in caplog.records if "nothing is traced" in record.getMessage()]
    assert f"{where.url} is no llama-server: it has OpenAI's routes alone" in said
    assert f"espalier serve --upstream {where.url}" in said
