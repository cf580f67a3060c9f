"""X-ray mode in front of a scripted llama-server: what is added comes out again, and no fault reaches the client."""

from __future__ import annotations

import asyncio
import json
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager

import httpx2
import pytest

from espalier.cli.main import main_code
from espalier.server.proxy.xray import x_ray
from espalier.trace.records import Trace
from espalier.upstream.xray.grammar.lazy import thinks
from espalier.upstream.xray.wire.alignment import with_entries
from espalier.upstream.xray.wire.reply import stripped
from espalier.upstream.xray.wire.request import UntracedRequest, read_request, rewritten
from tests.proxies import OK, behind, files_of, proxied, proxy_settings

TOKENS = [b"", b"a", b"b", b"!", b"\xc3", b"\xa9"]
SETTINGS = {
    "seed": 7,
    "temperature": 0.0,
    "dynatemp_range": 0.0,
    "dynatemp_exponent": 1.0,
    "top_k": 40,
    "top_p": 0.95,
    "min_p": 0.05,
    "top_n_sigma": -1.0,
    "xtc_probability": 0.0,
    "xtc_threshold": 0.1,
    "typical_p": 1.0,
    "repeat_last_n": 64,
    "repeat_penalty": 1.0,
    "presence_penalty": 0.0,
    "frequency_penalty": 0.0,
    "dry_multiplier": 0.0,
    "dry_base": 1.75,
    "dry_allowed_length": 2,
    "dry_penalty_last_n": 64,
    "dry_sequence_breakers": ["\n"],
    "mirostat": 0,
    "mirostat_tau": 5.0,
    "mirostat_eta": 0.1,
    "logit_bias": [],
    "n_probs": 6,
    "min_keep": 0,
    "grammar": "root ::= [ab]+",
    "grammar_lazy": False,
    "samplers": ["penalties", "dry", "top_n_sigma", "top_k", "typ_p", "top_p", "min_p", "xtc", "temperature"],
    "speculative.types": "none",
    "post_sampling_probs": False,
    "backend_sampling": False,
}
PROBS = [0.02, 0.3, 0.1, 0.5, 0.05, 0.03]


def entry(token, probs=PROBS):
    import math

    rows = sorted(((p, i) for i, p in enumerate(probs)), reverse=True)
    top = [
        {"id": i, "token": TOKENS[i].decode("utf-8", "replace"), "bytes": list(TOKENS[i]), "logprob": math.log(p)}
        for p, i in rows
    ]
    own = next(one for one in top if one["id"] == token)
    return {**own, "top_logprobs": top}


async def llama(asked, writer, settings=SETTINGS, first=1):
    """Greedy: `!` is the best token, and the grammar refuses it, so `a` is taken; then the end. first: the token that
    is taken instead."""
    path = asked.line.split()[1]
    body = json.loads(asked.body) if asked.body else {}
    found: dict = {}
    if path == "/props":
        found = {
            "default_generation_settings": {"n_ctx": 64},
            "total_slots": 1,
            "eos_token": "<end>",
            "model_path": "m",
        }
    elif path == "/detokenize":
        found = {"content": "<end>"}
    elif body.get("n_probs", 0) > 1000:
        biases = [{"token": 0, "bias": None}]
        found = {
            "content": "a",
            "completion_probabilities": [entry(1)],
            "stop": True,
            "generation_settings": {"logit_bias": biases},
        }
    else:
        settings = settings | {name: body.get(name, 0) for name in ("seed", "n_probs", "grammar")}
        end = [0.6, 0.1, 0.1, 0.1, 0.05, 0.05]
        found = {
            "index": 0,
            "content": "a é",
            "tokens": [first, 0],
            "stop": True,
            "generation_settings": settings,
            "prompt": "Hé",
            "tokens_evaluated": 1,
            "stop_type": "eos",
            "completion_probabilities": [entry(first), entry(0, end)],
        }
    raw = json.dumps(found, ensure_ascii=False, separators=(",", ":")).encode()
    writer.write(OK + f"content-length: {len(raw)}\r\n\r\n".encode() + raw)
    await writer.drain()


BODY = {"prompt": "H", "grammar": "root ::= [ab]+", "temperature": 0}


