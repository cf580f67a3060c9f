"""Reasoning over HTTP, for clients that ask for nothing: on every route, whole and streamed, however markers are
spelled and whoever opens the thought."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests import messages_api, responses_api
from tests.server_app import client, events
from tests.thinking_engine import MARKERS, MODEL_OPENS, PROMPT_OPENS, SWITCHED, thinking_engine

USER = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 300}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}}
TOOL = {"type": "function", "function": {"name": "find", "parameters": SCHEMA}}
CALL = '<tool_call>\n{"name": "find", "arguments": {"a": "x"}}\n</tool_call>'
SPELLINGS = {"special": {"specials": MARKERS}, "token": {"pieces": MARKERS}, "letters": {}}


def chat(c: Any, *, stream: bool = False, **body: Any) -> dict[str, Any]:
    """The parts of a chat's reply, and the usage."""
    asked = USER | body
    if not stream:
        reply = c.post("/v1/chat/completions", json=asked)
        assert reply.status_code == 200, reply.text
        (choice,) = reply.json()["choices"]
        parts = {name: choice["message"].get(name) or "" for name in ("content", "reasoning_content")}
        calls = [call["function"] for call in choice["message"].get("tool_calls") or []]
        found = {"usage": reply.json()["usage"], "warning": reply.headers.get("warning", ""), "calls": calls}
        return parts | found | {"finish": choice["finish_reason"]}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    reply = c.post("/v1/chat/completions", json=asked | options)
    chunks = [json.loads(event) for event in events(reply.text) if event != "[DONE]"]
    deltas = [choice["delta"] for chunk in chunks for choice in chunk["choices"]]
    parts = {name: "".join(delta.get(name) or "" for delta in deltas) for name in ("content", "reasoning_content")}
    pieces = [call for delta in deltas for call in delta.get("tool_calls") or []]
    begun = [{"name": call["function"]["name"], "arguments": ""} for call in pieces if "name" in call["function"]]
    for call in pieces:
        begun[call["index"]]["arguments"] += call["function"].get("arguments", "")
    finish = next(choice["finish_reason"] for chunk in reversed(chunks) for choice in chunk["choices"])
    told = [line for chunk in chunks for line in chunk.get("espalier", {}).get("warnings", [])]
    return parts | {"usage": chunks[-1]["usage"], "calls": begun, "finish": finish, "warning": "; ".join(told)}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("spelling", SPELLINGS)
@pytest.mark.parametrize("opens", ["model", "prompt"])
@pytest.mark.parametrize("body", [{}, FORMAT], ids=["free", "schema"])
def test_a_stock_client_gets_thoughts_and_answer_apart(body: Any, opens: str, spelling: str, stream: bool) -> None:
    answer = '{"a": "y"}' if body else "Hello"
    thought = f"hm {CALL} {{1}}\n</think>\n\n"
    wish = thought + answer if opens == "prompt" else "<think>\n" + thought + answer
    shown = "{% set end = '</think>' %}"  # as in templates that leave thoughts out of earlier turns
    template = PROMPT_OPENS if opens == "prompt" else shown + MODEL_OPENS
    engine = thinking_engine(wish, template, **SPELLINGS[spelling])
    with client(engine=engine) as c:
        reply = chat(c, stream=stream, **body)
    assert (reply["content"], reply["reasoning_content"], reply["finish"]) == (answer, f"hm {CALL} {{1}}", "stop")
    reasoned = reply["usage"]["completion_tokens_details"]["reasoning_tokens"]
    text = wish.partition("</think>")[0]
    marks = sum(text.count(mark) for mark in MARKERS) + 1
    per_mark = 1 if spelling != "letters" else 0
    size = len(text.encode()) + (marks if per_mark else len("</think>"))
    size -= len("<think>") * text.count("<think>") if per_mark else 0
    assert reasoned == size


@pytest.mark.parametrize("stream", [False, True])
def test_a_call_that_a_thought_mentions_is_not_made(stream: bool) -> None:
    wish = f"<think>\nmaybe {CALL} or not\n</think>\n\n"
    for answer, calls in (("Just text", []), (CALL, [{"name": "find", "arguments": '{"a": "x"}'}])):
        with client(engine=thinking_engine(wish + answer, SWITCHED, specials=MARKERS)) as c:
            reply = chat(c, stream=stream, tools=[TOOL], espalier={"tool_format": "hermes"})
        assert reply["calls"] == calls
        assert reply["content"] == ("" if calls else answer)
        assert reply["reasoning_content"] == f"maybe {CALL} or not"


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("stop", ["four", "\n", "</", "ur"])
def test_a_stop_text_never_ends_the_reasoning(stop: str, stream: bool) -> None:
    with client(engine=thinking_engine("the four\nur </ big\n</think>\n\nThe four </ ur\n.")) as c:
        reply = chat(c, stream=stream, stop=stop)
        asked = chat(c, stream=stream, stop=stop, espalier={"hold_reasoning": True})
    assert reply["reasoning_content"] == "the four\nur </ big"
    assert reply["content"] == "The four </ ur\n.".partition(stop)[0]
    assert reply["finish"] == "stop"
    assert asked["content"] == ""


