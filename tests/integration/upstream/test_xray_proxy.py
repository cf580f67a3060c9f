"""The proxy in front of a real llama-server: the client gets what it would have got, and the trace is the truth.

The truth is llama.cpp's own sampler in this process, on the server's numbers with the same seed
(tests/xray_acceptance.py).
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import httpx2
import pytest

pytest.importorskip("xllamacpp", reason="xllamacpp (a real llama-server) is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

import espalier
from espalier.cli.main import main_code
from espalier.trace.records import Trace
from espalier.wiring import demo_model
from tests.examples import examples
from tests.llama_server import llama_server
from tests.proxies import files_of, proxied, proxy_settings
from tests.xray_acceptance import (
    CHANGES,
    GRAMMARS,
    PATHS,
    PROMPT,
    SAMPLERS,
    TOKENS,
    WRONG,
    One,
    held,
    requests,
    run,
    truth_of,
)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server():
    with llama_server(demo_model() / "demo.gguf", sequences=4) as found:
        yield found


@pytest.fixture(scope="module")
def alone():
    """One slot: the same request gives the same numbers."""
    with llama_server(demo_model() / "demo.gguf") as found:
        yield found


@pytest.fixture(scope="module")
def engine():
    # As the server is set.
    loaded = espalier.load(demo_model() / "demo.gguf", kv_type="f32", flash_attention="off", threads=1, context=1024)
    with loaded as found:
        yield found


def body_of(path, grammar, *, seed, stream, **more):
    one = One(sampler="defaults", path=path, is_stream=stream, grammar="letters", seed=seed, count=None)
    return one.body | {"grammar": grammar, **more}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_the_client_gets_every_byte_that_it_would_have_got(alone, path, stream):
    wishes = [{}, {"logprobs": True, "top_logprobs": 3} if "chat" in path else {"n_probs": 3}]
    wishes.append({"return_tokens": True, "timings_per_token": True, "stream_options": {"include_usage": True}})
    with proxied(proxy_settings(alone.address, mode="xray")) as url:
        for name, wish in ((name, wish) for name in ("letters", "scripts") for wish in wishes):
            body = body_of(path, GRAMMARS[name], seed=5, stream=stream, **wish)
            direct, through = (httpx2.post(where + path, json=body, timeout=60) for where in (alone.address, url))
            assert CHANGES.sub(b"_", through.content) == CHANGES.sub(b"_", direct.content)
            assert through.headers["content-type"] == direct.headers["content-type"]
        # The server's choice of a seed is replaced by ours, and its reply says what it would have said.
        found = httpx2.post(url + path, json=body_of(path, GRAMMARS["letters"], seed=-1, stream=False), timeout=60)
        settings = found.json().get("generation_settings", {"seed": 2**32 - 1, "n_probs": 0})
        assert (settings["seed"], settings["n_probs"]) == (2**32 - 1, 0)
        wrong = body_of(path, "root ::= (", seed=1, stream=stream)
        direct, through = (httpx2.post(where + path, json=wrong, timeout=60) for where in (alone.address, url))
        assert (through.status_code, through.content) == (direct.status_code, direct.content)


def half_of(asked: list[One], name: str) -> list[One]:
    """Each path, kind of reply and grammar once, with one of the two counts of probabilities; the next sampler has it
    with the other. Every two of these values meet for every sampler."""
    each, odd = len(PATHS) * 2 * len(GRAMMARS), list(SAMPLERS).index(name)
    places = (place for place in range(len(asked)) if (place // each + place % each // len(GRAMMARS) + odd) % 2 == 0)
    return [asked[place] for place in places]


@pytest.mark.parametrize("name", SAMPLERS)
def test_half_of_the_requests_have_every_value_beside_every_other(name):
    asked = half_of(requests(48, [name]), name)
    assert len({(one.path, one.is_stream, one.grammar) for one in asked}) == len(asked) == 24
    for first in ("path", "is_stream", "grammar"):
        pairs = {(getattr(one, first), one.count) for one in asked}
        assert len(pairs) == 2 * len({value for value, _ in pairs})


@pytest.mark.parametrize("name", SAMPLERS)
def test_traces_are_the_truth_for_eight_clients_at_once(alone, engine, tmp_path, name, capsys):
    counts = run(lambda: alone, engine, half_of(requests(2 * examples(24), [name]), name), tmp_path)[name]
    with capsys.disabled():
        print(f"\n{name}: {dict(counts)}")  # noqa: T201
    assert {wrong: counts[wrong] for wrong in WRONG} == dict.fromkeys(WRONG, 0)
    assert counts["rejected"] > 5
    steps = sum(counts[one] for one in ("exact", "bounded", "untraceable"))
    assert counts["unknown"] <= 0.02 * steps


SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"]}
BEGUN = '"<|im_start|>assistant\\n" '


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["json_schema", "json_object"])
def test_a_schema_over_chat_is_traced_from_where_its_grammar_goes_on(alone, engine, tmp_path, monkeypatch, how, stream):
    """The server's own grammar begins with the chat template's generation prompt, which it has taken before the first
    token: none of these replies could be followed."""
    inner = {"json_schema": {"name": "x", "schema": SCHEMA}} if how == "json_schema" else {"schema": SCHEMA}
    wish = {"type": how, **inner}
    body = {"messages": [{"role": "user", "content": "Hi"}], "response_format": wish, "stream": stream}
    with proxied(proxy_settings(alone.address, mode="xray", output_dir=tmp_path, n_probs=0)) as url:
        for seed in range(3):
            asked = body | {"seed": seed, "max_tokens": TOKENS, "temperature": 1.5}
            httpx2.post(url + "/v1/chat/completions", json=asked, timeout=60).raise_for_status()
    rejected = 0
    for seed, file in enumerate(files_of(tmp_path)):
        trace = Trace.from_json(json.loads(file.read_text())["espalier"])
        assert BEGUN in trace.constraint["grammar"]
        monkeypatch.setitem(GRAMMARS, "rest", trace.constraint["grammar"].replace(BEGUN, ""))
        monkeypatch.setitem(SAMPLERS, "hot", {"temperature": 1.5})
        one = One(sampler="hot", path="/completion", is_stream=False, grammar="rest", seed=seed, count=0)
        counts = held(trace.steps, *truth_of(alone, engine, one, trace.prompt))
        assert {wrong: counts[wrong] for wrong in (*WRONG, "unknown")} == dict.fromkeys((*WRONG, "unknown"), 0)
        rejected += counts["rejected"]
    assert rejected > 0


def test_a_lazy_grammar_is_followed_from_its_trigger(alone, tmp_path):
    body = {
        "prompt": "Generate user info",
        "grammar": "root ::= [^é]{1,12} [b-d ]+",
        "grammar_lazy": True,
        "n_predict": 24,
        "grammar_triggers": [{"type": 2, "value": r"[\s\S]{5}([\s\S]+)"}],
        "temperature": 1.2,
    }
    with proxied(proxy_settings(alone.address, mode="xray", output_dir=tmp_path, n_probs=0)) as url:
        for seed in range(4):
            httpx2.post(url + "/completion", json=body | {"seed": seed}, timeout=60).raise_for_status()
    rejected = 0
    for file in files_of(tmp_path):
        trace = Trace.from_json(json.loads(file.read_text())["espalier"])
        assert {one.exactness for one in trace.steps} == {"exact"}
        text = b""
        for step in trace.steps:
            assert step.removed_mass == 0 or len(text) > 5
            rejected += step.was_rejected
            text += step.bytes
        assert re.fullmatch(r"[\s\S]{5}[^é]{1,12}[b-d ]*", trace.text)
    assert rejected > 0


def test_traces_are_the_truth_where_four_slots_share_a_pass(server, engine, tmp_path):
    """What one slot computes depends in its fourth digit on what the others hold, and so may a token."""
    counts = run(lambda: server, engine, requests(24, ["defaults"]), tmp_path, near=2e-3)["defaults"]
    assert (counts["wrong verdict"], counts["wrong mass"]) == (0, 0)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("path", "more", "copies"),
    [
        ("/v1/chat/completions", {"n": 2}, 2),
        ("/v1/completions", {"n": 2, "prompt": [PROMPT, "Hello"]}, 2),
        ("/completion", {"n_cmpl": 3}, 3),
        ("/completion", {"prompt": [PROMPT, "Hello"]}, 1),
    ],
)
def test_each_of_several_outputs_is_traced_with_its_own_seed(server, engine, tmp_path, stream, path, more, copies):
    one = One(sampler="defaults", path=path, is_stream=stream, grammar="not quotes", seed=11, count=None)
    with proxied(proxy_settings(server.address, mode="xray", output_dir=tmp_path)) as url:
        direct, through = (httpx2.post(at + path, json=one.body | more, timeout=60) for at in (server.address, url))
    # Outputs of a stream come in any order.
    pieces = [sorted(CHANGES.sub(b"_", reply.content).split(b"\n\n")) for reply in (direct, through)]
    assert pieces[0] == pieces[1]
    traces = {
        int(found[1]) if (found := re.search(r"_(\d)\.json$", file.name)) else 0: Trace.load(file)
        for file in files_of(tmp_path)
    }
    prompts = more.get("prompt", [PROMPT])
    assert len(traces) == copies * len(prompts)
    for index, trace in traces.items():
        ids = server.post("/tokenize", {"content": prompts[index // copies], "add_special": True})
        prompt = trace.prompt or server.post("/detokenize", ids)["content"]
        mine = replace(one, seed=one.seed + index % copies)
        counts = held(trace.steps, *truth_of(server, engine, mine, prompt), near=2e-3)
        assert {wrong: counts[wrong] for wrong in (*WRONG, "unknown")} == dict.fromkeys((*WRONG, "unknown"), 0)


def test_a_trace_is_replayed_with_the_model_in_this_process(alone, tmp_path, capfd):
    """At temperature 0 our own engine takes the server's tokens, at the same cost."""
    body = body_of("/completion", GRAMMARS["object"], seed=5, stream=False, temperature=0)
    settings = proxy_settings(alone.address, mode="xray", n_probs=0, output_dir=tmp_path)
    with proxied(settings) as url:
        httpx2.post(url + "/completion", json=body, timeout=60).raise_for_status()
    (file,) = files_of(tmp_path)
    assert main_code(["trace", "replay", str(file), "-m", str(demo_model() / "demo.gguf")]) == 0
    said = capfd.readouterr()
    assert "every step takes the stored token" in said.out + said.err
    then, now = re.findall(r"tax: ([\d.]+) nats then, ([\d.]+) now", said.out + said.err)[0]
    assert float(now) == pytest.approx(float(then), abs=0.02)
