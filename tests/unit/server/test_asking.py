"""Fields of a chat body become a request, or are refused with their name in `param`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.safety.spec import Safety
from espalier.constraints.spec import Choice, Gbnf, JsonObject, JsonSchema, Regex
from espalier.errors import EspalierError
from espalier.sampling.config import DEFAULT_ORDER
from espalier.sampling.config_names import OPENAI_ORDER
from espalier.sampling.presets.catalogue import Presets
from espalier.server.asking.draft import Asked
from espalier.server.asking.openai import ask_chat
from espalier.server.bodies.base import read_body
from espalier.server.bodies.fields import ACCEPTED, REFUSED, TYPES
from espalier.server.bodies.openai import ChatBody
from espalier.server.process.state import Process
from tests.server_app import make_process, settings

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.fixture(scope="module")
def process() -> Process:
    limits = {"max_messages": "3", "max_tools": "2", "max_schema_bytes": "500", "max_outputs": "4"}
    return make_process(settings(**limits, max_top_logprobs="5"), names=("fake", "other"))


def ask(process: Process, **fields: Any) -> Asked:
    body = read_body(ChatBody, {"messages": [{"role": "user", "content": "hi"}], **fields})
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
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, JsonSchema(SCHEMA)),
        ({"response_format": {"type": "json_schema", "schema": SCHEMA}}, JsonSchema(SCHEMA)),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, JsonSchema(SCHEMA)),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA, "strict": False}}},
            JsonSchema(SCHEMA, allow="checked"),
        ),
        ({"structured_outputs": {"json": SCHEMA}}, JsonSchema(SCHEMA)),
        ({"structured_outputs": {"json": '{"type": "object"}'}}, JsonSchema({"type": "object"})),
        (
            {"structured_outputs": {"json": SCHEMA, "disable_any_whitespace": True}},
            JsonSchema(SCHEMA, whitespace="compact"),
        ),
        ({"structured_outputs": {"regex": "a+"}}, Regex("a+")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, Choice(("a", "b"))),
        ({"structured_outputs": {"grammar": 'root ::= "a"'}}, Gbnf('root ::= "a"')),
        ({"structured_outputs": {"json_object": True}}, JsonObject()),
        ({"guided_json": SCHEMA}, JsonSchema(SCHEMA)),
        ({"grammar": 'root ::= "a"'}, Gbnf('root ::= "a"')),
        ({"grammar": ""}, None),
        ({"json_schema": SCHEMA}, JsonSchema(SCHEMA)),
        (
            {"response_format": {"type": "json_object"}, "structured_outputs": {"regex": "a+"}, "grammar": "@list"},
            AllOf(JsonObject(), Regex("a+"), Gbnf("@list")),
        ),
        (
            {"response_format": {"type": "json_object"}, "json_schema": SCHEMA, "espalier": {"safety": "minimal"}},
            AllOf(JsonObject(), JsonSchema(SCHEMA), Safety("minimal")),
        ),
        ({"espalier": {"constraint": {"kind": "regex", "pattern": "a"}}}, Regex("a")),
        (
            {"espalier": {"constraint": {"kind": "gbnf", "grammar": 'a ::= "x"', "root": "a"}}},
            Gbnf('a ::= "x"', root="a"),
        ),
        (
            {"json_schema": SCHEMA, "espalier": {"allow": "checked"}},
            JsonSchema(SCHEMA, allow="checked"),
        ),
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
        ({"structured_outputs": {"structural_tag": {}}}, "structured_outputs.structural_tag"),
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
        ({"model": "nonsense"}, "model"),
        ({"temperature": -1}, "temperature"),
        ({"temperature": "1"}, "temperature"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_completion_tokens": -3}, "max_completion_tokens"),
        ({"max_tokens": 3, "max_completion_tokens": 4}, "max_completion_tokens"),
        ({"n": 5}, "n"),
        ({"n": 0}, "n"),
        ({"stop": [""]}, "stop"),
        ({"stop": ["a"] * 65}, "stop"),
        ({"logit_bias": {"x": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"top_logprobs": 3}, "top_logprobs"),
        ({"top_logprobs": 6, "logprobs": True}, "top_logprobs"),
        ({"stream_options": {"include_usage": True}}, "stream_options"),
        ({"tools": [{"type": "function"}]}, "tools[0].name"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": {"x": "y" * 600}}}]}, "tools"),
        ({"tools": [{}, {}, {}]}, "tools"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": {"type": "function", "function": {"name": "g"}}}, "tool_choice"),
        ({"messages": [{"role": "user", "content": "x"}] * 4}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "user", "content": [{"type": "input_audio"}]}]}, "messages[0].content[0]"),
        ({"messages": [{"role": "user", "content": "x", "colour": "red"}]}, "messages[0].colour"),
        ({"mirostat": 2, "top_k": 5}, "top_k"),
        ({"repeat_penalty": 1.2, "repetition_penalty": 1.3}, "repeat_penalty"),
        ({"samplers": ["nonsense"]}, "samplers"),
        ({"vocab_lang": "es"}, "vocab_n_words"),
        ({"vocab_n_words": 0}, "vocab_lang"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_refused_by_its_field(process: Process, fields: dict[str, Any], param: str) -> None:
    assert refused(process, **fields).field == param


@pytest.mark.parametrize("name", sorted(set(REFUSED) - set(ChatBody.model_fields)))
def test_a_refused_field_is_taken_only_where_it_asks_for_nothing(process: Process, name: str) -> None:
    error = refused(process, **{name: {"some": "thing"}})
    assert (error.field, error.hint) == (name, REFUSED[name].why)
    for idle in (None, *REFUSED[name].idle):
        ask(process, **{name: idle})


@pytest.mark.parametrize("name", sorted(ACCEPTED))
def test_a_field_without_effect_changes_nothing(process: Process, name: str) -> None:
    value = {dict: {"a": "b"}, bool: True}.get(TYPES.get(name, str), "x")
    assert ask(process, seed=1, **{name: value}) == ask(process, seed=1)
    assert refused(process, **{name: 5}).field == name


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


def test_an_unknown_field_names_the_nearest_one(process: Process) -> None:
    error = refused(process, temprature=1)
    assert error.hint == "did you mean 'temperature'?"


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