@pytest.mark.parametrize("stream", [False, True])
def test_messages_and_responses_have_the_reasoning_in_their_own_shapes(stream: bool) -> None:
    engine = thinking_engine("hm</think>Hello", specials=MARKERS)
    with client(engine=engine) as c:
        body = {"messages": USER["messages"], "max_tokens": 100, "temperature": 0}
        message = messages_api.gathered(messages_api.streamed(c, body)) if stream else messages_api.whole(c, body)
        ask = {"input": "Hi", "temperature": 0, "max_output_tokens": 100}
        response = responses_api.gathered(responses_api.streamed(c, ask)) if stream else responses_api.whole(c, ask)
    kinds = [(block["type"], block.get("thinking") or block.get("text")) for block in message["content"]]
    assert kinds == [("thinking", "hm"), ("text", "Hello")]
    assert [item["type"] for item in response["output"]] == ["reasoning", "message"]
    assert response["output"][0]["content"][0]["text"] == "hm"
    assert responses_api.text_of(response) == "Hello"
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == len("hm") + 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_plain_prompt_that_has_opened_the_thought_is_gone_on_with(stream: bool) -> None:
    engine = thinking_engine('hm</think>{"a": "y"}', specials=MARKERS)
    body = {"temperature": 0, "max_tokens": 100, "stream": stream, **FORMAT}
    with client(engine=engine) as c:
        replies = [c.post("/v1/completions", json=body | {"prompt": prompt}) for prompt in ("Q<think>\n", "Q")]
        texts = []
        for reply in replies:
            chunks = (
                [json.loads(event) for event in events(reply.text) if event != "[DONE]"] if stream else [reply.json()]
            )
            texts.append("".join(choice["text"] for chunk in chunks for choice in chunk["choices"]))
    # The text of a completion is all that follows the prompt.
    assert texts[0] == 'hm</think>{"a": "y"}'
    assert json.loads(texts[1])


OFF: dict[str, dict[str, Any]] = {
    "enable_thinking": {"enable_thinking": False},
    "template": {"chat_template_kwargs": {"enable_thinking": False}},
    "thinking variable": {"chat_template_kwargs": {"thinking": False}},
    "effort": {"reasoning_effort": "none"},
    "responses": {"reasoning": {"effort": "none"}},
    "openrouter": {"reasoning": {"enabled": False}},
    "anthropic": {"thinking": {"type": "disabled"}},
    "budget": {"thinking_token_budget": 0},
    "ours": {"espalier": {"reasoning": "none"}},
}


@pytest.mark.parametrize("asked", OFF)
@pytest.mark.parametrize("template", [SWITCHED, PROMPT_OPENS], ids=["switched", "opened"])
def test_thinking_is_switched_off_in_the_words_of_each_dialect(template: str, asked: str) -> None:
    with client(engine=thinking_engine('{"a": "y"}', template, specials=MARKERS)) as c:
        reply = chat(c, **FORMAT, **OFF[asked])
        prompt = c.post("/apply-template", json={"messages": USER["messages"], **OFF[asked]})
    assert (reply["content"], reply["reasoning_content"]) == ('{"a": "y"}', "")
    if prompt.status_code == 200:
        assert prompt.json()["prompt"].endswith("</think>\n\n")


LIMITS: dict[str, tuple[dict[str, Any], int]] = {
    "anthropic": ({"thinking": {"type": "enabled", "budget_tokens": 20}}, 20),
    "openrouter": ({"reasoning": {"max_tokens": 20}}, 20),
    "vllm": ({"thinking_token_budget": 20}, 20),
    "llama-server": ({"thinking_budget_tokens": 20}, 20),
    "ours": ({"espalier": {"max_reasoning": 20}}, 20),
    "ours first": ({"espalier": {"max_reasoning": 20}, "thinking_token_budget": 50}, 20),
    "effort": ({"reasoning_effort": "minimal"}, 512),
}


