"""What presets ask for, under what a request says itself; and that none is applied by half."""

import json
import math
import re
from random import Random

import pytest

import espalier
from espalier.api import make_request
from espalier.constraints.ban import Ban
from espalier.constraints.compose.all_of import AllOf
from espalier.constraints.joining.presets import FILTER_TYPES, SPECS, merged, preset_parts
from espalier.constraints.safety.spec import Safety
from espalier.constraints.spec import Choice, Gbnf, JsonObject, JsonSchema, Regex
from espalier.errors import GrammarError, InputError, SamplingError, SchemaError, UnknownName
from espalier.grammar.builtin import GRAMMARS, builtin
from espalier.grammar.sample import SentenceSampler
from espalier.sampling.config import SamplingConfig
from espalier.sampling.presets.catalogue import BUILTIN, CONFIGS, Presets
from espalier.sampling.presets.spec import Preset, PresetFilter
from espalier.settings import KernelSettings, read_settings
from espalier.wiring import App


def preset(*filters, **values):
    return Preset(name="mine", filters=tuple(PresetFilter(type=t, options=o) for t, o in filters), **values)


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        ("tool_call", SPECS["tool_call"]),
        ("json_strict", JsonObject()),
        ("json_loose", JsonObject(kinds=("object", "array"))),
        ("creative", None),
        ("deterministic", None),
    ],
)
def test_built_in_presets_are_applied_whole(name, spec):
    request = make_request("hi", preset=name)
    assert request.constraint == spec
    assert request.sampling == BUILTIN[name].sampling
    assert make_request("hi", preset=BUILTIN[name]) == request


@pytest.mark.parametrize(
    ("name", "spec"),
    [("safe_chat", Safety("standard", categories=["profanity", "violence"])), ("code_generation", Safety("minimal"))],
)
def test_presets_apply_their_safety(name, spec):
    assert make_request("hi", preset=name).constraint == spec
    assert make_request("hi", preset=name, constraint=Choice(["a"])).constraint == AllOf(Choice(["a"]), spec)
    both = make_request("hi", preset=name, constraint=Safety(categories=["pii"])).constraint
    assert set(both.categories) == {*spec.categories, "pii"}


def test_what_has_no_list_is_told_and_the_rest_applied():
    spec = make_request("hi", preset="safe_chat").constraint
    assert spec.unenforced() == ("profanity", "violence")


def test_safety_of_a_preset_is_applied_whole_or_refused():
    mine = preset(("safety", {"categories": ["pii"], "patterns": ["x", {"regex": "y+"}]}), safety_preset="minimal")
    assert merged(mine)[0] == Safety("minimal", categories=["pii"], patterns=["x", {"regex": "y+"}])
    assert merged(preset(("safety", {"patterns": ["x"]}))).constraint == Safety(patterns=["x"])
    off = Preset(name="mine", filters=({"type": "safety", "enabled": False},))
    assert merged(off) == (None, SamplingConfig(), ())
    for options, words in (
        ({"categories": ["hate"]}, "'mine': nothing would be enforced: hate needs a list"),
        ({"categories": ["hat"]}, "unknown safety category 'hat'"),
        ({"preset": "strikt"}, "unknown safety preset 'strikt'"),
        ({}, "there is nothing to enforce"),
        ({"categories": "pii"}, "are lists"),
    ):
        with pytest.raises(InputError, match=words):
            merged(preset(("safety", options)))
    with pytest.raises(UnknownName, match="the preset 'mine': unknown safety preset 'none'"):
        merged(preset(safety_preset="none"))


@pytest.mark.parametrize("name", SPECS)
def test_the_spec_of_a_built_in_grammar_allows_the_same_values(name):
    spec, grammar = espalier.compile(SPECS[name]), espalier.compile(Gbnf(GRAMMARS.load(name)))
    sampler, random = SentenceSampler(builtin(name)), Random(5)
    for _ in range(40):
        text = sampler.draw(random)
        if name != "tool_call" and not re.search(r"\\u[dD][89a-fA-F]", text):
            assert spec.accepts(text), text
        plain = json.dumps(json.loads(text), ensure_ascii=False)
        if not re.search("[\ud800-\udfff]|e[-+]?[0-9]{4}|Infinity", plain):
            assert spec.accepts(plain), plain
            assert grammar.accepts(plain), plain
    for text in (
        "{}",
        "[]",
        "1",
        '{ "a":1}',
        '{"a": 1,  "b":2}',
        '{"name": "x", "args": {}}',
        '{"args":{},"name":"x"}',
        '{"name":"x","args":[]}',
        '{"name":1,"args":{}}',
        '{"name":"é","args":{"a": [1, null]}}',
        "",
        '{"name":"x","args":{},"a":1}',
        "[{}]",
        "01",
        "tru",
        '{"name":"\n","args":{}}',
    ):
        assert spec.accepts(text) == grammar.accepts(text), text


