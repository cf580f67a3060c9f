"""`examples/plugin` is installed by pip and used in every edge: its constraint, engine, strategy, sampler, format of
tool calls and exporter."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import espalier
from espalier import registry
from espalier.cli.main import main_code
from espalier.errors import SamplingError
from espalier.sampling.chain import Chain
from espalier.wiring import demo_model
from tests.examples import examples
from tests.laws import check_matcher
from tests.plugins import install_example, on_path
from tests.server_app import client, settings

pytest.importorskip("hatchling", reason="hatchling, which builds the example, is not installed")
NAMES = {
    "constraints": "luhn",
    "engines": "parrot",
    "strategies": "cold",
    "samplers": "top_a",
    "tool_formats": "double_brackets",
    "exporters": "markdown",
}
TOOL = {"name": "add", "parameters": {"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"]}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    found = tmp_path_factory.mktemp("plugins")
    install_example(found)
    return found


@pytest.fixture(scope="module", autouse=True)
def plugged(folder: Path) -> Iterator[None]:
    with on_path(folder):
        yield


@pytest.fixture(scope="module")
def engine(plugged: None) -> Iterator[espalier.LoadedEngine]:
    with espalier.load("Pretty Polly", engine="parrot") as found:
        yield found


def is_luhn(text: str) -> bool:
    """By the table of doubled digits, as the printed form of the formula has it; shares no code with the example."""
    doubled = (0, 2, 4, 6, 8, 1, 3, 5, 7, 9)
    return sum(doubled[int(c)] if i % 2 else int(c) for i, c in enumerate(text[::-1])) % 10 == 0


def test_all_of_it_is_listed_as_ready(capsys: pytest.CaptureFixture[str]) -> None:
    found = espalier.plugins()
    assert {one.kind: one.name for one in found} == NAMES
    assert {(one.package, one.version, one.state) for one in found} == {("espalier-example", "1.0", "ready")}
    assert main_code(["plugins", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [one.to_json() for one in found]
    assert main_code(["plugins"]) == 0
    assert "samplers      top_a            espalier-example 1.0  ready" in capsys.readouterr().out.splitlines()


def test_its_constraint_keeps_the_laws_and_joins_others() -> None:
    compiled = espalier.compile(espalier.constraints.spec.Spec.from_json({"kind": "luhn", "length": 3}))
    numbers = [f"{number:03}" for number in range(1000)]
    assert [one for one in numbers if compiled.accepts(one)] == [one for one in numbers if is_luhn(one)]
    vocab_trie = espalier.wiring.build_app().compiler(espalier.Vocab.bytes()).trie
    check_matcher(compiled, trie=vocab_trie, accepted=["018"], rejected=["", "01", "019", "0018"])
    both = espalier.AllOf(compiled.spec, espalier.Regex("[1289]+"))
    assert [one for one in numbers if espalier.compile(both).accepts(one)] == [
        one for one in numbers if is_luhn(one) and set(one) <= set("1289")
    ]


def test_python(engine: espalier.LoadedEngine) -> None:
    assert engine.generate("Hello", raw=True, temperature=0.0).text == " ".join(["Pretty Polly"] * 3)
    spec = espalier.constraints.spec.Spec.from_json({"kind": "luhn", "length": 9})
    for seed in range(examples(8)):
        found = engine.generate("Card: ", constraint=spec, seed=seed)
        assert is_luhn(found.text)
        assert len(found.text) == 9
        assert found.verdict is not None
        assert (found.verdict.valid, found.verdict.judge) == (True, "luhn")
    cold = {engine.generate("x", seed=seed, strategy="cold", temperature=2.0, max_tokens=9).text for seed in range(3)}
    greedy = engine.generate("x", temperature=0.0, max_tokens=9).text
    assert cold == {greedy}
    called = engine.generate("x", tools=[TOOL], tool_choice="required", tool_format="double_brackets", seed=1)
    assert called.text.startswith("[[call {")
    assert called.text.endswith("/call]]")
    assert called.tool_calls[0].name == "add"
    trace = engine.generate("x", seed=3, max_tokens=4, top_a=0.9).trace
    assert trace is not None
    assert trace.sampling["extra"] == {"top_a": 0.9}


def test_cli(tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("card.json").write_text('{"kind": "luhn", "length": 7}')
    Path("tools.json").write_text(json.dumps([TOOL]))
    model = ["--engine", "parrot", "--model", "Polly"]
    assert (
        main_code(
            [
                "generate",
                "x",
                *model,
                "--constraint",
                "card.json",
                "--seed",
                "2",
                "-o",
                "top_a",
                "0.5",
                "--strategy",
                "cold",
                "--trace",
                "t.json",
            ]
        )
        == 0
    )
    text = capsys.readouterr().out.strip()
    assert len(text) == 7
    assert is_luhn(text)
    assert main_code(["trace", "export", "t.json", "--format", "markdown"]) == 0
    assert capsys.readouterr().out.count("\n") == 2 + len(json.loads(Path("t.json").read_text())["steps"])
    tools = ["--tools", "tools.json", "--tool-choice", "required", "--tool-format", "double_brackets"]
    assert main_code(["generate", "x", *model, *tools, "--seed", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["tool_calls"][0]["function"]["name"] == "add"
    assert main_code(["generate", "x", *model, "-o", "top_a", "7"]) == 2
    assert "top_a" in capsys.readouterr().err


def test_http(engine: espalier.LoadedEngine, tmp_path: Path) -> None:
    config = settings(trace_level="asked", database_url=f"sqlite:///{tmp_path}/t.db")
    with client(engine=engine, config=config) as http:
        ours = {
            "constraint": {"kind": "luhn", "length": 6},
            "extra": {"top_a": 0.1},
            "strategy": "cold",
            "trace": "full",
        }
        body = {"messages": [{"role": "user", "content": "x"}], "seed": 1, "espalier": ours}
        found = http.post("/v1/chat/completions", json=body).json()
        text = found["choices"][0]["message"]["content"]
        assert len(text) == 6
        assert is_luhn(text)
        name = http.get("/traces").json()["data"][0]["id"]
        assert http.get(f"/traces/{name}?format=markdown").text.startswith("| step | token |")
        assert http.get(f"/traces/{name}?format=csv").text.startswith("step,token_id")
        unknown = http.get(f"/traces/{name}?format=docx")
        assert (unknown.status_code, unknown.json()["error"]["param"]) == (400, "format")
        tools = {"tools": [{"type": "function", "function": TOOL}], "tool_choice": "required"}
        body = {"messages": [{"role": "user", "content": "x"}], **tools, "espalier": {"tool_format": "double_brackets"}}
        found = http.post("/v1/chat/completions", json=body).json()
        assert found["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "add"
        for extra, param in [({"top_a": 2}, "espalier.extra.top_a"), ({"top_b": 1}, "espalier.extra")]:
            refused = http.post("/v1/completions", json={"prompt": "x", "espalier": {"extra": extra}})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, param)


def test_its_sampler_is_what_its_formula_says_on_the_fast_and_on_the_plain_path() -> None:
    rng = np.random.default_rng(5)
    off = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
    for _ in range(examples(20)):
        row = (rng.standard_normal(300) * 3).astype(np.float32)
        probs = np.exp(row.astype(np.float64)) / np.exp(row.astype(np.float64)).sum()
        value = float(rng.uniform(0.01, 1))
        config = espalier.SamplingConfig(extra={"top_a": value}, **off)
        kept = np.flatnonzero(Chain(config).shape(row) > -np.inf)
        assert kept.tolist() == np.flatnonzero(probs >= value * probs.max() ** 2).tolist()


def test_the_order_of_its_sampler_is_the_users_and_survives_json() -> None:
    config = espalier.SamplingConfig(extra={"top_a": 0.3})
    assert config.sampler_order[-2:] == ("top_a", "temperature")
    assert "top_a" in config.active
    assert espalier.SamplingConfig.from_json(config.to_json()) == config
    first = espalier.SamplingConfig(extra={"top_a": 0.3}, sampler_order=("top_a", "top_k"))
    assert first.active == ("top_a", "top_k")
    assert espalier.SamplingConfig(extra={"top_a": 0.0}).plugged == ()


@pytest.mark.parametrize("asked", [{"strategy": "beam"}, {"strategy": "smc"}])
def test_its_truncation_is_refused_where_none_may_run(engine: espalier.LoadedEngine, asked: dict[str, object]) -> None:
    with pytest.raises(SamplingError, match="top_a"):
        engine.generate("x", top_a=0.5, max_tokens=2, **asked)


def test_mirostat_takes_the_place_of_its_truncation(engine: espalier.LoadedEngine) -> None:
    result = engine.generate("x", top_a=0.5, max_tokens=2, mirostat=2, seed=1)
    assert "mirostat takes the place of top_a, which has no effect" in result.notes
    assert result.text == engine.generate("x", max_tokens=2, mirostat=2, seed=1).text


def test_no_other_server_is_sent_its_sampler() -> None:
    from espalier.sampling.config_names import to_llama, to_openai

    config = espalier.SamplingConfig(extra={"top_a": 0.5}, top_k=0, top_p=1.0, min_p=0.0, repetition_penalty=1.0)
    for write in (to_llama, to_openai):
        with pytest.raises(SamplingError):
            write(config)


def test_the_help_of_the_command_line_imports_none_of_it(folder: Path) -> None:
    code = """import sys
