"""The `llama-server` program, as it comes from llama.cpp's own sources, through the command line of Espalier."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from espalier.cli.main import app
from espalier.wiring import demo_model
from tests.llama_tools import llama_server_program, tool

BINARY = tool("llama-completion")
MODEL = demo_model() / "demo.gguf"
SCHEMA = '{"type": "object", "properties": {"name": {"type": "string", "maxLength": 16}}, "required": ["name"]}'
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with llama_server_program(MODEL) as found:
        yield found


@pytest.mark.parametrize("engine", ["llama-server", "openai", "llama-cli"])
def test_the_command_line_generates_with_each_engine(engine, address, tmp_path):
    where = ["--binary", BINARY, "--model", str(MODEL)] if engine == "llama-cli" else ["--url", address]
    schema = tmp_path / "schema.json"
    schema.write_text(SCHEMA)
    asked = ["generate", "--engine", engine, *where, "--schema", str(schema), "--seed", "1", "Generate user info"]
    result = CliRunner().invoke(app, [*asked, "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert found["verdict"]["valid"] is True
    assert set(json.loads(found["text"])) >= {"name"}


def test_the_command_line_says_when_nothing_answers():
    result = CliRunner().invoke(app, ["generate", "--url", "http://127.0.0.1:9", "hello"])
    assert result.exit_code != 0