def test_a_refused_token_is_traced_and_the_reply_is_as_without_us(tmp_path):
    with behind(llama) as server, proxied(proxy_settings(server.url, mode="xray", output_dir=tmp_path)) as url:
        reply = httpx2.post(url + "/completion", json=BODY)
        listed = httpx2.get(url + "/traces").json()["data"]
        trace = httpx2.get(f"{url}/traces/{listed[0]['id']}").json()
        page = httpx2.get(f"{url}/traces/{listed[0]['id']}/page")
    data = reply.json()
    assert data["tokens"] == []
    assert data["generation_settings"]["seed"] == 2**32 - 1
    assert data["generation_settings"]["n_probs"] == 0
    assert "completion_probabilities" not in data
    assert list(data) == [
        "index",
        "content",
        "tokens",
        "stop",
        "generation_settings",
        "prompt",
        "tokens_evaluated",
        "stop_type",
    ]
    assert data["content"] == "a é"
    sent = json.loads(server.asked[-1].body)
    assert 0 <= sent["seed"] < 2**32 - 1
    first, last = trace["steps"]
    assert first["was_rejected"]
    assert first["rejected"]["id"] == 3
    assert first["exactness"] == "exact"
    assert first["removed_mass"] == pytest.approx(1 - 0.4)
    assert first["blame"]["reason"] == "'!' cannot come here"
    assert not last["was_rejected"]
    assert page.status_code == 200
    (file,) = files_of(tmp_path)
    assert reply.headers["x-combined-data-available"] == str(file)
    combined = json.loads(file.read_text())
    assert combined["summary"]["rejected_steps"] == 1
    assert combined["steps"][0]["rejection_sampling"]["rejected"]["text"] == "!"
    assert combined["metadata"]["request_id"] in file.name
    assert Trace.from_json(combined["espalier"]).to_json()["steps"] == trace["steps"]


def test_two_requests_in_one_moment_have_two_files(tmp_path):
    with behind(llama) as server, proxied(proxy_settings(server.url, mode="xray", output_dir=tmp_path)) as url:
        for _ in range(2):
            httpx2.post(url + "/completion", json=BODY)
    assert len(files_of(tmp_path)) == 2


def test_a_full_disk_costs_the_file_and_not_the_reply(tmp_path):
    (tmp_path / "no").write_text("a file where a folder should be")
    proxy = proxy_settings("http://x", mode="xray", output_dir=tmp_path / "no")
    with behind(llama) as server:
        proxy = proxy_settings(server.url, mode="xray", output_dir=tmp_path / "no")
        with proxied(proxy) as url:
            reply = httpx2.post(url + "/completion", json=BODY)
            listed = httpx2.get(url + "/traces").json()["data"]
    assert reply.status_code == 200
    assert "x-combined-data-available" not in reply.headers
    assert len(listed) == 1


def test_a_server_whose_tokens_are_not_known_is_passed_through():
    async def plain(asked, writer):
        body = asked.body or b"{}"
        writer.write(OK + f"content-length: {len(body)}\r\n\r\n".encode() + body)
        await writer.drain()

    with behind(plain) as server, proxied(proxy_settings(server.url, mode="xray")) as url:
        reply = httpx2.post(url + "/completion", json=BODY)
        assert reply.json() == BODY  # nothing was added
        assert httpx2.get(url + "/traces").json()["data"] == []


def test_a_reply_that_is_no_json_object_is_passed_on():
    async def odd(asked, writer):
        if b'"prompt": "H"' in asked.body or b'"prompt":"H"' in asked.body:
            writer.write(OK + b"content-length: 2\r\n\r\n[]")
            await writer.drain()
        else:
            await llama(asked, writer)

    with behind(odd) as server, proxied(proxy_settings(server.url, mode="xray")) as url:
        assert httpx2.post(url + "/completion", json=BODY).content == b"[]"


def test_a_reply_that_ends_early_is_a_502_and_never_half_a_reply():
    async def cut(asked, writer):
        if b'"prompt": "H"' in asked.body:
            writer.write(OK + b"content-length: 99\r\n\r\n{")
            await writer.drain()
        else:
            await llama(asked, writer)

    with behind(cut) as server, proxied(proxy_settings(server.url, mode="xray")) as url:
        assert httpx2.post(url + "/completion", json=BODY).status_code == 502