from espalier import registry
from espalier.cli.main import main_code
assert main_code(["--help"]) == 0
assert registry.points.cache_info().currsize == 0
assert "espalier_example" not in sys.modules"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([*sys.path, str(folder)])}
    subprocess.run([sys.executable, "-c", code], check=True, env=env, capture_output=True)


def test_a_switch_turns_all_of_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ESPALIER_PLUGINS", "0")
    assert {one.state for one in espalier.plugins()} == {"off"}
    with pytest.raises(espalier.EspalierError, match="ESPALIER_PLUGINS"):
        espalier.generate("x", strategy="cold")
    monkeypatch.delenv("ESPALIER_PLUGINS")
    monkeypatch.setattr(registry._Switch, "forbidden", False)
    espalier.wiring.build_app(environ={"ESPALIER_PLUGINS": "0"})
    assert {one.state for one in espalier.plugins()} == {"off"}


@pytest.mark.slow
def test_on_the_demo_model(demo_engine: espalier.LoadedEngine) -> None:
    assert demo_model().is_dir()
    spec = espalier.constraints.spec.Spec.from_json({"kind": "luhn"})
    with espalier.load() as engine:
        for seed in range(examples(20)):
            found = engine.generate("Card: ", constraint=spec, seed=seed, top_a=0.2, temperature=1.5)
            assert is_luhn(found.text)
            assert len(found.text) == 16
