"""The presets' values against the original's, their forms, and where they are found."""

import copy
import json
import math
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from espalier.errors import InputError, OutputError, SamplingError, SchemaError, UnknownName
from espalier.sampling.config import DEFAULT_ORDER, SamplingConfig
from espalier.sampling.presets.catalogue import BUILTIN, CONFIGS, Presets
from espalier.sampling.presets.files import parse_preset, preset_text, read_preset, write_preset
from espalier.sampling.presets.spec import BasePresetBuilder, Preset, PresetFilter

# PedroCLI's table: temperature, top_k, top_p, min_p, repetition penalty and window, max_tokens, order.
TABLE = {
    "deterministic": (0.0, 1, 1.0, 0.0, 1.0, 0, 2048, DEFAULT_ORDER),
    "structured_output": (0.1, 40, 0.9, 0.05, 1.0, 0, 2048, ("top_k", "top_p", "temperature")),
    "code_generation": (0.2, 50, 0.9, 0.05, 1.1, 64, 4096, DEFAULT_ORDER),
    "creative": (0.8, 100, 0.95, 0.02, 1.15, 128, 4096, DEFAULT_ORDER),
    "chat": (0.7, 40, 0.95, 0.05, 1.1, 64, 1024, DEFAULT_ORDER),
}
# Config, its temperature, grammar, types of the filters, safety preset.
PRESETS = {
    "tool_call": ("deterministic", 0.0, "@tool_call", ["tool_call"], None),
    "json_strict": ("structured_output", 0.1, "@json_object", ["json_object"], None),
    "json_loose": ("structured_output", 0.3, "@json_container", [], None),
    "safe_chat": ("chat", 0.7, None, ["safety"], "standard"),
    "code_generation": ("code_generation", 0.2, None, ["safety"], "minimal"),
    "creative": ("creative", 0.8, None, [], None),
    "deterministic": ("deterministic", 0.0, None, [], None),
}


@pytest.mark.parametrize("name", TABLE)
def test_the_named_configs_are_the_original_s_without_its_seed(name):
    config = SamplingConfig.from_json(CONFIGS[name])
    assert TABLE[name] == (
        config.temperature,
        config.top_k,
        config.top_p,
        config.min_p,
        config.repetition_penalty,
        config.repetition_window,
        config.max_tokens,
        config.sampler_order,
    )
    assert config.seed is None
    off = (config.typical_p, config.frequency_penalty, config.presence_penalty, config.mirostat, config.mirostat_tau)
    assert off == (0, 0, 0, 0, 0)
    assert config.logit_bias == config.stop == ()
    assert list(CONFIGS) == list(TABLE)


def test_the_seven_presets_are_the_original_s():
    assert list(BUILTIN) == list(PRESETS)
    for name, (config, temperature, grammar, filters, safety) in PRESETS.items():
        preset = BUILTIN[name]
        assert preset.sampling == SamplingConfig.from_json({**CONFIGS[config], "temperature": temperature})
        assert (preset.grammar, [one.type for one in preset.filters]) == (grammar, filters)
        assert preset.safety_preset == safety
        assert preset.description
        assert preset.json_schema is None
    assert BUILTIN["safe_chat"].filters[0].options["categories"] == ("profanity", "violence")
    assert BUILTIN["code_generation"].filters[0].options["categories"] == ("code_injection",)


def test_a_preset_cannot_be_changed():
    preset = BUILTIN["safe_chat"]
    with pytest.raises(TypeError):
        preset.config["temperature"] = 2.0
    with pytest.raises(TypeError):
        preset.filters[0].options["categories"] = []
    with pytest.raises(AttributeError):
        preset.name = "x"


def test_the_json_form_has_the_original_s_names():
    data = BUILTIN["tool_call"].to_json()
    assert list(data) == ["name", "description", "config", "filters", "grammar", "json_schema", "safety_preset"]
    assert data["filters"] == [{"type": "tool_call", "enabled": True, "options": {}}]
    assert data["config"]["top_k"] == 1
    theirs = {
        "name": "my_preset",
        "description": "",
        "config": {"temperature": 0.2, "seed": -1, "logit_bias": {"5": -1}, "sampler_order": None, "mirostat_tau": 0},
        "filters": None,
        "grammar": "",
        "json_schema": '{"type": "object"}',
        "safety_preset": "",
    }
    preset = Preset.from_json(theirs)
    assert preset.sampling.logit_bias == ((5, -1.0),)
    assert preset.sampling.seed is None
    assert (preset.grammar, preset.safety_preset, preset.filters) == (None, None, ())
    assert json.loads(preset.to_json()["json_schema"]) == {"type": "object"}


