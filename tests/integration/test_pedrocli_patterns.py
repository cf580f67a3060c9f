"""The patterns of PedroCLI's guide to logit control, in Python under the names that Espalier gives them.

`docs/presets.md` lists the names side by side.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")
transformers = pytest.importorskip("transformers", reason="transformers is not installed")

import espalier  # noqa: E402
from espalier.constraints.verdict import judge  # noqa: E402
from espalier.settings import KernelSettings  # noqa: E402
from espalier.wiring import App, demo_model  # noqa: E402

SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 20},
        "args": {
            "type": "object",
            "properties": {"path": {"type": "string", "maxLength": 30}},
            "required": ["path"],
            "additionalProperties": False,
        },
    },
    "required": ["name", "args"],
    "additionalProperties": False,
}


@pytest.fixture(scope="module")
def tokenizer():
    return transformers.AutoTokenizer.from_pretrained(demo_model())


@pytest.mark.slow
def test_pattern_1_guaranteed_tool_calls(demo_engine, tokenizer):
    """chain.Add(NewGrammarFilter(toolGrammar, tokenizer)); chain.Add(NewSafetyFilter(tokenizer))"""
    chain = espalier.FilterChain()
    chain.add(espalier.GrammarFilter(espalier.ToolCallGrammar, tokenizer))
    chain.add(espalier.SafetyFilter(tokenizer))
    result = demo_engine.generate("Read the file /etc/hosts", sampling=espalier.DeterministicConfig, filters=chain)
    assert set(json.loads(result.text)) == {"name", "args"}
    assert result.verdict.valid is not False  # a grammar has no judge of its own, the filter has
    assert judge(espalier.Safety("standard"), result.text).valid  # what a filter is for which nothing was chosen


def test_pattern_2_safe_code_generation(demo_engine):
    """safety.ApplyPreset("minimal"); NewFilterChainWithFilters(safety)"""
    safety = espalier.SafetyFilter(demo_engine.vocab)
    safety.apply_preset("minimal")
    chain = espalier.FilterChain([safety])
    result = demo_engine.generate(
        "Write a bash script to list all files",
        sampling=replace(espalier.CodeGenerationConfig, max_tokens=60),
        filters=chain,
    )
    assert judge(espalier.Safety("minimal"), result.text).valid


def test_pattern_3_deterministic_json(demo_engine):
    """Grammar: grammarFromSchema"""
    grammar = espalier.schema_to_gbnf(SCHEMA)
    result = demo_engine.generate("Read the file /etc/hosts", sampling=espalier.DeterministicConfig, grammar=grammar)
    assert judge(espalier.JsonSchema(SCHEMA), result.text).valid
    again = demo_engine.generate("Read the file /etc/hosts", sampling=espalier.DeterministicConfig, grammar=grammar)
    assert again.text == result.text


def test_the_builder_example():
    """NewPresetBuilder("my_preset").Description(...)....SafetyPreset("standard").BuildAndRegister()"""
    app = App(KernelSettings())
    custom = (
        espalier.PresetBuilder("my_preset")
        .description("Custom JSON generation")
        .temperature(0.2)
        .top_k(50)
        .grammar(espalier.JSONObjectGrammar)
        .safety_preset("standard")
        .build_and_register(app)
    )
    request = espalier.api.make_request("hi", preset=custom)
    assert {one.kind for one in request.constraint.walk()} == {"all_of", "gbnf", "safety"}
    assert (request.sampling.temperature, request.sampling.top_k) == (0.2, 50)


@pytest.mark.slow
def test_the_builder_example_on_the_demo_model(demo_engine):
    custom = (
        espalier.PresetBuilder("my_preset")
        .temperature(0.2)
        .top_k(50)
        .grammar(espalier.JSONObjectGrammar)
        .safety_preset("standard")
        .build()
    )
    result = demo_engine.generate("Generate user info", preset=custom, seed=1)
    assert isinstance(json.loads(result.text), dict)
    assert judge(espalier.Safety("standard"), result.text).valid is not False


def test_the_generation_preset_example(demo_engine):
    """SamplerConfig: preset.Config, Grammar: preset.Grammar"""
    preset = espalier.get_preset("tool_call")
    for config in (preset.config, preset.sampling):
        result = demo_engine.generate("Call the read_file tool for /etc/hosts", sampling=config, grammar=preset.grammar)
        assert set(result.parsed) == {"name", "args"}
        assert result.verdict.valid


def test_the_safety_example():
    safety = espalier.SafetyFilter(espalier.Vocab.bytes())
    safety.enable_category("code_injection")
    safety.enable_category("credentials")
    assert safety.spec() == espalier.Safety("standard")
    safety.apply_preset("strict")
    safety.add_custom_banned_pattern("rm -rf /")
    assert safety.spec() == espalier.Safety("strict", patterns=["rm -rf /"])


def test_the_grammar_and_schema_filter_examples(tokenizer):
    for grammar in ("@json_object", espalier.JSONObjectGrammar, espalier.Gbnf("@json_object")):
        espalier.FilterChain().add(espalier.GrammarFilter(grammar, tokenizer))
    tool = espalier.tool_call_schema("read_file", SCHEMA["properties"]["args"])
    many = espalier.multi_tool_call_schema({"read_file": SCHEMA["properties"]["args"]})
    for schema in (tool, many):
        assert espalier.JsonSchemaFilter(schema, espalier.Vocab.bytes()).name == "json_schema"
        assert espalier.schema_to_gbnf(schema).startswith("#")


def test_the_code_safety_list_as_it_stands(demo_engine):
    listed = ["rm -rf", "sudo", "; rm", "| rm"]
    spec = espalier.Safety("code_safety")
    assert [one.text for one in spec.patterns] == listed
    assert espalier.SafetyFilter("code_safety").spec() == spec
    for text in ("a pseudosudo", "x; RM y", "ls | rm z", "rm -rf"):
        assert not judge(spec, text).valid
    result = demo_engine.generate(
        "Bash: list all py files", preset="code_generation", safety="code_safety", max_tokens=60, seed=1
    )
    assert not any(word in result.text.lower() for word in listed)
    assert judge(spec, result.text).valid


def test_a_loop_of_one_s_own_with_every_filter_twice(demo_engine):
    """The filters are reset, and give the same text again."""
    vocab = espalier.Vocab.bytes()
    chain = espalier.FilterChain(
        [
            espalier.JsonModeProcessor(vocab, structural_bias=4.0),
            espalier.GrammarFilter(r'root ::= "{" [a-z\"]{0,9} "}"', vocab),
            espalier.SafetyFilter(vocab).add_custom_banned_pattern("ab"),
            espalier.LogitBias({97: 2.0}),
            espalier.TokenBan([98]),
        ]
    )
    context = espalier.FilterContext(step=0, prompt=(), generated=())

    def text():
        random, tokens = np.random.default_rng(3), []
        while not chain.get("grammar").is_finished:
            row = random.standard_normal(vocab.width).astype(np.float32)
            tokens.append(int(chain.apply(row, context).argmax()))
            chain.on_token(tokens[-1])
        return vocab.decode(tokens).decode()

    first = text()
    chain.reset()
    assert text() == first
    assert re.fullmatch(r'\{[ac-z"]{0,9}\}', first)


def test_json_mode_for_a_loop_of_one_s_own():
    vocab = espalier.Vocab.bytes()
    mode = espalier.JsonModeProcessor(vocab)
    context = espalier.FilterContext(step=0, prompt=(), generated=())
    row = np.zeros(vocab.width, dtype=np.float32)
    assert int(mode.apply(row, context).argmax()) in (ord("{"), ord("["))
    fork = mode.fork()
    for byte in b"{}":
        mode.on_token(byte)
    assert int(mode.apply(row, context).argmax()) == 256  # the document has ended
    mode.reset()
    assert np.array_equal(mode.apply(row, context), fork.apply(row, context))
    with pytest.raises(espalier.EspalierError, match="structural_bias"):
        espalier.JsonModeProcessor(vocab, structural_bias=-1)
