"""The `llama-server` program, as it comes from llama.cpp's own sources, through the command line of Espalier."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

import jsonschema
import pytest
from typer.testing import CliRunner

import espalier
from espalier import JsonSchema
from espalier.cli.main import app
from espalier.errors import LimitExceeded, SchemaError, UnsupportedError
from espalier.wiring import demo_model
from tests.examples import examples
from tests.llama_tools import llama_server_program, tool
from tests.schema_fuzz import Maker

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


@pytest.fixture(scope="module")
def native(address) -> Iterator[espalier.LoadedEngine]:
    with espalier.load(address, schema_as="json_schema") as opened:
        yield opened


def test_a_schema_left_to_the_server_is_held_to_the_grammar_that_the_server_names(native):
    schema = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}}, "required": ["name"]}
    result = native.generate("Generate user info", constraint=JsonSchema(schema), seed=1, max_tokens=40)
    assert (result.verdict.valid, list(result.parsed)) == (True, ["name"])
    assert any("the server's own grammar" in note for note in result.notes)
    assert not any("LLGuidance" in note for note in result.notes)


def test_a_keyword_that_the_server_drops_is_refused_or_judged_and_never_called_held(native):
    schema = {"type": "array", "items": {"const": "a"}, "minItems": 3, "maxItems": 5, "uniqueItems": True}
    with pytest.raises(UnsupportedError, match="/uniqueItems"):
        native.generate("hello", constraint=JsonSchema(schema), max_tokens=30)
    result = native.generate("hello", constraint=JsonSchema(schema, allow="checked"), max_tokens=30)
    assert (result.verdict.valid, result.parsed) == (False, None)
    assert any("may not hold /uniqueItems" in note for note in result.notes)


def test_random_schemas_left_to_the_server_are_refused_or_satisfied_as_an_independent_validator_sees_it(native):
    made, count = Maker(Random(7), depth=2), 0
    for seed in range(examples(80)):
        schema = made.schema(2)
        try:
            result = native.generate("hello", constraint=JsonSchema(schema), seed=seed, max_tokens=60, trace="off")
        except (UnsupportedError, SchemaError, LimitExceeded):
            continue  # nothing was sent
        if result.finish_reason == "stop":
            count += 1
            errors = list(jsonschema.Draft202012Validator(schema).iter_errors(json.loads(result.text)))
            assert not errors, (schema, result.text)
    assert count
