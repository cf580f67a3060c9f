"""Properties that the model wanted and that the order of a schema had passed: the result and every reply name them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

import espalier
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.local.engine import LocalEngine
from espalier.engines.local.lost_properties import property_names

FILE = {
    "type": "object",
    "properties": {"end_line": {"type": "integer"}, "path": {"type": "string"}, "start_line": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}
WISH = '{"path": "a.txt", "start_line": 5, "end_line": 10}'


def engine_of(wish: str) -> espalier.LoadedEngine:
    """A model that writes a text, and goes on behind a byte that it had to write instead; rather a bracket than
    another byte."""
    vocab = espalier.Vocab.bytes()
    target = wish.encode()

    def logits_of(ids: Sequence[int]) -> Any:
        row = noise(ids, vocab.width, 0.01)
        for rank, mark in enumerate(b'"}]'):
            row[mark] += 1 - rank / 10
        position = 0
        for byte in list(ids)[len(b"go") :]:
            if target[position : position + 1] == bytes([byte]):
                position += 1
            elif (near := target.find(bytes([byte]), position, position + 12)) >= 0:
                position = near + 1
        row[target[position] if position < len(target) else vocab.eos_ids[0]] += 20
        return row

    model = FakeStepModel(logits_of, width=vocab.width, max_positions=4096)
    return espalier.LoadedEngine(
        LocalEngine(name="wish", model=model, vocab=vocab, encode=lambda text, *, add_special: list(text.encode()))
    )


def generate(wish: str, schema: Any, *, options: Any = None, **more: Any) -> espalier.Result:
    with engine_of(wish) as engine:
        spec = espalier.JsonSchema(schema, **more)
        return engine.generate("go", raw=True, constraint=spec, temperature=0, max_tokens=200, **(options or {}))


@pytest.mark.parametrize("trace", ["off", "summary", "steps"])
@pytest.mark.parametrize("strategy", ["mask", "rejection", "jump", "draft"])
def test_a_property_that_the_schema_has_passed_is_named(trace: str, strategy: str) -> None:
    result = generate(WISH, FILE, options={"trace": trace, "strategy": strategy})
    assert json.loads(result.text) == {"path": "a.txt", "start_line": 5}
    (note,) = result.lost
    assert 'one more property when none could be written any more (without "end_line")' in note
    assert note in result.notes


@pytest.mark.parametrize("strategy", ["mask", "rejection", "draft"])
def test_a_property_whose_name_the_model_begins_is_named(strategy: str) -> None:
    """Here other names may still come, so that the model gets as far as the name."""
    wish = '{"path": "a.txt", "end_line": 10, "start_line": 5}'
    result = generate(wish, FILE, options={"strategy": strategy})
    assert json.loads(result.text).keys() == {"path", "start_line"}
    assert 'the property "end_line" when it could no longer be written' in result.lost[0]


@pytest.mark.parametrize(
    ("wish", "more"),
    [
        (WISH, {"order": "any"}),
        (WISH, {"order": "schema"}),  # it was asked for
        ('{"end_line": 10, "path": "a.txt", "start_line": 5}', {}),
        ('{"path": "a.txt"}', {}),
        ('{"path": "end_line", "start_line": 1}', {}),
        ('{"path": "a.txt", "size": 5}', {}),
        ('{"path": "a.txt", "path": 5}', {}),
    ],
)
def test_nothing_is_said_where_the_order_lost_nothing(wish: str, more: Any) -> None:
    assert generate(wish, FILE, **more).lost == ()


def test_a_required_property_that_only_comes_later_is_not_lost() -> None:
    schema = {**FILE, "required": ["end_line", "path", "start_line"]}
    result = generate(WISH, schema)
    assert json.loads(result.text).keys() == {"path", "start_line", "end_line"}
    assert result.lost == ()


def test_properties_of_inner_objects_are_named_and_those_of_other_objects_are_not() -> None:
    schema = {
        "type": "object",
        "properties": {"files": {"type": "array", "items": FILE}, "total": {"type": "integer"}},
        "required": ["files"],
        "additionalProperties": False,
    }
    result = generate('{"files": [{"path": "a", "end_line": 1}, {"path": "b"}], "total": 2}', schema)
    assert len(result.lost) == 1
    assert '"end_line"' in result.lost[0]
    assert generate('{"files": [{"path": "a", "total": 1}], "total": 2}', schema).lost == ()


def test_a_reply_over_http_has_a_warning_whole_and_as_a_stream() -> None:
    pytest.importorskip("fastapi")
    from tests.server_app import client, events

    body = {"prompt": "go", "temperature": 0, "max_tokens": 200, "json_schema": FILE}
    with client(engine=engine_of(WISH)) as api:
        reply = api.post("/v1/completions", json={**body, "espalier": {}})
        assert json.loads(reply.json()["choices"][0]["text"]) == {"path": "a.txt", "start_line": 5}
        assert "one more property" in reply.headers["warning"]
        assert any("one more property" in line for line in reply.json()["espalier"]["warnings"])
        stream = api.post("/v1/completions", json={**body, "stream": True})
        chunks = [json.loads(data) for data in events(stream.text) if data != "[DONE]"]
        (told,) = [chunk["espalier"]["warnings"] for chunk in chunks if "espalier" in chunk]
        assert "one more property" in told[0]
        open_order = api.post("/v1/completions", json={**body, "espalier": {"schema_order": "any"}})
        assert json.loads(open_order.json()["choices"][0]["text"]) == json.loads(WISH)
        assert "warning" not in open_order.headers


def test_names_of_properties_are_those_whose_order_is_open() -> None:
    inner = espalier.JsonSchema(FILE)
    assert property_names(inner) == ("end_line", "path", "start_line")
    assert property_names(espalier.JsonSchema(FILE, order="schema")) == ()
    assert property_names(espalier.Choice(["a"])) == ()
    assert property_names(None) == ()
    assert property_names(espalier.ToolCalls({"f": FILE}, content=inner)) == ()