OWN = Preset(
    name="own",
    description="Mine: ü",
    config={"temperature": 0.2, "stop": ["\n", "</s>"], "logit_bias": {3: -math.inf, "a b": 2}, "seed": None, "n": 2},
    grammar='root ::= "a\\"\\r\r\n" | [^"\\\\]\n',
    filters=(PresetFilter(type="ban", enabled=False, options={"phrases": ["x", "y"], "deep": {"a": [1, {"b": []}]}}),),
)


@pytest.mark.parametrize("preset", [*BUILTIN.values(), OWN, Preset(name="s", json_schema={"type": "object"})])
def test_presets_survive_every_form(preset, tmp_path):
    assert Preset.from_json(json.loads(json.dumps(preset.to_json()))) == preset
    assert pickle.loads(pickle.dumps(preset)) == preset == copy.deepcopy(preset)
    path = tmp_path / "presets" / f"{preset.name}.toml"
    write_preset(preset, path)
    assert read_preset(path) == preset
    with pytest.raises(InputError, match="already"):
        write_preset(preset, path)
    write_preset(preset, path, replace=True)


@given(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), st.floats(0, 5), st.integers(0, 99))
def test_texts_and_numbers_survive_toml_exactly(text, temperature, top_k):
    preset = Preset(
        name="p",
        description=text,
        grammar=text,
        config={"temperature": temperature, "top_k": top_k, "stop": [text]},
        filters=(PresetFilter(type=text, options={text: [text]}),),
    )
    assert parse_preset(preset_text(preset), name="p", source="p.toml") == preset


def test_the_builder_says_all_of_it():
    schema = {"type": "object"}
    made = (
        BasePresetBuilder("mine")
        .description("d")
        .temperature(0.2)
        .top_k(50)
        .top_p(0.8)
        .min_p(0.1)
        .repetition_penalty(1.2)
        .max_tokens(9)
        .sampling(seed=3)
        .json_schema(schema)
        .add_filter("ban", phrases=["x"])
        .build()
    )
    assert made.config == {
        "temperature": 0.2,
        "top_k": 50,
        "top_p": 0.8,
        "min_p": 0.1,
        "repetition_penalty": 1.2,
        "max_tokens": 9,
        "seed": 3,
    }
    assert (made.name, made.description, json.loads(made.json_schema)) == ("mine", "d", schema)
    assert made.filters == (PresetFilter(type="ban", options={"phrases": ("x",)}),)
    assert BasePresetBuilder("x").build().sampling == SamplingConfig()
    assert BasePresetBuilder("x").grammar("@json").safety_preset("strict").build().safety_preset == "strict"


@pytest.mark.parametrize(
    ("values", "error", "field"),
    [
        ({"name": "a/b"}, InputError, "name"),
        ({"name": ".."}, InputError, "name"),
        ({"name": ""}, InputError, "name"),
        ({"name": "-x"}, InputError, "name"),
        ({"name": "ä"}, InputError, "name"),
        ({"name": "x" * 65}, InputError, "name"),
        ({"name": 5}, InputError, "name"),
        ({}, InputError, "name"),
        ({"name": "a", "config": {"temperature": -1}}, SamplingError, "temperature"),
        ({"name": "a", "config": {"heat": 1}}, SamplingError, "heat"),
        ({"name": "a", "config": 5}, InputError, "config"),
        ({"name": "a", "grammar": 5}, InputError, "grammar"),
        ({"name": "a", "description": "\ud800"}, InputError, "description"),
        ({"name": "a", "grammar": "@json", "json_schema": "{}"}, InputError, "json_schema"),
        ({"name": "a", "json_schema": "{"}, SchemaError, "schema"),
        ({"name": "a", "filters": "x"}, InputError, "filters"),
        ({"name": "a", "filters": [{}]}, InputError, "filters"),
        ({"name": "a", "filters": [{"type": "x", "on": True}]}, InputError, "on"),
        ({"name": "a", "filters": [{"type": "x", "enabled": 1}]}, InputError, "filters"),
        ({"name": "a", "filters": [{"type": 1}]}, InputError, "filters"),
        ({"name": "a", "temperature": 1}, InputError, "temperature"),
        ([], InputError, "preset"),
    ],
)
def test_what_is_no_preset_is_refused_by_field(values, error, field):
    with pytest.raises(error) as caught:
        Preset.from_json(values)
    assert caught.value.field == field


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("description = 'x'\n\n=", r"own.toml is not TOML: .*line 3"),
        ("[config]\ntemperature = -1\n", "own.toml: temperature: -1"),
        ("name = 'other'\n", "names its preset 'other'"),
        ("heat = 1\n", "own.toml: a preset has no field 'heat'"),
    ],
)
def test_a_broken_file_is_named_with_the_place(tmp_path, text, words):
    (tmp_path / "own.toml").write_text(text)
    with pytest.raises(InputError, match=words):
        Presets(tmp_path).get("own")
    assert "own" in Presets(tmp_path).names()


