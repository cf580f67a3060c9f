"""gpt-oss over every route, whole and streamed, and in Python: reasoning, answers, formats and calls of a client that
asks for nothing in particular."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from pydantic import BaseModel
from starlette.testclient import TestClient

from espalier import Ban, JsonSchema
from espalier.api import make_request
from espalier.engines.base import FinishEvent
from espalier.errors import InputError
from tests.gpt_oss import FINAL, PREAMBLE, THOUGHT, call, model, read_by_openai
from tests.server_app import events, make_app, settings

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False}
CITY = {
    "type": "object",
    "properties": {"city": {"type": "string"}},
    "required": ["city"],
    "additionalProperties": False,
}
OSLO = '{"city": "Oslo"}'
TOOL = {"type": "function", "function": {"name": "get_weather", "parameters": CITY}}
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}
ASKED = [{"role": "user", "content": "What is the weather in Oslo?"}]
FIVE = f'{THOUGHT}<|channel|>final <|constrain|>json<|message|>{{"a": 5}}'
TURNS: dict[str, tuple[str, dict[str, Any], tuple[str, list[tuple[str, str]]]]] = {
    "plain": (f"{THOUGHT}{FINAL}Hello", {}, ("Hello", [])),
    "format": (FIVE, {"response_format": FORMAT}, ('{"a": 5}', [])),
    "tools, an answer": (f"{THOUGHT}{FINAL}Hello", {"tools": [TOOL]}, ("Hello", [])),
    "tools, a call": (THOUGHT + call("get_weather", OSLO), {"tools": [TOOL]}, ("", [("get_weather", OSLO)])),
    "in the role": (
        THOUGHT + call("get_weather", OSLO, in_role=True),
        {"tools": [TOOL], "tool_choice": "required"},
        ("", [("get_weather", OSLO)]),
    ),
    "preamble": (
        THOUGHT + PREAMBLE + call("get_weather", OSLO),
        {"tools": [TOOL]},
        ("First the weather.", [("get_weather", OSLO)]),
    ),
    "both": (FIVE, {"tools": [TOOL], "response_format": FORMAT}, ('{"a": 5}', [])),
    "none": (f"{THOUGHT}{FINAL}Hello", {"tools": [TOOL], "tool_choice": "none"}, ("Hello", [])),
}  # fmt: skip


@contextmanager
def api(wish: str) -> Iterator[TestClient]:
    with TestClient(make_app(engine=model(wish), config=settings()), raise_server_exceptions=False) as client:
        yield client


def post(client: TestClient, path: str, body: dict[str, Any]) -> Any:
    reply = client.post(path, json={"temperature": 0, **body})
    assert reply.status_code == 200, reply.text
    return reply


@pytest.mark.parametrize("name", TURNS)
def test_chat_whole_and_streamed(name: str) -> None:
    wish, fields, (content, called) = TURNS[name]
    body = {"messages": ASKED, "max_tokens": 300, **fields}
    with api(wish) as client:
        whole = post(client, "/v1/chat/completions", body).json()
        chunks = events(post(client, "/v1/chat/completions", body | {"stream": True}).text)
    (choice,) = whole["choices"]
    message = choice["message"]
    assert (message["content"] or "", message["reasoning_content"]) == (content, "hm < 3")
    assert [(one["function"]["name"], one["function"]["arguments"]) for one in message.get("tool_calls", [])] == called
    assert choice["finish_reason"] == ("tool_calls" if called else "stop")
    usage = whole["usage"]["completion_tokens_details"]
    assert len("hm < 3") <= usage["reasoning_tokens"] <= len("hm < 3") + len("<|channel|>analysis<|message|><|end|>")
    deltas = [json.loads(chunk)["choices"][0]["delta"] for chunk in chunks if chunk != "[DONE]"]
    assert "".join(delta.get("content") or "" for delta in deltas) == content
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "hm < 3"
    pieces = [piece["function"] for delta in deltas for piece in delta.get("tool_calls") or []]
    assert "".join(piece.get("arguments") or "" for piece in pieces) == "".join(text for _, text in called)


def test_responses_whole_and_streamed() -> None:
    body = {
        "input": "What is the weather?",
        "max_output_tokens": 300,
        "tools": [{**TOOL["function"], "type": "function"}],
    }
    with api(TURNS["preamble"][0]) as client:
        output = post(client, "/v1/responses", body).json()["output"]
        text = post(client, "/v1/responses", body | {"stream": True}).text
    assert [item["type"] for item in output] == ["reasoning", "message", "function_call"]
    assert output[1]["content"][0]["text"] == "First the weather."
    assert (output[2]["name"], output[2]["arguments"]) == ("get_weather", OSLO)
    streamed = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    (done,) = (event for event in streamed if event["type"] == "response.completed")
    assert [item["type"] for item in done["response"]["output"]] == ["reasoning", "message", "function_call"]
    with api(FIVE) as client:
        asked = {"format": {"type": "json_schema", "name": "x", "strict": True, "schema": SCHEMA}}
        reply = post(client, "/v1/responses", {"input": "x", "max_output_tokens": 300, "text": asked}).json()
    assert reply["output"][1]["content"][0]["text"] == '{"a": 5}'


def test_messages_whole_and_streamed() -> None:
    tool = {"name": "get_weather", "input_schema": CITY}
    body = {"model": "fake", "messages": ASKED, "max_tokens": 300, "tools": [tool]}
    with api(TURNS["preamble"][0]) as client:
        reply = post(client, "/v1/messages", body).json()
        text = post(client, "/v1/messages", body | {"stream": True}).text
    assert [block["type"] for block in reply["content"]] == ["thinking", "text", "tool_use"]
    assert (reply["content"][2]["input"], reply["stop_reason"]) == ({"city": "Oslo"}, "tool_use")
    assert "First the weather." in "".join(
        event["delta"].get("text", "") for line in text.splitlines() if line.startswith("data: ")
        if (event := json.loads(line[6:]))["type"] == "content_block_delta"
    )  # fmt: skip


def request(wish: str, prompt: Any, constraint: Any = None, **fields: Any) -> Any:
    """The result of a request in Python, with fields that other edges set."""
    made = make_request(prompt, constraint=constraint, sampling={"temperature": 0, "max_tokens": 50}, trace="summary")
    events = model(wish).engine.run([replace(made, **fields)])
    (end,) = (event for event in events if isinstance(event, FinishEvent))
    return end.result


def test_effort_reaches_the_template() -> None:
    sizes = {}
    with api(f"{FINAL}Hello") as client:
        for effort, fields in (
            ("high", {"reasoning_effort": "high"}),
            ("low", {"chat_template_kwargs": {"reasoning_effort": "low"}}),
            ("medium", {}),
        ):
            reply = post(client, "/v1/chat/completions", {"messages": ASKED, **fields}).json()
            sizes[effort] = reply["usage"]["prompt_tokens"] - len(effort)  # a token is a byte
    assert len(set(sizes.values())) == 1
    low = request(FINAL, "x", template_variables={"reasoning_effort": "low"})
    assert "Reasoning: low" in low.trace.prompt


class Answer(BaseModel):
    a: int


@pytest.mark.slow
def test_python() -> None:
    engine = model(FIVE)
    result = engine.generate("x", constraint=JsonSchema(Answer), temperature=0, max_tokens=300)
    assert (result.parsed, result.content, result.reasoning) == (Answer(a=5), '{"a": 5}', "hm < 3")
    assert result.verdict.valid is True
    assert result.text == FIVE
    assert read_by_openai(result.text).reasoning == ("hm < 3",)
    cut = engine.generate("x", constraint=JsonSchema(SCHEMA), temperature=0, max_tokens=300, max_reasoning=3)
    assert (cut.parsed, len(cut.reasoning or "") < 6) == ({"a": 5}, True)
    for strategy in ("jump", "draft", "beam"):
        again = engine.generate("x", constraint=JsonSchema(SCHEMA), temperature=0, max_tokens=300, strategy=strategy)
        assert (again.parsed, again.reasoning) == ({"a": 5}, "hm < 3"), strategy


def test_stop_texts_and_bans_hold_for_the_answer() -> None:
    engine = model(f"{THOUGHT}{FINAL}hm < 3, so Hello")
    stopped = engine.generate("x", stop=["so"], temperature=0, max_tokens=300)
    assert (stopped.content, stopped.reasoning) == ("hm < 3, ", "hm < 3")
    banned = engine.generate("x", constraint=Ban(("Hello", "hm <")), temperature=0, max_tokens=300)
    assert banned.reasoning == "hm < 3"
    assert "Hello" not in banned.content
    assert "hm <" not in banned.content


def test_no_reasoning_where_none_is_wanted() -> None:
    engine = model(f"{FINAL}Hello")
    result = engine.generate("x", reasoning="none", temperature=0, max_tokens=300)
    assert (result.content, result.reasoning) == ("Hello", None)
    thinker = model(f"{THOUGHT}{FINAL}Hello").generate("x", reasoning="none", temperature=0, max_tokens=300)
    assert not thinker.reasoning


def test_an_answer_goes_on() -> None:
    messages = [*ASKED, {"role": "assistant", "content": "Hel"}]
    result = request("lo", messages, turn="continue")
    assert (result.content, result.reasoning) == ("lo", None)
    assert result.trace.prompt.endswith(f"<|start|>assistant{FINAL}Hel")
    held = [*ASKED, {"role": "assistant", "content": '{"a":'}]
    spec = JsonSchema(SCHEMA)
    result = request(" 5}", held, spec, turn="continue")
    assert (result.content, result.parsed) == (" 5}", {"a": 5})


def test_a_classifier_of_few_tokens_answers_at_once() -> None:
    few = {"allowed_ids": [ord("y"), ord("n")], "temperature": 0, "max_tokens": 1, "trace": "summary"}
    result = model("y").generate("x", **few)
    assert (result.content, result.reasoning) == ("y", None)
    assert result.trace.prompt.endswith(f"<|start|>assistant{FINAL}")
    assert "the model answers at once" in result.notes[0]


def test_a_built_in_tool_is_refused_by_name() -> None:
    wish = f'{THOUGHT}<|channel|>analysis to=browser.search code<|message|>{{"q": 1}}<|call|>'
    result = model(wish).generate("x", temperature=0, max_tokens=300)
    assert (result.content, result.reasoning, result.tool_calls) == ("", "hm < 3", ())
    assert "browser.search is a built-in tool of the model's, which nothing runs here" in result.notes[-1]
    assert result.unread[0] in result.notes
    with pytest.raises(InputError, match="browser") as error:
        request(wish, "x", template_variables={"builtin_tools": ["browser"]})
    assert error.value.field == "template_variables"


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_that_is_empty_because_of_a_call_that_nothing_runs_warns(stream: bool) -> None:
    wish = call("browser.search", '{"q": 1}').replace("functions.", "")
    body = {"messages": ASKED, "temperature": 0, "max_tokens": 300, "stream": stream}
    with api(wish) as client:
        reply = client.post("/v1/chat/completions", json=body)
    warning = json.loads(events(reply.text)[-2])["espalier"]["warnings"][0] if stream else reply.headers["warning"]
    assert "browser.search is a built-in tool of the model's, which nothing runs here" in warning
