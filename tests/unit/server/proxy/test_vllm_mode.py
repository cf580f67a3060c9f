"""The proxy in front of a vLLM whose every byte the test decides: what it is asked, what the client gets, what the
trace says."""

from __future__ import annotations

import json
import math

import httpx2
import pytest

from tests.proxies import behind, kept_traces, proxy_settings

WANTED = {"a": (1, 0.2), "b": (2, 0.5), "c": (3, 0.3)}
"""Ids and probabilities of the model."""
BODY = {"model": "m", "prompt": "p", "structured_outputs": {"choice": ["a"]}, "max_tokens": 1}
PLAIN = {"id": "cmpl-1", "object": "text_completion", "model": "m", "prompt_token_ids": None}


def lists(names, *, left=None):
    """`logprobs` of one token, the first of the names. left: those that a mask has left."""
    total = sum(WANTED[one][1] for one in left or WANTED)
    own = {one: math.log(WANTED[one][1] / total) if not left or one in left else -9999.0 for one in names}
    return {"text_offset": [0], "token_logprobs": [own[names[0]]], "tokens": [names[0]], "top_logprobs": [own]}


def choice(asked, *, masks):
    """What a vLLM answers to a completion. masks: whether its own mask holds structured outputs."""
    if asked.get("prompt_logprobs") is not None:
        rows = {
            str(number): {"logprob": math.log(prob), "decoded_token": one} for one, (number, prob) in WANTED.items()
        }
        return {"text": "x", "logprobs": None, "finish_reason": "length", "prompt_logprobs": [None, rows]}
    is_held = masks and "structured_outputs" in asked
    names = ["a", "b", "c"] if "structured_outputs" in asked else ["b", "c", "a"]
    logprobs = None if asked.get("logprobs") is None else lists(names, left=("a",) if is_held else None)
    has_ids = asked.get("return_token_ids")
    return {
        "index": 0,
        "text": names[0],
        "logprobs": logprobs,
        "finish_reason": "length",
        "stop_reason": None,
        "token_ids": [WANTED[names[0]][0]] if has_ids else None,
        "prompt_token_ids": [9] if has_ids else None,
    }


def vllm(*, masks=True, version=True, most=20, fails=False):
    async def answer(asked, writer):
        path, body = asked.line.split()[1], json.loads(asked.body or b"{}")
        status, said = "200 OK", {}
        if path == "/version" and version:
            said = {"version": "0.32.0"}
        elif path == "/v1/models":
            said = {"data": [{"id": "m", "root": "somewhere/else"}]}
        elif path == "/v1/completions" and (body.get("logprobs") or 0) > most:
            status, said = "400 Bad Request", {"error": {"message": f"greater than max allowed: {most}", "code": 400}}
        elif path == "/v1/completions" and fails and body["prompt"] == "p":
            status, said = "400 Bad Request", {"error": {"message": "no such model", "code": 400}}
        elif path == "/v1/completions":
            said = PLAIN | {"choices": [choice(body, masks=masks)]}
        else:
            status, said = "404 Not Found", {"detail": "Not Found"}
        if body.get("stream"):
            raw = f"data: {json.dumps(said)}\n\ndata: [DONE]\n\n".encode()
            head = f"HTTP/1.1 {status}\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
        else:
            raw = json.dumps(said).encode()
            head = f"HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {len(raw)}\r\n\r\n"
        writer.write(head.encode() + raw)
        await writer.drain()

    return answer


def bodies(server, path="/v1/completions"):
    return [json.loads(one.body) for one in server.asked if one.line.split()[1] == path]


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_is_traced_and_its_reply_is_vllms_own(stream):
    with behind(vllm()) as server, kept_traces(proxy_settings(server.url, mode="xray")) as (url, kept):
        reply = httpx2.post(url + "/v1/completions", json=BODY | {"stream": stream}, timeout=60)
        direct = httpx2.post(server.url + "/v1/completions", json=BODY | {"stream": stream}, timeout=60)
        assert reply.content == direct.content
        (trace,) = kept()
        assert trace["row"]["id"] in reply.headers["x-espalier-trace"]
    (step,) = trace["steps"]
    assert (step["token"]["id"], step["token"]["text"], step["allowed_count"]) == (1, "a", 1)
    least, most = step["bounds"]
    assert least <= 0.8 <= most
    assert [(one["text"], one["allowed"]) for one in step["pre_masking"]] == [("b", False), ("c", False), ("a", True)]
    assert step["was_changed"] is True
    assert trace["metadata"]["constraint"] == {"kind": "choice", "options": ["a"]}
    (scored,) = [body for body in bodies(server) if "prompt_logprobs" in body]  # a stream's may come after `direct`
    assert (scored["prompt"], scored["prompt_logprobs"], scored["max_tokens"]) == ([9, 1], 20, 1)