def test_a_file_that_is_not_utf8_is_named(tmp_path):
    (tmp_path / "own.toml").write_bytes(b"description = '\xff'")
    with pytest.raises(InputError, match=r"own\.toml is not UTF-8 at byte 15"):
        Presets(tmp_path).get("own")


def test_presets_are_found_where_they_are(tmp_path):
    presets = Presets(tmp_path / "new")
    assert presets.names() == list(BUILTIN)
    path = presets.save(OWN)
    assert path == tmp_path / "new" / "own.toml"
    assert presets.names() == [*BUILTIN, "own"]
    assert presets.get("own") == OWN
    assert (presets.source("own"), presets.source("creative")) == (str(path), "built-in")
    nearer = Preset(name="own", config={"top_k": 3})
    presets.register(nearer)
    presets.register(Preset(name="also"))
    assert presets.get("own") == nearer
    assert presets.source("own") == "registered"
    assert presets.names() == [*BUILTIN, "also", "own"]
    assert presets.remove("own") == path
    assert presets.files() == []
    assert Presets(tmp_path / "new").names() == list(BUILTIN)  # what is registered is this process's


def test_nothing_takes_the_name_of_a_built_in_one(tmp_path):
    presets = Presets(tmp_path)
    for call in (presets.register, presets.save):
        with pytest.raises(InputError, match="'creative' comes with Espalier and cannot be replaced"):
            call(Preset(name="creative"))
    with pytest.raises(InputError, match="cannot be removed"):
        presets.remove("creative")
    (tmp_path / "creative.toml").write_text("")
    assert presets.get("creative") is BUILTIN["creative"]
    assert presets.hidden() == {"creative": tmp_path / "creative.toml"}
    presets.remove("creative")
    assert presets.hidden() == {}


def test_what_is_not_there_is_said(tmp_path):
    presets = Presets(tmp_path)
    for call in (presets.get, presets.source):
        with pytest.raises(UnknownName, match=r"there is no preset 'nope'.*tool_call"):
            call("nope")
    with pytest.raises(UnknownName, match="no preset of your own 'nope'"):
        presets.remove("nope")
    for name in ("../own", "/etc/passwd", "own.toml", ""):
        for call in (presets.get, presets.source, presets.remove):
            with pytest.raises(InputError, match="no name of a preset"):
                call(name)
    with pytest.raises(InputError):
        presets.register({"name": "x"})
    with pytest.raises(OutputError, match="no folder"):
        Presets().save(OWN)


def test_a_folder_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputError, match="cannot write"):
        Presets(tmp_path / "file").save(OWN)


def with_filter(kind, **options):
    return Preset(name="p", filters=(PresetFilter(type=kind, options=options),))


@pytest.mark.parametrize(
    "preset",
    [
        with_filter("logit_bias", biases={"7": None, "8": False, "a b": -math.inf, "9": 1}),
        with_filter("logit_bias", biases=[[7, None], ["9", -1.5]]),
        with_filter("json_schema", schema={"const": None}),
        with_filter("json_schema", schema={"enum": ["a", None]}),
        with_filter("json_schema", schema='{"const": null}'),
        with_filter("json_schema", schema=True),
        with_filter("tool_call", tools={"b": {"enum": [None]}, "a": {"type": "object", "properties": {"x": {}}}}),
        with_filter("token_ban", ids=range(3)),
        Preset(name="p", config={"seed": -1, "logit_bias": {"5": None}}),
    ],
)
def test_saving_a_preset_dropped_what_was_null(preset, tmp_path):
    path = tmp_path / "p.toml"
    write_preset(preset, path)
    assert read_preset(path) == preset
    assert Preset.from_json(json.loads(json.dumps(preset.to_json(), allow_nan=False))) == preset
    assert list(tmp_path.iterdir()) == [path]


