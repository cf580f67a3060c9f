"""Requests for several outputs, and replies that are cut: each output has a trace of its own."""

from __future__ import annotations

import contextlib
import json

import httpx2
import pytest

from espalier.trace.foreign.responses import read_response
from espalier.trace.records import Trace
from espalier.upstream.xray.sampler.settings import RANDOM_SEED
from espalier.upstream.xray.wire.request import read_request, rewritten
from tests.proxies import OK, behind, files_of, proxied, proxy_settings
from tests.unit.server.proxy.test_xray_faults import EVENTS
from tests.unit.server.proxy.test_xray_mode import BODY, SETTINGS, entry, llama

END = [0.6, 0.1, 0.1, 0.1, 0.05, 0.05]
CHAT = {"messages": [{"role": "user", "content": "H"}], "grammar": BODY["grammar"], "temperature": 0}


def settings_of(body, index, copies):
    given = {name: body.get(name, 0) for name in ("seed", "n_probs", "grammar")}
    return SETTINGS | given | {"seed": body["seed"] + index % copies, "n_predict": 4}


def native(body, index, copies):
    return {
        "index": index,
        "content": "a",
        "tokens": [1, 0],
        "stop": True,
        "prompt": "H",
        "tokens_evaluated": 1,
        "generation_settings": settings_of(body, index, copies),
        "stop_type": "eos",
        "completion_probabilities": [entry(1), {**entry(0, END), "bytes": []}],
    }


def whole(body, path, count):
    copies = body.get("n") or body.get("n_cmpl") or 1
    if path == "/completion":
        return [native(body, index, copies) for index in range(count)]
    choices = [
        {
            "finish_reason": "stop",
            "index": index,
            "message": {"role": "assistant", "content": "a"},
            "logprobs": {"content": native(body, index, copies)["completion_probabilities"]},
        }
        for index in range(count)
    ]
    verbose = {name: value for name, value in native(body, 0, copies).items() if name in body["response_fields"]}
    return {"choices": choices, "id": "x", "model": "m", "__verbose": verbose}


def events(body, count):
    """The outputs in turns, and the first one ends long before the others."""
    copies = body.get("n_cmpl", 1)

    def piece(index, place):
        return {
            "index": index,
            "content": "a",
            "tokens": [1],
            "stop": False,
            "tokens_predicted": place + 1,
            "completion_probabilities": [entry(1)],
        }

    def last(index, place):
        found = native(body, index, copies) | {"content": "", "tokens": [], "tokens_predicted": place + 1}
        found.pop("completion_probabilities")
        token = {
            "index": index,
            "content": "",
            "tokens": [0],
            "stop": False,
            "tokens_predicted": place + 1,
            "completion_probabilities": [{**entry(0, END), "bytes": []}],
        }
        return [token, found]

    made = [*[piece(index, 0) for index in range(count)], *last(0, 1)]
    for index in range(1, count):
        made += [piece(index, 1), *last(index, 2)]
    return [b"data: %s\n\n" % json.dumps(one).encode() for one in made]


def server_of(count, seen, *, chunked=None):
    async def answer(asked, writer):
        path = asked.line.split()[1]
        body = json.loads(asked.body) if asked.body else {}
        is_theirs = path == "/v1/chat/completions" or (path == "/completion" and body.get("grammar") == BODY["grammar"])
        if not is_theirs:
            await llama(asked, writer)
            return
        seen.append(body)
        if body.get("stream"):
            writer.write(EVENTS)
            for one in events(body, count)[:chunked]:
                writer.write(one)
            await writer.drain()
            while chunked is not None:  # a client that has gone is noticed when it is written to
                writer.write(b":\n\n" * 1000)
                await writer.drain()
            return
        raw = json.dumps(whole(body, path, count), separators=(",", ":")).encode()
        writer.write(OK + f"content-length: {len(raw)}\r\n\r\n".encode() + raw)
        await writer.drain()

    return answer


def traces_in(folder):
    found = [(json.loads(path.read_text()), path) for path in files_of(folder)]
    return [Trace.from_json(one["espalier"]) for one, _ in sorted(found, key=lambda one: _index(one[1]))]


def _index(path):
    last = path.stem.rpartition("_")[2]
    return int(last) if last.isdigit() and len(last) == 1 else 0


@pytest.mark.parametrize(
    ("path", "body", "seeds"),
    [
        ("/completion", BODY | {"n_cmpl": 2}, [7, 8]),
        ("/completion", BODY | {"prompt": ["H", "I"]}, [7, 7]),
        ("/completion", BODY | {"prompt": ["H", [4, 5]], "n": 2}, [7, 8, 7, 8]),
        ("/v1/chat/completions", CHAT | {"n": 2}, [7, 8]),
    ],
)
def test_each_output_is_traced_with_its_own_seed(tmp_path, path, body, seeds):
    seen = []
    settings = {"mode": "xray", "output_dir": tmp_path}
    with behind(server_of(len(seeds), seen)) as server, proxied(proxy_settings(server.url, **settings)) as url:
        reply = httpx2.post(url + path, json=body | {"seed": 7}, timeout=60)
        listed = httpx2.get(url + "/traces").json()["data"]
    assert reply.status_code == 200
    for added in (b"completion_probabilities", b"logprobs", b"__verbose"):
        assert added not in reply.content
    found = traces_in(tmp_path)
    assert [one.sampling["seed"] for one in found] == seeds
    for one in found:
        assert [(step.token_id, step.exactness, step.was_rejected) for step in one.steps] == [
            (1, "exact", True),
            (0, "exact", False),
        ]
    assert sorted(one["output_index"] for one in listed) == list(range(len(seeds)))
    assert reply.headers["x-combined-data-available"].endswith(".json")
    assert {one["bounded_steps"] for one in listed} == {0}


