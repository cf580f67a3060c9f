"""Before anything is traced the server has to show that its replies can be; if not, the log says what it lacks."""

from __future__ import annotations

import json

import httpx2
import pytest

from espalier.server.proxy.self_test import SEED
from tests.proxies import OK, behind, proxied, proxy_settings
from tests.unit.server.proxy.test_xray_mode import BODY, SETTINGS, entry, llama


def saying(**changes):
    """A server that answers the self-test with these fields of the reply changed, and else as `llama`."""

    async def answer(asked, writer):
        body = json.loads(asked.body) if asked.body else {}
        if body.get("seed") != SEED:
            await llama(asked, writer)
            return
        settings = SETTINGS | {"seed": SEED, "grammar": body["grammar"]} | changes.pop("settings", {})
        found = {
            "index": 0,
            "content": "a",
            "tokens": [1, 0],
            "stop": True,
            "generation_settings": settings,
            "prompt": "a",
            "tokens_evaluated": 1,
            "stop_type": "eos",
            "completion_probabilities": [entry(1), entry(0, [0.6, 0.1, 0.1, 0.1, 0.05, 0.05])],
        } | changes
        raw = json.dumps(found).encode()
        writer.write(OK + f"content-length: {len(raw)}\r\n\r\n".encode() + raw)
        await writer.drain()

    return answer


def traces_of(answer, caplog):
    """How many traces a request leaves behind, and the warnings."""
    with behind(answer) as server:
        with proxied(proxy_settings(server.url, mode="xray", self_test=True)) as url:
            assert httpx2.post(url + "/completion", json=BODY).status_code == 200
            count = len(httpx2.get(url + "/traces").json()["data"])
        sent = json.loads(server.asked[-1].body)
    assert ("n_probs" in sent) == (count == 1)  # nothing is added where nothing is traced
    return count, " ".join(one.getMessage() for one in caplog.records if one.levelname == "WARNING")


def test_a_server_that_passes_is_traced(caplog):
    assert traces_of(saying(), caplog) == (1, "")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"settings": {"seed": 4}}, "does not take the seed"),
        ({"settings": {"grammar": ""}}, "does not take the grammar"),
        ({"generation_settings": None}, "does not tell the settings"),
        ({"tokens": []}, "does not tell the ids of its tokens"),
        ({"completion_probabilities": []}, "tells no probabilities"),
        ({"tokens": [2, 0], "completion_probabilities": [entry(2), entry(0)]}, "sampler is not the one"),
        ({"settings": {"speculative.types": "draft"}}, "speculative"),
    ],
)
def test_a_server_whose_replies_cannot_be_traced_is_named_with_what_it_lacks(changes, said, caplog):
    count, warned = traces_of(saying(**changes), caplog)
    assert count == 0
    assert said in warned
    assert "127.0.0.1" in warned


def test_a_server_that_comes_later_is_traced_then(caplog):
    caplog.set_level("INFO")
    with behind(llama) as server, proxied(proxy_settings(server.url, mode="xray", self_test=True)) as url:
        httpx2.post(url + "/completion", json=BODY)
        assert len(httpx2.get(url + "/traces").json()["data"]) == 1
    assert any("can be traced" in one.getMessage() for one in caplog.records)