def test_the_request_s_fields_take_the_place_of_the_preset_s():
    request = make_request("hi", preset="json_strict", temperature=0.2, max_tokens=9, stop="x")
    expected = {**CONFIGS["structured_output"], "temperature": 0.2, "max_tokens": 9, "stop": ("x",)}
    assert request.sampling == SamplingConfig.from_json(expected)
    whole = SamplingConfig(temperature=1.5)
    assert make_request("hi", preset="json_strict", sampling=whole).sampling == whole
    assert make_request("hi", preset="json_strict", constraint=Choice(["a"])).constraint == Choice(["a"])
    with pytest.raises(SamplingError, match="top_q"):
        make_request("hi", preset="creative", top_q=1)


@pytest.mark.parametrize("name", ["json_strict", "json_loose", "tool_call"])
@pytest.mark.parametrize(
    "own",
    [Ban(["zebra"]), Safety("minimal"), espalier.Wordlist(words=["a", "b"]), AllOf(Ban(["zebra"]), Safety("minimal"))],
    ids=lambda one: one.kind,
)
def test_a_filter_beside_a_preset_dropped_the_preset_s_constraint(name, own):
    whole = merged(BUILTIN[name], constraint=own).constraint
    alone = merged(BUILTIN[name]).constraint
    forms = alone.members if isinstance(alone, AllOf) else (alone,)
    assert isinstance(whole, AllOf)
    assert {one.key() for one in forms if not isinstance(one, Safety)} <= {one.key() for one in whole.walk()}
    assert {type(one) for one in own.walk()} <= {type(one) for one in whole.walk()}


def test_a_constraint_with_a_form_of_its_own_takes_the_place_of_the_preset_s():
    own = AllOf(Regex("[a-z]+"), Ban(["zebra"]))
    found = merged(BUILTIN["json_strict"], constraint=own)
    assert found.constraint == own
    assert found.notes == (
        "json_object of the preset 'json_strict' is replaced by the request's regex: both are the form of the answer",
    )


def test_a_ban_beside_a_json_preset_still_gives_json(demo_engine):
    result = demo_engine.generate("Generate user info", preset="json_strict", constraint=Ban(["@"]), seed=1)
    assert result.parsed == json.loads(result.text)
    assert "@" not in result.text


def test_a_request_can_switch_mirostat_on():
    given = {"mirostat": 2, "top_k": 0, "top_p": 1, "min_p": 0}
    zeros = Preset(name="mine", config={"mirostat": 0, "mirostat_tau": 0, "mirostat_eta": 0, "temperature": 0.5})
    sampling = make_request("hi", preset=zeros, **given).sampling
    assert (sampling.mirostat, sampling.mirostat_tau, sampling.temperature) == (2, 5.0, 0.5)


@pytest.mark.parametrize("name", ["tool_call", "json_strict", "json_loose", "creative", "deterministic"])
def test_no_built_in_preset_could_be_combined_with_mirostat(name):
    sampling = make_request("hi", preset=name, mirostat=2).sampling
    assert (sampling.mirostat, sampling.top_k, sampling.top_p, sampling.min_p) == (2, 0, 1.0, 0.0)
    assert sampling.repetition_penalty == BUILTIN[name].sampling.repetition_penalty
    request = make_request("hi", preset=name, mirostat=2, top_k=5)
    assert request.sampling == sampling
    assert "mirostat takes the place of top_k, which has no effect" in request.notes
    assert make_request("hi", preset=name, mirostat=0).sampling == BUILTIN[name].sampling


TOOLS = [{"type": "function", "function": {"name": "ls", "parameters": {"type": "object", "properties": {}}}}]


@pytest.mark.parametrize(
    ("mine", "mode"),
    [
        (BUILTIN["tool_call"], "required"),
        (Preset(name="mine", grammar="@tool_call"), "required"),
        (Preset(name="mine", filters=({"type": "tool_call"},)), "required"),
        (Preset(name="mine", filters=({"type": "grammar", "options": {"grammar": "@tool_call"}},)), "required"),
        (Preset(name="mine", filters=({"type": "tool_call", "enabled": False},)), "auto"),
        (BUILTIN["json_strict"], "auto"),
        (BUILTIN["creative"], "auto"),
    ],
)
def test_a_preset_of_calls_left_the_choice_to_the_model(mine, mode):
    request = make_request("hi", preset=mine, tools=TOOLS)
    assert request.tool_choice.mode == mode
    assert request.constraint == (JsonObject() if mine is BUILTIN["json_strict"] else None)
    assert ("tool_choice is required" in " ".join(request.notes)) == (mode == "required")
    for given in ("auto", "none", "required"):
        assert make_request("hi", preset=mine, tools=TOOLS, tool_choice=given).tool_choice.mode == given
    assert make_request("hi", preset=mine, tools=TOOLS, constraint=Choice(["a"])).tool_choice.mode == "auto"
    assert make_request("hi", preset=mine).tool_choice.mode == "auto"


