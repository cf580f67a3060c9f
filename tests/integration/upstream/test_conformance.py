"""What every engine over a real server or program holds to, whichever it is; and our HTTP server in front of one."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")

import espalier
from espalier import JsonObject, JsonSchema
from espalier.constraints.after.thinking import Thinking
from espalier.constraints.spec import Spec
from espalier.engines.base import FinishEvent, TokenEvent
from espalier.errors import CapabilityError, EspalierError, InputError
from espalier.wiring import demo_model
from tests.llama_server import llama_server
from tests.llama_tools import tool
from tests.server_app import make_app

MODEL = demo_model() / "demo.gguf"
PROMPT = "Generate user info"
USER = JsonSchema(
    {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 16}, "age": {"type": "integer", "minimum": 0}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
)
ENGINES = ("llama-server", "openai", "llama-cli")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with llama_server(MODEL, sequences=2) as server:
        yield server.address


@pytest.fixture(scope="module", params=ENGINES)
def engine(request, address) -> Iterator[espalier.LoadedEngine]:
    if request.param == "llama-cli":
        opened = espalier.load(str(MODEL), engine="llama-cli", binary=tool("llama-completion"), threads=1)
    else:
        opened = espalier.load(engine=request.param, url=address)
    with opened:
        yield opened


@pytest.mark.parametrize("seed", range(3))
def test_a_schema_is_satisfied_and_judged_by_an_independent_validator(engine, seed):
    result = engine.generate(PROMPT, constraint=USER, seed=seed, max_tokens=80)
    assert result.verdict.valid
    assert result.verdict.judge.startswith("jsonschema")
    assert json.loads(result.text) == result.parsed
    assert result.finish_reason == "stop"
    asked = Spec.from_json(result.trace.constraint)
    assert (asked.spec if isinstance(asked, Thinking) else asked) == USER  # another server's model may reason first
    assert result.trace.verdict["valid"] is True


def test_the_same_seed_gives_the_same_text_and_others_give_others(engine):
    texts = [engine.generate(PROMPT, seed=seed, max_tokens=40, trace="off").text for seed in (1, 1, 2, 3)]
    assert texts[0] == texts[1]
    assert len(set(texts)) > 1


def test_a_stream_is_the_text_in_pieces_with_one_end(engine):
    *tokens, finished = engine.stream(PROMPT, constraint=USER, seed=1, max_tokens=80)
    assert isinstance(finished, FinishEvent)
    assert all(isinstance(one, TokenEvent) for one in tokens)
    assert "".join(one.text for one in tokens) + finished.text == finished.result.text


def test_a_cut_text_is_never_valid(engine):
    result = engine.generate(PROMPT, constraint=USER, seed=1, max_tokens=3)
    assert (result.finish_reason, result.verdict.valid, result.parsed) == ("length", False, None)


def test_several_prompts_come_back_in_order(engine):
    asked = [f"{PROMPT} {number}" for number in range(2)]
    together = engine.generate(asked, constraint=USER, seed=1, max_tokens=80)
    assert [one.text for one in together] == [
        engine.generate(p, constraint=USER, seed=1, max_tokens=80).text for p in asked
    ]


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"strategy": "beam", "num_beams": 2}, "strategy"),
        ({"strategy": "jump"}, "strategy"),
        ({"on_budget": "close", "constraint": JsonObject()}, "on_budget"),
        ({"trace": "full"}, "trace"),
        ({"ignore_eos": True, "constraint": JsonObject()}, "ignore_eos"),
        ({"allowed_ids": [5]}, "allowed_ids"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name(engine, asked, field):
    with pytest.raises((CapabilityError, InputError)) as caught:
        engine.generate(PROMPT, max_tokens=5, **asked)
    assert caught.value.field == field


def test_unicode_and_empty_texts_are_no_trouble(engine):
    result = engine.generate("Écris « été 東京 🙂 »", max_tokens=4, seed=1, temperature=1.5)
    assert result.text.encode().decode() == result.text
    with pytest.raises(EspalierError):
        engine.generate("", raw=True, max_tokens=2)


def test_our_server_in_front_of_a_llama_server_keeps_to_the_schema_streams_and_says_when_it_is_gone():
    body = {"messages": [{"role": "user", "content": PROMPT}], "seed": 1, "max_tokens": 80}
    schema = {"type": "json_schema", "json_schema": {"name": "user", "schema": json.loads(USER.text)}}
    with llama_server(MODEL) as real:
        engine = espalier.load(real.address)
        with TestClient(make_app(engine=engine)) as client:
            said = client.post("/v1/chat/completions", json=body | {"response_format": schema})
            content = said.json()["choices"][0]["message"]["content"]
            assert set(json.loads(content)) == {"name", "age"}
            streamed = client.post("/v1/chat/completions", json=body | {"response_format": schema, "stream": True})
            pieces = [json.loads(line[6:]) for line in streamed.text.splitlines() if line.startswith("data: {")]
            assert content == "".join(
                one["choices"][0]["delta"].get("content") or "" for one in pieces if one["choices"]
            )
            refused = client.post("/v1/chat/completions", json=body | {"espalier": {"strategy": "beam"}})
            assert refused.status_code == 400
            os.kill(real.pid, signal.SIGKILL)
            gone = client.post("/v1/chat/completions", json=body)
            assert (gone.status_code, gone.json()["error"]["code"]) == (502, "upstream_error")
