"""PedroCLI's guide to logit control, row by row, with its own inputs: on the demo model, and on the real llama-server
and llama-completion where `scripts/build_llama_tools.sh` built them."""

from __future__ import annotations

import json
import math
import re
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import jsonschema
import pytest

pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

import espalier
from espalier import SafetyFilter, Vocab
from espalier.agents.table import TOOLS
from espalier.agents.tool import LogitTool
from espalier.constraints.verdict import judge
from espalier.harness.cases.standard import STANDARD
from espalier.store.open import open_store
from tests.acceptance.users_documents.pedrocli import (
    ACTIONS,
    CALL_GRAMMAR,
    CALL_SCHEMA,
    CAUGHT,
    CONFIG,
    EXAMPLE,
    GGUF,
    HOSTS,
    MODEL,
    NAME_GRAMMAR,
    OBJECT_GRAMMAR,
    PATH,
    Ollama,
    called,
    run_script,
)
from tests.llama_tools import llama_server_program, tool, with_whole_stdout
from tests.scripted_server import scripted_server

row = partial(pytest.mark.row, "logit-control")


@pytest.fixture(scope="module")
def demo() -> Iterator[espalier.LoadedEngine]:
    with espalier.load(str(MODEL)) as opened:
        yield opened


@pytest.fixture(scope="module")
def server() -> Iterator[espalier.LoadedEngine]:
    tool("llama-server")
    with llama_server_program(GGUF) as url, espalier.load(engine="llama-server", url=url) as opened:
        yield opened


@pytest.fixture(scope="module")
def program() -> Iterator[espalier.LoadedEngine]:
    with espalier.load(str(GGUF), engine="llama-cli", binary=tool("llama-completion"), threads=1) as opened:
        yield opened


REAL = [pytest.param(name, marks=pytest.mark.slow) for name in ("server", "program")]


@pytest.fixture(params=["demo", *REAL])
def engine(request: pytest.FixtureRequest) -> espalier.LoadedEngine:
    """The demo model in this process, behind the real llama-server, and in the real llama-completion."""
    found: espalier.LoadedEngine = request.getfixturevalue(request.param)
    return found


# The execution model


@row("1.1", 'llama-cli -m model.gguf -p "prompt" --grammar-file tool.gbnf, answered on stdout')
def test_the_one_shot_command(tmp_path: Path) -> None:
    grammar = tmp_path / "tool-call.gbnf"
    grammar.write_text(NAME_GRAMMAR)
    asked = ["-m", str(GGUF), "-p", "prompt", "--grammar-file", str(grammar), "-no-cnv", "--no-display-prompt"]
    done = run_script(*asked, "--seed", "1", "-n", "60")
    assert done.returncode == 0, done.stderr
    assert called(done.stdout).keys() == {"name"}


@row("1.2", '"-m", "-p", "--grammar-file", "--temp" "0.0", "--top-k" "1": deterministic')
def test_the_arguments_of_exec_command(tmp_path: Path) -> None:
    grammar = tmp_path / "tool-call.gbnf"
    grammar.write_text(NAME_GRAMMAR)
    asked = ["-m", str(GGUF), "-p", "Call a tool", "--grammar-file", str(grammar), "--temp", "0.0", "--top-k", "1"]
    outputs = {run_script(*asked).stdout for _ in range(2)}
    assert len(outputs) == 1
    assert called(outputs.pop()) == {"name": "send_email"}


@pytest.mark.slow
@row("1.2", '"-m", "-p", "--grammar-file", "--temp" "0.0", "--top-k" "1": deterministic')
def test_the_arguments_give_what_llama_completion_gives(tmp_path: Path) -> None:
    program = tool("llama-completion")
    grammar = tmp_path / "tool-call.gbnf"
    grammar.write_text(NAME_GRAMMAR)
    asked = ["-m", str(GGUF), "-p", "Call a tool", "--grammar-file", str(grammar), "--temp", "0.0", "--top-k", "1"]
    line = [program, *asked, "-st"]
    theirs = with_whole_stdout(lambda: subprocess.run(line, capture_output=True, check=True, timeout=120))
    assert called(theirs.stdout.decode()) == called(run_script(*asked, "-st").stdout)


@row("1.3", "the grammar is enforced at the logit level: invalid tokens get -inf before sampling")
def test_every_step_kept_to_the_grammar(demo: espalier.LoadedEngine) -> None:
    result = demo.generate(HOSTS, grammar=CALL_GRAMMAR, temperature=1.0, seed=3, max_tokens=200, on_budget="close")
    assert json.loads(result.text).keys() == {"name", "args"}
    assert result.trace is not None
    assert any(step.removed_mass for step in result.trace.steps)