def test_a_request_s_bias_discarded_those_of_the_preset_s_filters():
    mine = preset(("logit_bias", {"biases": {"1": 1.0, "2": 2.0, "3": None}}), config={"logit_bias": {4: 4.0, 5: None}})
    assert dict(merged(mine)[1].logit_bias) == {1: 1.0, 2: 2.0, 3: -math.inf, 4: 4.0, 5: -math.inf}
    given = {"logit_bias": {2: 9.0, 3: 9.0, 5: 9.0, 6: 6.0}}
    assert dict(merged(mine, fields=given)[1].logit_bias) == {1: 1.0, 2: 9.0, 3: -math.inf, 5: -math.inf, 6: 6.0}


def test_a_grammar_filter_knew_no_built_in_grammars():
    assert merged(preset(("grammar", {"grammar": "@json_object"})))[0] == JsonObject()
    assert merged(preset(("grammar", {"grammar": "@list"})))[0] == Gbnf(GRAMMARS.load("list"))
    assert merged(preset(("grammar", {"grammar": "@list", "root": "item"})))[0].root == "item"
    with pytest.raises(UnknownName, match="nope"):
        preset_parts(preset(("grammar", {"grammar": "@nope"})))


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("token_ban", {"ids": 5}),
        ("token_ban", {"ids": None}),
        ("token_ban", {"ids": {"a": 1}}),
        ("logit_bias", {"biases": True}),
        ("logit_bias", {"biases": [1, 2]}),
        ("ban", {"phrases": 5}),
        ("ban", {"phrases": [5]}),
        ("grammar", {"grammar": 5}),
        ("grammar", {"grammar": ["@list"]}),
        ("grammar", {"grammar": "@list", "root": 5}),
        ("json_schema", {"schema": 5}),
        ("json_schema", {"schema": None}),
        ("tool_call", {"tools": 5}),
        ("tool_call", {"tools": "{"}),
        ("tool_call", {"tools": {"ls": 5}}),
    ],
)
def test_an_option_of_a_wrong_kind_was_a_traceback(kind, options):
    with pytest.raises(InputError):
        preset_parts(preset((kind, options)))


def test_null_in_a_filter_s_schema_is_enforced_after_saving(tmp_path):
    mine = preset(("json_schema", {"schema": {"enum": ["a", None]}}))
    presets = Presets(tmp_path)
    presets.save(mine)
    spec = merged(presets.get("mine"))[0]
    assert spec == JsonSchema({"enum": ["a", None]})
    assert espalier.compile(spec).accepts("null")


def test_bans_add_up():
    mine = preset(
        ("ban", {"phrases": ["x"]}),
        ("token_ban", {"ids": [7]}),
        ("logit_bias", {"biases": {"8": 2.0, "7": 3.0}}),
        config={"logit_bias": {3: -math.inf, 4: 1.0}, "bad_words": ["no"]},
        grammar="@json_object",
    )
    spec, sampling, _ = merged(mine)
    assert spec == AllOf(JsonObject(), Ban(["x"]))
    assert dict(sampling.logit_bias) == {3: -math.inf, 4: 1.0, 7: -math.inf, 8: 2.0}
    fields = {"logit_bias": {3: 9.0, 5: 1.0}, "bad_words": ["never"]}
    spec, sampling, _ = merged(mine, constraint=Choice(["a"]), fields=fields)
    assert spec == AllOf(Choice(["a"]), Ban(["x"]))
    assert dict(sampling.logit_bias) == {3: -math.inf, 5: 1.0, 7: -math.inf, 8: 2.0}
    assert sampling.bad_words == ("no", "never")


