"""Which engine is taken for the address of a server that nobody has named an engine for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import espalier
from espalier.engines.options import EngineOptions
from espalier.upstream.detect import detect_engine
from tests.scripted_server import Asked, Hang, reply, scripted_server

NOWHERE = reply({"error": "not found"}, "404 Not Found")
MODELS = {"object": "list", "data": [{"id": "toy", "owned_by": "vllm", "max_model_len": 512}]}
LLAMA = {"default_generation_settings": {"n_ctx": 512}, "model_path": "toy.gguf"}
SERVERS: dict[str, tuple[dict[str, Any], str]] = {
    "llama-server": ({"/props": LLAMA, "/v1/models": MODELS}, "llama-server"),
    "vllm": ({"/version": {"version": "0.32.0"}, "/v1/models": MODELS}, "openai"),
    "another OpenAI server": ({"/v1/models": MODELS}, "openai"),
    "a server of something else": ({"/v1/models": "hello"}, "llama-server"),
}


def answering(routes: dict[str, Any]) -> Callable[[Asked], list[bytes | Hang]]:
    return lambda asked: [reply(routes[asked.path]) if asked.path in routes else NOWHERE]


@pytest.mark.parametrize("name", SERVERS)
@pytest.mark.parametrize("end", ["", "/", "/v1"])
def test_the_engine_is_that_of_the_server_that_answers(name: str, end: str) -> None:
    routes, engine = SERVERS[name]
    with scripted_server(answering(routes)) as server:
        assert detect_engine("", EngineOptions(url=server.address + end)) == engine
        assert detect_engine(server.address + end, EngineOptions()) == engine


def test_a_server_that_loads_its_model_is_asked_once() -> None:
    with scripted_server(lambda asked: [reply({"error": "loading"}, "503 Service Unavailable")]) as server:
        assert detect_engine("", EngineOptions(url=server.address)) == "llama-server"
    assert len(server.asked) == 1


def test_a_vllm_that_nobody_has_named_is_opened() -> None:
    """Its health is an empty reply, which was once taken for a broken llama-server."""
    routes = {"/version": {"version": "0.32.0"}, "/v1/models": MODELS, "/health": b""}
    with scripted_server(answering(routes)) as server, espalier.load(url=server.address) as engine:
        assert (engine.name, engine.capabilities.max_context) == ("toy", 512)