@pytest.mark.slow
@row("1.4", "--repeat-penalty, --top-p and the other sampling flags reach the sampler")
def test_the_sampling_flags_of_the_table() -> None:
    asked = ["-m", str(GGUF), "-p", "Hi", "-no-cnv", "--no-display-prompt", "-n", "8", "--seed", "5"]
    more = ["--repeat-penalty", "1.1", "--top-p", "0.9", "--top-k", "40", "--temp", "0.7"]
    done = run_script(*asked, *more)
    assert (done.returncode, bool(done.stdout.strip())) == (0, True), done.stderr
    assert run_script(*asked, "--top-k", "many").returncode == 1


# Ollama


@row("2.1", "with Ollama: post-hoc validation and retry loops")
def test_a_server_without_logits_is_validated_and_asked_again() -> None:
    schema = EXAMPLE["args"]["json_schema"]
    with (
        scripted_server(Ollama()) as server,
        espalier.load("org/ollama", engine="openai", url=server.address, repair=2) as opened,
    ):
        result = opened.generate("Generate user info", json_schema=schema, closed=True)
    assert result.parsed == {"name": "Ada", "email": "a@b.c"}
    assert result.verdict is not None
    assert result.verdict.valid
    assert any("answer 2" in note for note in result.notes)


# GBNF


@row("3.1", "JSONObjectGrammar, as it is printed")
@pytest.mark.parametrize("seed", range(3))
def test_the_object_grammar(engine: espalier.LoadedEngine, seed: int) -> None:
    result = engine.generate("Generate user info", grammar=OBJECT_GRAMMAR, seed=seed, temperature=0.3, max_tokens=200)
    assert isinstance(json.loads(result.text), dict)


@row("3.2", "ToolCallGrammar")
def test_the_call_grammar(engine: espalier.LoadedEngine) -> None:
    for grammar in (CALL_GRAMMAR, espalier.ToolCallGrammar):
        result = engine.generate(HOSTS, grammar=grammar, temperature=0, top_k=1, max_tokens=200)
        assert json.loads(result.text).keys() == {"name", "args"}, result.text


@row("3.3", "ParseGBNF, NewGrammarFilter, NewFilterChain, chain.Add")
def test_a_grammar_filter_in_a_chain(demo: espalier.LoadedEngine) -> None:
    chain = espalier.FilterChain()
    chain.add(espalier.GrammarFilter(espalier.JSONObjectGrammar, demo.vocab))
    result = demo.generate("Generate user info", filters=chain, seed=1, temperature=0, max_tokens=120)
    assert isinstance(json.loads(result.text), dict)


# Schemas


@row("4.1", "SchemaToGBNF(schema): a grammar of the schema's documents, without undeclared names")
def test_the_schema_becomes_a_grammar(engine: espalier.LoadedEngine) -> None:
    grammar = espalier.schema_to_gbnf(CALL_SCHEMA, closed=True)
    for seed in range(2):
        result = engine.generate(HOSTS, grammar=grammar, seed=seed, temperature=0.2, max_tokens=120)
        value = json.loads(result.text)
        jsonschema.validate(value, CALL_SCHEMA)
        assert (value.keys(), value["args"].keys()) == ({"name", "args"}, {"path"})


@row("4.2", "NewJSONSchemaFilter(schema, tokenizer)")
def test_the_schema_filter(demo: espalier.LoadedEngine) -> None:
    spec = espalier.JsonSchema(CALL_SCHEMA, closed=True)
    chain = espalier.FilterChain([espalier.JsonSchemaFilter(spec, demo.vocab)])
    result = demo.generate(HOSTS, filters=chain, temperature=0, max_tokens=120)
    assert json.loads(result.text)["args"].keys() == {"path"}


@row("4.3", 'ToolCallSchema("read_file", ...)')
def test_the_schema_of_a_tool_call(engine: espalier.LoadedEngine) -> None:
    schema = espalier.tool_call_schema("read_file", PATH)
    result = engine.generate(HOSTS, json_schema=schema, closed=True, temperature=0, max_tokens=120)
    assert result.parsed["name"] == "read_file"
    assert result.parsed["args"].keys() == {"path"}


