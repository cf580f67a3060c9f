"""A result on one line, and as HTML for a notebook."""

from __future__ import annotations

from base64 import b64decode
from typing import Any

import pytest

import espalier
from espalier.constraints.verdict import Verdict
from espalier.engines import shown

SCHEMA = {"type": "object", "properties": {"age": {"type": "integer"}}, "required": ["age"]}


@pytest.fixture(scope="module")
def result(demo_engine: Any) -> espalier.Result:
    return demo_engine.generate("Generate user info", json_schema=SCHEMA, seed=1)


def test_a_result_is_one_line(result: espalier.Result) -> None:
    line = repr(result)
    assert line.startswith("<Result '{")
    assert "stop, valid, " in line
    assert line.endswith(" nats>")
    assert "\n" not in line
    assert len(line) <= shown.LINE


@pytest.mark.parametrize("text", ["", "a\nb", "'", "\\" * 500, "\x00\ud800" * 300, "word " * 100, "日本語" * 100])
def test_any_text_fits_a_line(text: str) -> None:
    line = shown.line(text, "stop, valid, 12345 tokens, tax 1.23e+05 nats")
    assert len(line) <= shown.LINE
    assert line.isprintable()
    assert ("…" in line) == (len(repr(text)) > 50)


def test_a_notebook_shows_text_verdict_cost_and_the_page(result: espalier.Result) -> None:
    found = result._repr_html_()
    assert "&quot;age&quot;" in found
    assert "valid, " in found
    assert " nats" in found
    page = b64decode(found.partition("base64,")[2].partition('"')[0]).decode()
    assert page.lower().startswith("<!doctype html>")


def test_a_notebook_shows_what_the_judge_says_and_no_markup_of_the_text() -> None:
    verdict = Verdict(valid=False, judge="jsonschema", errors=("<b> is no integer",))
    said = shown.facts(finish_reason="length", verdict=verdict, tokens=1, trace=None)
    assert said == "length, not valid, 1 token"
    found = shown.block("<script>", said, verdict, None)
    assert "<script>" not in found
    assert "&lt;b&gt; is no integer" in found
    assert "href" not in found
