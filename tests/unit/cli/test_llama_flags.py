"""llama.cpp's flags on `espalier generate`: each asks for what our own flag asks for, and help shows ours alone.

Seen as: `espalier generate -p "..." --grammar-file tool.gbnf --temp 0.0 -n 256`, a line of PedroCLI's, was refused at
its first flag.
"""

from __future__ import annotations

import io
import json
import math
import re
import sys
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

import espalier
from espalier.cli import generate as command
from espalier.cli.llama.generate import own_arguments
from espalier.cli.llama.reading import ArgumentError, read_arguments, read_environment
from espalier.cli.llama.table import BY_NAME, FLAGS, INPUTS
from espalier.cli.llama.values import read_bias, read_float, read_int, read_seed, unescape
from espalier.cli.main import main_code
from espalier.constraints.spec import Gbnf, JsonSchema
from espalier.errors import InputError
from espalier.sampling.config_names import LLAMA_OWN, UNLIMITED

ROOT = Path(__file__).parents[3]
GBNF = 'root ::= "yes" | "no"'
SCHEMA = '{"type": "object", "properties": {"a": {"type": "integer"}}}'
NUMBER = 'root ::= "{" ["] "a" ["] ": " [0-9] "}"'
OURS: dict[str, tuple[str, list[str]]] = {
    "model": ("some.gguf", ["--model", "some.gguf"]),
    "context": ("512", ["--ctx-size", "512"]),
    "threads": ("2", ["--threads", "2"]),
    "batch_size": ("64", ["--batch-size", "64"]),
    "gpu_layers": ("3", ["--gpu-layers", "3"]),
    "flash_attention": ("off", ["--flash-attn", "off"]),
    "kv_type": ("q8_0", ["--kv-type", "q8_0"]),
    "lora": ("a.gguf", ["--lora", "a.gguf"]),
    "n_predict": ("7", ["--max-tokens", "7"]),
    "seed": ("5", ["--seed", "5"]),
    "temperature": ("0.3", ["--temperature", "0.3"]),
    "top_k": ("9", ["--top-k", "9"]),
    "top_p": ("0.5", ["--top-p", "0.5"]),
    "min_p": ("0.2", ["--min-p", "0.2"]),
    "top_n_sigma": ("1.5", ["-o", "top_n_sigma", "1.5"]),
    "typical_p": ("0.6", ["-o", "typical_p", "0.6"]),
    "min_keep": ("2", ["-o", "min_keep", "2"]),
    "xtc_probability": ("0.4", ["-o", "xtc_probability", "0.4"]),
    "xtc_threshold": ("0.2", ["-o", "xtc_threshold", "0.2"]),
    "repeat_penalty": ("1.3", ["-o", "repetition_penalty", "1.3"]),
    "repeat_last_n": ("32", ["-o", "repetition_window", "32"]),
    "presence_penalty": ("0.1", ["-o", "presence_penalty", "0.1"]),
    "frequency_penalty": ("0.2", ["-o", "frequency_penalty", "0.2"]),
    "dry_multiplier": ("0.8", ["-o", "dry_multiplier", "0.8"]),
    "dry_base": ("1.5", ["-o", "dry_base", "1.5"]),
    "dry_allowed_length": ("3", ["-o", "dry_allowed_length", "3"]),
    "dry_penalty_last_n": ("16", ["-o", "dry_window", "16"]),
    "dry_sequence_breakers": ("!", ["-o", "dry_breakers", '["!"]']),
    "dynatemp_range": ("0.2", ["-o", "dynatemp_range", "0.2"]),
    "dynatemp_exponent": ("1.5", ["-o", "dynatemp_exponent", "1.5"]),
    "mirostat": ("2", ["-o", "mirostat", "2"]),
    "mirostat_eta": ("0.2", ["-o", "mirostat_eta", "0.2"]),
    "mirostat_tau": ("4", ["-o", "mirostat_tau", "4"]),
    "logit_bias": ("15+1.5", ["-o", "logit_bias", "[[15, 1.5]]"]),
    "ignore_eos": ("", ["-o", "ignore_eos", "true"]),
    "samplers": ("top_k;temperature", ["-o", "sampler_order", '["top_k", "temperature"]']),
    "stop": ("END", ["--stop", "END"]),
    "system": ("Be brief.", ["--system", "Be brief."]),
    "grammar": (GBNF, ["--grammar", GBNF]),
    "schema": (SCHEMA, ["--schema", SCHEMA, "--closed"]),
}
"""What a flag sets -> a value for it, and our flags that say the same."""
OTHER_VALUES = {"--sampler-seq": "kt", "--sampling-seq": "kt"}
"""Values for flags that say the same in another way."""
WITH_FILES = {
    "--grammar-file": GBNF,
    "-jf": SCHEMA,
    "--json-schema-file": SCHEMA,
    "-sysf": "Be brief.\n",
    "--system-prompt-file": "Be brief.\n",
}


