"""Any OpenAI-compatible server: what it is asked, what is stated as its own, and every way in which it fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import espalier
from espalier import Choice, Gbnf, JsonObject, JsonSchema, Regex
from espalier.errors import CapabilityError, UnknownModel, UpstreamError
from tests.scripted_server import STREAM, Asked, Hang, ScriptedServer, event, reply, scripted_server

SCHEMA = JsonSchema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}


def delta(text: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text} | more, "finish_reason": finish}]})


def says(text: str, finish: str = "stop") -> list[bytes]:
    return [STREAM, delta(text), delta(finish=finish), event(USAGE), event("[DONE]")]


@contextmanager
def engine_where(
    answer: Callable[[dict[str, Any]], list[bytes | Hang]], owner: str = "someone", **options: Any
) -> Iterator[tuple[espalier.LoadedEngine, ScriptedServer]]:
    def scripted(asked: Asked) -> list[bytes | Hang]:
        if asked.path == "/v1/models":
            return [reply({"object": "list", "data": [{"id": "org/toy", "owned_by": owner}]})]
        assert asked.path == "/v1/chat/completions"
        return answer(asked.body)

    with (
        scripted_server(scripted) as server,
        espalier.load("org/toy", engine="openai", url=server.address, **options) as engine,
    ):
        yield engine, server


def test_a_schema_is_sent_and_the_result_says_that_it_was_checked_and_not_enforced():
    with engine_where(lambda body: says('{"a": 1}')) as (engine, server):
        result = engine.generate("hello", constraint=SCHEMA, seed=5, trace="off", stop=["\n\n"])
    assert (result.parsed, result.verdict.valid) == ({"a": 1}, True)
    assert (result.usage.prompt_tokens, result.usage.completion_tokens) == (3, 2)
    assert any("checked by the verdict" in note for note in result.notes)
    assert any("top_k" in note for note in result.notes)
    body = server.asked[-1].body
    assert body["response_format"]["json_schema"]["schema"]["required"] == ["a"]
    assert (body["model"], body["seed"], body["stop"]) == ("org/toy", 5, ["\n\n"])
    assert "top_k" not in body


def test_a_text_that_breaks_the_schema_is_judged_invalid_and_not_parsed():
    with engine_where(lambda body: says('{"a": "x"}')) as (engine, _):
        result = engine.generate("hello", constraint=SCHEMA)
    assert (result.verdict.valid, result.parsed) == (False, None)


def test_vllm_gets_its_own_fields():
    with engine_where(lambda body: says("yes"), owner="vllm") as (engine, server):
        result = engine.generate("hello", constraint=Choice(["yes", "no"]), top_k=7, trace="off")
        assert engine.generate("hello", constraint=Regex("y.*"), trace="off").verdict.valid
    assert result.verdict.valid
    assert server.asked[1].body["structured_outputs"] == {"choice": ["yes", "no"]}
    assert server.asked[1].body["top_k"] == 7
    assert server.asked[2].body["structured_outputs"] == {"regex": "y.*"}


def test_vllm_takes_a_grammar():
    grammar = 'root ::= "yes" | "no"'
    with engine_where(lambda body: says("yes"), owner="vllm") as (engine, server):
        result = engine.generate("hello", constraint=Gbnf(grammar), trace="off")
    assert result.verdict.valid
    assert any("checked by the verdict" in note for note in result.notes)
    assert server.asked[1].body["structured_outputs"] == {"grammar": grammar}


def test_a_server_that_breaks_a_grammar_is_told_by_the_verdict():
    with engine_where(lambda body: says("maybe"), owner="vllm") as (engine, _):
        result = engine.generate("hello", constraint=Gbnf('root ::= "yes" | "no"'), trace="off")
    assert (result.verdict.valid, result.verdict.judge, result.parsed) == (False, "matcher", None)


def test_a_server_without_log_probabilities_is_asked_again_without_and_the_result_says_so():
    refused = reply({"error": {"message": "logprobs is not supported"}}, "400 Bad Request")
    with engine_where(lambda body: [refused] if "logprobs" in body else says("hi")) as (engine, _):
        result = engine.generate("hello", trace="steps")
    assert result.text == "hi"
    assert any("no probabilities" in note for note in result.notes)


def test_log_probabilities_become_steps_whose_rejections_are_unknown():
    entry = {"token": "hi", "bytes": [104, 105], "logprob": -0.5, "top_logprobs": []}
    chunk = event(
        {"choices": [{"delta": {"content": "hi"}, "logprobs": {"content": [entry]}, "finish_reason": "stop"}]}
    )
    with engine_where(lambda body: [STREAM, chunk, event("[DONE]")]) as (engine, _):
        result = engine.generate("hello", trace="steps")
    assert [step.text for step in result.trace.steps] == ["hi"]


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([delta("a")], "broke off"),
        ([delta("a"), event("[DONE]")], "broke off"),
        ([delta("a"), event({"error": {"message": "out of memory"}})], "out of memory"),
        ([delta(finish="content_filter")], "content_filter"),
        ([delta(refusal="I cannot")], "refuses to answer: I cannot"),
        ([delta(tool_calls=[{}])], "was not offered"),
        ([event({"choices": [{}]})], "without a delta"),
        ([event({"object": "x"})], "without choices"),
        ([event("nonsense")], "not JSON"),
    ],
)
def test_an_answer_that_is_none_is_an_error(pieces, said):
    with engine_where(lambda body: [STREAM, *pieces]) as (engine, _), pytest.raises(UpstreamError, match=said):
        engine.generate("hello", trace="off")


def test_a_cut_text_is_not_valid():
    with engine_where(lambda body: says('{"a": 1', finish="length")) as (engine, _):
        result = engine.generate("hello", constraint=SCHEMA)
    assert (result.finish_reason, result.verdict.valid, result.parsed) == ("length", False, None)


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({"top_k": 3}, "top_k"),
        ({"min_tokens": 2}, "min_tokens"),
        ({"raw": True}, "raw"),
        ({"reasoning": "think"}, "reasoning"),
        ({"constraint": Regex("a")}, "constraint"),
        ({"constraint": JsonObject(kinds=("array",))}, "constraint"),
        ({"tools": [{"name": "f", "input_schema": {"type": "object"}}]}, "tools"),
        ({"strategy": "smc"}, "strategy"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name_and_never_dropped(asked, field):
    with engine_where(lambda body: says("hi")) as (engine, server):
        with pytest.raises(CapabilityError) as caught:
            engine.generate("hello", **asked)
        assert len(server.asked) == 1  # the list of models, and no prompt
    assert caught.value.field == field


def test_a_model_that_it_does_not_have_is_named_with_those_that_it_has():
    listed = reply({"data": [{"id": "one"}, {"id": "two"}]})
    with scripted_server(lambda asked: [listed]) as server:
        for model in ("three", None):
            with pytest.raises(UnknownModel) as caught:
                espalier.load(model, engine="openai", url=server.address)
            assert "one, two" in caught.value.hint


def test_the_key_of_a_file_is_sent_and_shown_nowhere(tmp_path, caplog):
    path = tmp_path / "key"
    path.write_text("sk-secret\n")
    failed = reply({"error": {"message": "no"}}, "500 Oops")
    with engine_where(lambda body: [failed], key_file=str(path)) as (engine, server):
        with pytest.raises(UpstreamError) as caught:
            engine.generate("hello", trace="off")
        assert server.asked[-1].headers["authorization"] == "Bearer sk-secret"
    assert "sk-secret" not in f"{caught.value!r} {caplog.text} {engine!r}"


def test_with_repair_a_kind_without_a_judge_is_checked_by_our_matcher_and_asked_for_again():
    texts = iter(["maybe", "no"])
    with engine_where(lambda body: says(next(texts)), repair=2) as (engine, server):
        result = engine.generate("hello", constraint=Gbnf('root ::= "yes" | "no"'), trace="off", seed=4)
        assert engine.engine.repairs.to_json() == {"gbnf": {"sent": False, "answers": 1, "again": 1, "broken": 0}}
    assert result.text == "no"
    assert any("only checked" in note for note in result.notes)
    assert any("satisfied by answer 2" in note for note in result.notes)
    first, second = server.asked[1].body, server.asked[2].body
    assert first["seed"] == 4 != second["seed"]
    assert {k: v for k, v in first.items() if k != "seed"} == {k: v for k, v in second.items() if k != "seed"}
    assert "grammar" not in str(first)


def test_with_repair_a_constraint_that_is_wrong_is_told_before_anything_is_sent():
    with engine_where(lambda body: says("x"), repair=2) as (engine, server):
        with pytest.raises(espalier.EspalierError, match="nothing"):
            engine.generate("hello", constraint=Gbnf("root ::= nothing"), trace="off")
        assert [one.path for one in server.asked] == ["/v1/models"]
