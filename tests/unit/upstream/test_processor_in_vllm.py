"""A vLLM behind our engine: whether it has our processor, and what is sent to it then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

import espalier
from espalier import Choice, Wordlist
from espalier.errors import CapabilityError
from tests.scripted_server import STREAM, Asked, Hang, ScriptedServer, event, reply, scripted_server

MODELS = {"data": [{"id": "toy", "owned_by": "vllm"}]}
REFUSAL = reply({"error": {"message": "espalier: there is nothing to enforce"}}, "400 Bad Request")
ANSWER = reply({"choices": [{"text": "a"}]})
WORDS = Wordlist(["red", "green"])


@contextmanager
def vllm(probed: bytes) -> Iterator[tuple[espalier.LoadedEngine, ScriptedServer]]:
    """probed: the reply to an empty constraint."""

    def answer(asked: Asked) -> list[bytes | Hang]:
        if asked.path in ("/v1/models", "/version"):
            return [reply(MODELS if asked.path == "/v1/models" else {"version": "0.32.0"})]
        if not asked.body.get("stream"):
            return [probed]
        delta = {"index": 0, "delta": {"content": "red"}, "finish_reason": "stop"}
        return [STREAM, event({"choices": [delta]}), event("[DONE]")]

    with scripted_server(answer) as server, espalier.load(engine="openai", url=server.address) as engine:
        yield engine, server


def test_what_only_our_processor_can_hold_is_sent_to_it() -> None:
    with vllm(REFUSAL) as (engine, server):
        result = engine.generate("hello", constraint=WORDS, trace="off")
        assert json.loads(server.asked[-1].body["vllm_xargs"]["espalier"]) == {"constraint": WORDS.to_json()}
        engine.generate("hello", regex="r.*", safety="minimal", trace="off")
        assert "all_of" in server.asked[-1].body["vllm_xargs"]["espalier"]
    assert result.verdict.valid
    assert any("processor inside vLLM" in note for note in result.notes)


def test_what_vllm_holds_itself_stays_with_it() -> None:
    with vllm(REFUSAL) as (engine, server):
        engine.generate("hello", constraint=Choice(["red"]), trace="off")
        assert "vllm_xargs" not in server.asked[-1].body


@pytest.mark.parametrize("probed", [ANSWER, reply({"error": {"message": "no such route"}}, "404 Not Found")])
def test_a_vllm_without_our_processor_refuses_what_only_that_can_hold(probed: bytes) -> None:
    with vllm(probed) as (engine, _), pytest.raises(CapabilityError):
        engine.generate("hello", constraint=WORDS)
