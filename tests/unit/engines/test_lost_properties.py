"""Properties that the model wanted and that the order of a schema had passed: the result and every reply name them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest

import espalier
from espalier.chat.tools import Tool
from espalier.engines.fake import FakeStepModel, noise
from espalier.engines.local.engine import LocalEngine
from espalier.engines.local.lost_properties import property_names
from tests.thinking_engine import MODEL_OPENS, thinking_engine

FILE = {
    "type": "object",
    "properties": {"end_line": {"type": "integer"}, "path": {"type": "string"}, "start_line": {"type": "integer"}},
    "required": ["path"],
    "additionalProperties": False,
}
FIXED = {**FILE, "properties": {"end_line": {"const": 10}, "path": {"const": "a.txt"}, "start_line": {"const": 5}}}
WISH = '{"path": "a.txt", "start_line": 5, "end_line": 10}'


def engine_of(wish: str, prompt: str = "go") -> espalier.LoadedEngine:
    """A model that writes a text, and goes on behind a byte that it had to write instead; rather a bracket than
    another byte."""
    vocab = espalier.Vocab.bytes()
    target = wish.encode()

    def logits_of(ids: Sequence[int]) -> Any:
        row = noise(ids, vocab.width, 0.01)
        for rank, mark in enumerate(b'"}]'):
            row[mark] += 1 - rank / 10
        position = 0
        for byte in list(ids)[len(prompt) :]:
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
        given = {"temperature": 0, "max_tokens": 200} | (options or {})
        return engine.generate("go", raw=True, constraint=spec, **given)


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


SEVERAL = {
    "beam": {"num_beams": 3, "num_return_sequences": 2},
    "best_of": {"particles": 3, "num_return_sequences": 2, "temperature": 1.0},
    "smc": {"particles": 3, "num_return_sequences": 2, "temperature": 1.0},
    "awrs": {"particles": 3, "num_return_sequences": 2, "temperature": 1.0},
}


@pytest.mark.parametrize("trace", ["off", "steps"])
@pytest.mark.parametrize("strategy", SEVERAL)
def test_every_text_of_a_run_of_several_sequences_names_what_it_lost(strategy: str, trace: str) -> None:
    result = generate(WISH, FIXED, options={"strategy": strategy, "trace": trace, **SEVERAL[strategy]})
    assert len(result.others) == 1
    texts = [text for text in (result, *result.others) if json.loads(text.text) == {"path": "a.txt", "start_line": 5}]
    assert texts
    for text in texts:
        assert ['(without "end_line")' in note for note in text.lost] == [True]


def test_a_text_is_not_named_for_what_another_text_of_the_run_lost() -> None:
    """Of the texts that the schema has, one breaks off where the model wanted to go on, and two do not."""
    options = {"strategy": "beam", "num_beams": 4, "num_return_sequences": 4}
    result = generate(WISH.replace(" ", ""), FIXED, options=options, whitespace="compact")
    keys = {tuple(json.loads(text.text)): bool(text.lost) for text in (result, *result.others)}
    wanted = {("path", "start_line"): True, ("path",): False, ("end_line", "path", "start_line"): False}
    assert wanted.items() <= keys.items()


TOOL = {"type": "function", "function": {"name": "find", "parameters": FILE}}


@pytest.mark.parametrize("wish", [WISH, 'Say 5" wide</think>' + WISH], ids=["plain", "odd quotation marks"])
@pytest.mark.parametrize("strategy", ["mask", "rejection", "draft"])
def test_a_property_of_an_answer_beside_tools_is_named(strategy: str, wish: str) -> None:
    prompt, options = ("go", {}) if wish == WISH else ("go<think>", {"reasoning": "think"})
    with engine_of(wish, prompt) as engine:
        result = engine.generate(
            prompt,
            raw=True,
            tools=[TOOL],
            constraint=espalier.JsonSchema(FILE),
            strategy=strategy,
            temperature=0,
            max_tokens=200,
            **options,
        )
    assert json.loads(result.content) == {"path": "a.txt", "start_line": 5}
    assert ['(without "end_line")' in note for note in result.lost] == [True]


@pytest.mark.parametrize("is_open", [True, False])
def test_an_argument_of_a_tool_whose_order_is_that_of_its_schema_is_named(is_open: bool) -> None:
    schema = FILE if not is_open else {name: value for name, value in FILE.items() if name != "additionalProperties"}
    wish = '{"name": "find", "args": ' + WISH + "}"
    with engine_of(wish) as engine:
        tool = {"type": "function", "function": {"name": "find", "parameters": schema, "closed": not is_open}}
        result = engine.generate(
            "go", raw=True, tools=[tool], tool_choice="required", tool_format="args", temperature=0, max_tokens=200
        )
    (call,) = result.tool_calls
    assert bool(result.lost) == ("end_line" not in call.parsed)
    assert bool(result.lost) == is_open


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


@pytest.mark.parametrize(
    "more",
    [
        {"n": 2},
        {"n": 2, "use_beam_search": True},
        {"n": 2, "use_beam_search": True, "stream": True},
        {"stream": True, "n": 2},
    ],
    ids=["runs", "beams", "streamed beams", "streamed runs"],
)
def test_replies_with_several_outputs_say_it_of_each(more: Any) -> None:
    pytest.importorskip("fastapi")
    from tests.server_app import client, events

    body = {"prompt": "go", "temperature": 0, "max_tokens": 200, "json_schema": FILE, **more}
    with client(engine=engine_of(WISH)) as api:
        reply = api.post("/v1/completions", json=body)
    assert reply.status_code == 200, reply.text
    if "stream" not in more:
        assert "one more property" in reply.headers["warning"]
        return
    chunks = [json.loads(data) for data in events(reply.text) if data != "[DONE]"]
    told = {chunk["choices"][0]["index"]: chunk["espalier"]["warnings"] for chunk in chunks if "espalier" in chunk}
    assert "one more property" in told[0][0]
    assert len(told) == 2 or "use_beam_search" in more


def test_a_chat_with_tools_and_a_format_says_it_whole_and_in_the_last_chunk() -> None:
    pytest.importorskip("fastapi")
    from tests.server_app import client, events

    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": FILE, "strict": True}}
    body = {"messages": [{"role": "user", "content": "go"}], "temperature": 0, "max_tokens": 200}
    body |= {"tools": [TOOL], "response_format": shape}
    with client(engine=thinking_engine(WISH, MODEL_OPENS)) as api:
        reply = api.post("/v1/chat/completions", json=body)
        assert json.loads(reply.json()["choices"][0]["message"]["content"]).keys() == {"path", "start_line"}
        assert "one more property" in reply.headers["warning"]
        stream = api.post("/v1/chat/completions", json={**body, "stream": True})
    chunks = [json.loads(data) for data in events(stream.text) if data != "[DONE]"]
    (told,) = [chunk["espalier"]["warnings"] for chunk in chunks if "espalier" in chunk]
    assert "one more property" in told[0]


def test_names_of_properties_are_those_whose_order_is_open() -> None:
    inner = espalier.JsonSchema(FILE)
    assert property_names(inner) == ("end_line", "path", "start_line")
    assert property_names(espalier.JsonSchema(FILE, order="schema")) == ()
    assert property_names(espalier.Choice(["a"])) == ()
    assert property_names(None) == ()
    names = ("end_line", "path", "start_line")
    assert property_names(espalier.ToolCalls({"f": FILE}, content=inner)) == names
    assert property_names(espalier.ToolCalls({"f": FILE})) == ()  # they come in every order
    opened = [Tool(name="f", parameters={"type": "object", "properties": FILE["properties"]}, closed=False)]
    assert property_names(espalier.ToolCalls(opened)) == names
    assert property_names(espalier.ToolCalls(opened, order="any")) == ()
    assert property_names(espalier.ToolCalls(opened, format="qwen_coder")) == ()