def test_without_refill_nothing_is_asked_again_and_the_trace_says_what_is_missing():
    with behind(vllm()) as server, kept_traces(proxy_settings(server.url, mode="xray", refill=False)) as (url, kept):
        httpx2.post(url + "/v1/completions", json=BODY, timeout=60)
        (trace,) = kept()
        assert not any("prompt_logprobs" in body for body in bodies(server))
    assert trace["steps"][0]["exactness"] == "untraceable"
    assert "--refill" in trace["steps"][0]["note"]


def test_where_our_processor_holds_the_constraint_nothing_is_asked_again():
    with behind(vllm(masks=False)) as server, kept_traces(proxy_settings(server.url, mode="xray")) as (url, kept):
        httpx2.post(url + "/v1/completions", json=BODY, timeout=60)
        (trace,) = kept()
        assert not any("prompt_logprobs" in body for body in bodies(server))
    (step,) = trace["steps"]
    assert step["token"]["logprob"] == pytest.approx(math.log(0.2))
    assert step["bounds"] == [0.0, pytest.approx(0.8)]
    assert "--tokenizer" in step["note"]


def test_no_more_probabilities_are_asked_for_than_the_server_lists():
    with behind(vllm(most=2)) as server, kept_traces(proxy_settings(server.url, mode="xray")) as (url, _):
        assert httpx2.post(url + "/v1/completions", json=BODY, timeout=60).status_code == 200
        assert [body["logprobs"] for body in bodies(server) if body["prompt"] == "p"] == [2]


def test_a_request_without_a_constraint_is_passed_on_as_it_is():
    with behind(vllm()) as server, kept_traces(proxy_settings(server.url, mode="xray")) as (url, kept):
        httpx2.post(url + "/v1/completions", json={"model": "m", "prompt": "p"}, timeout=60)
        assert bodies(server)[-1] == {"model": "m", "prompt": "p"}
        assert kept() == []


def test_an_error_of_vllms_is_passed_on_and_leaves_no_trace():
    with behind(vllm(fails=True)) as server, kept_traces(proxy_settings(server.url, mode="xray")) as (url, kept):
        reply = httpx2.post(url + "/v1/completions", json=BODY, timeout=60)
        assert (reply.status_code, reply.json()["error"]["message"]) == (400, "no such model")
        assert kept() == []


def test_another_server_with_openais_routes_gets_the_request_as_it_is_and_the_trace_says_why():
    with behind(vllm(version=False)) as server, kept_traces(proxy_settings(server.url, mode="xray")) as (url, kept):
        httpx2.post(url + "/v1/completions", json=BODY, timeout=60)
        assert bodies(server) == [BODY]
        (trace,) = kept()
    assert "untraceable" in trace["metadata"]["setup"]["reason"]


def test_a_stream_that_is_cut_has_a_trace_of_what_had_come():
    chunk = PLAIN | {"choices": [choice(BODY | {"logprobs": 20, "return_token_ids": True}, masks=True)]}
    chunk["choices"][0]["finish_reason"] = None
    whole = vllm()

    async def answer(asked, writer):
        if b'"stream"' not in asked.body:
            await whole(asked, writer)
            return
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        event = f"data: {json.dumps(chunk)}\n\n".encode()
        writer.write(f"{len(event):x}\r\n".encode() + event + b"\r\n")
        await writer.drain()

    with behind(answer) as server, kept_traces(proxy_settings(server.url, mode="xray")) as (url, kept):
        reply = httpx2.post(url + "/v1/completions", json=BODY | {"stream": True}, timeout=60)
        assert json.loads(reply.text.split("\n\n")[-2].removeprefix("data: "))["error"]["code"] == "bad_gateway"
        (trace,) = kept()
    assert trace["row"]["finish_reason"] == "cancelled"
    assert trace["steps"][0]["token"]["text"] == "a"
