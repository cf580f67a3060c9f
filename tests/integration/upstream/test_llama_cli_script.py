"""`scripts/llama_cli.py` beside the real llama-completion: the same argument list gives the same stdout and exit code,
also with a seed, since llama.cpp's own sampler draws. Without the built program the recorded replies are compared.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

from espalier.upstream.llama_cli.client import InferenceRequest, LlamaCppClient
from espalier.wiring import demo_model
from tests.llama_tools import tool, with_whole_stdout
from tests.server_process import clean_environment

ROOT = Path(__file__).parents[3]
SCRIPT = ROOT / "scripts" / "llama_cli.py"
MODEL = str(demo_model() / "demo.gguf")
TOOL_CALL = r"""
root   ::= "{" ws "\"name\"" ws ":" ws string ws "," ws "\"args\"" ws ":" ws object ws "}"
object ::= "{" ws (string ":" ws value ("," ws string ":" ws value)*)? "}"
array  ::= "[" ws (value ("," ws value)*)? "]"
value  ::= object | array | string | number | "true" | "false" | "null"
string ::= "\"" ([^"\\] | "\\" ["\\/bfnrt])* "\""
number ::= "-"? ([0-9] | [1-9] [0-9]*) ("." [0-9]+)?
ws     ::= [ \t\n]{0,4}
"""
NAME = r'root ::= "{" ws "\"name\"" ws ":" ws "\"" [^"]* "\"" ws "}"' + "\nws ::= [ \\t\\n]*\n"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
GRAMMAR = "{grammar}"
"""Stands for the path of a file with NAME."""
PEDROCLI = ["-p", "Call a tool", "--grammar-file", GRAMMAR, "--temp", "0.0", "--top-k", "1"]
RECORDED: list[tuple[list[str], int, str]] = [
    (PEDROCLI, 0, 'user\nCall a tool\nassistant\n{"name": "send_email"}\n\n> EOF by user\n\n\n'),
    ([*PEDROCLI, "-st"], 0, 'user\nCall a tool\nassistant\n{"name": "send_email"} [end of text]\n\n\n'),
    ([*PEDROCLI, "-no-cnv", "--no-display-prompt", "-n", "5"], 0, '{"name": "send\n\n'),
    (
        ["-p", "Hi", "--temp", "0", "-n", "8", "-sp", "-st"],
        0,
        "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nHello! How can I help you today\n\n",
    ),
    (["-p", "Hi", "--temp", "0", "-n", "0"], 0, "user\nHi\nassistant\n\n> EOF by user\n\n\n"),
    (["-p", "Hi", "-n", "0", "-no-cnv"], 0, "\n\n"),
    ([], 0, "\n> EOF by user\n\n\n"),
    (["-sys", "Be brief."], 0, "system\nBe brief.\n\n> EOF by user\n\n\n"),
    (["-no-cnv"], 255, ""),
    (["-p", "", "-no-cnv"], 255, ""),
    (["-p", "x", "--bogus", "1"], 1, ""),
    (["-p", "x", "--temp", "hot"], 1, ""),
    (["-p", "x", "--repeat-last-n", "x"], 1, ""),
    (["-p", "x", "-l", "a+1"], 1, ""),
    (["-p", "x", "--grammar-file", "/none.gbnf"], 1, ""),
    (["-p", "x", "-j", '{"type":'], 1, ""),
    (["-p", "x", "-j", '{"type":"nope"}'], 1, ""),
    (["-p"], 1, ""),
    (["-m", "/none.gguf", "-p", "x"], 1, ""),
    (["-p", "x", "--grammar", "root ::= nope"], -6, ""),
    (["-p", "x", "--grammar", "root ::= ("], -6, ""),
    (["-p", "word " * 2000, "-no-cnv"], 1, ""),
]
"""Arguments beside the model, exit code, stdout of llama-completion 0.5.0-dev."""
DRAWN = [
    [*PEDROCLI, "-no-cnv", "-n", "20"],
    ["-p", "Call a tool", "-sys", "You are a helpful assistant.", "--grammar-file", GRAMMAR, "-s", "3", "-st"],
    ["-p", "Call a tool", "--seed", "3", "-n", "6"],
    [
        "-p",
        "Generate user info",
        "--seed",
        "7",
        "-st",
        "--repeat-penalty",
        "1.2",
        "--repeat-last-n",
        "32",
        "--min-p",
        "0.1",
        "--top-p",
        "0.8",
        "--temp",
        "1.3",
    ],
    ["-p", "x", "--mirostat", "2", "--top-k", "3", "-n", "20", "-st", "-s", "3", "--repeat-penalty", "1.3"],
    ["-p", "x y", "--mirostat", "1", "--mirostat-lr", "0.2", "--mirostat-ent", "3", "-n", "20", "-st", "-s", "5"],
    ["-p", "x", "-l", "15+5", "-l", "16-inf", "-l", "15-1", "-n", "20", "-no-cnv", "-s", "1"],
    ["-p", "x", "-n", "20", "-s", "1", "--ignore-eos", "-st"],
    ["-p", "x", "--top-k", "-1", "--temp", "-1", "-n", "5", "-st"],
    ["-p", "Hi", "--temp", "0", "-n", "8", "-no-cnv", "-r", ":"],
    ["-p", "name", "--temp", "0", "-n", "30", "-no-cnv", "-r", "o"],
    ["-p", r"a\nb\x41", "-no-cnv", "-n", "5", "--temp", "0"],
    ["-p", r"a\nb", "-no-cnv", "-n", "5", "--temp", "0", "--no-escape"],
    ["-p", "x", "-no-cnv", "-s", "1", "-c", "100"],
    ["-p", '{"a"<|im_end|>', "-n", "5", "-no-cnv", "--temp", "0"],
    ["-p", "y", "--samplers", "temperature;top_k", "--top-k", "5", "-n", "12", "-st", "-s", "9"],
]


def completed(program: list[str], arguments: list[str], tmp_path: Path) -> subprocess.CompletedProcess[bytes]:
    path = tmp_path / "name.gbnf"
    path.write_text(NAME)
    model = [] if "-m" in arguments else ["-m", MODEL]
    line = [*program, *model, *(str(path) if one == GRAMMAR else one for one in arguments), "-t", "1"]
    if arguments[-1:] == ["-p"]:
        line = [*program, *model, "-p"]
    return subprocess.run(
        line,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
        timeout=300,
        env=clean_environment(GGML_NO_BACKTRACE="1", HOME=str(tmp_path), PYTHONPATH=os.environ.get("PYTHONPATH", "")),
    )


def ours(programs: Path, arguments: list[str], tmp_path: Path) -> tuple[int, bytes]:
    ran = completed([str(programs / "python"), str(SCRIPT)], arguments, tmp_path)
    return ran.returncode, ran.stdout


def real(arguments: list[str], tmp_path: Path) -> tuple[int, bytes]:
    program = [tool("llama-completion")]
    ran = with_whole_stdout(lambda: completed(program, arguments, tmp_path))
    return ran.returncode, ran.stdout


@pytest.mark.parametrize(("arguments", "code", "out"), RECORDED)
def test_exit_codes_and_stdout_are_llama_completions(
    programs: Path, arguments: list[str], code: int, out: str, tmp_path: Path
) -> None:
    assert ours(programs, arguments, tmp_path) == (code, out.encode())


@pytest.mark.parametrize(("arguments", "code", "out"), RECORDED)
def test_the_recorded_replies_are_the_real_programs(arguments: list[str], code: int, out: str, tmp_path: Path) -> None:
    assert real(arguments, tmp_path) == (code, out.encode())


@pytest.mark.slow
@pytest.mark.parametrize("arguments", DRAWN)
def test_the_same_seed_draws_the_same_text(programs: Path, arguments: list[str], tmp_path: Path) -> None:
    assert ours(programs, arguments, tmp_path) == real(arguments, tmp_path)


def test_without_a_model_it_says_so(tmp_path: Path) -> None:
    ran = subprocess.run([sys.executable, SCRIPT, "-p", "x"], capture_output=True, check=False, cwd=tmp_path)
    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"--model is required" in ran.stderr


@pytest.mark.slow
def test_a_schema_is_held_where_llama_cpps_converter_loses_it(programs: Path, tmp_path: Path) -> None:
    schema = {
        "type": "object",
        "properties": {"n": {"type": "array", "items": {"enum": [1, 2, 3]}, "minItems": 3, "uniqueItems": True}},
        "required": ["n"],
    }
    asked = ["-p", "x", "-j", json.dumps(schema), "-n", "60", "-st", "-s", "2", "--no-display-prompt"]
    code, out = ours(programs, asked, tmp_path)
    assert code == 0
    jsonschema.validate(json.loads(out.decode().removesuffix(" [end of text]\n\n\n")), schema)


@pytest.mark.slow
def test_each_line_of_stdin_is_a_turn(tmp_path: Path) -> None:
    line = [sys.executable, str(SCRIPT), "-m", MODEL, "-p", "Hi", "--temp", "0", "-n", "40", "-t", "1"]
    ran = subprocess.run(
        line,
        input="Call a tool\nand \\\nanother\n",
        capture_output=True,
        check=False,
        text=True,
        env=clean_environment(HOME=str(tmp_path)),
    )
    assert ran.returncode == 0
    assert ran.stdout.startswith("user\nHi\nassistant\nHello! How can I help you today?\n\n> ")
    assert ran.stdout.count("\n> ") == 3
    assert ran.stdout.endswith("\n> EOF by user\n\n\n")


@pytest.mark.slow
def test_the_client_of_pedrocli_runs_it_as_its_program(tmp_path: Path) -> None:
    program = tmp_path / "llama-cli"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SCRIPT}" "$@"\n')
    program.chmod(0o755)
    grammar = tmp_path / "tool.gbnf"
    grammar.write_text(TOOL_CALL)
    with LlamaCppClient(MODEL, binary=str(program), threads=1) as client:
        client.set_grammar_file(grammar).configure_for_tool_calls()
        asked = InferenceRequest(
            system_prompt="You are a helpful assistant.",
            user_prompt="Read the file /etc/hosts",
            max_tokens=256,
            temperature=0.0,
        )
        result = client.infer(asked)
    assert set(json.loads(result.text)) == {"name", "args"}
    assert result.finish_reason == "stop"
