"""Hints and remedies say a setting in the words of the place where they are read."""

from __future__ import annotations

import pytest

from espalier.errors import InputError
from espalier.trace.report import findings as f
from espalier.wording import OWN, in_fields, setting


@pytest.mark.parametrize(
    ("hint", "said"),
    [
        ("num_beams=4", '"num_beams": 4'),
        ('leave it out, or target="truncated"', 'leave it out, or "espalier": {"target": "truncated"}'),
        ("constraint=JsonSchema(...)", '"structured_outputs": {"json": ...}'),
        ("constraint=Ban(...)", '"espalier": {"constraint": {"kind": ...}}'),
        (
            'have it checked afterwards: JsonSchema(schema, allow="checked")',
            'have it checked afterwards: "espalier": {"allow": "checked"}',
        ),
        ("sampling.temperature is at least 0", "sampling.temperature is at least 0"),
        ("max_tokens=None", "max_tokens=None"),
    ],
)
def test_a_hint_over_http_names_fields(hint: str, said: str) -> None:
    assert in_fields(hint) == said


def test_an_error_over_http_has_no_argument_of_python_in_it() -> None:
    errors = pytest.importorskip("espalier.server.http.errors")
    body = errors.error_body(InputError("this needs beams", hint="num_beams=4", field="x"))
    assert body["error"]["message"] == 'this needs beams ("num_beams": 4)'


def test_what_stands_in_the_key_espalier_is_a_field_there_and_nowhere_else() -> None:
    openai = pytest.importorskip("espalier.server.bodies.openai")
    assert set(openai.EspalierOptions.model_fields) >= OWN
    assert not OWN & set(openai.ChatBody.model_fields)


def test_a_remedy_is_said_in_the_words_of_each_edge() -> None:
    edges = ("cli", "python", "http", "tool")
    assert [f.SHOW_THE_SCHEMA.how(edge) for edge in edges] == [
        "--schema-in-prompt", "schema_in_prompt=True", '"espalier": {"schema_in_prompt": true}',
        '"schema_in_prompt": true',
    ]  # fmt: skip
    assert f.BREAK_LOOPS.how("http") == '"dry_multiplier": 0.8'
    for remedy in (one for one in vars(f).values() if isinstance(one, f.Remedy)):
        assert "{how}" not in "".join(remedy.said(edge) for edge in edges)
        assert not any(" --" in remedy.said(edge) for edge in edges[1:]), remedy.action
    assert setting("max_tokens", 5, "http", flag="") == '"max_tokens": 5'
