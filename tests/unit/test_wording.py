"""Hints and remedies say a setting in the words of the place where they are read."""

from __future__ import annotations

import pickle

import pytest

from espalier.cli.hints import say_in_flags
from espalier.errors import InputError
from espalier.trace.report import findings as f
from espalier.wording import ALLOW_CHECKED, OWN, RAW, OptionText, Setting, constraint, in_flags, in_words

FLAGS = ("-o", "--num-beams", "--schema", "--target", "--raw", "--allow-checked", "--max-reasoning", "--reasoning")
BEAMS = OptionText(Setting("num_beams", 4))
TRUNCATED = OptionText("leave it out, or ", Setting("target", "truncated"))
CHECKED = OptionText("have it checked afterwards: ", ALLOW_CHECKED)


@pytest.mark.parametrize(
    ("text", "python", "http", "cli"),
    [
        (BEAMS, "num_beams=4", '"num_beams": 4', "--num-beams 4"),
        (
            TRUNCATED,
            'leave it out, or target="truncated"',
            'leave it out, or "espalier": {"target": "truncated"}',
            "leave it out, or --target truncated",
        ),
        (
            OptionText(constraint("JsonSchema")),
            "constraint=JsonSchema(...)",
            '"structured_outputs": {"json": ...}',
            "--schema SCHEMA",
        ),
        (
            OptionText(constraint("Ban")),
            "constraint=Ban(...)",
            '"espalier": {"constraint": {"kind": ...}}',
            "constraint=Ban(...)",  # these commands have no such flag
        ),
        (
            CHECKED,
            'have it checked afterwards: JsonSchema(schema, allow="checked")',
            'have it checked afterwards: "espalier": {"allow": "checked"}',
            "have it checked afterwards: --allow-checked",
        ),
        (
            OptionText("say ", RAW),
            "say raw=True",
            "say /v1/completions, whose prompt is used as it stands",
            "say --raw",
        ),
        (OptionText(Setting("dry_base", 2)), "dry_base=2", '"dry_base": 2', "-o dry_base 2"),
        (
            OptionText(Setting("max_reasoning"), " needs ", Setting("reasoning")),
            "max_reasoning needs reasoning",
            "max_reasoning needs reasoning",
            "--max-reasoning needs --reasoning",
        ),
        ("max_tokens=None stays", "max_tokens=None stays", "max_tokens=None stays", "max_tokens=None stays"),
    ],
)
def test_a_text_is_said_in_the_words_of_each_edge(text: str, python: str, http: str, cli: str) -> None:
    assert text == python == in_words(text, "python")
    assert in_words(text, "http") == http
    assert in_flags(text, FLAGS) == cli


def test_a_command_without_the_flag_gets_the_words_of_python() -> None:
    assert in_flags(TRUNCATED, ["--schema"]) == 'leave it out, or target="truncated"'


def test_a_text_with_settings_can_grow_and_go_to_another_process() -> None:
    longer = TRUNCATED + "; or another strategy"
    assert in_words(longer, "http") == 'leave it out, or "espalier": {"target": "truncated"}; or another strategy'
    assert in_words(pickle.loads(pickle.dumps(longer)), "http") == in_words(longer, "http")


def test_an_error_over_http_has_no_argument_of_python_in_it() -> None:
    errors = pytest.importorskip("espalier.server.http.errors")
    body = errors.error_body(InputError("this needs beams", hint=BEAMS, field="x"))
    assert body["error"]["message"] == 'this needs beams ("num_beams": 4)'


def test_an_error_on_the_command_line_names_flags() -> None:
    error = InputError("num_beams: 0 is too few", hint=TRUNCATED, field="num_beams")
    say_in_flags(error, FLAGS)
    assert str(error) == "--num-beams: 0 is too few (leave it out, or --target truncated)"


def test_what_stands_in_the_key_espalier_is_a_field_there_and_nowhere_else() -> None:
    openai = pytest.importorskip("espalier.server.bodies.openai")
    assert set(openai.EspalierOptions.model_fields) >= OWN
    assert not OWN & set(openai.ChatBody.model_fields)


def test_a_remedy_is_said_in_the_words_of_each_edge() -> None:
    edges = ("cli", "python", "http", "tool")
    assert [f.SHOW_THE_SCHEMA.how(edge) for edge in edges] == [
        "--schema-in-prompt",
        "schema_in_prompt=True",
        '"espalier": {"schema_in_prompt": true}',
        '"schema_in_prompt": true',
    ]
    assert f.BREAK_LOOPS.how("http") == '"dry_multiplier": 0.8'
    for remedy in (one for one in vars(f).values() if isinstance(one, f.Remedy)):
        assert "{how}" not in "".join(remedy.said(edge) for edge in edges)
        assert not any(" --" in remedy.said(edge) for edge in edges[1:]), remedy.action
    assert Setting("max_tokens", 5).said("http") == '"max_tokens": 5'
