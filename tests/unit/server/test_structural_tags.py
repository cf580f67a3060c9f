"""Structural tags of a chat body become the constraint of the same texts, or are refused by their construct."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("fastapi")

from espalier.constraints.free import Free, Region
from espalier.constraints.spec import Choice, Gbnf, JsonSchema, Regex
from espalier.errors import EspalierError
from espalier.server.asking.draft import ParsedRequest
from espalier.server.asking.openai import ask_chat
from espalier.server.bodies.base import read_body
from espalier.server.bodies.openai import ChatBody
from espalier.server.process.state import Process
from tests.server_app import client, make_process

ASK = {"messages": [{"role": "user", "content": "hi"}]}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}


def schema(value: Any) -> JsonSchema:
    return JsonSchema(value, format="assert")


@pytest.fixture(scope="module")
def process() -> Process:
    return make_process()


def ask(process: Process, **fields: Any) -> ParsedRequest:
    return ask_chat(read_body(ChatBody, {**ASK, **fields}, strict=False), process)


def refused(process: Process, **fields: Any) -> EspalierError:
    with pytest.raises(EspalierError) as found:
        ask(process, **fields)
    assert found.value.http_status == 400
    return found.value


TAG = {"type": "tag", "begin": "<a>", "content": {"type": "regex", "pattern": "x"}, "end": "</a>"}
IDLE = {"excludes": [], "at_least_one": False, "stop_after_first": False}


@pytest.mark.parametrize(
    ("tag", "spec"),
    [
        ({"format": {"type": "any_text"}}, None),
        ({"format": {"type": "json_schema", "json_schema": SCHEMA}}, schema(SCHEMA)),
        ({"format": {"type": "const_string", "value": "a"}}, Choice(("a",))),
        ({"format": {"type": "grammar", "grammar": 'root ::= "b"'}}, Gbnf('root ::= "b"')),
        (
            {"format": {"type": "triggered_tags", "triggers": ["<"], "tags": [TAG, {**TAG, "begin": "<b>"}], **IDLE}},
            Free({"<": [Region(Regex("x"), begin="a>", end="</a>"), Region(Regex("x"), begin="b>", end="</a>")]}),
        ),
        (
            {"structures": [{"begin": "<f=a>", "schema": SCHEMA, "end": "</f>"}], "triggers": ["<f="]},
            Free({"<f=": Region(schema(SCHEMA), begin="a>", end="</f>")}),
        ),
    ],
)
def test_structural_tags_are_translated_exactly(process: Process, tag: Any, spec: Any) -> None:
    for fields in (
        {"structural_tag": tag},
        {"structured_outputs": {"structural_tag": tag}},
        {"response_format": {"type": "structural_tag", **tag}},
    ):
        assert ask(process, **fields).constraint == spec


@pytest.mark.parametrize(
    ("tag", "field"),
    [
        ({"format": {"type": "sequence", "elements": []}}, ".format.type"),
        ({"format": {"type": "or", "elements": []}}, ".format.type"),
        (
            {"format": {"type": "triggered_tags", "triggers": ["<"], "tags": [TAG], "at_least_one": True}},
            ".format.at_least_one",
        ),
        ({"format": {"type": "triggered_tags", "triggers": ["[", "<"], "tags": [TAG]}}, ".format.triggers"),
        (
            {
                "format": {
                    "type": "triggered_tags",
                    "triggers": ["<"],
                    "tags": [{**TAG, "content": {"type": "any_text"}}],
                }
            },
            ".format.tags[0].content.type",
        ),
        ({"format": {"type": "json_schema", "json_schema": {}, "style": "qwen_xml"}}, ".format.style"),
        ({"format": 7}, ".format"),
        ({"structures": [{"begin": "<a=b>", "schema": {}, "end": ""}], "triggers": ["<b="]}, ".structures[0].begin"),
        ({"structures": [], "triggers": []}, ""),
        ("{", ""),
        ({"structures": [{"begin": "<a>", "schema": {}, "end": ""}], "triggers": ["<a>", "<b>"]}, ".triggers"),
        ({"structures": [{"begin": "<a>", "end": ""}], "triggers": ["<a>"]}, ".structures[0].schema"),
    ],
)
def test_what_of_a_structural_tag_is_not_exact_is_refused_by_its_construct(
    process: Process, tag: Any, field: str
) -> None:
    inner = {"structured_outputs": {"structural_tag": tag}}
    assert refused(process, structural_tag=tag).field == f"structural_tag{field}"
    assert refused(process, **inner).field == f"structured_outputs.structural_tag{field}"


@pytest.mark.parametrize(
    ("shape", "field"),
    [
        ({"type": "text", "schema": SCHEMA}, "schema"),
        ({"type": "text", "json_schema": {"schema": SCHEMA}}, "json_schema"),
        ({"type": "text", "structures": [], "triggers": []}, "structures"),
        ({"type": "json_object", "format": {"type": "any_text"}}, "format"),
        ({"type": "structural_tag", "format": {"type": "any_text"}, "schema": SCHEMA}, "schema"),
    ],
)
def test_what_a_format_of_another_type_holds_is_not_dropped(process: Process, shape: Any, field: str) -> None:
    assert refused(process, response_format=shape).field == f"response_format.{field}"


def test_what_a_tag_allows_is_what_is_generated() -> None:
    """The model wishes for another tag, and for text in place of the number."""
    tags = [
        {"begin": f"<f={name}>", "content": {"type": "json_schema", "json_schema": {"type": "integer"}}, "end": "</f>"}
        for name in ("a", "b")
    ]
    shape = {"type": "structural_tag", "format": {"type": "triggered_tags", "triggers": ["<f="], "tags": tags}}
    for wish, begins in (("Hi <f=b>12</f> you", "Hi <f=b>12</f> you"), ("<f=c>no</f>", "<f=")):
        with client(wish) as c:
            body = {**ASK, "response_format": shape, "max_tokens": 40, "temperature": 0, "espalier": {}}
            found = c.post("/v1/chat/completions", json=body).json()
        text = found["choices"][0]["message"]["content"]
        assert text.startswith(begins)
        if "</f>" in text:
            inner = text.partition("<f=")[2].partition("</f>")[0]
            assert inner[:2] in ("a>", "b>")
            assert isinstance(json.loads(inner[2:]), int)
            assert found["espalier"]["outputs"][0]["verdict"]["valid"] is True