def test_a_stream_that_ends_early_is_cut_for_the_client_too():
    async def cut(asked, writer):
        if b'"stream": true' in asked.body:
            event = json.dumps(
                {
                    "index": 0,
                    "content": "a",
                    "tokens": [1],
                    "stop": False,
                    "tokens_predicted": 1,
                    "completion_probabilities": [entry(1)],
                }
            ).encode()
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ncontent-length: 99999\r\n\r\n")
            writer.write(b"data: " + event + b'\n\ndata: {"half')
            await writer.drain()
        else:
            await llama(asked, writer)

    with behind(cut) as server, proxied(proxy_settings(server.url, mode="xray")) as url:
        seen: list[bytes] = []
        with pytest.raises(httpx2.HTTPError):
            _read_into(seen, url + "/completion", BODY | {"stream": True})
        text = b"".join(seen)
        assert b"completion_probabilities" not in text
        assert b'"content": "a"' in text
        assert httpx2.post(url + "/completion", json=BODY).status_code == 200


def _read_into(seen, url, body):
    with httpx2.stream("POST", url, json=body) as reply:
        seen.extend(reply.iter_raw())


@pytest.mark.parametrize(
    "more",
    [
        {"verbose": True},
        {"n": 0},
        {"n": 1.5},
        {"n": 10**12},
        {"post_sampling_probs": True},
        {"prompt": ["a", {"prompt_string": ""}]},
        {"seed": 1.5},
        {"grammar": ""},
        {"response_fields": ["content"]},
    ],
)
def test_what_could_not_be_taken_apart_again_is_not_traced(more):
    with pytest.raises(UntracedRequest):
        read_request("/completion", json.dumps(BODY | more).encode())


@pytest.mark.parametrize(
    ("more", "why", "stream"),
    [
        ({"n": 2, "verbose": True}, "verbose", False),
        ({"n": 2, "verbose": True}, "verbose", True),
        ({"post_sampling_probs": True}, "post_sampling_probs", False),
        ({"verbose": True}, "verbose", False),
        ({"response_fields": ["content"]}, "response_fields", False),
    ],
)
def test_what_is_passed_on_untraced_has_a_trace_of_each_output_that_says_why(tmp_path, more, why, stream):
    body = {"messages": [{"role": "user", "content": "H"}], "grammar": BODY["grammar"], "stream": stream, **more}
    count = body.get("n", 1)
    seen = []

    async def answer(asked, writer):
        if not asked.line.startswith("POST /v1/chat"):
            await llama(asked, writer)
            return
        seen.append(asked.body)
        if stream:
            pieces = [
                {"choices": [{"index": i, "delta": {"content": text}, "finish_reason": None}]}
                for text in "ab"
                for i in range(count)
            ]
            pieces += [{"choices": [{"index": i, "delta": {}, "finish_reason": "stop"}]} for i in range(count)]
            raw = b"".join(b"data: %s\n\n" % json.dumps(one).encode() for one in pieces) + b"data: [DONE]\n\n"
            kind = b"text/event-stream"
        else:
            message = {"role": "assistant", "content": "ab"}
            choices = [{"index": i, "message": message, "finish_reason": "stop"} for i in range(count)]
            raw, kind = json.dumps({"id": "x", "model": "m", "choices": choices}).encode(), b"application/json"
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\ncontent-length: %d\r\n\r\n" % (kind, len(raw)) + raw)
        await writer.drain()

    settings = {"mode": "xray", "output_dir": tmp_path}
    with behind(answer) as server, proxied(proxy_settings(server.url, **settings)) as url:
        assert httpx2.post(f"{url}/v1/chat/completions", json=body).status_code == 200
    assert [json.loads(one) for one in seen] == [body]
    kept = [Trace.load(path) for path in files_of(tmp_path)]  # the proxy waits for them before it ends
    assert len(kept) == count
    for trace in kept:
        assert (trace.text, trace.constraint["kind"]) == ("ab", "gbnf")
        assert trace.setup["reason"] == f"untraceable: it asks for {why}"
    assert main_code(["trace", "show", str(files_of(tmp_path)[0])]) == 0