@row("4.4", "MultiToolCallSchema of read_file, write_file and search")
def test_the_schema_of_several_tools(engine: espalier.LoadedEngine) -> None:
    named = {"path": {"type": "string"}, "content": {"type": "string"}}
    written = {"type": "object", "properties": named, "required": ["path"]}
    query = {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}
    schema = espalier.multi_tool_call_schema({"read_file": PATH, "write_file": written, "search": query})
    result = engine.generate(HOSTS, json_schema=schema, closed=True, temperature=0, max_tokens=120)
    assert result.parsed["name"] in ("read_file", "write_file", "search")
    jsonschema.validate(result.parsed, schema)


# Safety


@row("5.1", "the categories with patterns: code injection, credentials, PII, dangerous")
@pytest.mark.parametrize("name", CAUGHT)
def test_a_category_catches(name: str) -> None:
    spec = espalier.Safety(categories=[getattr(espalier, name)])
    assert judge(spec, CAUGHT[name]).valid is False
    assert judge(spec, "Hello world.").valid is True


@row("5.2", "profanity and violence: a word list is required")
@pytest.mark.parametrize("name", ["CategoryProfanity", "CategoryViolence"])
def test_a_category_with_a_list(name: str) -> None:
    category = getattr(espalier, name)
    spec = espalier.Safety(categories=[category], lists={category: ["krump"]})
    assert judge(spec, "go krump yourself").valid is False
    with pytest.raises(espalier.EspalierError, match="needs a list"):
        espalier.Safety(categories=[category])


@row("5.3", "NewSafetyFilter, EnableCategory, ApplyPreset, AddCustomBannedPattern")
def test_the_safety_example() -> None:
    safety = SafetyFilter(Vocab.bytes())
    safety.enable_category(espalier.CategoryCodeInjection)
    safety.enable_category(espalier.CategoryCredentials)
    assert safety.spec() == espalier.Safety("standard")
    for preset in ("standard", "strict"):
        safety.apply_preset(preset)
        assert safety.spec() == espalier.Safety(preset)
    safety.add_custom_banned_pattern("rm -rf /")
    assert judge(safety.spec(), "x rm -rf / y").valid is False


@row("5.4", "the presets minimal, standard, strict, maximum, on every engine")
@pytest.mark.parametrize("preset", ["minimal", "standard", "strict", "maximum"])
def test_a_safety_preset(engine: espalier.LoadedEngine, preset: str) -> None:
    result = engine.generate("Write a bash script to list files", safety=preset, seed=1, max_tokens=24)
    assert result.verdict is not None
    assert result.verdict.valid is True
    told = " ".join(result.notes)
    assert ("code_injection" in told) == (not engine.capabilities.logits)


# The sampler's configuration


@row("6.1", "every field of SamplerConfig")
def test_the_fields_of_the_configuration(engine: espalier.LoadedEngine) -> None:
    fields = {
        "temperature": 0.5, "top_k": 20, "top_p": 0.9, "min_p": 0.05, "repetition_penalty": 1.1,
        "repetition_window": 32, "mirostat": 0, "mirostat_tau": 5.0, "mirostat_eta": 0.1, "logit_bias": {65: -1.0},
        "max_tokens": 6, "stop": ["\n\n"],
    }  # fmt: skip
    assert set(fields) == set(CONFIG.values())
    config = espalier.SamplingConfig.from_json(fields)
    result = engine.generate("Hi", sampling=config, seed=1)
    assert len(result.text) > 0


@row("6.2", "Mirostat 1 and 2 with TopK beside it")
@pytest.mark.parametrize("version", [1, 2])
def test_mirostat(engine: espalier.LoadedEngine, version: int) -> None:
    result = engine.generate("Hi", mirostat=version, mirostat_tau=5.0, mirostat_eta=0.1, top_k=40, seed=1, max_tokens=6)
    assert result.text
    assert any("top_k" in note for note in result.notes)


@row("6.3", "DeterministicConfig, StructuredOutputConfig, CodeGenerationConfig, CreativeConfig, ChatConfig")
def test_the_configurations_of_the_document(engine: espalier.LoadedEngine) -> None:
    wanted = {
        "DeterministicConfig": {"temperature": 0, "top_k": 1},
        "StructuredOutputConfig": {"temperature": 0.1, "top_k": 40},
        "CodeGenerationConfig": {"temperature": 0.2, "repetition_penalty": 1.1},
        "CreativeConfig": {"temperature": 0.8, "top_k": 100},
        "ChatConfig": {"temperature": 0.7},
    }
    for name, fields in wanted.items():
        config = getattr(espalier, name)
        assert {field: getattr(config, field) for field in fields} == fields
        assert engine.generate("Hi", sampling=config, max_tokens=3, seed=1).text


