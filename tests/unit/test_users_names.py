"""Names, files and options that PedroCLI and llama.cpp have: each is taken as it stands, or refused by name."""

import json

import numpy as np
import pytest

import espalier
from espalier.api import make_request
from espalier.cli.main import main_code
from espalier.constraints.safety.lists import parse_list
from espalier.errors import InputError, SamplingError, SpecError, UnknownName
from espalier.lexicon.files import read_words
from espalier.sampling.config_names import UNLIMITED, own_option

OBJECT = r"""
root   ::= object
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}"
array  ::= "[" ws (value ("," ws value)*)? "]"
value  ::= object | array | string | number | "true" | "false" | "null"
string ::= "\"" ([^"\\] | "\\" ["\\/bfnrt])* "\""
number ::= "-"? ([0-9] | [1-9] [0-9]*) ("." [0-9]+)?
ws     ::= [ \t\n\r]*
"""
PEDRO = {
    "name": "pedro",
    "description": "as PedroCLI writes it",
    "config": {
        "temperature": 0,
        "top_k": 1,
        "top_p": 1,
        "min_p": 0,
        "typical_p": 0,
        "repetition_penalty": 1,
        "repetition_window": 0,
        "frequency_penalty": 0,
        "presence_penalty": 0,
        "logit_bias": None,
        "sampler_order": ["temperature", "top_k", "top_p", "min_p"],
        "mirostat": 0,
        "mirostat_tau": 0,
        "mirostat_eta": 0,
        "seed": 0,
        "max_tokens": 200,
        "stop": None,
    },
    "filters": [{"type": "json_object", "enabled": True, "options": {}}],
    "grammar": OBJECT,
    "json_schema": "",
    "safety_preset": "",
}


@pytest.fixture
def run(capfd, monkeypatch, tmp_path):
    monkeypatch.setenv("ESPALIER_CONFIG_DIR", str(tmp_path / "config"))

    def call(*arguments):
        code = main_code([str(one) for one in arguments])
        out, err = capfd.readouterr()
        return code, out, err

    return call


def test_a_preset_file_in_pedrocli_s_form_was_taken_and_could_not_be_used(run, tmp_path):
    (tmp_path / "pedro.json").write_text(json.dumps(PEDRO))
    code, _, err = run("presets", "add", tmp_path / "pedro.json")
    assert (code, err.startswith("wrote")) == (0, True)
    code, out, _ = run("generate", "-m", "fake", "--preset", "pedro", "hi")
    assert code == 0
    assert json.loads(out)["name"] == "Ada Lovelace"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--grammar", "bad.gbnf"], "mine"),
        (["--grammar", "contradiction.gbnf", "--like", "banned"], "no text satisfies"),
        (["--schema", '{"type": "object", "unevaluatedProperties": 5}'], "unevaluatedProperties"),
    ],
)
def test_presets_add_kept_what_could_not_be_used(run, tmp_path, monkeypatch, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.gbnf").write_text("root ::= nowhere")
    (tmp_path / "contradiction.gbnf").write_text('root ::= "zebra"')
    (tmp_path / "banned.toml").write_text('[[filters]]\ntype = "ban"\noptions = { phrases = ["zebra"] }\n')
    assert run("presets", "add", tmp_path / "banned.toml")[0] == 0
    code, _, err = run("presets", "add", "mine", *arguments)
    assert code in (1, 2)
    assert words in err
    assert run("presets", "show", "mine")[0] == 2


def test_presets_add_says_what_is_not_enforced(run):
    code, _, err = run("presets", "add", "chatty", "--like", "safe_chat")
    assert code == 0
    assert "safety: profanity: nothing is enforced" in err


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (("repeat_penalty", 1.1), ("repetition_penalty", 1.1)),
        (("repeat-penalty", 1.1), ("repetition_penalty", 1.1)),
        (("--repeat-last-n", 64), ("repetition_window", 64)),
        (("temp", 0.2), ("temperature", 0.2)),
        (("n_predict", -1), ("max_tokens", UNLIMITED)),
        (("typ_p", 0.5), ("typical_p", 0.5)),
        (("mirostat_lr", 0.1), ("mirostat_eta", 0.1)),
        (("mirostat-ent", 5), ("mirostat_tau", 5)),
        (("dry_penalty_last_n", -1), ("dry_window", -1)),
        (("samplers", "top_k;temperature"), ("sampler_order", ["top_k", "temperature"])),
        (("top_k", 5), ("top_k", 5)),
    ],
)
def test_llama_cpp_s_names_of_options(given, found):
    assert own_option(*given) == found