@pytest.mark.parametrize(("begun", "exact"), [("<think>\n", 0), ("<think>\n\n</think>\n\n", 2), ("", 2)])
def test_a_lazy_grammar_of_a_model_that_thinks_is_untraceable_while_it_may_be_suspended(tmp_path, begun, exact):
    more = {"grammar_lazy": True, "grammar_triggers": [{"type": 1, "value": "b"}], "generation_prompt": begun}

    async def lazy(asked, writer):
        await llama(asked, writer, SETTINGS | more, first=3)

    with behind(lazy) as server, proxied(proxy_settings(server.url, mode="xray", output_dir=tmp_path)) as url:
        httpx2.post(url + "/completion", json=BODY | {"temperature": 0})
    (file,) = files_of(tmp_path)
    trace = Trace.load(file)
    assert trace.setup["steps"]["exact"] == exact
    assert ("may think" in trace.setup.get("reason", "")) is (exact == 0)


@pytest.mark.parametrize(
    ("text", "is_thinking"),
    [
        ("<think>", True),
        ("a<|START_THINKING|>b", True),
        ("<think>a</think>", False),
        ("[THINK]a[/THINK]", False),
        ("<|channel|>analysis<|message|>", True),
        ("<|START_THINKING|>a<|END_THINKING|>", False),
        ("I think", False),
        ('{"a": "<b>"}', False),
        ("<seed:think>x</seed:think>y<seed:think>", True),
    ],
)
def test_tags_of_thoughts_are_told_by_their_look(text, is_thinking):
    assert thinks(text.encode()) is is_thinking


def test_what_a_client_asked_for_stays():
    asked = read_request("/completion", json.dumps(BODY | {"n_probs": 2, "return_tokens": True, "seed": 4}).encode())
    body, seed = rewritten(asked, 6, lambda: 99)
    assert (seed, json.loads(body)["n_probs"]) == (4, 6)
    reply = {"tokens": [1], "generation_settings": {"seed": 4, "n_probs": 6}, "completion_probabilities": [entry(1)]}
    made, _ = stripped(json.dumps(reply).encode(), asked, {})
    data = json.loads(made)
    assert data["tokens"] == [1]
    assert data["generation_settings"] == {"seed": 4, "n_probs": 2}
    assert [one["id"] for one in data["completion_probabilities"][0]["top_logprobs"]] == [3, 1]


def test_entries_are_missing_exactly_inside_characters():
    pieces = [b"a", b"\xc3", b"\xa9", b"\xe4\xb8", b"\x80", b"\xf0", b"\x9f\x8e", b"\x89", b""]
    assert with_entries(pieces) == [True, False, True, False, True, False, False, True, True]


def test_requests_that_wait_for_one_answer_leave_no_task_behind():
    async def silent(asked, writer):
        if b'"prompt": "H"' in asked.body:
            await asyncio.Event().wait()
        else:
            await llama(asked, writer)

    with behind(silent) as server, proxied(proxy_settings(server.url, mode="xray", read_seconds=0.3)) as url:
        assert httpx2.post(url + "/completion", json=BODY).status_code == 504


def test_replies_that_wait_for_the_server_to_be_traced_keep_no_other_reply_back():
    """Replies are read, and names of hosts looked up, in the threads of the loop: traces that wait have their own."""
    asking, go_on = threading.Semaphore(0), threading.Event()

    async def slow(asked, writer):
        if asked.line.split()[1] == "/tokenize":
            asking.release()
            await asyncio.to_thread(go_on.wait)
            raw = b'{"tokens": [1]}'
            writer.write(OK + f"content-length: {len(raw)}\r\n\r\n".encode() + raw)
            await writer.drain()
        elif b'"prompt": "H"' in asked.body:
            await llama(asked, writer, SETTINGS | {"presence_penalty": 0.5})
        else:
            await llama(asked, writer)

    @asynccontextmanager
    async def few_threads(process):
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(2))
        async with x_ray(process) as tracer:
            yield tracer

    with (
        behind(slow) as server,
        ThreadPoolExecutor(2) as clients,
        proxied(proxy_settings(server.url, mode="xray"), tracer=few_threads) as url,
    ):
        replies = [clients.submit(httpx2.post, url + "/completion", json=BODY, timeout=60) for _ in range(2)]
        try:
            for _ in range(2):
                assert asking.acquire(timeout=60)
            other = httpx2.post(url + "/completion", json=BODY | {"prompt": "other"}, timeout=60)
        finally:
            go_on.set()
        assert {one.result().status_code for one in replies} == {200}
        assert other.status_code == 200
        assert len(httpx2.get(url + "/traces").json()["data"]) == 3
