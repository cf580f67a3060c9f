"""Random bodies of `/v1/responses` and `/v1/messages`: never a 5xx, and a stream makes the whole reply."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
pytest.importorskip("openai")

from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from tests import messages_api, responses_api
from tests.examples import examples
from tests.server_app import client

Json = dict[str, Any]
TEXTS = st.text(max_size=8).filter(lambda text: not any(0xD800 <= ord(one) <= 0xDFFF for one in text))
NAMES = st.sampled_from(["look_up", "run", "no name", ""])
JUNK = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | TEXTS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["type", "text", "id"]), inner),
    max_leaves=4,
)
SCHEMAS = st.sampled_from(
    [{"type": "object", "properties": {"a": {"enum": [1, 2]}}, "required": ["a"]}, {}, {"type": 3}]
)


def some(needed: Json, **optional: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """An object: its fixed fields, and some of the optional ones."""
    return st.fixed_dictionaries({name: st.just(one) for name, one in needed.items()}, optional=optional)


PARTS = st.lists(
    some({"type": "input_text"}, text=TEXTS) | some({"type": "output_text"}, text=TEXTS, annotations=JUNK), max_size=2
)
ITEMS = st.one_of(
    some({}, role=st.sampled_from(["user", "assistant", "developer", "boss"]), content=TEXTS | PARTS),
    some({"type": "function_call"}, call_id=TEXTS, name=NAMES, arguments=st.sampled_from(["", "{}", '{"a":1}', "{"])),
    some({"type": "custom_tool_call"}, call_id=TEXTS, name=NAMES, input=TEXTS),
    some({"type": "function_call_output"}, call_id=TEXTS, output=TEXTS | PARTS),
    some({"type": "reasoning"}, summary=JUNK, content=JUNK, encrypted_content=TEXTS),
    JUNK,
)
TOOLS = st.one_of(
    some({"type": "function", "name": "look_up"}, parameters=SCHEMAS, strict=st.booleans(), description=TEXTS),
    some(
        {"type": "custom", "name": "run"},
        format=st.sampled_from(
            [
                {"type": "text"},
                {"type": "grammar", "syntax": "regex", "definition": "[ab]{2}"},
                {"type": "grammar"},
                {"type": "grammar", "syntax": "lark", "definition": 'start: "a" start | "b"'},
            ]
        ),
    ),
    JUNK,
)
RESPONSES = some(
    {"seed": 1},
    input=TEXTS | st.lists(ITEMS, max_size=3),
    instructions=TEXTS,
    max_output_tokens=st.integers(0, 24),
    tools=st.lists(TOOLS, max_size=2),
    reasoning=some({}, effort=st.sampled_from(["none", "low"]), summary=JUNK),
    tool_choice=st.sampled_from(["auto", "none", "required", {"type": "custom", "name": "run"}]) | JUNK,
    text=some({}, format=some({}, type=st.sampled_from(["text", "json_schema", "json_object"]), schema=SCHEMAS)),
    include=st.lists(st.sampled_from(["message.output_text.logprobs", "reasoning.encrypted_content"]), max_size=2),
    top_logprobs=st.integers(0, 2),
    truncation=st.sampled_from(["auto", "disabled"]),
    store=st.booleans(),
    metadata=JUNK,
    parallel_tool_calls=st.booleans(),
    previous_response_id=st.none() | TEXTS,
)
BLOCKS = st.one_of(
    some({"type": "text"}, text=TEXTS, cache_control=JUNK),
    some({"type": "tool_use"}, id=TEXTS, name=NAMES, input=JUNK),
    some({"type": "tool_result"}, tool_use_id=TEXTS, content=TEXTS, is_error=st.booleans()),
    some({"type": "thinking"}, thinking=TEXTS, signature=TEXTS),
    JUNK,
)
TURNS = some({}, role=st.sampled_from(["user", "assistant"]), content=TEXTS | st.lists(BLOCKS, max_size=3))
THINKING = some({"type": "enabled"}, budget_tokens=st.integers(0, 9))
MESSAGES = some(
    {"seed": 1},
    messages=st.lists(TURNS | JUNK, max_size=3),
    max_tokens=st.integers(0, 24),
    system=TEXTS | st.lists(BLOCKS, max_size=2),
    tools=st.lists(some({"name": "look_up"}, input_schema=SCHEMAS, strict=st.booleans()) | JUNK, max_size=2),
    tool_choice=st.sampled_from([{"type": "any"}, {"type": "auto", "disable_parallel_tool_use": True}]) | JUNK,
    stop_sequences=st.lists(TEXTS, max_size=2),
    thinking=JUNK | THINKING,
    output_config=some({}, format=some({"type": "json_schema"}, schema=SCHEMAS)),
    context_management=JUNK,
)


@pytest.fixture(scope="module")
def api() -> Iterator[TestClient]:
    with client("Hello there.") as found:
        yield found


def holds(api: TestClient, path: str, kind: Any, body: Json) -> None:
    reply = api.post(path, json=body)
    assert reply.status_code < 500, reply.text
    if reply.status_code == 200:
        assert kind.content(kind.gathered(kind.streamed(api, body))) == kind.content(kind.checked(reply.json()))
    elif kind is messages_api:
        messages_api.error_of(reply)


@settings(max_examples=examples(120))
@given(body=RESPONSES)
def test_bodies_of_responses(api: TestClient, body: Json) -> None:
    holds(api, "/v1/responses", responses_api, body)


@settings(max_examples=examples(120))
@given(body=MESSAGES)
def test_bodies_of_messages(api: TestClient, body: Json) -> None:
    holds(api, "/v1/messages", messages_api, body)