def test_llama_cpp_s_names_on_the_command_line_and_in_python(run):
    code, out, _ = run(
        "generate",
        "-m",
        "fake",
        "-o",
        "temp",
        "0",
        "-o",
        "repeat_penalty",
        "1.2",
        "--json",
        "-o",
        "n_predict",
        "5",
        "hi",
    )
    assert (code, json.loads(out)["usage"]["completion_tokens"]) == (0, 5)
    assert make_request("hi", repeat_penalty=1.2, repeat_last_n=9).sampling.repetition_window == 9
    with pytest.raises(SamplingError, match="repetition_penalty is given already"):
        make_request("hi", repetition_penalty=1.2, repeat_penalty=1.3)
    code, _, err = run("generate", "-m", "fake", "-o", "repetition_penalty", "1", "-o", "repeat_penalty", "2", "hi")
    assert (code, "--repetition-penalty is given twice" in err) == (2, True)
    with pytest.raises(SamplingError) as caught:
        own_option("repeat_penalt", 1)
    assert "did you mean 'repeat_penalty'" in caught.value.hint


def test_keywords_name_constraints_that_hold_together():
    request = make_request("hi", constraint=espalier.Regex(".*"), grammar="@list", safety={"patterns": ["x"]})
    assert request.constraint == espalier.AllOf(
        espalier.Regex(".*"), espalier.Gbnf("@list"), espalier.Safety(patterns=["x"])
    )
    assert make_request("hi", grammar="@json_object").constraint == espalier.JsonObject()
    assert make_request("hi", json_schema='{"type": "null"}').constraint == espalier.JsonSchema({"type": "null"})
    assert make_request("hi", safety=espalier.SafetyFilter("minimal")).constraint == espalier.Safety("minimal")
    for wrong in ({"grammar": 5}, {"safety": 5}, {"safety": "strikt"}, {"grammar": "@nope"}, {"json_schema": "{"}):
        with pytest.raises(InputError):
            make_request("hi", **wrong)


def test_a_built_in_grammar_by_its_name():
    spec = espalier.Gbnf("@list")
    assert spec == espalier.Gbnf(spec.grammar)
    assert spec.grammar.lstrip().startswith("root ::=")
    assert espalier.constraints.spec.Spec.from_json({"kind": "gbnf", "grammar": "@list"}) == spec
    with pytest.raises(UnknownName, match="nope"):
        espalier.Gbnf("@nope")