@row("6.4", 'GetPreset("tool_call"): preset.Config and preset.Grammar in a request')
def test_a_preset_in_a_request(engine: espalier.LoadedEngine) -> None:
    preset = espalier.get_preset("tool_call")
    result = engine.generate(
        "Call the read_file tool for /etc/hosts", sampling=preset.sampling, grammar=preset.grammar, max_tokens=200
    )
    assert json.loads(result.text).keys() == {"name", "args"}


@row("6.5", "NewPresetBuilder ... BuildAndRegister")
def test_the_builder(demo: espalier.LoadedEngine) -> None:
    custom = (
        espalier.PresetBuilder("my_preset")
        .description("Custom JSON generation")
        .temperature(0.2)
        .top_k(50)
        .grammar(espalier.JSONObjectGrammar)
        .safety_preset("standard")
        .build_and_register()
    )
    result = demo.generate("Generate user info", preset=custom, seed=1, max_tokens=200)
    assert isinstance(json.loads(result.text), dict)
    assert result.verdict is not None
    assert result.verdict.valid is not False


@row("6.6", "a logit of -inf bans a token")
def test_a_ban_by_bias(engine: espalier.LoadedEngine) -> None:
    free = engine.generate("Hi", temperature=0, max_tokens=1, trace="off")
    assert free.token_ids
    banned = engine.generate("Hi", temperature=0, max_tokens=1, logit_bias={free.token_ids[0]: -math.inf}, trace="off")
    assert banned.token_ids != free.token_ids


# LlamaCppClient


@pytest.fixture
def client() -> Iterator[Any]:
    with espalier.LlamaCppClient(GGUF, binary=tool("llama-completion"), threads=1) as opened:
        yield opened


@row("7.1", "NewLlamaCppClient, SetGrammar, ConfigureForToolCalls, Infer")
def test_the_client_as_in_basic_usage(client: Any) -> None:
    client.set_grammar(espalier.ToolCallGrammar)
    client.configure_for_tool_calls()
    asked = espalier.InferenceRequest(
        system_prompt="You are a helpful assistant.", user_prompt=HOSTS, max_tokens=256, temperature=0.0
    )
    assert json.loads(client.infer(asked).text).keys() == {"name", "args"}


@row("7.2", "SetGrammar, SetGrammarFile, ClearGrammar")
def test_the_grammar_methods(client: Any, tmp_path: Path) -> None:
    path = tmp_path / "grammar.gbnf"
    path.write_text(NAME_GRAMMAR)
    for setting in (lambda: client.set_grammar(NAME_GRAMMAR), lambda: client.set_grammar_file(path)):
        setting()
        asked = espalier.InferenceRequest(user_prompt="Call a tool", max_tokens=64, temperature=0.0)
        assert json.loads(client.infer(asked).text).keys() == {"name"}
    client.clear_grammar()
    assert client.grammar is None
    assert client.infer(espalier.InferenceRequest(user_prompt="Hi", max_tokens=4, seed=1)).text


@row("7.3", "SetTopK, SetTopP, SetMinP, SetRepeatPenalty, SetRepeatLastN, ConfigureForStructuredOutput")
def test_the_sampling_methods(client: Any) -> None:
    client.set_top_k(40).set_top_p(0.9).set_min_p(0.05).set_repeat_penalty(1.1).set_repeat_last_n(64)
    found = client.sampling
    assert (found.top_k, found.top_p, found.min_p) == (40, 0.9, 0.05)
    assert (found.repetition_penalty, found.repetition_window) == (1.1, 64)
    client.configure_for_structured_output()
    assert client.sampling.temperature <= 0.2
    client.configure_for_tool_calls()
    assert (client.sampling.temperature, client.sampling.top_k) == (0, 1)


@row("7.4", 'NewLlamaHTTPBackend(url), GenerateWithPreset(prompt, "tool_call")')
def test_the_http_backend(server: espalier.LoadedEngine) -> None:
    result = server.generate(HOSTS, preset="tool_call", max_tokens=200)
    assert json.loads(result.text).keys() == {"name", "args"}
    assert result.verdict is not None
    assert result.verdict.valid


# The tool of the agents


@row("8.1", "the actions generate to analyze_vocabulary of the tool `logit`")
@pytest.mark.parametrize("action", ACTIONS)
def test_an_action(engine: espalier.LoadedEngine, action: str) -> None:
    data = LogitTool(engine).call("logit", {**ACTIONS[action], "action": action}).data
    if action == "analyze_vocabulary" and engine.engine.vocab is None:  # a one-shot program tells no tokens
        assert "tokenizer not available" in data["error"]
        return
    assert data["success"], data
    jsonschema.validate(data, TOOLS["logit"].output_schema)
    if action == "generate_tool_call":
        assert json.loads(data["output"])["tool_call"]["name"] == "read_file"