def test_a_ban_of_a_bias_filter_is_in_every_form():
    preset = with_filter("logit_bias", biases={"7": None})
    assert preset.filters[0].options["biases"] == ((7, -math.inf),)
    assert preset.filters[0].to_json()["options"] == {"biases": [[7, None]]}
    assert "-inf" in preset_text(preset)
    read = parse_preset("filters = [{type = 'logit_bias', options = {biases = {7 = false}}}]", name="p", source="x")
    assert read == preset


def test_the_order_of_a_schema_s_properties_survives_toml():
    schema = {"properties": {"b": {"type": "object"}, "a": True}, "type": "object"}
    read = parse_preset(preset_text(with_filter("json_schema", schema=schema)), name="p", source="x")
    assert read.filters[0].options["schema"] == json.dumps(schema)


@pytest.mark.parametrize(
    ("preset", "words"),
    [
        (
            with_filter("x", a={"b": [1, None]}),
            r"'p' cannot be written as TOML: filters\[0\]\.options\.a\.b\[1\] is null",
        ),
        (with_filter("x", a={1: 2}), r"filters\[0\]\.options\.a has a key that is no text"),
        (with_filter("x", a="\ud800"), "not valid Unicode"),
        (with_filter("x", a=math.nan), "'p' cannot be written as TOML"),
    ],
)
def test_what_toml_cannot_say_was_a_traceback_or_lost(preset, words, tmp_path):
    path = tmp_path / "p.toml"
    write_preset(Preset(name="p"), path)
    with pytest.raises(InputError, match=words):
        write_preset(preset, path, replace=True)
    assert read_preset(path) == Preset(name="p")


def test_a_preset_was_lost_when_writing_it_failed(tmp_path, monkeypatch):
    path = tmp_path / "p.toml"
    write_preset(OWN, path)
    before = path.read_text()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", fail)
    with pytest.raises(OutputError, match="No space left"):
        write_preset(Preset(name="p", description="new"), path, replace=True)
    assert path.read_text() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_link_to_a_preset_file_stays_one(tmp_path):
    (tmp_path / "real").mkdir()
    link = tmp_path / "p.toml"
    link.symlink_to(tmp_path / "real" / "p.toml")
    for top_k in (1, 2):
        write_preset(Preset(name="p", config={"top_k": top_k}), link, replace=top_k == 2)
        assert link.is_symlink()
        assert read_preset(link).config == {"top_k": top_k}


@pytest.mark.parametrize(
    "text",
    [
        "[[filters]]\ntype = 'x'\noptions = { when = 2026-01-31 }\n",
        "[[filters]]\ntype = 'json_schema'\noptions = { schema = { const = 07:32:00 } }\n",
        "[config]\nlogit_bias = 2026-01-31\n",
        "[config]\nstop = [2026-01-31T07:32:00Z]\n",
        "description = 2026-01-31\n",
        "[config]\nallowed_ids = 5\n",
        "[config]\ntemperature = " + "9" * 5000 + "\n",
        "[config]\ntemperature = 1" + "0" * 400 + "\n",
        "[[filters]]\ntype = 'x'\noptions = { a = " + "[" * 300 + "]" * 300 + " }\n",
        "a." * 3000 + "b = 1\n",
    ],
)
def test_a_date_or_other_odd_value_in_a_file_was_a_traceback(tmp_path, text):
    (tmp_path / "own.toml").write_text(text)
    try:
        preset_text(Presets(tmp_path).get("own"))  # deep but readable is no fault
    except InputError as error:
        message = error.message
    else:
        message = "own"
    assert "own" in message


def test_a_date_is_told_with_file_and_place(tmp_path):
    (tmp_path / "own.toml").write_text("[[filters]]\ntype = 'x'\noptions = { a = [{ when = 2026-01-31 }] }\n")
    with pytest.raises(InputError, match=r"own\.toml: options of a filter: a\[0\]\.when is a date or a time"):
        Presets(tmp_path).get("own")


def test_a_file_named_as_no_preset_could_not_be_removed(tmp_path):
    folder = tmp_path / "presets"
    folder.mkdir()
    for name in ("not a name.toml", "ä.toml", "own.toml.toml"):
        (folder / name).write_text("")
    (tmp_path / "outside.toml").write_text("")
    presets = Presets(folder)
    assert presets.remove("not a name") == folder / "not a name.toml"
    presets.remove("ä")
    presets.remove("own.toml")
    assert list(folder.iterdir()) == []
    for name in ("../outside", str(tmp_path / "outside"), "./x", "", None, 5):
        with pytest.raises(InputError):
            presets.remove(name)
    assert (tmp_path / "outside.toml").exists()