@pytest.mark.slow
@pytest.mark.parametrize("asked", LIMITS)
def test_a_budget_of_each_dialect_limits_the_reasoning(asked: str) -> None:
    body, most = LIMITS[asked]
    # The model would think for longer than that, and after the end marker goes on where it was.
    with client(engine=thinking_engine("hm, " * (most // 2) + "</think>Hello", specials=MARKERS)) as c:
        reply = chat(c, **body | {"max_tokens": most + 40})
    # The end marker follows at once, as one token or in letters.
    assert most < reply["usage"]["completion_tokens_details"]["reasoning_tokens"] <= most + len("</think>")


@pytest.mark.parametrize("effort", ["low", "medium", "high"])
def test_an_effort_reaches_templates_that_have_levels(effort: str) -> None:
    template = "{{ reasoning_effort }}|" + PROMPT_OPENS
    with client(engine=thinking_engine("hm</think>Hello", template, specials=MARKERS)) as c:
        for field in ({"reasoning_effort": effort}, {"reasoning": {"effort": effort}}):
            prompt = c.post("/apply-template", json={"messages": USER["messages"], **field}).json()["prompt"]
            assert prompt.startswith(f"{effort}|")


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"enable_thinking": True, "thinking": {"type": "disabled"}}, "thinking"),
        ({"enable_thinking": True, "chat_template_kwargs": {"enable_thinking": False}}, "chat_template_kwargs"),
        ({"thinking": {"type": "perhaps"}}, "thinking.type"),
        ({"reasoning": {"enabled": False}, "thinking": {"type": "enabled"}}, "reasoning.enabled"),
        ({"enable_thinking": True, "reasoning_effort": "none"}, "reasoning_effort"),
        ({"thinking": {"type": "enabled"}, "reasoning": {"effort": "none"}}, "reasoning.effort"),
        ({"enable_thinking": True, "thinking_token_budget": 0}, "thinking_token_budget"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(body: Any, field: str) -> None:
    with client(engine=thinking_engine("hm</think>Hello")) as c:
        reply = c.post("/v1/chat/completions", json=USER | body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)


@pytest.mark.parametrize("limit", [{"reasoning_effort": "low"}, {"thinking_token_budget": 50}])
def test_a_limit_of_reasoning_does_not_switch_on_what_another_field_switches_off(limit: Any) -> None:
    with client(engine=thinking_engine("Hello", PROMPT_OPENS, specials=MARKERS)) as c:
        assert chat(c, enable_thinking=False, **limit)["reasoning_content"] == ""


def test_a_budget_of_no_tokens_beside_an_effort_switches_off() -> None:
    with client(engine=thinking_engine("Hello", PROMPT_OPENS, specials=MARKERS)) as c:
        reply = chat(c, reasoning_effort="low", thinking_token_budget=0)
    assert (reply["content"], reply["reasoning_content"]) == ("Hello", "")


def test_the_contract_of_a_schema_says_that_the_model_reasons_first() -> None:
    with client(engine=thinking_engine('hm</think>{"a": "y"}', specials=MARKERS)) as c:
        ours = c.post("/v1/chat/completions", json=USER | FORMAT | {"espalier": {}}).json()["espalier"]
        off = c.post("/v1/chat/completions", json=USER | FORMAT | {"espalier": {"reasoning": "none"}}).json()[
            "espalier"
        ]
    assert [entry["verdict"] for entry in ours["contract"] if entry["keyword"] == "reasoning"] == ["enforced"]
    assert any("may reason first" in note for note in ours["outputs"][0]["notes"])
    assert not [entry for entry in off["contract"] if entry["keyword"] == "reasoning"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    "body", [FORMAT, {"tools": [TOOL], "espalier": {"tool_format": "hermes"}}], ids=["schema", "call"]
)
def test_a_stop_text_that_cuts_a_constrained_reply_is_told(body: Any, stream: bool) -> None:
    wish = '{"a": "x}y"}' if body is FORMAT else CALL.replace('"x"', '"x}y"')
    with client(engine=thinking_engine(wish, MODEL_OPENS)) as c:
        cut = chat(c, stream=stream, stop=["}"], **body)
        refusing = body | {"espalier": body.get("espalier", {}) | {"on_stop": "error"}}
        refused = c.post("/v1/chat/completions", json=USER | refusing | {"stop": ["}"]})
        whole = chat(c, stream=stream, stop=["zzz"], **body)
    assert (cut["finish"], "cut the text before it satisfied" in cut["warning"]) == ("length", True)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "stop")
    assert (whole["finish"] in ("stop", "tool_calls"), whole["warning"]) == (True, "")


def test_a_stop_text_behind_a_whole_text_cuts_nothing() -> None:
    with client(engine=thinking_engine("hello world", MODEL_OPENS)) as c:
        reply = chat(c, stop=[" "], structured_outputs={"regex": "[a-z]+( [a-z]+)*"})
    assert (reply["content"], reply["finish"], reply["warning"]) == ("hello", "stop", "")


def test_other_routes_tell_a_text_that_a_stop_text_cut() -> None:
    with client(engine=thinking_engine('{"a": "x}y"}', MODEL_OPENS)) as c:
        ask = {"max_tokens": 100, "temperature": 0, "stop_sequences": ["}"], "messages": USER["messages"]}
        message = c.post(
            "/v1/messages", json=ask | {"output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}}
        )
        shape = {"format": {"type": "json_schema", "name": "x", "strict": True, "schema": SCHEMA}}
        response = c.post("/v1/responses", json={"input": "Hi", "temperature": 0, "stop": ["}"], "text": shape})
        plain = c.post(
            "/v1/completions", json={"prompt": "Hi", "max_tokens": 100, "stop": ["}"], "temperature": 0, **FORMAT}
        )
    for reply in (message, response, plain):
        assert reply.status_code == 200, reply.text
        assert "cut the text before it satisfied" in reply.headers["warning"]
    assert message.json()["stop_reason"] == "stop_sequence"
    assert response.json()["status"] == "incomplete"
    assert plain.json()["choices"][0]["finish_reason"] == "length"
