"""Every engine over a server, in front of every server of ours: also one that stands before another one."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import httpx2
import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

import espalier
from espalier.constraints.spec import JsonSchema, Regex
from tests.proxies import proxied, proxy_settings
from tests.server_app import client, fake_engine, make_app, served
from tests.thinking_engine import MARKERS, PROMPT_OPENS, thinking_engine

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
TOOL = {"name": "f", "parameters": SCHEMA}
ENGINES = ("llama-server", "openai", "")
WISH = '{"a": 12}'


@contextmanager
def plain() -> Iterator[str]:
    with served(make_app(engine=fake_engine(WISH))) as url:
        yield url


@contextmanager
def in_front(engine: str) -> Iterator[str]:
    with plain() as behind, served(make_app(engine=espalier.load(engine=engine, url=behind))) as url:
        yield url


@contextmanager
def behind_the_proxy() -> Iterator[str]:
    with plain() as behind, proxied(proxy_settings(behind)) as url:
        yield url


SERVERS: dict[str, Any] = {
    "a model here": plain,
    "a server before a server, as llama-server": lambda: in_front("llama-server"),
    "a server before a server, as OpenAI's": lambda: in_front("openai"),
    "the proxy": behind_the_proxy,
}


@pytest.fixture(scope="module")
def addresses() -> Iterator[dict[str, str]]:
    with ExitStack() as stack:
        yield {name: stack.enter_context(start()) for name, start in SERVERS.items()}


@pytest.fixture(scope="module")
def opened(addresses: dict[str, str]) -> Iterator[dict[tuple[str, str], espalier.LoadedEngine]]:
    """By server and engine. A server that does not know its tokens cannot be opened as a llama-server."""
    engines: dict[tuple[str, str], espalier.LoadedEngine] = {}
    for server, url in addresses.items():
        for name in ENGINES:
            if server.endswith("OpenAI's") and name != "openai":
                continue
            engines[server, name] = espalier.load(engine=name, url=url) if name else espalier.load(url)
    yield engines
    for engine in engines.values():
        engine.close()


PAIRS = [
    (server, engine)
    for server in SERVERS
    for engine in ENGINES
    if engine == "openai" or not server.endswith("OpenAI's")
]


@pytest.mark.parametrize(("server", "name"), PAIRS)
def test_an_engine_generates_over_a_server(opened: Any, server: str, name: str) -> None:
    engine = opened[server, name]
    assert engine.generate("Hi", max_tokens=5, temperature=0).text == WISH[:5]
    assert json.loads(engine.generate("Hi", constraint=JsonSchema(SCHEMA), max_tokens=60).text).keys() == {"a"}
    assert engine.generate("Hi", max_tokens=4, temperature=0.7, stop=["zzz"], seed=3).usage.completion_tokens == 4
    biased = engine.generate("Hi", logit_bias={ord("z"): 100.0}, max_tokens=3, temperature=0)
    assert biased.text == "zzz"


@pytest.mark.parametrize(("server", "name"), PAIRS)
def test_an_engine_calls_tools_over_a_server(opened: Any, server: str, name: str) -> None:
    ask = [{"role": "user", "content": "Hi"}]
    (call,) = opened[server, name].generate(ask, tools=[TOOL], tool_choice="f", max_tokens=90).tool_calls
    assert call.name == "f"
    assert call.parsed is not None
    assert call.parsed.keys() == {"a"}


@pytest.mark.parametrize(("server", "name"), [pair for pair in PAIRS if pair[0] == "a model here"])
def test_a_server_of_ours_takes_every_constraint_and_sampler(opened: Any, server: str, name: str) -> None:
    engine = opened[server, name]
    assert re.fullmatch("[0-9]{3}", engine.generate("Hi", constraint=Regex("[0-9]{3}"), max_tokens=9).text)
    assert "a" not in engine.generate("Hi", bad_words=["a"], max_tokens=9).text
    engine.generate("Hi", top_k=3, min_p=0.1, repetition_penalty=1.1, max_tokens=3)
    steps = engine.generate("Hi", max_tokens=3, temperature=0, trace="steps", trace_top_k=5).trace.steps
    assert [step.text for step in steps] == list(WISH[:3])


NATIVE = {
    "type": "object",
    "properties": {"a": {"type": "integer"}, "b": {"enum": ["x", "y"]}},
    "required": ["a", "b"],
    "additionalProperties": False,
}


@pytest.mark.parametrize("server", [server for server in SERVERS if not server.endswith("OpenAI's")])
def test_a_schema_is_left_to_a_server_of_ours(addresses: dict[str, str], server: str) -> None:
    with espalier.load(engine="llama-server", url=addresses[server], schema_as="json_schema") as engine:
        result = engine.generate("Hi", constraint=JsonSchema(NATIVE), max_tokens=60)
        assert result.verdict is not None
        assert result.verdict.valid, result.text
        assert any("held by the server's own" in note for note in result.notes)
    with served(make_app(engine=espalier.load(engine="llama-server", url=addresses[server]))) as url:
        body = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 60, "json_schema": NATIVE}
        reply = httpx2.post(f"{url}/v1/chat/completions", json=body, timeout=60)
        assert json.loads(reply.json()["choices"][0]["message"]["content"]).keys() == {"a", "b"}


def test_a_vocabulary_is_read_whole_whatever_the_limit_of_log_probabilities(addresses: dict[str, str]) -> None:
    engine = espalier.load(engine="llama-server", url=addresses["a model here"])
    theirs = fake_engine().engine.vocab
    vocab = engine.engine.vocab
    assert vocab is not None
    assert theirs is not None
    assert (vocab.width, vocab.eos_ids) == (theirs.width, theirs.eos_ids)
    assert vocab.tokens[:256] == theirs.tokens[:256]
    engine.close()


def test_anthropics_thinking_with_a_budget_is_held_before_another_server() -> None:
    wish = f"I see.{MARKERS[1]}Hello."
    with (
        served(make_app(engine=thinking_engine(wish, PROMPT_OPENS))) as behind,
        client(engine=espalier.load(engine="llama-server", url=behind)) as api,
    ):
        body = {
            "model": "fake",
            "max_tokens": 100,
            "thinking": {"type": "enabled", "budget_tokens": 50},
            "messages": [{"role": "user", "content": "Hi"}],
        }
        reply = api.post("/v1/messages", json=body)
        assert reply.status_code == 200, reply.text
        assert "warning" not in reply.headers
        assert [part["type"] for part in reply.json()["content"]] == ["thinking", "text"]


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["llama-server", "openai"])
def test_embeddings_are_those_of_the_server_behind_and_what_it_lacks_is_told(
    addresses: dict[str, str], engine: str
) -> None:
    behind = addresses["a model here"]
    body = {"input": ["a", "b"]}
    with client(engine=espalier.load(engine=engine, url=behind)) as api:
        direct = httpx2.post(f"{behind}/v1/embeddings", json=body, timeout=60).json()
        assert api.post("/v1/embeddings", json=body).json() == direct
        pair = {"text_1": "a", "text_2": "b"}
        scores = httpx2.post(f"{behind}/v1/score", json=pair, timeout=60).json()["data"]
        assert api.post("/v1/score", json=pair).json()["data"] == scores
        reply = api.post("/v1/rerank", json={"query": "a", "documents": ["b"]})
        assert (reply.status_code, reply.headers.get("x-should-retry")) == (501, "false"), reply.text