@pytest.fixture
def requested(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> Any:
    """Runs the command without a model: the request, the model's name and the options of the engine."""
    monkeypatch.setenv("HOME", str(tmp_path))
    seen: dict[str, Any] = {}

    class Stop(Exception):
        """The request is there."""

    def load(model: Any, engine: Any, app: Any) -> Any:
        seen.update(model=model, engine=dict(engine))
        return nullcontext()

    def run(loaded: Any, request: Any, **_: Any) -> Any:
        seen["request"] = request
        raise Stop

    monkeypatch.setattr(command, "load", load)
    monkeypatch.setattr(command, "run", run)

    def call(*arguments: str) -> dict[str, Any]:
        seen.clear()
        with pytest.raises(Stop):
            main_code(["generate", *arguments])
        return dict(seen)

    return call


def cases() -> list[Any]:
    return [
        pytest.param(name, flag, id=name)
        for flag in FLAGS
        for name in flag.names
        if flag.sets in OURS and not flag.refused
    ]


def test_the_table_above_has_every_flag_that_sets_something() -> None:
    special = {"prompt", "escapes", "conversation", "single_turn", "special", "display_prompt"}
    assert {flag.sets for flag in FLAGS} - {None} == OURS.keys() | special
    assert INPUTS.keys() == special | {"model", "system", "grammar", "schema"}
    names = [name for flag in FLAGS for name in flag.names]
    assert len(names) == len(set(names)) == len(BY_NAME)


@pytest.mark.parametrize(("name", "flag"), cases())
def test_each_flag_asks_for_what_our_own_flag_asks_for(name: str, flag: Any, requested: Any, tmp_path: Any) -> None:
    value, ours = OURS[flag.sets]
    value = OTHER_VALUES.get(name, value)
    if name in WITH_FILES:
        path = tmp_path / "file"
        path.write_text(WITH_FILES[name])
        value = str(path)
    theirs = [name] if flag.read is None else [name, value]
    assert requested(*theirs, "Hello") == requested(*ours, "Hello")
    assert requested("Hello", *theirs) == requested("Hello", *ours)
    if flag.sets in LLAMA_OWN:  # the flag does something
        usual = requested("Hello")["request"].sampling
        assert requested(*theirs, "Hello")["request"].sampling != usual or flag.sets == "mirostat_eta"


def test_the_prompt_of_p_and_f_is_the_argument_with_its_escapes_read(requested: Any, tmp_path: Any) -> None:
    path = tmp_path / "prompt.txt"
    path.write_text("one\\ttwo\n\n")
    assert requested("-p", "a\\nb")["request"] == requested("a\nb")["request"]
    assert requested("--prompt", "a\\nb", "--no-escape")["request"] == requested("a\\nb")["request"]
    assert requested("-f", str(path))["request"] == requested("one\ttwo\n")["request"]
    assert requested("-bf", str(path))["request"] == requested("one\ttwo\n\n")["request"]
    assert (
        requested("-p", "--not-a-flag", "-n", "3")["request"] == requested("-n", "3", "--", "--not-a-flag")["request"]
    )


def test_no_cnv_is_raw_and_has_no_system_prompt(requested: Any, capsys: pytest.CaptureFixture[str]) -> None:
    raw = requested("--raw", "x")
    assert requested("-no-cnv", "-p", "x") == requested("--no-conversation", "-p", "x") == raw
    assert requested("-no-cnv", "-sys", "Be brief.", "-p", "x") == raw
    assert "the system prompt is left out" in capsys.readouterr().err
    assert requested("-cnv", "-st", "-p", "x") == requested("x")


@pytest.mark.parametrize("flag", [one for one in FLAGS if one.sets is None and not one.refused])
def test_a_flag_that_no_text_depends_on_changes_nothing(flag: Any, requested: Any) -> None:
    for name in flag.names:
        if name not in ("-np", "--parallel", "--device"):  # our own
            assert requested(name, *(["1"] if flag.read else []), "-p", "x") == requested("x"), name


@pytest.mark.parametrize("flag", [one for one in FLAGS if one.refused], ids=lambda one: one.names[0])
def test_a_flag_that_would_change_the_text_and_cannot_is_refused_by_name(
    flag: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in flag.names:
        assert main_code(["generate", name, *(["1"] if flag.read else []), "-p", "x"]) == 2
        assert f"{name} cannot be done here: {flag.refused}" in capsys.readouterr().err


def test_words_that_only_llama_cpp_knows_mean_the_same_on_flags_that_both_have(requested: Any) -> None:
    assert requested("-c", "0", "-p", "x") == requested("x")
    assert requested("-ngl", "auto", "-p", "x") == requested("x")
    assert requested("-ngl", "all", "-p", "x") == requested("-ngl", "-1", "x")
    assert requested("-n", "-1", "-p", "x") == requested("-n", "-2", "-p", "x")
    assert requested("-n", "-1", "-p", "x")["request"].sampling.max_tokens == UNLIMITED
    assert requested("--temp", "-1", "-p", "x") == requested("--temperature", "0", "x")
    assert requested("--repeat_penalty", "1.3", "-p", "x") == requested("--repeat-penalty=1.3", "x")


def test_later_flags_replace_earlier_ones_and_biases_add_up(requested: Any) -> None:
    two = requested("--temp", "1", "--temp", "0.5", "-n", "3", "--predict", "4", "-p", "x")
    assert two == requested("--temperature", "0.5", "--max-tokens", "4", "x")
    biased = requested("-l", "5+1", "--logit-bias", "5-0.25", "-l", "6-inf", "-p", "x")["request"].sampling
    assert dict(biased.logit_bias) == {5: 0.75, 6: -math.inf}
    assert (
        requested("--grammar", NUMBER, "-j", SCHEMA, "-p", "x")["request"].constraint.kind == "all_of"
    )  # both are ours
    last = read_arguments(["--grammar", GBNF, "-j", SCHEMA])
    assert last.inputs == {"schema": SCHEMA}


def test_pedroclis_argument_list_is_taken_as_it_is(requested: Any, tmp_path: Any) -> None:
    grammar = tmp_path / "tool-call.gbnf"
    grammar.write_text(GBNF)
    line = ["-m", "model.gguf", "-p", "Call", "--grammar-file", str(grammar), "--temp", "0.0", "--top-k", "1"]
    seen = requested(*line)
    assert seen["model"] == "model.gguf"
    assert seen["request"].constraint == Gbnf(GBNF)
    sampling = seen["request"].sampling
    assert (sampling.temperature, sampling.top_k, sampling.is_greedy) == (0.0, 1, True)


def test_a_json_schema_is_closed_as_llama_cpps_converter_closes_it(requested: Any) -> None:
    assert requested("-j", SCHEMA, "-p", "x")["request"].constraint == JsonSchema(json.loads(SCHEMA), closed=True)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-p", "x", "y"], "the prompt is given twice"),
        (["-p"], "-p has no value"),
        (["--temp", "hot", "-p", "x"], "--temp hot: that is no value of it"),
        (["-l", "five+1", "-p", "x"], "-l five+1: that is no value of it"),
        (["-j", '{"type":', "-p", "x"], "-j"),
        (["--grammar-file", "/none.gbnf", "-p", "x"], "--grammar-file /none.gbnf"),
        (["--repeat-penalty", "1.2", "-o", "repeat_penalty", "1.1", "x"], "--repetition-penalty is given twice"),
        (["--tmp", "1", "-p", "x"], "--tmp"),
    ],
)
def test_what_is_wrong_is_named(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main_code(["generate", *arguments]) == 2
    assert words in capsys.readouterr().err


def test_help_shows_our_own_flags_alone(capsys: pytest.CaptureFixture[str]) -> None:
    assert main_code(["generate", "--help"]) == 0
    shown = capsys.readouterr().out
    for hidden in ("--temp ", "--repeat-penalty", "--grammar-file", "--mirostat-ent", "-no-cnv", "--logit-bias"):
        assert hidden not in shown


def test_a_prompt_from_stdin_still_works_beside_theirs(requested: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("from stdin\n"))
    assert requested("--temp", "0", "-")["request"].prompt == "from stdin"


@pytest.mark.parametrize(("text", "value"), [("12abc", 12), (" -3", -3), ("5.7", 5), ("+4", 4)])
def test_whole_numbers_are_read_as_cpp_reads_them(text: str, value: int) -> None:
    assert read_int(text) == value


@pytest.mark.parametrize("text", ["", "x", "99999999999"])
def test_what_cpp_reads_as_no_whole_number_is_none(text: str) -> None:
    with pytest.raises(ValueError, match="stoi"):
        read_int(text)


def test_other_values_are_read_as_cpp_reads_them() -> None:
    assert [read_float(one) for one in ("1.5x", ".5", "1e-1", "-inf")] == [1.5, 0.5, 0.1, -math.inf]
    assert (read_seed("-1"), read_seed("4294967296"), read_seed("7")) == (2**32 - 1, 0, 7)
    assert (read_bias("15043+1"), read_bias("2-inf"), read_bias("3 - 0.5")) == ((15043, 1), (2, -math.inf), (3, -0.5))
    assert unescape(r"a\nb\tc\\n\q\x41\xc3\xa9\"\x4") == 'a\nb\tc\\n\\qAé"\\x4'
    with pytest.raises(InputError, match="UTF-8"):
        assert read_arguments(["-p", r"\xff"]).prompt


def test_the_environment_of_llama_cpp_counts_where_no_flag_is_given() -> None:
    found = read_arguments(["--temp", "0.5"])
    read_environment(found, {"LLAMA_ARG_TEMPERATURE": "1", "LLAMA_ARG_N_PREDICT": "9", "LLAMA_ARG_CTX_SIZE": "0"})
    assert (found.sampling, found.engine) == ({"temperature": 0.5, "n_predict": 9}, {})
    with pytest.raises(ArgumentError, match="LLAMA_ARG_TOP_K"):
        read_environment(found, {"LLAMA_ARG_TOP_K": "many"})


def test_our_own_argument_lists_stay_as_they_are() -> None:
    own = {"--schema": True, "--raw": False, "-o": True, "--stop": True}
    for line in (["--schema", "-p", "--raw", "hi"], ["-o", "top_k=3", "--", "-n", "5"], ["--stop=a", "-"], []):
        assert own_arguments(line, own) == line
    assert espalier.__version__


def test_the_variables_are_llama_cpps() -> None:
    """Those of `llama-completion --help` 0.5.0-dev, for flags that set something here."""
    real = {
        "-m": "MODEL",
        "-n": "N_PREDICT",
        "--temp": "TEMPERATURE",
        "--top-k": "TOP_K",
        "--top-p": "TOP_P",
        "--min-p": "MIN_P",
        "--repeat-penalty": "REPEAT_PENALTY",
        "--presence-penalty": "PRESENCE_PENALTY",
        "--frequency-penalty": "FREQUENCY_PENALTY",
        "-c": "CTX_SIZE",
        "-t": "THREADS",
        "-b": "BATCH",
        "-ngl": "N_GPU_LAYERS",
        "-fa": "FLASH_ATTN",
        "-ctk": "CACHE_TYPE_K",
        "-ctv": "CACHE_TYPE_V",
    }
    assert {name: BY_NAME[name].env for name in real} == real


def test_the_page_for_movers_lists_every_flag() -> None:
    page = (ROOT / "docs" / "how-to" / "coming-from" / "pedrocli.md").read_text(encoding="utf-8")
    rows = page.partition("| llama.cpp | `espalier generate` |")[2].partition("\n\n")[0].splitlines()
    listed = [name for row in rows for name in re.findall(r"`(-[\w-]+)`", row.split(" | ")[0])]
    assert sorted(listed) == sorted(BY_NAME)