def test_each_filter_type_becomes_what_it_says():
    tools = {"ls": {"type": "object", "properties": {"path": {"type": "string"}}, "additionalProperties": False}}
    assert merged(preset(("grammar", {"grammar": 'a ::= "x"', "root": "a"})))[0] == Gbnf('a ::= "x"', root="a")
    assert merged(preset(("json_schema", {"schema": {"type": "null"}})))[0] == JsonSchema({"type": "null"})
    assert merged(preset(("json_schema", {"schema": '{"type": "null"}'})))[0] == JsonSchema({"type": "null"})
    assert merged(preset(json_schema={"type": "null"}))[0] == JsonSchema({"type": "null"})
    assert merged(preset(("json_object", {})))[0] == JsonObject()
    assert merged(preset(("tool_call", {})))[0] == SPECS["tool_call"]
    calls = merged(preset(("tool_call", {"tools": tools}), grammar="@tool_call")).constraint
    accepts = espalier.compile(calls).accepts
    assert accepts('{"name": "ls", "args": {"path": "/"}}')
    assert not accepts('{"name": "rm", "args": {}}')
    assert merged(preset(grammar='root ::= "x"'))[0] == Gbnf('root ::= "x"')
    both = preset(("ban", {"phrases": ["y"]}), ("json_schema", {"schema": {"type": "object"}}), grammar="ban")
    with pytest.raises(GrammarError, match="after 'ban'"):  # a text, not the name of a type
        merged(both)
    assert merged(preset(grammar="@list"))[0] == Gbnf(GRAMMARS.load("list"))


@pytest.mark.parametrize(
    ("mine", "error", "words"),
    [
        (preset(("profanity", {})), UnknownName, "'mine' has a filter of an unknown type 'profanity'.*json_object"),
        (Preset(name="mine", filters=({"type": "nope", "enabled": False},)), UnknownName, "'nope'"),
        (preset(("json_object", {"depth": 3})), InputError, "'json_object' has no option 'depth'"),
        (preset(("ban", {})), InputError, "'ban' needs 'phrases'"),
        (preset(grammar="@nope"), UnknownName, "nope"),
        (preset(("json_schema", {"schema": "{"})), SchemaError, "not JSON"),
        (preset(("tool_call", {"tools": {}})), InputError, "tools"),
        (preset(("token_ban", {"ids": ["x"]})), SamplingError, "token_ban"),
        (preset(("logit_bias", {"biases": {"1": "x"}})), SamplingError, "logit_bias"),
    ],
)
def test_a_filter_that_cannot_be_had_is_named(mine, error, words):
    with pytest.raises(error, match=words):
        preset_parts(mine)
    with pytest.raises(error):
        make_request("hi", preset=mine)


def test_the_types_are_documented_with_their_options():
    assert {"grammar", "json_schema", "json_object", "tool_call", "ban", "logit_bias", "token_ban", "safety"} == set(
        FILTER_TYPES
    )


def test_an_unknown_name_is_told():
    with pytest.raises(UnknownName, match="there is no preset 'nope'"):
        make_request("hi", preset="nope")
    with pytest.raises(InputError):
        make_request("hi", preset=5)


def test_presets_belong_to_the_app(tmp_path):
    app, other = (App(KernelSettings(config_dir=tmp_path / name)) for name in ("a", "b"))
    made = espalier.PresetBuilder("mine").temperature(0).grammar("@json_object").build_and_register(app)
    assert espalier.get_preset("mine", app=app) == made
    with pytest.raises(UnknownName):
        espalier.get_preset("mine", app=other)
    with espalier.load("fake", app=app) as engine:
        assert engine.generate("hi", preset="mine").parsed["name"] == "Ada Lovelace"
        with pytest.raises(UnknownName):
            engine.generate("hi", preset="yours")
    Presets(tmp_path / "b" / "presets").save(made)
    with espalier.load("fake", app=other) as engine:
        assert engine.generate(["hi", "ho"], preset="mine")[1].verdict.valid is True


def test_the_folder_comes_from_the_environment(tmp_path):
    assert read_settings({"ESPALIER_CONFIG_DIR": str(tmp_path)}).config_dir == tmp_path
    assert read_settings({"XDG_CONFIG_HOME": str(tmp_path)}).config_dir == tmp_path / "espalier"
    assert read_settings({}).config_dir.parts[-2:] == (".config", "espalier")


def test_a_broken_grammar_is_found_when_it_is_compiled():
    with espalier.load("fake") as engine, pytest.raises(GrammarError):
        engine.generate("hi", preset=preset(grammar="root ::= ("))


@pytest.mark.parametrize("name", ["tool_call", "json_strict", "json_loose"])
def test_on_an_engine_the_text_is_what_the_preset_promises(name):
    with espalier.load("fake") as engine:
        result = engine.generate("Read the file /etc/hosts", preset=name, max_tokens=120, seed=1)
    assert result.verdict.valid is True
    assert json.loads(result.text) == result.parsed
    if name == "tool_call":
        assert list(result.parsed) == ["name", "args"]


def test_a_preset_that_cannot_be_used_was_registered():
    app = App(KernelSettings())
    wrong = espalier.PresetBuilder("apart").grammar('root ::= "rm -rf /"').safety_preset("minimal")
    with pytest.raises(InputError, match=r"the preset 'apart' cannot be used: no text satisfies .*gbnf and .*safety"):
        wrong.build_and_register(app)
    with pytest.raises(UnknownName):
        app.presets.get("apart")
