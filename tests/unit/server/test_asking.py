"""Fields of a chat body become a request, or are refused with their name in `param`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.free import Free, Region
from espalier.constraints.safety.spec import Safety
from espalier.constraints.spec import Choice, Gbnf, JsonObject, JsonSchema, Regex
from espalier.engines import fake
from espalier.errors import EspalierError
from espalier.sampling.config import DEFAULT_ORDER
from espalier.sampling.config_names import OPENAI_ORDER
from espalier.sampling.presets.catalogue import Presets
from espalier.server.asking.draft import ParsedRequest
from espalier.server.asking.openai import ask_chat
from espalier.server.bodies.base import read_body
from espalier.server.bodies.fields import HINTS, MOST_UNKNOWN, NUMBER, REFUSED
from espalier.server.bodies.openai import ChatBody
from espalier.server.http.warnings import warning_header
from espalier.server.process.state import Process
from tests.server_app import fake_engine, make_process, settings

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
CLOSED = SCHEMA | {"additionalProperties": False}


def schema(value: Any, **options: Any) -> JsonSchema:
    return JsonSchema(value, format="assert", **options)


@pytest.fixture(scope="module")
def process() -> Process:
    limits = {"max_messages": "3", "max_tools": "2", "max_schema_bytes": "500", "max_outputs": "4"}
    return make_process(settings(**limits, max_top_logprobs="5"), names=("fake", "other"))


def ask(process: Process, **fields: Any) -> ParsedRequest:
    body = read_body(ChatBody, {"messages": [{"role": "user", "content": "hi"}], **fields}, strict=False)
    return ask_chat(body, process)


def refused(process: Process, **fields: Any) -> EspalierError:
    with pytest.raises(EspalierError) as found:
        ask(process, **fields)
    assert found.value.http_status in (400, 404)
    return found.value


@pytest.mark.parametrize(
    ("fields", "spec"),
    [
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, JsonObject()),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, schema(SCHEMA)),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, schema(SCHEMA)),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, schema(SCHEMA)),
        ({"response_format": {"type": "json_schema", "schema": CLOSED}}, schema(CLOSED, order="any")),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strict": False}}},
            schema(SCHEMA, allow="checked"),
        ),
        ({"structured_outputs": {"json": SCHEMA}}, schema(SCHEMA)),
        ({"structured_outputs": {"json": '{"type": "object"}'}}, schema({"type": "object"})),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
            schema(SCHEMA, whitespace="compact"),
        ),
        ({"structured_outputs": {"regex": "a+"}}, Regex("a+")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Choice(("a", "b"))),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, Gbnf('root ::= "a"')),
        ({"structured_outputs": {"json_object": True}}, JsonObject()),
        ({"guided_json": SCHEMA}, schema(SCHEMA)),
        ({"grammar": 'root ::= "a"'}, Gbnf('root ::= "a"')),
        ({"grammar": ""}, None),
        ({"json_schema": SCHEMA}, schema(SCHEMA)),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a+"}, "grammar": "@list"},
            AllOf(JsonObject(), Regex("a+"), Gbnf("@list")),
        ),
        (
            {"response_format": {"type": "json_object"}, "json_schema": SCHEMA, "espalier": {"safety": "minimal"}},
            AllOf(JsonObject(), schema(SCHEMA), Safety("minimal")),
        ),
        ({"espalier": {"constraint": {"kind": "regex", "pattern": "a"}}}, Regex("a")),
        (
            {"espalier": {"constraint": {"kind": "gbnf", "grammar": 'a ::= "x"', "root": "a"}}},
            Gbnf('a ::= "x"', root="a"),
        ),
        ({"json_schema": SCHEMA, "espalier": {"allow": "checked"}}, schema(SCHEMA, allow="checked")),
    ],
)  # fmt: skip
def test_each_way_of_saying_a_constraint_is_read(process: Process, fields: dict[str, Any], spec: Any) -> None:
    assert ask(process, **fields).constraint == spec


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        ({"response_format": {"type": "xml"}}, "response_format.type"),
        ({"response_format": {"type": "text", "extra": 1}}, "response_format.extra"),
        ({"structured_outputs": {}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "choice": ["b"]}}, "structured_outputs"),
        ({"structured_outputs": {"regex": "a", "whitespace_pattern": " "}}, "structured_outputs.whitespace_pattern"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        ({"grammar": "x" * 600}, "grammar"),
        ({"espalier": {"constraint": {"kind": "nonsense"}}}, "espalier.constraint"),
        ({"espalier": {"soft": {"kind": "nonsense"}}}, "espalier.soft.kind"),
        ({"espalier": {"safety": {}}}, "espalier.safety"),
        ({"espalier": {"safety": "strikt"}}, "espalier.safety.preset"),
        ({"espalier": {"safety": {"categories": ["x"]}}}, "espalier.safety.categories"),
        ({"espalier": {"safety": {"nope": 1}}}, "espalier.safety"),
        ({"espalier": {"safety": 3}}, "espalier.safety"),
        ({"espalier": {"preset": "nonsense"}}, "espalier.preset"),
        ({"espalier": {"tool_format": "nonsense"}, "tools": [TOOL]}, "espalier.tool_format"),
        ({"espalier": {"reasoning": "nonsense"}}, "espalier.reasoning"),
        ({"espalier": {"sampler": "native"}}, "espalier.sampler"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"max_tokens": -2}, "max_tokens"),
        ({"max_completion_tokens": -3}, "max_completion_tokens"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens"),
        ({"n": 5}, "n"),
        ({"n": 0}, "n"),
        ({"stop": ["a"] * 65}, "stop"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"top_logprobs": 6, "logprobs": True}, "top_logprobs"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"x": "y" * 600}}}]}, "tools"),
        ({"tools": [{}, {}, {}]}, "tools"),
        ({"messages": [{"role": "user", "content": "x"}] * 4}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0]"),
        ({"repeat_penalty": 1.2, "repetition_penalty": 1.3}, "repeat_penalty"),
        ({"vocab_lang": "es"}, "vocab_n_words"),
        ({"vocab_n_words": 0}, "vocab_lang"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_by_its_field(process: Process, fields: dict[str, Any], param: str) -> None:
    assert refused(process, **fields).field == param


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"top_k": 5}, "top_k"), ({"typical_p": 0.5}, "typical_p"), ({"dynatemp_range": 0.5}, "dynatemp_range"),
        ({"repeat_penalty": 1.2}, "repetition_penalty"), ({"min_p": 0.2, "xtc_probability": 0.5}, "min_p"),
    ],
)  # fmt: skip
def test_mirostat_beside_what_it_replaces_was_refused(process: Process, fields: dict[str, Any], names: str) -> None:
    asked = ask(process, mirostat=2, **fields)
    assert any(f"mirostat takes the place of {names}" in warning for warning in asked.warnings)
    assert asked.requests[0].sampling == ask(process, mirostat=2).requests[0].sampling


@pytest.mark.parametrize("name", sorted(set(REFUSED) - set(ChatBody.model_fields)))
def test_a_refused_field_is_taken_only_where_it_asks_for_nothing(process: Process, name: str) -> None:
    error = refused(process, **{name: {"some": "thing"}})
    assert (error.field, error.hint) == (name, REFUSED[name].why)
    for idle in (None, *REFUSED[name].idle):
        ask(process, **{name: idle})


# What is a field of chat has an effect there.
@pytest.mark.parametrize("name", sorted(n for n in {*HINTS} - {*ChatBody.model_fields} if not n.startswith("options.")))
def test_a_hint_changes_nothing_and_is_told(process: Process, name: str) -> None:
    kind = HINTS[name].kind
    value = {dict: {"a": "b"}, list: ["x"], bool: True, int: 1, NUMBER: 1.5}.get(kind, "x")
    outer, _, inner = name.partition(".")
    beside: dict[str, Any] = {"structured_outputs": {"regex": "a"}}.get(outer, {}) if inner else {}
    plain = {outer: beside} if beside else {}
    fields = {outer: {**beside, inner: value}} if inner else {name: value}
    told, silent = ask(process, seed=1, stream=True, **fields), ask(process, seed=1, stream=True, **plain)
    assert told.hints == (name,)
    assert told.lines == (f"without effect here: {name}",)
    assert replace(told, hints=()) == silent
    wrong: Any = None if kind is None else {} if kind is list else [1]
    assert (
        wrong is None
        or refused(process, **({outer: {**beside, inner: wrong}} if inner else {name: wrong})).field == name
    )


def test_what_is_looked_up_and_refused_names_the_field_of_the_body(process: Process) -> None:
    assert refused(process, espalier={"preset": "../x"}).field == "espalier.preset"
    assert refused(process, espalier={"tool_format": "../x"}).field == "espalier.tool_format"


@pytest.mark.parametrize(
    ("constraint", "field"),
    [
        ({"kind": "regex", "pattern": "a", "patern": "b"}, "espalier.constraint.patern"),
        ({"kind": "wordlist", "lang": 5, "top": 10}, "espalier.constraint.lang"),
        ({"kind": "wordlist", "lang": "es", "top": 0}, "espalier.constraint.top"),
    ],
)
def test_a_field_of_our_own_constraint_is_named_with_its_path(process: Process, constraint: Any, field: str) -> None:
    assert refused(process, espalier={"constraint": constraint}).field == field


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop_token_ids", [1] * 600), ("allowed_token_ids", [1] * 600), ("bad_words", ["a"] * 1025),
        ("logit_bias", {str(one): 1.0 for one in range(600)}), ("samplers", ["top_k"] * 1025),
        ("dry_sequence_breakers", ["a"] * 1025), ("stop", ["a"] * 65),
    ],
)  # fmt: skip
def test_a_list_is_no_longer_than_it_can_mean_something(process: Process, name: str, value: Any) -> None:
    assert refused(process, **{name: value}).field == name


def test_what_could_be_more_candidates_than_are_kept_is_refused_before_it_runs(process: Process) -> None:
    small = replace(process, settings=settings(max_candidates="1000", max_top_logprobs="20"))
    ask(small, n=2, max_tokens=50, logprobs=True, top_logprobs=10)
    assert refused(small, n=2, max_tokens=51, logprobs=True, top_logprobs=10).field == "top_logprobs"
    assert refused(small, logprobs=True, top_logprobs=1).field == "top_logprobs"  # as many tokens as there is room for
    assert refused(small, max_tokens=101, espalier={"trace": "full"}).field == "espalier.trace"
    ask(small, max_tokens=4000, espalier={"trace": True})


def test_log_probabilities_without_others_want_no_candidates(process: Process) -> None:
    assert ask(process, logprobs=True).requests[0].trace == "summary"
    assert ask(process, logprobs=True, top_logprobs=1).requests[0].trace == "steps"


def test_as_many_top_logprobs_as_openai_gives() -> None:
    assert settings().max_top_logprobs == 20


def test_true_is_not_the_number_one(process: Process) -> None:
    assert refused(process, best_of=True).field == "best_of"


def test_an_unknown_field_is_told_with_the_nearest_name(process: Process) -> None:
    assert ask(process, temprature=1).warnings == ("there is no field 'temprature' (did you mean 'temperature'?)",)
    assert ask(process, zzz=1).warnings == ("there is no field 'zzz'",)


@pytest.mark.parametrize("name", ["safety", "saftey", "preset", "strategy"])
def test_a_field_of_espalier_at_the_top_of_the_body_is_told_where_it_belongs(process: Process, name: str) -> None:
    error = refused(process, **{name: "x"}, espalier={"strict": True})
    assert error.message == f"there is no field {name!r}"
    assert error.hint == f"did you mean 'espalier.{'safety' if name == 'saftey' else name}'?"


def test_a_strict_request_refuses_unknown_fields(process: Process) -> None:
    error = refused(process, temprature=1, espalier={"strict": True})
    assert (error.field, error.hint) == ("temprature", "did you mean 'temperature'?")
    ask(process, store=True, espalier={"strict": True})
    where = [{"role": "user", "content": "x", "colour": "red"}]
    assert refused(process, messages=where, espalier={"strict": True}).field == "messages[0].colour"
    assert ask(process, messages=where).warnings == ("there is no field 'messages[0].colour'",)


@pytest.mark.parametrize(
    "name",
    ["response_fromat", "guided_jsn", "structured_output", "grammer", "json_shcema", "vocab_words", "tols",
     "toolchoice", "bad_word", "jsonschema", "my_grammar", "Response_Format", "espallier"],
)  # fmt: skip
def test_an_unknown_field_that_looks_like_a_constraint_is_refused(process: Process, name: str) -> None:
    """Taken, it would drop what the client holds for enforced."""
    assert refused(process, **{name: {"type": "json_object"}}).field == name


def test_unknown_fields_are_told_up_to_a_number(process: Process) -> None:
    """The nearest name of a hundred thousand fields would take minutes."""
    ask(process, **{f"zq{i}": 1 for i in range(MOST_UNKNOWN)})
    assert refused(process, **{f"zq{i}": 1 for i in range(MOST_UNKNOWN + 1)}).field == f"zq{MOST_UNKNOWN}"
    messages = [{"role": "user", "content": "x", **{f"zq{i}": 1 for i in range(MOST_UNKNOWN + 1)}}]
    assert refused(process, messages=messages).field == f"messages[0].zq{MOST_UNKNOWN}"


def test_null_is_never_given(process: Process) -> None:
    names = {*HINTS, *REFUSED, *ChatBody.model_fields} - {"messages", "seed"}
    nothing = {name: None for name in names if "." not in name}
    assert ask(process, **nothing, seed=1) == ask(process, seed=1)
    assert ask(process, whatever=None, grammer=None, seed=1) == ask(process, seed=1)


def test_what_a_reply_contained_comes_back_without_harm(process: Process) -> None:
    reply = {
        "role": "assistant", "content": None, "refusal": None, "annotations": [{"type": "url_citation"}], "audio": None,
        "parsed": {"a": 1}, "provider_specific_fields": {"x": None}, "reasoning_details": [], "thinking_blocks": [{}],
        "function_call": None, "id": "msg_1", "cache_control": {"type": "ephemeral"}, "reasoning_content": "hm",
        "tool_calls": [{
            "id": "call_1", "type": "function", "index": 0, "cache_control": None, "custom": None,
            "function": {"name": "f", "arguments": "", "parsed_arguments": {}, "provider_specific_fields": None},
        }],
    }  # fmt: skip
    result = {"role": "tool", "tool_call_id": "call_1", "content": [{"type": "text", "text": "1", "cache_control": {}}]}
    asked = ask(process, messages=[{"role": "user", "content": "x"}, reply, result], tools=[TOOL])
    assert asked.lines == ()
    call = {"id": "call_1", "type": "function", "function": {"name": "f", "arguments": ""}}
    sent = asked.requests[0].messages
    assert sent is not None
    assert sent[1] == {"role": "assistant", "content": "", "reasoning_content": "hm", "tool_calls": [call]}


def test_old_functions_are_tools(process: Process) -> None:
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
    ]
    asked = ask(process, messages=messages, functions=[{"name": "f"}], function_call={"name": "f"})
    (request,) = asked.requests
    assert [tool.name for tool in request.tools] == ["f"]
    assert (request.tool_choice.mode, request.max_calls) == ("required", 1)
    assert request.messages is not None
    assert request.messages[2]["tool_call_id"] == request.messages[1]["tool_calls"][0]["id"]
    assert asked.has_functions
    assert refused(process, functions=[{"name": "f"}], tools=[TOOL]).field == "functions"


def test_a_last_message_of_the_assistant_s_is_continued_unless_the_request_says_otherwise(process: Process) -> None:
    user, begun = {"role": "user", "content": "x"}, {"role": "assistant", "content": "I th"}
    for fields, turn, prompt in (
        ({}, "continue", "user: x\nI th"),
        ({"continue_final_message": True}, "continue", "user: x\nI th"),
        ({"continue_final_message": True, "add_generation_prompt": False}, "continue", "user: x\nI th"),
        ({"continue_final_message": False}, "new", "user: x\nassistant: I th\n"),
        ({"add_generation_prompt": True}, "new", "user: x\nassistant: I th\n"),
    ):
        (request,) = ask(process, messages=[user, begun], **fields).requests
        assert (request.turn, process.engine.engine.prompt_text(request)) == (turn, prompt)
    assert ask(process, messages=[user], add_generation_prompt=False).requests[0].turn == "none"
    assert refused(process, messages=[user], continue_final_message=True).field == "continue_final_message"
    both = {"continue_final_message": True, "add_generation_prompt": True}
    assert refused(process, messages=[user, begun], **both).field == "continue_final_message"


def test_a_choice_without_tools_is_no_error(process: Process) -> None:
    assert ask(process, tool_choice="auto", parallel_tool_calls=False, tools=[]).lines == ()
    for choice in ("required", {"type": "function", "function": {"name": "g"}}):
        assert ask(process, tool_choice=choice).warnings == ("tool_choice has no effect without tools",)


def test_empty_stops_unlimited_tokens_and_options_of_no_stream_are_taken(process: Process) -> None:
    plain = ask(process, seed=1)
    for fields in ({"stop": ""}, {"stop": [""]}, {"max_tokens": -1}, {"max_completion_tokens": -1}):
        assert ask(process, seed=1, **fields) == plain
    assert ask(process, max_tokens=0).requests[0].only_prompt
    assert not plain.requests[0].only_prompt
    assert ask(process, stop=["", "a"]).requests[0].sampling.stop == ("a",)
    assert ask(process, stream_options={"include_usage": True}).hints == ("stream_options",)


def test_formats_are_enforced_unless_the_request_or_the_server_takes_them_for_remarks(process: Process) -> None:
    fields = {"response_format": {"type": "json_schema", "schema": SCHEMA}, "tools": [TOOL]}
    remarks = replace(process, settings=settings(schema_formats="annotate"))
    off = {"espalier": {"formats": "annotate"}}
    for asked, formats in (
        (ask(process, **fields), "assert"), (ask(process, **fields, **off), "annotate"),
        (ask(remarks, **fields), "annotate"), (ask(remarks, **fields, espalier={"formats": "assert"}), "assert"),
    ):  # fmt: skip
        assert isinstance(asked.constraint, JsonSchema)
        assert (asked.constraint.format, asked.requests[0].tools[0].formats) == (formats, formats)
    own = {"kind": "json_schema", "schema": SCHEMA, "format": "annotate"}
    constraint = ask(process, espalier={"constraint": own}).constraint
    assert isinstance(constraint, JsonSchema)
    assert constraint.format == "annotate"


def test_the_name_of_another_model_is_told_or_refused(process: Process) -> None:
    asked = ask(process, model="gpt-9")
    assert (asked.model, asked.warnings) == ("fake", ("there is no model 'gpt-9' here: fake answers",))
    strict = replace(process, settings=settings(strict_model="true"))
    assert refused(strict, model="gpt-9").field == "model"


def test_min_tokens_gives_way_to_a_constraint_and_that_is_told(process: Process) -> None:
    assert ask(process, min_tokens=5).lines == ()
    (line,) = ask(process, min_tokens=5, structured_outputs={"regex": "a"}).lines
    assert line.startswith("min_tokens gives way")


@pytest.mark.parametrize(
    ("fields", "spec"),
    [
        ({"regex": "a+"}, Regex("a+")),
        ({"choice": ["a", "b"]}, Choice(("a", "b"))),  # was taken and had no effect
        ({"ebnf": 'root ::= "a"'}, Gbnf('root ::= "a"')),
        ({"json_schema": '{"type": "object"}'}, schema({"type": "object"})),
        (
            {
                "structural_tag": {
                    "structures": [{"begin": "<a>", "schema": SCHEMA, "end": "</a>"}],
                    "triggers": ["<a>"],
                }
            },
            Free({"<a>": Region(schema(SCHEMA), end="</a>")}),
        ),
    ],
)
def test_sglangs_constraints_are_read(process: Process, fields: dict[str, Any], spec: Any) -> None:
    assert ask(process, **fields).constraint == spec
    assert ask(process, **dict.fromkeys(fields)).constraint is None


def test_a_lark_grammar_is_translated_or_refused_by_its_construct(process: Process) -> None:
    for field in ({"structured_outputs": {"grammar": 'start: "a" | "b"'}}, {"ebnf": 'start: "a" | "b"'}):
        spec = ask(process, **field).constraint
        assert isinstance(spec, Gbnf)
        assert "::=" in spec.grammar
    error = refused(process, structured_outputs={"grammar": "%declare X\nstart: X"})
    assert error.field == "structured_outputs.grammar"
    assert "declare" in error.message


def test_an_effort_reaches_templates_that_have_levels_of_it(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    assert ask(process, reasoning_effort="high").hints == ("reasoning_effort",)
    rest = "{% for m in messages %}{{ m.content }}{% endfor %}"
    monkeypatch.setattr(fake, "TEMPLATE", "{{ reasoning_effort }}" + rest)
    asked = ask(replace(process, engine=fake_engine()), reasoning_effort="high")
    assert (asked.hints, asked.requests[0].template_variables) == ((), {"reasoning_effort": "high"})
    monkeypatch.setattr(fake, "TEMPLATE", "{{ enable_thinking }}" + rest)
    switch = replace(process, engine=fake_engine())
    assert ask(switch, reasoning_effort="none").requests[0].enable_thinking is False
    assert ask(switch, reasoning_effort="low").hints == ("reasoning_effort",)


def test_what_is_told_ends_no_header_and_no_quotes(process: Process) -> None:
    told = ask(process, **{'a"b\r\nx: y\u00e9\\': 1}).lines
    header = warning_header(told)["warning"]
    assert header.isascii()
    assert header.isprintable()
    assert header.count('"') == 2
    assert len(warning_header(["x" * 999] * 99)["warning"]) < 2100
    assert warning_header([]) == {}


def test_openais_defaults_hold_where_nothing_is_said(process: Process) -> None:
    sampling = ask(process).requests[0].sampling
    assert (sampling.temperature, sampling.top_p, sampling.top_k, sampling.min_p) == (1.0, 1.0, 0, 0.0)
    assert sampling.repetition_penalty == 1.0
    assert sampling.sampler_order == OPENAI_ORDER


def test_llama_servers_fields_run_in_its_order_over_openais_defaults(process: Process) -> None:
    sampling = ask(process, dry_multiplier=0.8, n_predict=5, repeat_last_n=10).requests[0].sampling
    assert (sampling.dry_multiplier, sampling.max_tokens, sampling.repetition_window) == (0.8, 5, 10)
    assert (sampling.temperature, sampling.top_k) == (1.0, 0)
    assert sampling.sampler_order == DEFAULT_ORDER
    named = ask(process, samplers=["top_k", "temperature"], top_k=3).requests[0].sampling
    assert named.sampler_order == ("top_k", "temperature")


def test_a_safety_filter_beside_a_preset_dropped_the_preset_s_constraint(process: Process) -> None:
    (request,) = ask(process, espalier={"preset": "json_strict", "safety": "minimal"}).requests
    assert request.constraint is not None
    assert {one.kind for one in request.constraint.walk()} == {"all_of", "json_object", "safety"}


def test_a_preset_gives_what_the_request_does_not_say(process: Process) -> None:
    preset = next(one for one in map(Presets().get, Presets().names()) if "temperature" in one.config)
    sampling = ask(process, espalier={"preset": preset.name}, seed=3).requests[0].sampling
    assert sampling.temperature == preset.config["temperature"]
    assert ask(process, espalier={"preset": preset.name}, temperature=0.33).requests[0].sampling.temperature == 0.33


def test_log_probabilities_want_steps_of_as_many_candidates(process: Process) -> None:
    request = ask(process, logprobs=True, top_logprobs=4).requests[0]
    assert (request.trace, request.trace_top_k) == ("steps", 4)


def test_every_name_of_the_model_is_taken_and_told_back(process: Process) -> None:
    assert [ask(process, model=name).model for name in (None, "", "fake", "other")] == ["fake", "fake", "fake", "other"]


def test_outputs_share_a_seed_and_differ_in_their_stream(process: Process) -> None:
    requests = ask(process, n=3).requests
    assert [one.stream for one in requests] == [0, 1, 2]
    assert len({one.sampling.seed for one in requests}) == 1


def test_text_parts_are_joined(process: Process) -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    request = ask(process, messages=[{"role": "user", "content": parts}]).requests[0]
    assert request.messages is not None  # the template is given the joined text: see chat/messages.py


def test_allowed_tools_narrow_the_choice(process: Process) -> None:
    tools = [{"type": "function", "function": {"name": n, "parameters": {"type": "object"}}} for n in ("f", "g")]
    choice = {"type": "allowed_tools", "allowed_tools": {
        "mode": "required", "tools": [{"type": "function", "function": {"name": "g"}}]}}  # fmt: skip
    request = ask(process, tools=tools, tool_choice=choice, parallel_tool_calls=False).requests[0]
    assert (request.tool_choice.mode, request.tool_choice.names, request.max_calls) == ("required", ("g",), 1)
