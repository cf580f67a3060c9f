"""A real llama-server as an engine: our constraints, contract, verdicts and traces over its model."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from random import Random

import jsonschema
import pytest

pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")

import espalier
from espalier import AnyOf, Choice, Gbnf, JsonSchema, Regex
from espalier.errors import (
    CapabilityError,
    InputError,
    LimitExceeded,
    PromptTooLong,
    SchemaError,
    UnknownModel,
    UnsupportedError,
)
from espalier.upstream.link import ServerLink
from espalier.upstream.llama_server.client import LlamaServer
from espalier.upstream.llama_server.vocabulary import fetch
from espalier.wiring import demo_model
from tests.examples import examples
from tests.llama_server import llama_server
from tests.schema_fuzz import Maker

PROMPT = "Generate user info"
USER = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 16},
        "age": {"type": "integer", "minimum": 0, "maximum": 120},
    },
    "required": ["name", "age"],
    "additionalProperties": False,
}
WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 8}},
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="module")
def server() -> Iterator[LlamaServer]:
    with llama_server(demo_model() / "demo.gguf", sequences=2) as real:
        yield LlamaServer(ServerLink(real.address))


@pytest.fixture(scope="module")
def engine(server) -> Iterator[espalier.LoadedEngine]:
    with espalier.load(server.link.url) as opened:
        yield opened


@pytest.fixture(scope="module")
def local() -> Iterator[espalier.LoadedEngine]:
    pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
    with espalier.load(str(demo_model() / "demo.gguf"), kv_type="f32", flash_attention="off") as opened:
        yield opened


def test_its_vocabulary_is_the_one_of_its_file(server, local):
    assert fetch(server) == local.vocab


def test_it_is_asked_for_tokens_text_and_its_own_prompt(server, local):
    for text in ("hello", "<|im_start|>user\nça 東京", ""):
        ids = server.tokenize(text, add_special=False)
        assert ids == local.engine.encode(text, add_special=False)
        assert server.detokenize(ids) == text
    messages = [{"role": "user", "content": PROMPT}]
    assert server.apply_template(messages) == local.engine.prompt_text(local.requests(messages, max_tokens=1)[0][0])


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    "constraint",
    [JsonSchema(USER), Regex("[a-zé]{3,9}( [A-Z][a-z]+){1,3}"), Choice(["yes", "no"]), None],
    ids=["schema", "regex", "choice", "free"],
)
def test_it_writes_what_our_own_native_sampler_writes(engine, local, constraint, seed):
    asked = {"constraint": constraint, "seed": seed, "max_tokens": 60, "trace": "off"}
    theirs, ours = engine.generate(PROMPT, **asked), local.generate(PROMPT, sampler="native", **asked)
    assert theirs.text == ours.text
    assert theirs.verdict == ours.verdict
    assert (theirs.finish_reason, theirs.parsed) == (ours.finish_reason, ours.parsed)
    assert theirs.usage == replace(ours.usage, cached_tokens=0)


def test_its_trace_has_a_step_for_each_token_and_says_that_rejections_are_estimated(engine):
    result = engine.generate(PROMPT, constraint=JsonSchema(USER), seed=1, max_tokens=60, trace_top_k=5)
    assert len(result.trace.steps) == result.usage.completion_tokens
    assert [step.token_id for step in result.trace.steps] == list(result.token_ids)
    assert result.trace.sampling["sampler"] == "native"
    assert any("estimated" in note for note in result.notes)
    assert json.loads(result.text) == result.parsed


def test_tool_calls_and_streams_come_as_from_our_own_engine(engine):
    asked = {"tools": [WEATHER], "tool_choice": "required", "seed": 1, "max_tokens": 60}
    *tokens, finished = engine.stream("What is the weather in Paris?", **asked)
    (call,) = finished.result.tool_calls
    assert (call.name, set(json.loads(call.arguments))) == ("get_weather", {"city"})
    assert "".join(one.text for one in tokens) + finished.text == finished.result.text
    assert finished.result.finish_reason == "tool_calls"


def test_a_stop_text_and_the_token_limit_end_a_text(engine):
    whole = engine.generate(PROMPT, temperature=0, max_tokens=12)
    stop = whole.text[4:6]
    cut = engine.generate(PROMPT, temperature=0, max_tokens=12, stop=[stop])
    assert (cut.text, cut.stop_reason) == (whole.text[: whole.text.index(stop)], stop)
    short = engine.generate(PROMPT, constraint=JsonSchema(USER), max_tokens=2)
    assert (short.finish_reason, short.verdict.valid, short.parsed) == ("length", False, None)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"strategy": "beam", "num_beams": 2}, "strategy"),
        ({"on_budget": "close", "constraint": Choice(["a"])}, "on_budget"),
        ({"trace": "full"}, "trace"),
        ({"min_tokens": 3}, "min_tokens"),
        ({"stop_ids": [5]}, "stop_ids"),
        ({"constraint": JsonSchema({"not": {"type": "string"}, "uniqueItems": True})}, "constraint"),
        ({"constraint": Choice(["a"]), "ignore_eos": True}, "ignore_eos"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name_and_never_dropped(engine, asked, field):
    with pytest.raises((InputError, CapabilityError)) as caught:
        engine.generate(PROMPT, max_tokens=5, **asked)
    assert caught.value.field == field


def test_a_prompt_that_is_too_long_is_refused_before_it_is_sent(engine):
    with pytest.raises(PromptTooLong):
        engine.generate("a b " * 2000, max_tokens=5)


def test_another_model_than_the_servers_is_refused(server):
    with pytest.raises(UnknownModel, match=r"demo\.gguf, not other"):
        espalier.load("other", engine="llama-server", url=server.link.url)


def test_many_requests_are_served_at_once_and_cancelled(engine):
    with_service = engine.serve(queue_size=8)
    requests = [
        engine.requests(PROMPT, constraint=JsonSchema(USER), seed=seed, max_tokens=60)[0][0] for seed in range(4)
    ]
    runs = [with_service.submit(one) for one in requests]
    alone = [engine.generate(PROMPT, constraint=JsonSchema(USER), seed=seed, max_tokens=60).text for seed in range(4)]
    assert [list(run)[-1].result.text for run in runs] == alone
    with_service.close()


@pytest.fixture(scope="module")
def native(server) -> Iterator[espalier.LoadedEngine]:
    with espalier.load(server.link.url, schema_as="json_schema") as opened:
        yield opened


def test_a_schema_left_to_the_server_is_proved_followed_and_judged(native):
    result = native.generate(PROMPT, constraint=JsonSchema(USER), seed=1, max_tokens=80)
    assert (result.verdict.valid, result.parsed["age"] <= 120) == (True, True)
    assert any("the server's own grammar" in note for note in result.notes)
    assert any("LLGuidance" in note for note in result.notes)  # xllamacpp is built with it
    assert [step.token_id for step in result.trace.steps] == list(result.token_ids)
    joined = native.generate(PROMPT, constraint=JsonSchema(USER), bad_words=["Z"], seed=1, max_tokens=80)
    assert any("sent as our grammar" in note for note in joined.notes)


def test_compositions_and_grammars_are_written_for_it(engine):
    either = AnyOf((Choice(["left"]), Gbnf('root ::= "right" [0-9]')))
    text = engine.generate(PROMPT, constraint=either, max_tokens=20, seed=1).text
    assert text == "left" or re.fullmatch("right[0-9]", text)


def test_random_schemas_are_refused_by_name_or_satisfied_as_an_independent_validator_sees_it(engine):
    made, count = Maker(Random(1), depth=2), 0
    for seed in range(examples(60)):
        schema = made.schema(2)
        try:
            result = engine.generate(PROMPT, constraint=JsonSchema(schema), seed=seed, max_tokens=60, trace="off")
        except (UnsupportedError, SchemaError, LimitExceeded):
            continue  # no grammar says it; nothing was sent
        if result.finish_reason == "stop":
            count += 1
            errors = list(jsonschema.Draft202012Validator(schema).iter_errors(json.loads(result.text)))
            assert not errors, (schema, result.text)
            assert result.verdict.valid
    assert count


@pytest.mark.parametrize("constraint", [None, JsonSchema(USER)])
def test_a_thought_is_closed_at_its_limit_and_the_rest_asked_for(engine, constraint):
    asked = {"raw": True, "constraint": constraint, "reasoning": "think", "max_tokens": 90, "temperature": 0}
    result = engine.generate("<think>", **asked, max_reasoning=2)
    ids, marker = result.token_ids, engine.engine.encode("</think>", add_special=False)
    thought, _, rest = result.text.partition("</think>")
    assert ids[2 : 2 + len(marker)] == tuple(marker)
    assert thought
    assert rest.strip()
    assert any("closed at its limit" in note for note in result.notes)
    assert result.usage.completion_tokens == len(ids)
    assert result.usage.prompt_tokens == 1
    assert constraint is None or result.verdict.valid


def test_a_thought_that_ends_in_time_needs_no_second_request(engine):
    result = engine.generate("<think>", raw=True, reasoning="think", max_reasoning=60, max_tokens=70, temperature=0)
    assert not any("closed at its limit" in note for note in result.notes)


def test_a_thought_that_has_all_tokens_is_cut_by_them(engine):
    result = engine.generate("<think>", raw=True, reasoning="think", max_reasoning=2, max_tokens=3, temperature=0)
    assert result.finish_reason == "length"


def test_an_answer_without_a_thought_has_no_limit(engine):
    limited = engine.generate(PROMPT, raw=True, reasoning="think", max_reasoning=1, max_tokens=8, temperature=0)
    assert limited.text == engine.generate(PROMPT, raw=True, reasoning="think", max_tokens=8, temperature=0).text