def test_outputs_of_a_stream_are_told_apart_and_only_the_last_piece_waits(tmp_path):
    seen = []
    body = BODY | {"n_cmpl": 3, "stream": True, "seed": 7}
    with (
        behind(server_of(3, seen)) as server,
        proxied(proxy_settings(server.url, mode="xray", output_dir=tmp_path)) as url,
    ):
        raw = httpx2.post(url + "/completion", json=body, timeout=60).content
    pieces = [json.loads(one[6:]) for one in raw.decode().split("\n\n") if one]
    assert [one["index"] for one in pieces if one["stop"]] == [0, 1, 2]
    assert [one.text for one in traces_in(tmp_path)] == ["a", "aa", "aa"]
    assert [one.sampling["seed"] for one in traces_in(tmp_path)] == [7, 8, 9]


def test_an_output_whose_reply_leaves_out_tokens_is_untraceable(tmp_path):
    """A reply lists no ids of the second output of a chat: an entry with more bytes than its token hides others."""

    async def answer(asked, writer):
        body = json.loads(asked.body) if asked.body else {}
        if "messages" not in body:
            await llama(asked, writer)
            return
        data = whole(body, "/v1/chat/completions", 2)
        data["choices"][1]["logprobs"]["content"][0]["bytes"] = [98, 97]
        raw = json.dumps(data).encode()
        writer.write(OK + f"content-length: {len(raw)}\r\n\r\n".encode() + raw)
        await writer.drain()

    with behind(answer) as server, proxied(proxy_settings(server.url, mode="xray", output_dir=tmp_path)) as url:
        httpx2.post(url + "/v1/chat/completions", json=CHAT | {"n": 2}, timeout=60).raise_for_status()
    first, second = traces_in(tmp_path)
    assert {one.exactness for one in first.steps} == {"exact"}
    assert [(one.token_id, one.exactness) for one in second.steps] == [(1, "untraceable"), (0, "untraceable")]
    assert "leaves out tokens of this output" in second.setup["reason"]


def test_no_seed_of_a_further_output_is_the_word_for_a_random_one():
    asked = read_request("/completion", json.dumps(BODY | {"n": 3}).encode())
    _, seed = rewritten(asked, 6, lambda: RANDOM_SEED - 1)
    assert [asked.seed_of(seed, index) for index in range(3)][-1] == RANDOM_SEED - 1


@pytest.mark.parametrize("more", [{}, {"verbose": True}])
def test_a_client_that_leaves_has_a_trace_of_what_each_output_was(tmp_path, more):
    """Also of a request that cannot be traced: nothing that was confirmed is lost."""
    seen = []
    body = BODY | {"n_cmpl": 2, "stream": True, "seed": 7, **more}
    with (
        behind(server_of(2, seen, chunked=5)) as server,
        proxied(proxy_settings(server.url, mode="xray", output_dir=tmp_path)) as url,
    ):
        with httpx2.stream("POST", url + "/completion", json=body) as reply:
            text = b""
            for piece in reply.iter_raw():
                text += piece
                if text.count(b"\n\n") >= 5:
                    break
        assert server.asked[-1].gone.wait(30)
    first, second = traces_in(tmp_path)  # the proxy waits for them before it ends
    assert (first.text, second.text) == ("a", "aa")
    assert second.finish_reason == "cancelled"
    assert second.setup["reason"].endswith(
        "the reply was cut" if more else "the reply was cut before it told its settings"
    )
    assert {one.exactness for one in second.steps} == {"untraceable"}
    if not more:
        assert first.finish_reason == "stop"
        assert {one.exactness for one in first.steps} == {"exact"}


@pytest.mark.parametrize("more", [{}, {"verbose": True}])
def test_a_server_that_dies_in_mid_stream_leaves_a_trace_of_each_output(tmp_path, more):
    async def answer(asked, writer):
        if b'"stream": true' in asked.body or b'"stream":true' in asked.body:
            writer.write(EVENTS.replace(b"connection: close", b"content-length: 99999"))
            for one in events(json.loads(asked.body), 2)[:2]:
                writer.write(one)
            await writer.drain()
        else:
            await llama(asked, writer)

    body = BODY | {"n_cmpl": 2, "stream": True, "seed": 7, **more}
    with (
        behind(answer) as server,
        proxied(proxy_settings(server.url, mode="xray", output_dir=tmp_path)) as url,
        contextlib.suppress(httpx2.HTTPError),
    ):
        httpx2.post(url + "/completion", json=body, timeout=60)
    assert [(one.text, one.finish_reason) for one in traces_in(tmp_path)] == [("a", "cancelled")] * 2


def test_replies_of_several_outputs_are_read():
    body = {"seed": 1, "n_probs": 6, "grammar": "root ::= [ab]+"}
    listed = read_response(json.dumps(whole(body, "/completion", 3)))
    assert [one.index for one in listed.choices] == [0, 1, 2]
    streamed = read_response(b"".join(events(body | {"n_cmpl": 2}, 2)))
    assert [(one.index, one.text) for one in streamed.choices] == [(0, "a"), (1, "aa")]
