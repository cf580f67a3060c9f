"""The real llama-completion as an engine: what it writes is what our native sampler and llama-server write."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

import espalier
from espalier import Choice, JsonSchema, Regex
from espalier.errors import CapabilityError, GrammarError, InputError, SamplingError, UpstreamTimeout
from espalier.upstream.llama_cli.client import InferenceRequest, LlamaCppClient
from espalier.wiring import demo_model
from tests.llama_tools import tool

BINARY = tool("llama-completion")
MODEL = str(demo_model() / "demo.gguf")
PROMPT = "Generate user info"
EXACT = {"kv_type": "f32", "flash_attention": "off"}
USER = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 16},
        "age": {"type": "integer", "minimum": 0, "maximum": 99},
    },
    "required": ["name", "age"],
}


@pytest.fixture(scope="module")
def engine() -> Iterator[espalier.LoadedEngine]:
    with espalier.load(MODEL, engine="llama-cli", binary=BINARY, threads=1, **EXACT) as opened:
        yield opened


@pytest.fixture(scope="module")
def local() -> Iterator[espalier.LoadedEngine]:
    with espalier.load(MODEL, **EXACT) as opened:
        yield opened


@pytest.mark.parametrize(
    ("constraint", "max_tokens"),
    [(JsonSchema(USER), 60), (Regex("[a-zé]{3,9}( [A-Z][a-z]+){1,3}"), 60), (Choice(["yes", "no"]), 60), (None, 3)],
    ids=["schema", "regex", "choice", "free"],
)
def test_it_writes_what_our_own_native_sampler_writes(engine, local, constraint, max_tokens):
    asked = {"constraint": constraint, "seed": 7, "max_tokens": max_tokens, "trace": "off", "repetition_penalty": 1.1}
    theirs, ours = engine.generate(PROMPT, **asked), local.generate(PROMPT, sampler="native", **asked)
    assert (theirs.text, theirs.finish_reason, theirs.verdict) == (ours.text, ours.finish_reason, ours.verdict)
    if theirs.token_ids:  # its timings tell them, and can be lost
        assert (theirs.token_ids, theirs.usage) == (ours.token_ids, ours.usage)


@pytest.mark.parametrize(
    ("stop", "constraint"), [(['name": "', "a"], None), (["ge", "gen"], JsonSchema(USER)), (["zzzz"], None)]
)
def test_a_stop_text_cuts_where_our_own_native_sampler_cuts(engine, local, stop, constraint):
    asked = {"constraint": constraint, "seed": 1, "max_tokens": 20, "trace": "off", "stop": stop}
    theirs, ours = engine.generate(PROMPT, **asked), local.generate(PROMPT, sampler="native", **asked)
    assert (theirs.text, theirs.finish_reason, theirs.stop_reason) == (ours.text, ours.finish_reason, ours.stop_reason)
    assert theirs.verdict == ours.verdict
    if theirs.token_ids:  # its timings tell them, and can be lost
        assert (theirs.token_ids, theirs.usage) == (ours.token_ids, ours.usage)


def test_the_client_with_setters_answers_as_it_was_set():
    with LlamaCppClient(MODEL, binary=BINARY, threads=1) as client:
        client.set_grammar('root ::= "yes" | "no"').configure_for_tool_calls()
        request = InferenceRequest(user_prompt="Is it?", system_prompt="Be brief.", max_tokens=8)
        assert client.infer(request).text in ("yes", "no")
        with pytest.raises(GrammarError):
            client.set_grammar("root ::= (")
        with pytest.raises(SamplingError):
            client.set_top_p(2.0)
        assert client.grammar == 'root ::= "yes" | "no"'
        client.clear_grammar().set_top_k(40).set_top_p(0.9).set_min_p(0.05).set_repeat_penalty(1.1).set_repeat_last_n(
            64
        )
        assert client.infer(InferenceRequest(user_prompt=PROMPT, max_tokens=4, seed=1)).finish_reason == "length"


def test_the_client_reads_a_grammar_file(tmp_path):
    path = tmp_path / "g.gbnf"
    path.write_text('root ::= "maybe"')
    with LlamaCppClient(MODEL, binary=BINARY, threads=1) as client:
        assert client.set_grammar_file(path).infer(InferenceRequest(user_prompt="?", max_tokens=9)).text == "maybe"
        with pytest.raises(InputError, match=r"none\.gbnf"):
            client.set_grammar_file(tmp_path / "none.gbnf")


@pytest.mark.parametrize(
    ("asked", "field"),
    [({"strategy": "jump"}, "strategy"), ({"stop_ids": [3]}, "stop_ids"), ({"logit_bias": {"a": 1.0}}, "logit_bias")],
)
def test_what_it_cannot_do_is_refused_by_name(engine, asked, field):
    with pytest.raises((CapabilityError, SamplingError)) as caught:
        engine.generate(PROMPT, max_tokens=4, **asked)
    assert caught.value.field == field


def test_escapes_newlines_and_quotes_of_a_prompt_reach_it_unchanged(engine, local):
    prompt = 'a\\n "b" \\t\n\n'
    asked = {"seed": 2, "max_tokens": 4, "raw": True, "trace": "off"}
    assert engine.generate(prompt, **asked).text == local.generate(prompt, sampler="native", **asked).text


def test_the_environment_does_not_set_options_behind_our_back(engine, local, monkeypatch):
    monkeypatch.setitem(os.environ, "LLAMA_ARG_N_PREDICT", "1")
    monkeypatch.setitem(os.environ, "LLAMA_ARG_THREADS", "x")
    assert engine.generate(PROMPT, constraint=Choice(["yes"]), max_tokens=9).text == "yes"


def test_a_run_that_takes_too_long_is_ended():
    slow = espalier.load(MODEL, engine="llama-cli", binary=BINARY, threads=1, timeout=0.001)
    with slow as engine, pytest.raises(UpstreamTimeout):
        engine.generate(PROMPT, max_tokens=500)
