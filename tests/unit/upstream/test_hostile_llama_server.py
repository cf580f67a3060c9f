"""A llama-server that lies, hangs and breaks off: nothing of it comes through as a valid answer, and nothing hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

import espalier
from espalier import Choice, JsonObject, JsonSchema, Regex
from espalier.api.log_rows import contract_fields
from espalier.constraints.compiler import Compiler
from espalier.constraints.json_schema.compile import contract_of
from espalier.engines.base import Request
from espalier.engines.serving import direct
from espalier.errors import (
    Cancelled,
    DeadlineExceeded,
    InputError,
    Unavailable,
    UnsupportedError,
    UpstreamError,
    UpstreamTimeout,
)
from espalier.sampling.config import SamplingConfig
from espalier.tokens.vocab import Vocab
from espalier.upstream.llama_server.native_schema import native_contract
from tests.scripted_server import STREAM, Asked, Hang, event, reply, scripted_server

BYTES = Vocab.bytes()
PROPS = {
    "default_generation_settings": {"n_ctx": 512},
    "model_path": "/m/toy.gguf",
    "total_slots": 1,
    "eos_token": "</s>",
}
VOCAB = [{"id": i, "bytes": list(BYTES.bytes_of(i)), "logprob": -1.0} for i in range(BYTES.width)]
YES = Choice(["yes"])


def chunk(text: str, **more: Any) -> dict[str, Any]:
    return {"content": text, "tokens": list(text.encode()), "stop": False} | more


def last(body: Any, **more: Any) -> dict[str, Any]:
    settings = {"grammar": body.get("grammar", ""), "logit_bias": [{"token": i, "bias": None} for i in BYTES.eos_ids]}
    return {
        "content": "",
        "tokens": [],
        "stop": True,
        "stop_type": "eos",
        "tokens_predicted": 4,
        "truncated": False,
        "generation_settings": settings,
    } | more


def sound(asked: Asked) -> list[bytes | Hang]:
    """A server that answers `yes`."""
    body = asked.body or {}
    if asked.path == "/health":
        return [reply({"status": "ok"})]
    if asked.path == "/props":
        return [reply(PROPS)]
    if asked.path == "/detokenize":
        return [reply({"content": "</s>"})]
    if asked.path == "/tokenize":
        return [reply({"tokens": list(body["content"].encode())})]
    if body.get("n_probs", 0) > 1000:
        return [reply(last(body) | {"completion_probabilities": [{"top_logprobs": VOCAB}]})]
    if not body.get("stream"):
        return [reply(last(body, tokens=[121], content="y", stop_type="limit"))]
    return [STREAM, event(chunk("ye")), event(chunk("s")), event(last(body))]


@contextmanager
def engine_where(answer: Callable[[Any], list[bytes | Hang]], **options: Any) -> Iterator[tuple[Any, Any]]:
    """An engine over a server that answers streamed completions as told."""

    def scripted(asked: Asked) -> list[bytes | Hang]:
        is_generation = asked.path == "/completion" and asked.body.get("stream")
        return answer(asked.body) if is_generation else sound(asked)

    with scripted_server(scripted) as server, espalier.load(server.address, **options) as engine:
        yield engine, server


def test_a_sound_server_is_an_engine():
    with scripted_server(sound) as server, espalier.load(server.address) as engine:
        result = engine.generate("hello", constraint=YES, seed=1, trace="off")
    assert (result.text, result.verdict.valid, result.token_ids) == ("yes", True, (121, 101, 115))
    sent = [one.body for one in server.asked if one.path == "/completion"]
    assert sent[-1]["grammar"] == sent[-2]["grammar"] != ""
    assert sent[-2]["logit_bias"][0][1] > 1000  # the proof came first


def test_a_trace_of_a_server_can_be_saved_and_read_again(tmp_path):
    with scripted_server(sound) as server, espalier.load(server.address) as engine:
        trace = engine.generate("hello", constraint=YES, seed=1, max_tokens=9).trace
    trace.save(tmp_path / "t.json")
    again = espalier.Trace.load(tmp_path / "t.json")
    assert (again.text, again.setup["max_tokens"]) == ("yes", 9)


def test_a_grammar_that_is_not_enforced_is_found_before_the_request_is_sent():
    def fails_open(asked: Asked) -> list[bytes | Hang]:
        body = asked.body or {}
        if asked.path == "/completion" and body.get("logit_bias"):
            (token, _), *_ = body["logit_bias"]
            return [reply(last(body, tokens=[token], content=chr(token)))]
        return sound(asked)

    with scripted_server(fails_open) as server, espalier.load(server.address) as engine:
        with pytest.raises(UpstreamError, match="does not enforce the grammar"):
            engine.generate("hello", constraint=YES)
        assert not any((one.body or {}).get("stream") for one in server.asked)
        assert engine.generate("hello", trace="off").text == "yes"  # without a constraint it may be used


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        (lambda body: [event(chunk("no")), event(last(body))], "did not keep to choice"),
        (lambda body: [event(chunk("ye")), event(last(body))], "does not satisfy choice yet"),
        (lambda body: [event(chunk("yes!")), event(last(body))], "did not keep to choice"),
        (lambda body: [event(chunk("yes")), event(last({"grammar": ""}))], "did not use the grammar"),
        (lambda body: [event(chunk("yes"))], "broke off"),
        (lambda body: [event(chunk("yes")), event({"error": {"message": "slot lost"}})], "slot lost"),
        (lambda body: [event(chunk("yes")), event(last(body, truncated=True))], "to fit its context"),
        (lambda body: [event(chunk("yes")), event(last(body, stop_type="none"))], "why the text ended"),
        (lambda body: [event([1])], "instead of an object"),
    ],
    ids=["ignored", "too short", "too long", "not taken", "cut", "error", "truncated", "no reason", "list"],
)
def test_what_breaks_the_constraint_or_breaks_off_is_never_a_result(pieces, said):
    with engine_where(lambda body: [STREAM, *pieces(body)]) as (engine, _), pytest.raises(UpstreamError, match=said):
        engine.generate("hello", constraint=YES, trace="off")


@pytest.mark.parametrize("status", ["400 Bad", "500 Oops", "503 Busy"])
def test_a_refused_generation_is_a_typed_error(status):
    failed = reply({"error": {"message": "failed to parse grammar"}}, status)
    errors = (InputError, UpstreamError, Unavailable)
    with engine_where(lambda body: [failed]) as (engine, _), pytest.raises(errors, match="failed to parse grammar"):
        engine.generate("hello", constraint=Regex("a+"))


def schema_server(grammar: str, text: str = '{"a": 1}', canary: str = "{"):
    """A server that makes this grammar of every schema, and answers this text."""

    def scripted(asked: Asked) -> list[bytes | Hang]:
        body = asked.body or {}
        if asked.path != "/completion" or "json_schema" not in body:
            return sound(asked)
        end = last(body) | {"generation_settings": {"grammar": grammar}}
        if not body.get("stream"):
            return [reply(end | {"content": canary, "tokens": list(canary.encode()), "stop_type": "limit"})]
        return [STREAM, event(chunk(text)), event(end)]

    return scripted_server(scripted)


INTEGER = JsonSchema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
HOLDS = r'''root ::= "{\"a\": " [0-9]+ "}"'''


def test_a_schema_goes_as_it_is_and_is_proved_once():
    with schema_server(HOLDS) as server, espalier.load(server.address, schema_as="json_schema") as engine:
        for _ in range(2):
            result = engine.generate("hello", constraint=INTEGER, trace="off")
        assert (result.parsed, result.verdict.valid) == ({"a": 1}, True)
        sent = [one.body for one in server.asked if one.path == "/completion" and "json_schema" in one.body]
    assert [bool(one.get("logit_bias")) for one in sent] == [True, False, False]
    assert all("grammar" not in one and one["json_schema"]["required"] == ["a"] for one in sent)


@pytest.mark.parametrize(
    ("grammar", "text", "canary", "said"),
    [
        ("", '{"a": 1}', "{", "does not enforce the json_schema"),
        (HOLDS, '{"a": 1}', "!", "does not enforce the json_schema"),
        ("root ::= (", '{"a": 1}', "{", "cannot be followed"),
        (HOLDS, '{"b": 1}', "{", "did not keep to"),
        (r'''root ::= "{\"a\": \"x\"}"''', '{"a": "x"}', "{", "did not keep to the schema"),
        ("%llguidance {}", '{"a": "x"}', "{", "did not keep to the schema"),
    ],
    ids=["no grammar", "canary comes", "unreadable", "not its own grammar", "too wide", "too wide, not followed"],
)
def test_a_schema_that_the_server_does_not_hold_is_never_a_result(grammar, text, canary, said):
    with (
        schema_server(grammar, text, canary) as server,
        espalier.load(server.address, schema_as="json_schema") as engine,
        pytest.raises(UpstreamError, match=said),
    ):
        engine.generate("hello", constraint=INTEGER, trace="off")


def test_a_schema_beside_something_else_has_the_contract_of_our_grammar():
    joined = Request(prompt="hello", constraint=INTEGER, sampling=SamplingConfig(bad_words=("7",)))
    with schema_server(HOLDS) as server, espalier.load(server.address, schema_as="json_schema") as opened:
        engine = opened.engine
        ours = contract_of(INTEGER, Compiler(Vocab.bytes()))
        assert contract_of(INTEGER, engine.compiler, request=joined) == ours
        assert contract_fields(joined, engine.compiler) == {"contract": ours.to_json()}
        alone = contract_of(INTEGER, engine.compiler, request=replace(joined, sampling=SamplingConfig()))
    assert alone == native_contract(INTEGER)
    assert alone != ours


def test_a_keyword_that_the_server_drops_is_refused_before_anything_is_sent():
    with schema_server(HOLDS) as server, espalier.load(server.address, schema_as="json_schema") as engine:
        before = len(server.asked)
        with pytest.raises(UnsupportedError, match="/minProperties"):
            engine.generate("hello", constraint=JsonSchema({"type": "object", "minProperties": 1}))
        assert len(server.asked) == before


@pytest.mark.slow
def test_a_server_that_falls_silent_is_a_time_out():
    # As long as a busy machine may take for the answers that do come, those of opening the engine among them.
    with engine_where(lambda body: [STREAM, event(chunk("ye")), Hang()], timeout=3) as (engine, server):
        with pytest.raises(UpstreamTimeout):
            engine.generate("hello", constraint=YES)
        assert server.left.wait(60)


def test_a_cancelled_request_hangs_up_on_a_silent_server():
    with engine_where(lambda body: [STREAM, event(chunk("ye")), Hang()]) as (engine, server):
        service = engine.serve(queue_size=2)
        run = service.submit(engine.requests("hello", constraint=YES)[0][0])
        events = iter(run)
        assert next(events).text == "ye"
        threading.Timer(0.05, run.cancel).start()
        with pytest.raises(Cancelled):
            next(events)
        assert server.left.wait(60)


def test_a_deadline_ends_a_request_to_a_silent_server(monkeypatch):
    now, asked, interrupt = [0.0], threading.Event(), direct._interrupt

    def answer(body: Any) -> list[bytes | Hang]:
        now[0] = 1.0
        asked.set()
        return [Hang()]

    # The deadline is over once the server is asked, however long this machine takes to ask it.
    monkeypatch.setattr(direct, "_interrupt", lambda events: asked.wait(60) and interrupt(events))
    with engine_where(answer) as (engine, server):
        service = direct.DirectService(engine.engine, queue_size=2, clock=lambda: now[0])
        with pytest.raises(DeadlineExceeded):
            list(service.submit(engine.requests("hello")[0][0], deadline=0.1))
        assert server.left.wait(60)


def test_closing_a_stream_hangs_up():
    with engine_where(lambda body: [STREAM, event(chunk("ye")), Hang()]) as (engine, server):
        stream = engine.stream("hello", constraint=YES)
        next(stream)
        stream.close()
        assert server.left.wait(60)


def test_a_half_json_object_is_not_passed_on_as_whole():
    half = event(chunk('{"a": '))
    with (
        engine_where(lambda body: [STREAM, half, event(last(body))]) as (engine, _),
        pytest.raises(UpstreamError, match="json_object yet"),
    ):
        engine.generate("hello", constraint=JsonObject())