def test_schema_to_gbnf_writes_what_the_schema_allows():
    text = espalier.schema_to_gbnf(
        {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
    )
    accepts = espalier.compile(espalier.Gbnf(text)).accepts
    assert accepts('{"a": 1}')
    assert not accepts('{"a": "1"}')
    assert not accepts("{}")
    with pytest.raises(InputError, match="to JsonSchema itself"):
        espalier.schema_to_gbnf(espalier.JsonSchema({}), whitespace="compact")


@pytest.mark.parametrize(
    ("name", "text"), [("w.txt", "uno\ndos\n"), ("w.json", '["uno", "dos"]'), ("w", '["uno","dos"]')]
)
def test_word_and_phrase_lists_as_lines_or_an_array(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_words(tmp_path / name) == ("uno", "dos")
    assert parse_list(text.encode(), name) == ("uno", "dos")


def test_an_array_that_is_none(tmp_path):
    (tmp_path / "w.json").write_text('["uno", 2]')
    with pytest.raises(SpecError, match="not a JSON array of words"):
        read_words(tmp_path / "w.json")
    for data in (b'["uno", 2]', b'{"a": 1}'):
        with pytest.raises(InputError):
            parse_list(data, "w.json")
    (tmp_path / "w.txt").write_text("[uno\ndos")  # no array: a line as any other
    assert read_words(tmp_path / "w.txt") == ("[uno", "dos")


CONTEXT = espalier.FilterContext(step=0, prompt=(), generated=())


def test_a_safety_filter_in_a_loop_follows_its_settings():
    vocab = espalier.Vocab.bytes()
    row = np.zeros(vocab.width, dtype=np.float32)
    one = espalier.SafetyFilter(vocab).add_custom_banned_pattern("ab")
    chain = espalier.FilterChain([one])
    chain.on_token(ord("a"))
    assert chain.apply(row, CONTEXT)[ord("b")] == -np.inf
    with pytest.raises(InputError, match="cannot change within a text"):
        one.enable_category("pii")
    fork = chain.fork()
    chain.rollback(1)
    assert chain.apply(row, CONTEXT)[ord("b")] == 0
    assert fork.apply(row, CONTEXT)[ord("b")] == -np.inf
    one.add_custom_banned_pattern("b")
    assert chain.apply(row, CONTEXT)[ord("b")] == -np.inf
    with pytest.raises(InputError, match="needs a vocabulary"):
        espalier.SafetyFilter("minimal").apply(row, CONTEXT)
    assert espalier.SafetyFilter(vocab).spec() == espalier.Safety("standard")
    with pytest.raises(SpecError, match="nothing to enforce"):
        espalier.SafetyFilter(vocab).enable_category("pii").disable_category("pii").spec()


def test_a_filter_without_reset_is_named_before_any_is_reset():
    class Own:
        name, priority = "own", espalier.Priority.LOW

        def apply(self, logits, context):
            return logits

        def on_token(self, token):
            pass

        def rollback(self, count):
            pass

        def fork(self):
            return self

    vocab = espalier.Vocab.bytes()
    grammar = espalier.GrammarFilter('root ::= "ab"', vocab)
    chain = espalier.FilterChain([grammar, Own()])
    chain.on_token(ord("a"))
    with pytest.raises(InputError, match="'own' has no reset"):
        chain.reset()
    assert not grammar.is_fresh


def test_filters_of_a_chain_join_the_constraint_of_a_request_and_others_run():
    vocab = espalier.Vocab.bytes()
    used = espalier.GrammarFilter('root ::= "ab"', vocab)
    used.on_token(ord("a"))
    chain = espalier.FilterChain(
        [
            espalier.GrammarFilter("@list", vocab, name="list"),
            used,
            espalier.TokenBan([7]),
            espalier.SafetyFilter(vocab).add_custom_banned_pattern("x"),
        ]
    )
    request = make_request("hi", filters=chain, constraint=espalier.Ban(["y"]))
    assert request.constraint == espalier.AllOf(
        espalier.Ban(["y"]), espalier.Gbnf("@list"), espalier.Safety(patterns=["x"])
    )
    assert [one.name for one in request.filters] == ["grammar", "token_ban"]


def test_the_logits_processor_joins_what_it_is_given():
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    from espalier.integrations.transformers import ConstraintLogitsProcessor
    from espalier.sampling.presets.spec import Preset
    from espalier.wiring import demo_model

    tokenizer = str(demo_model() / "tokenizer.json")
    mine = Preset(name="mine", grammar="@list", config={"bad_words": ["z"]})
    safety = {"patterns": ["x"], "categories": ["hate"]}
    one = ConstraintLogitsProcessor(espalier.Ban(["@"]), tokenizer=tokenizer, preset=mine, safety=safety)
    assert one.compiled.spec == espalier.AllOf(
        espalier.Gbnf("@list"),
        espalier.Ban(["@"]),
        espalier.Ban(["z"]),
        espalier.Safety(patterns=["x"], categories=["hate"]),
    )
    assert one.notes == (
        "the sampling of the preset 'mine' is not applied: give it to generate itself",
        "safety: hate: nothing is enforced: it needs a list, and there is none",
    )
    refusals = (
        ({"constraint": one.compiled, "safety": "minimal"}, "compiled already"),
        ({"tokenizer": tokenizer, "preset": "creative"}, "nothing to enforce"),
        ({"safety": "minimal"}, "needs tokenizer="),
        ({"tokenizer": tokenizer, "preset": Preset(name="b", config={"logit_bias": {1: None}})}, "bans tokens"),
    )
    for given, words in refusals:
        with pytest.raises(InputError, match=words):
            ConstraintLogitsProcessor(**given)
