"""What a reply contained is taken back in the next request, in every dialect, whatever the token limit cut off."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")

from starlette.testclient import TestClient

from espalier.chat.wire.formats import OPENAI
from espalier.chat.wire.render import render_calls
from tests.examples import examples
from tests.server_app import client, events, settings

Json = dict[str, Any]
PARAMETERS: Json = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "maxLength": 12},
        "days": {"type": "array", "items": {"type": "integer"}},
    },
    "required": ["city", "days"],
}
CALLS = render_calls(
    OPENAI, [("look_up", {"city": 'Oslo "N"', "days": [1, 22]}), ("look_up", {"city": "Ré", "days": []})]
)
LONGEST = len(CALLS) + 8
LIMITS = sorted({round(i * LONGEST / examples(60)) or 1 for i in range(1, examples(60) + 1)})
CHOICES = ["auto", "required"]
HELLO: Json = {"role": "user", "content": "Hi"}
FUNCTION: Json = {"name": "look_up", "parameters": PARAMETERS}


@pytest.fixture(scope="module")
def api(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestClient]:
    folder: Path = tmp_path_factory.mktemp("store")
    with client(CALLS, config=settings(store_responses="true", database_url=f"sqlite:///{folder}/store.db")) as started:
        yield started


def posted(api: TestClient, path: str, body: Json) -> Any:
    reply = api.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


def chat(api: TestClient, limit: int, choice: str) -> None:
    body = {"max_tokens": limit, "tools": [{"type": "function", "function": FUNCTION}], "tool_choice": choice}
    message = posted(api, "/v1/chat/completions", {**body, "messages": [HELLO]})["choices"][0]["message"]
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "x"} for call in message.get("tool_calls") or []]
    posted(api, "/v1/chat/completions", {**body, "messages": [HELLO, message, *results, HELLO]})


def chat_stream(api: TestClient, limit: int, choice: str) -> None:
    """The message is put together from the chunks, as SDKs do."""
    body = {"max_tokens": limit, "tools": [{"type": "function", "function": FUNCTION}], "tool_choice": choice}
    reply = api.post("/v1/chat/completions", json={**body, "stream": True, "messages": [HELLO]})
    message: Json = {"role": "assistant", "content": ""}
    calls: list[Json] = []
    for chunk in map(json.loads, events(reply.text)[:-1]):
        delta = chunk["choices"][0]["delta"] if chunk["choices"] else {}
        message["content"] += delta.get("content") or ""
        for part in delta.get("tool_calls") or []:
            if part["index"] == len(calls):
                calls.append({"id": part["id"], "type": "function", "function": {"name": "", "arguments": ""}})
            for name, text in part["function"].items():
                calls[part["index"]]["function"][name] += text or ""
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "x"} for call in calls]
    posted(api, "/v1/chat/completions", {**body, "messages": [HELLO, message | {"tool_calls": calls}, *results, HELLO]})


def responses(api: TestClient, limit: int, choice: str) -> None:
    body = {"max_output_tokens": limit, "tools": [{"type": "function", **FUNCTION}], "tool_choice": choice}
    output = posted(api, "/v1/responses", {**body, "input": [HELLO]})["output"]
    posted(api, "/v1/responses", {**body, "input": [HELLO, *output, *results_of(output), HELLO]})


def stored_responses(api: TestClient, limit: int, choice: str) -> None:
    body = {"max_output_tokens": limit, "tools": [{"type": "function", **FUNCTION}], "tool_choice": choice}
    first = posted(api, "/v1/responses", {**body, "input": "Hi"})
    more = [*results_of(first["output"]), HELLO]
    second = posted(api, "/v1/responses", {**body, "previous_response_id": first["id"], "input": more})
    posted(api, "/v1/responses", {**body, "previous_response_id": second["id"], "input": "Hi"})


def results_of(output: list[Json]) -> list[Json]:
    calls = (item for item in output if item["type"] == "function_call")
    return [{"type": "function_call_output", "call_id": call["call_id"], "output": "x"} for call in calls]


def messages(api: TestClient, limit: int, choice: str) -> None:
    kind = {"auto": "auto", "required": "any"}[choice]
    tool = {"name": "look_up", "input_schema": PARAMETERS}
    body = {"model": "fake", "max_tokens": limit, "tools": [tool], "tool_choice": {"type": kind}}
    content = posted(api, "/v1/messages", {**body, "messages": [HELLO]})["content"]
    calls = [block for block in content if block["type"] == "tool_use"]
    results = [{"type": "tool_result", "tool_use_id": block["id"], "content": "x"} for block in calls]
    answers = {"role": "user", "content": [*results, {"type": "text", "text": "Hi"}]}
    posted(api, "/v1/messages", {**body, "messages": [HELLO, {"role": "assistant", "content": content}, answers]})


def ollama(api: TestClient, limit: int, choice: str) -> None:
    body = {"model": "fake", "tools": [{"type": "function", "function": FUNCTION}], "options": {"num_predict": limit}}
    body |= {"stream": False}
    message = posted(api, "/api/chat", {**body, "messages": [HELLO]})["message"]
    results = [
        {"role": "tool", "tool_name": call["function"]["name"], "content": "x"}
        for call in message.get("tool_calls") or []
    ]
    posted(api, "/api/chat", {**body, "messages": [HELLO, message, *results, HELLO]})


DIALECTS: list[Callable[[TestClient, int, str], None]] = [
    chat, chat_stream, responses, stored_responses, messages, ollama,
]  # fmt: skip


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("dialect", DIALECTS, ids=lambda dialect: dialect.__name__)
def test_a_reply_that_the_token_limit_cut_is_taken_back(api: TestClient, dialect: Any, choice: str) -> None:
    """The two choices have the same text: each takes every other limit."""
    for limit in LIMITS[CHOICES.index(choice) :: len(CHOICES)]:
        dialect(api, limit, choice)


def test_the_calls_are_cut_in_their_names_arguments_and_between_them(api: TestClient) -> None:
    """Otherwise the test above would look at nothing."""
    body = {"tools": [{"type": "function", "function": FUNCTION}], "tool_choice": "required", "messages": [HELLO]}
    seen = set()
    for limit in LIMITS:
        message = posted(api, "/v1/chat/completions", {**body, "max_tokens": limit})["choices"][0]["message"]
        seen |= {call["function"]["arguments"] for call in message.get("tool_calls") or []}
    assert any(text.startswith("{") and not text.endswith("}") for text in seen)
    assert any(map(_is_json, seen))


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True
