"""Any OpenAI-compatible server: what it is asked, what is stated as its own, and every way in which it fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

import espalier
from espalier import Choice, Gbnf, JsonObject, JsonSchema, Regex
from espalier.errors import CapabilityError, InputError, UnknownModel, UpstreamError
from tests.scripted_server import STREAM, Asked, Hang, ScriptedServer, event, reply, scripted_server

SCHEMA = JsonSchema({"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]})
USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}


def delta(text: str | None = None, finish: str | None = None, **more: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": {"content": text} | more, "finish_reason": finish}]})


def says(text: str, finish: str = "stop") -> list[bytes]:
    return [STREAM, delta(text), delta(finish=finish), event(USAGE), event("[DONE]")]


@contextmanager
def engine_where(
    answer: Callable[[dict[str, Any]], list[bytes | Hang]], owner: str = "someone", version: str = "", **options: Any
) -> Iterator[tuple[espalier.LoadedEngine, ScriptedServer]]:
    def scripted(asked: Asked) -> list[bytes | Hang]:
        if asked.path == "/v1/models":
            one = {"id": "org/toy", "owned_by": owner, "max_model_len": 4096}
            return [reply({"object": "list", "data": [one]})]
        if asked.path == "/version":
            return [reply({"version": version})]
        if not asked.body.get("stream"):  # whether our processor is there
            return [reply({"choices": []})]
        assert asked.path == ("/v1/chat/completions" if "messages" in asked.body else "/v1/completions")
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
        assert engine.engine.capabilities.max_context == 4096
    assert result.verdict.valid
    assert server.asked[-2].body["structured_outputs"] == {"choice": ["yes", "no"]}
    assert server.asked[-2].body["top_k"] == 7
    assert server.asked[-1].body["structured_outputs"] == {"regex": "y.*"}


def test_vllm_takes_a_grammar():
    grammar = 'root ::= "yes" | "no"'
    with engine_where(lambda body: says("yes"), owner="vllm") as (engine, server):
        result = engine.generate("hello", constraint=Gbnf(grammar), trace="off")
    assert result.verdict.valid
    assert any("checked by the verdict" in note for note in result.notes)
    assert server.asked[-1].body["structured_outputs"] == {"grammar": grammar}


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
        ([delta(tool_calls=[{"function": {"name": "f"}}])], "was not offered"),
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
        ({"raw": True, "constraint": SCHEMA}, "constraint"),
        ({"reasoning": "think", "max_reasoning": 3}, "max_reasoning"),
        ({"schema_in_prompt": True, "constraint": SCHEMA}, "schema_in_prompt"),
        ({"constraint": Regex("a")}, "constraint"),
        ({"constraint": JsonObject(kinds=("array",))}, "constraint"),
        ({"tools": [{"name": "f", "input_schema": {"type": "object"}}], "tool_format": "hermes"}, "tool_format"),
        ({"strategy": "smc"}, "strategy"),
    ],
)
def test_what_it_cannot_do_is_refused_by_name_and_never_dropped(asked, field):
    with engine_where(lambda body: says("hi")) as (engine, server):
        with pytest.raises(CapabilityError) as caught:
            engine.generate("hello", **asked)
        assert len(server.asked) == 1  # the list of models, and no prompt
    assert caught.value.field == field


WEATHER = {
    "name": "get_weather",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}


def calls(*pieces: dict[str, Any], text: str | None = None, finish: str = "tool_calls") -> list[bytes]:
    said = [] if text is None else [delta(text)]
    return [STREAM, *said, *[delta(tool_calls=[one]) for one in pieces], delta(finish=finish), event("[DONE]")]


def piece(index: int | None, arguments: Any, name: str | None = None, **more: Any) -> dict[str, Any]:
    function = {"arguments": arguments} | ({} if name is None else {"name": name})
    return more | {"function": function} | ({} if index is None else {"index": index})


def test_tools_are_offered_and_the_calls_come_back_as_calls_and_are_judged():
    said = calls(piece(0, "", "get_weather"), piece(0, '{"city": '), piece(0, '"Paris"}'), text="I look it up.")
    with engine_where(lambda body: said) as (engine, server):
        *_, finished = engine.stream("hello", tools=[WEATHER], trace="off", max_calls=1)
    result = finished.result
    (call,) = result.tool_calls
    assert (call.name, call.arguments, result.content) == ("get_weather", '{"city": "Paris"}', "I look it up.")
    assert (result.finish_reason, result.verdict.valid) == ("tool_calls", True)
    assert any("tool calls are checked by the verdict" in note for note in result.notes)
    body = server.asked[-1].body
    assert body["tools"][0]["function"]["parameters"]["required"] == ["city"]
    assert (body["tool_choice"], body["parallel_tool_calls"]) == ("auto", False)


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ("required", "required"),
        ("get_weather", {"type": "function", "function": {"name": "get_weather"}}),
        ("none", "none"),
    ],
)
def test_the_choice_of_tools_is_sent(choice, sent):
    said = says("no") if choice == "none" else calls(piece(0, '{"city": "a"}', "get_weather"))
    with engine_where(lambda body: said) as (engine, server):
        result = engine.generate("hello", tools=[WEATHER], tool_choice=choice, trace="off")
    assert server.asked[-1].body["tool_choice"] == sent
    assert result.verdict.valid


@pytest.mark.parametrize(
    "said",
    [calls(piece(0, '{"town": 1}', "get_weather")), calls(piece(0, "{}", "rm")), says("no call at all")],
    ids=["arguments", "unknown tool", "none"],
)
def test_a_call_that_breaks_what_was_asked_is_judged_invalid_and_never_dropped(said):
    with engine_where(lambda body: said) as (engine, _):
        result = engine.generate("hello", tools=[WEATHER], tool_choice="required", trace="off")
    assert result.verdict.valid is False


def test_two_calls_and_a_cut_one():
    both = calls(piece(0, '{"city": "a"}', "get_weather"), piece(1, '{"city": "b"}', "get_weather"))
    with engine_where(lambda body: both) as (engine, _):
        result = engine.generate("hello", tools=[WEATHER], trace="off")
    assert [one.arguments for one in result.tool_calls] == ['{"city": "a"}', '{"city": "b"}']
    assert result.verdict.valid
    with engine_where(lambda body: calls(piece(0, '{"ci', "get_weather"), finish="length")) as (engine, _):
        cut = engine.generate("hello", tools=[WEATHER], trace="off")
    assert (cut.finish_reason, cut.verdict.valid) == ("length", False)


@pytest.mark.parametrize(
    ("pieces", "said"),
    [
        ([piece(0, "{}", "f"), piece(1, "{", "f"), piece(0, "}")], "out of order"),
        ([piece(0, "{}", "f"), piece(1, "{", "f"), piece(0, "}", "f", id="a")], "out of order"),
        ([piece(0, "{}", "f", id="a"), piece(1, "{", id="b")], "out of order"),
        ([piece(0, "{}")], "out of order"),
        ([{"index": "x"}], "call that is none"),
        ([{"index": 0}], "call that is none"),
        ([piece(0, [1], "f")], "no object"),
        ([piece(0, "[1]", "f")], "no object"),
        ([piece(0, '"a"', "f")], "no object"),
        ([piece(0, '{"city": "a"', "f")], "no object"),
        ([piece(0, "7", "f"), piece(1, "{}", "f")], "no object"),
    ],
)
def test_pieces_of_calls_that_are_none_are_an_error(pieces, said):
    with engine_where(lambda body: calls(*pieces)) as (engine, _), pytest.raises(UpstreamError, match=said):
        engine.generate("hello", tools=[WEATHER], trace="off")


def test_a_call_whose_arguments_are_no_object_is_asked_for_again():
    answers = iter([calls(piece(0, "[1]", "get_weather")), calls(piece(0, '{"city": "a"}', "get_weather"))])
    with engine_where(lambda body: next(answers), repair=1) as (engine, _):
        result = engine.generate("hello", tools=[WEATHER], tool_choice="required", trace="off")
    assert [call.parsed for call in result.tool_calls] == [{"city": "a"}]


OSLO, ROME = '{"city": "Oslo"}', '{"city": "Rome"}'
NAME = "get_weather"
PIECES: dict[str, list[dict[str, Any]]] = {
    "places": [piece(0, OSLO, NAME), piece(1, ROME, NAME)],
    "places that skip one": [piece(1, OSLO, NAME), piece(3, ROME, NAME)],
    "one place, ids": [piece(0, OSLO, NAME, id="a"), piece(0, ROME, NAME, id="b")],
    "one place, ids, pieces": [
        piece(0, "", NAME, id="a"),
        piece(0, OSLO[:5]),
        piece(0, OSLO[5:], id="a"),
        piece(0, ROME[:5], NAME, id="b"),
        piece(0, ROME[5:], id="b"),
    ],
    "no place, ids": [piece(None, OSLO, NAME, id="a"), piece(None, ROME, NAME, id="b")],
    "one place, no ids": [piece(0, OSLO, NAME), piece(0, ROME, NAME)],
    "neither": [piece(None, OSLO[:5], NAME), piece(None, OSLO[5:]), piece(None, ROME, NAME)],
    "the name in every piece": [
        piece(0, OSLO[:5], NAME, id="a"),
        piece(0, OSLO[5:], NAME, id="a"),
        piece(1, ROME[:5], NAME),
        piece(1, ROME[5:], NAME),
    ],
    "objects": [piece(0, json.loads(OSLO), NAME, id="a"), piece(0, json.loads(ROME), NAME, id="b")],
    "no function in the last piece": [piece(0, OSLO, NAME, id="a"), {"index": 0, "id": "a"}, piece(1, ROME, NAME)],
}


@pytest.mark.parametrize("pieces", PIECES.values(), ids=PIECES)
def test_parallel_calls_come_apart_however_a_server_numbers_them(pieces):
    with engine_where(lambda body: calls(*pieces, text="Both.")) as (engine, _):
        result = engine.generate("hello", tools=[WEATHER], trace="off")
    assert [(call.name, call.parsed) for call in result.tool_calls] == [
        (NAME, json.loads(OSLO)),
        (NAME, json.loads(ROME)),
    ]
    assert (result.content, result.verdict.valid) == ("Both.", True)


@pytest.mark.parametrize("arguments", ["", None, {}, "{}"])
def test_a_call_without_arguments_has_an_empty_object(arguments):
    now = {"name": "now"}
    with engine_where(lambda body: calls(piece(0, arguments, "now"), piece(1, arguments, "now"))) as (engine, _):
        result = engine.generate("hello", tools=[now], trace="off")
    assert [(call.name, call.parsed) for call in result.tool_calls] == [("now", {}), ("now", {})]
    assert result.verdict.valid


QUOTED = {
    "hermes": f'The log: <tool_call>\n{{"name": "{NAME}", "arguments": {OSLO}}}\n</tool_call> is odd.',
    "alone": f'<tool_call>\n{{"name": "{NAME}", "arguments": {OSLO}}}\n</tool_call>',
    "mention": "Write the <tool_call> tag, or [TOOL_CALLS].",
    "qwen": f"<tool_call>\n<function={NAME}>\n<parameter=city>\nOslo\n</parameter>\n</function>\n</tool_call>",
    "json": f'{{"name": "{NAME}", "arguments": {OSLO}}}',
}


@pytest.mark.parametrize("content", QUOTED.values(), ids=QUOTED)
def test_a_call_that_a_server_gave_as_content_is_quoted_and_not_made(content):
    with engine_where(lambda body: says(content)) as (engine, _):
        result = engine.generate("hello", tools=[WEATHER], trace="off")
    assert (result.tool_calls, result.content, result.verdict.valid) == ((), content, True)
    assert any("it is no call" in note for note in result.notes) == ("<" in content)
    with engine_where(lambda body: calls(piece(0, ROME, NAME), text=content)) as (engine, _):
        result = engine.generate("hello", tools=[WEATHER], trace="off")
    assert ([call.parsed for call in result.tool_calls], result.content) == ([json.loads(ROME)], content)


def test_text_after_calls_is_left_out_with_a_note_and_white_space_without():
    for text, is_told in (("\n", False), ("Done.", True)):
        said = [STREAM, delta(tool_calls=[piece(0, OSLO, NAME)]), delta(text), delta(finish="tool_calls")]
        with engine_where(lambda body, said=said: said) as (engine, _):
            result = engine.generate("hello", tools=[WEATHER], trace="off")
        assert [call.parsed for call in result.tool_calls] == [json.loads(OSLO)]
        assert any("text after its calls" in note for note in result.notes) == is_told


def test_an_end_without_a_delta_is_an_end():
    end = event({"choices": [{"index": 0, "finish_reason": "stop"}]})
    with engine_where(lambda body: [STREAM, delta("hi"), end, event("[DONE]")]) as (engine, _):
        assert engine.generate("hello", trace="off").text == "hi"


@pytest.mark.parametrize("cut", range(len(OSLO)))
def test_a_stream_that_breaks_within_a_call_is_an_error_and_never_a_call(cut):
    pieces = [delta(tool_calls=[piece(0, "", NAME)]), delta(tool_calls=[piece(0, OSLO[:cut])])]
    for end in ([], [event("[DONE]")]):
        serving = engine_where(lambda body, end=end: [STREAM, *pieces, *end])
        with serving as (engine, _), pytest.raises(UpstreamError, match="broke off"):
            engine.generate("hello", tools=[WEATHER], trace="off")


def test_repair_asks_again_for_calls():
    broken, sound = calls(piece(0, "{}", "get_weather")), calls(piece(0, '{"city": "a"}', "get_weather"))
    seeds: list[int] = []

    def answers(body: dict[str, Any]) -> list[bytes]:
        seeds.append(body["seed"])
        return sound if len(seeds) > 1 else broken

    with engine_where(answers, repair=2) as (engine, _):
        result = engine.generate("hello", tools=[WEATHER], trace="off")
    assert (result.verdict.valid, len(set(seeds))) == (True, 2)
    assert any("satisfied by answer 2" in note for note in result.notes)


@pytest.mark.parametrize("name", ["reasoning_content", "reasoning"])
def test_reasoning_that_was_asked_for_is_split_off_and_judged_apart(name):
    said = [STREAM, delta(**{name: "hm, "}), delta(**{name: "yes"}), delta('{"a": 1}'), delta(finish="stop")]
    with engine_where(lambda body: said) as (engine, _):
        result = engine.generate("hello", reasoning="auto", constraint=SCHEMA, trace="off")
        usual = engine.generate("hello", constraint=SCHEMA, trace="off")
        unasked = engine.generate("hello", constraint=SCHEMA, trace="off", reasoning="none")
    assert (result.reasoning, result.content, result.parsed) == ("hm, yes", '{"a": 1}', {"a": 1})
    assert result.verdict.valid
    assert (usual.reasoning, usual.content, usual.parsed) == ("hm, yes", '{"a": 1}', {"a": 1})
    assert (unasked.reasoning, unasked.parsed) == (None, {"a": 1})
    assert any("sent reasoning beside" in note for note in unasked.notes)


def test_reasoning_that_the_server_leaves_in_the_content_is_split_off_too():
    with engine_where(lambda body: says('<think>hm</think>{"a": 1}')) as (engine, _):
        result = engine.generate("hello", reasoning="think", constraint=SCHEMA, trace="off")
    assert (result.reasoning, result.parsed, result.verdict.valid) == ("hm", {"a": 1}, True)


def test_a_raw_prompt_goes_to_the_route_of_texts_as_it_is():
    chunk = {"text": "hi", "logprobs": {"tokens": ["hi"], "token_logprobs": [-0.5], "top_logprobs": [{"hi": -0.5}]}}
    said = [STREAM, event({"choices": [chunk]}), event({"choices": [{"text": "", "finish_reason": "stop"}]})]
    with engine_where(lambda body: said) as (engine, server):
        result = engine.generate("<s>hello", raw=True, trace="steps", trace_top_k=2)
    assert (result.text, [step.text for step in result.trace.steps]) == ("hi", ["hi"])
    assert server.asked[-1].path == "/v1/completions"
    assert (server.asked[-1].body["prompt"], server.asked[-1].body["logprobs"]) == ("<s>hello", 2)


@pytest.mark.parametrize(
    ("constraint", "fields"),
    [
        (Regex("y.*"), {"guided_regex": "y.*"}),
        (Choice(["yes", "no"]), {"guided_choice": ["yes", "no"]}),
        (Gbnf('root ::= "yes"'), {"guided_grammar": 'root ::= "yes"'}),
        (JsonSchema({"type": "string"}), {"guided_json": {"type": "string"}}),
        (JsonObject(), {"response_format": {"type": "json_object"}}),
    ],
)
def test_an_older_vllm_gets_its_guided_fields(constraint, fields):
    with engine_where(lambda body: says("yes"), owner="vllm", version="0.10.2") as (engine, server):
        engine.generate("hello", constraint=constraint, trace="off")
    body = server.asked[-1].body
    assert {name: body[name] for name in fields} == fields
    assert "structured_outputs" not in body


def test_vllm_gets_the_variables_of_its_template_and_a_turn_to_continue():
    messages = [{"role": "user", "content": "hello"}, {"role": "assistant", "content": "ye"}]
    with engine_where(lambda body: says("s"), owner="vllm", version="0.12.0") as (engine, server):
        plain = engine.requests(messages, trace="off")[0][0]
        asked = replace(plain, enable_thinking=False, template_variables={"a": 1}, turn="continue")
        list(engine.engine.run([asked]))
    body = server.asked[-1].body
    assert body["chat_template_kwargs"] == {"a": 1, "enable_thinking": False}
    assert (body["continue_final_message"], body["add_generation_prompt"]) == (True, False)


@pytest.mark.parametrize(
    ("more", "field"),
    [
        ({"enable_thinking": False}, "enable_thinking"),
        ({"template_variables": {"a": 1}}, "template_variables"),
        ({"turn": "continue"}, "continue_final_message"),
        ({"turn": "none"}, "continue_final_message"),
    ],
)
def test_what_goes_into_the_prompt_of_a_plain_server_is_refused_by_name(more, field):
    with engine_where(lambda body: says("hi")) as (engine, server):
        asked = replace(engine.requests("hello", trace="off")[0][0], **more)
        with pytest.raises(CapabilityError) as caught:
            engine.engine.run([asked])
        assert len(server.asked) == 1
    assert caught.value.field == field


def test_log_probabilities_that_an_answer_shows_are_never_left_out_in_silence():
    refused = reply({"error": {"message": "logprobs is not supported"}}, "400 Bad Request")
    for said in ([refused], says("hi")):
        with engine_where(lambda body, said=said: said) as (engine, _):
            asked = replace(engine.requests("hello", trace="steps")[0][0], logprobs=True)
            with pytest.raises((InputError, UpstreamError), match=r"logprobs is not|no log probabilities"):
                list(engine.engine.run([asked]))


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