@row("8.2", "the example: generate_structured of name and email, and no third property")
@pytest.mark.parametrize("seed", range(4))
def test_the_example(engine: espalier.LoadedEngine, seed: int) -> None:
    arguments = EXAMPLE["args"]
    data = LogitTool(engine).call(str(EXAMPLE["tool"]), {**arguments, "seed": seed}).data
    assert data["success"], data
    value = json.loads(data["output"])
    jsonschema.validate(value, arguments["json_schema"])
    assert value.keys() == {"name", "email"}


@row("8.3", "the schema is open where the call says so")
def test_the_example_opened(demo: espalier.LoadedEngine) -> None:
    arguments = EXAMPLE["args"]
    names = [
        json.loads(LogitTool(demo).call("logit", {**arguments, "closed": False, "seed": seed}).data["output"]).keys()
        for seed in range(3)
    ]
    assert any(one > {"name", "email"} for one in names)


# The test harness


@row("9.1", "NewLogitTestHarness, AddTestCase(json_output), RunTests, PrintResults")
def test_the_harness(demo: espalier.LoadedEngine, capsys: pytest.CaptureFixture[str]) -> None:
    case = espalier.TestCase(
        name="json_output", prompt="Generate a user object", preset="json_strict", expected_json=True,
        expected_format=r"^\s*\{.*\}\s*$", iterations=10,
    )  # fmt: skip
    report = espalier.Harness(demo).add(case).run()
    assert report.passed
    print(report)  # noqa: T201  # as the document does
    shown = capsys.readouterr().out
    assert "json_output" in shown
    assert re.search(r"10/10|100", shown)


@row("9.2", "the standard cases json_object_basic, tool_call_format, deterministic_output, code_safety")
def test_the_standard_cases(demo: espalier.LoadedEngine) -> None:
    by_name = {one.name: one for one in STANDARD}
    assert set(by_name) == {"json_object_basic", "tool_call_format", "deterministic_output", "code_safety"}
    run = [by_name[name] for name in ("json_object_basic", "deterministic_output", "code_safety")]
    assert espalier.Harness(demo).add(*run).run().passed


# The database


@row("10.1", "the tables logit_presets, logit_test_runs, generation_logs, vocab_cache in SQLite")
def test_the_tables(tmp_path: Path) -> None:
    import sqlite3

    path = tmp_path / "espalier.db"
    open_store(f"sqlite:///{path}").close()
    base = sqlite3.connect(path)
    try:
        names = {name for (name,) in base.execute("select name from sqlite_master where type = 'table'")}
    finally:
        base.close()
    assert {"logit_presets", "logit_test_runs", "generation_logs", "vocab_cache"} <= names


# The common patterns


@row("11.1", "pattern 1: guaranteed tool calls, a grammar and a safety filter")
def test_pattern_1(engine: espalier.LoadedEngine) -> None:
    result = engine.generate(
        HOSTS, grammar="@tool_call", safety="standard", sampling=espalier.DeterministicConfig, max_tokens=200
    )
    assert json.loads(result.text).keys() == {"name", "args"}
    assert judge(espalier.Safety("standard"), result.text).valid


@row("11.2", "pattern 2: safe code generation with the preset minimal")
def test_pattern_2(engine: espalier.LoadedEngine) -> None:
    result = engine.generate(
        "Write a bash script to...", safety="minimal", sampling=espalier.CodeGenerationConfig, max_tokens=40, seed=1
    )
    assert result.verdict is not None
    assert result.verdict.valid is True
    assert judge(espalier.Safety("minimal"), result.text).valid


@row("11.3", "pattern 3: deterministic JSON of a schema's grammar")
def test_pattern_3(engine: espalier.LoadedEngine) -> None:
    grammar = espalier.schema_to_gbnf(CALL_SCHEMA, closed=True)
    texts = {
        engine.generate(HOSTS, sampling=espalier.DeterministicConfig, grammar=grammar, max_tokens=120).text
        for _ in range(2)
    }
    assert len(texts) == 1
    jsonschema.validate(json.loads(texts.pop()), CALL_SCHEMA)


@row("12.1", "a hybrid: constrain the structure, not the content")
def test_structure_without_content(engine: espalier.LoadedEngine) -> None:
    schema = {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}
    result = engine.generate("Write a note", json_schema=schema, closed=True, seed=2, max_tokens=120)
    assert result.parsed.keys() == {"note"}
