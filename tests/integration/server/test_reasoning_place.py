"""Where a reply has the reasoning: apart, within the content, in both or nowhere, by the fields of every dialect; whole
and streamed, and always counted."""

from __future__ import annotations

import json
from typing import Any

import pytest

from espalier.settings import KernelSettings
from espalier.wiring import App
from tests import gpt_oss, messages_api, ollama_api, responses_api
from tests.server_app import MemoryStore, client, events, settings
from tests.thinking_engine import MARKERS, MODEL_OPENS, PROMPT_OPENS, thinking_engine

Json = dict[str, Any]
USER: Json = {"messages": [{"role": "user", "content": "Hi"}], "temperature": 0, "max_tokens": 300}
SCHEMA = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"], "additionalProperties": False}
FORMAT = {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}}
TOOL = {"type": "function", "function": {"name": "find", "parameters": SCHEMA}}
CALL = '<tool_call>\n{"name": "find", "arguments": {"a": "x"}}\n</tool_call>'
INSIDE = "<think>\nhm 4\n</think>\n\n4 it is"
PLACES: dict[str, tuple[list[Json], str, str | None]] = {
    "separate": (
        [
            {},
            {"include_reasoning": True},
            {"separate_reasoning": True},
            {"reasoning_format": "auto"},
            {"reasoning_format": "deepseek", "reasoning_in_content": False},
            {"reasoning_format": "parsed"},
            {"reasoning": {"exclude": False}},
        ],
        "4 it is",
        "hm 4",
    ),
    "omitted": (
        [
            {"include_reasoning": False},
            {"include_reasoning": False, "separate_reasoning": True},
            {"reasoning_format": "hidden"},
            {"reasoning": {"exclude": True}},
        ],
        "4 it is",
        None,
    ),
    "content": (
        [
            {"separate_reasoning": False},
            {"separate_reasoning": False, "include_reasoning": True},
            {"reasoning_format": "none", "reasoning_in_content": False},
            {"reasoning_format": "raw"},
            {"reasoning_in_content": True},
        ],
        INSIDE,
        None,
    ),
    "both": ([{"reasoning_format": "deepseek-legacy"}], INSIDE, "hm 4"),
}
CASES = [(body, text, thought) for bodies, text, thought in PLACES.values() for body in bodies]
NO_EXCLUDE = [case for case in CASES if "reasoning" not in case[0]]


def choices(c: Any, *, stream: bool, **body: Any) -> list[Json]:
    """The messages of a chat, with the finish reasons, the usage and the warnings."""
    asked = USER | body
    if not stream:
        reply = c.post("/v1/chat/completions", json=asked)
        assert reply.status_code == 200, reply.text
        told = {"usage": reply.json()["usage"], "warning": reply.headers.get("warning", "")}
        return [
            {"content": "", "reasoning": None, "tool_calls": [], "finish": choice["finish_reason"]}
            | {name: value for name, value in choice["message"].items() if value is not None}
            | told
            for choice in reply.json()["choices"]
        ]
    reply = c.post("/v1/chat/completions", json=asked | {"stream": True, "stream_options": {"include_usage": True}})
    chunks = [json.loads(event) for event in events(reply.text) if event != "[DONE]"]
    messages: dict[int, Json] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            empty = {"content": "", "reasoning": None, "tool_calls": []}
            message, delta = messages.setdefault(choice["index"], empty), choice["delta"]
            message["content"] += delta.get("content") or ""
            if "reasoning" in delta:
                assert delta["reasoning"] == delta["reasoning_content"]
                message["reasoning"] = (message["reasoning"] or "") + delta["reasoning"]
            message["tool_calls"] += [call for call in delta.get("tool_calls") or () if call.get("id")]
            message["finish"] = choice["finish_reason"]
    told = {"usage": chunks[-1]["usage"], "warning": reply.headers.get("warning", "")}
    return [messages[index] | told for index in sorted(messages)]


@pytest.fixture(scope="module")
def thinker() -> Any:
    with client(engine=thinking_engine("hm 4\n</think>\n\n4 it is", specials=MARKERS)) as c:
        yield c


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("body", "text", "thought"), CASES, ids=lambda value: str(value)[:60])
def test_the_chat_route_has_reasoning_where_the_body_says(
    thinker: Any, body: Json, text: str, thought: str | None, stream: bool
) -> None:
    (message,) = choices(thinker, stream=stream, **body)
    assert (message["content"], message["reasoning"]) == (text, thought)
    assert message["usage"]["completion_tokens_details"]["reasoning_tokens"] == len("hm 4\n") + 1
    assert "without effect" not in message["warning"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("body", "text", "thought"), NO_EXCLUDE, ids=lambda value: str(value)[:60])
def test_the_other_dialects_have_it_where_the_body_says_too(
    thinker: Any, body: Json, text: str, thought: str | None, stream: bool
) -> None:
    def gather(api: Any, asked: Json, *more: Any) -> Json:
        return api.gathered(api.streamed(thinker, asked, *more), *more) if stream else api.whole(thinker, asked, *more)

    message = gather(messages_api, {"messages": USER["messages"], "max_tokens": 300, "temperature": 0, **body})
    blocks = [(block["type"], block.get("thinking") or block.get("text")) for block in message["content"]]
    assert blocks == [*([("thinking", thought)] if thought else []), ("text", text)]
    response = gather(responses_api, {"input": "Hi", "temperature": 0, "max_output_tokens": 300, **body})
    items = [(item["type"], item["content"][0]["text"]) for item in response["output"]]
    assert items == [*([("reasoning", thought)] if thought else []), ("message", text)]
    assert response["usage"]["output_tokens_details"]["reasoning_tokens"] == len("hm 4\n") + 1
    options = {"options": {"temperature": 0, "num_predict": 300}, **body}
    reply = gather(ollama_api, {"messages": USER["messages"], **options})
    assert (reply["message"]["content"], reply["message"].get("thinking")) == (text, thought)
    reply = gather(ollama_api, {"prompt": "Hi", **options}, ollama_api.GENERATE)
    assert (reply["response"], reply.get("thinking")) == (text, thought)


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("place", ["omitted", "content"])
def test_calls_stand_behind_reasoning_that_is_moved(place: str, stream: bool) -> None:
    wish = f"maybe {CALL}\n</think>\n\n{CALL}"
    with client(engine=thinking_engine(wish, PROMPT_OPENS, specials=MARKERS)) as c:
        body = {"tools": [TOOL], "espalier": {"tool_format": "hermes"}, **PLACES[place][0][0]}
        (message,) = choices(c, stream=stream, **body)
    assert message["content"] == ("" if place == "omitted" else f"<think>\nmaybe {CALL}\n</think>\n\n")
    assert (message["finish"], message["reasoning"]) == ("tool_calls", None)
    assert [call["function"]["name"] for call in message["tool_calls"]] == ["find"]


@pytest.mark.parametrize("stream", [False, True])
def test_reasoning_that_the_token_limit_cuts_stays_open_in_the_content(thinker: Any, stream: bool) -> None:
    (message,) = choices(thinker, stream=stream, max_tokens=3, reasoning_format="none")
    assert (message["content"], message["finish"]) == ("<think>\nhm ", "length")
    (message,) = choices(thinker, stream=stream, max_tokens=3, reasoning_format="deepseek-legacy")
    assert (message["content"], message["reasoning"]) == ("<think>\nhm ", "hm ")
    (message,) = choices(thinker, stream=stream, max_tokens=3, include_reasoning=False)
    assert (message["content"], message["reasoning"], message["finish"]) == ("", None, "length")
    assert message["usage"]["completion_tokens_details"]["reasoning_tokens"] == 3


@pytest.mark.parametrize("stream", [False, True])
def test_a_schema_holds_for_what_follows_the_reasoning_in_the_content_and_the_reply_says_so(stream: bool) -> None:
    with client(engine=thinking_engine('hm</think>{"a": "y"}', PROMPT_OPENS, specials=MARKERS)) as c:
        (message,) = choices(c, stream=stream, reasoning_format="raw", **FORMAT)
        (hidden,) = choices(c, stream=stream, reasoning_format="hidden", **FORMAT)
    assert message["content"] == '<think>\nhm\n</think>\n\n{"a": "y"}'
    assert "the content begins with the reasoning" in message["warning"]
    assert hidden["content"] == '{"a": "y"}'
    assert "the content begins" not in hidden["warning"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("body", [{"n": 2}, {"n": 2, "use_beam_search": True}], ids=["runs", "beams"])
def test_every_output_has_it_there(body: Json, stream: bool) -> None:
    with client(engine=thinking_engine("hm 4\n</think>\n\n4 it is", specials=MARKERS)) as c:
        for place in ("omitted", "content", "both"):
            bodies, text, thought = PLACES[place]
            messages = choices(c, stream=stream, **bodies[0], **body)
            assert len(messages) == 2
            first = messages[0]
            assert (first["content"], first["reasoning"]) == (text, thought)
            for message in messages:
                assert message["content"].startswith("<think>\nhm") == (place != "omitted")
                assert (message["reasoning"] is None) == (place != "both")


@pytest.mark.parametrize("stream", [False, True])
def test_gpt_oss_has_its_thoughts_in_the_content_in_the_order_in_which_it_wrote_them(stream: bool) -> None:
    again = f"<|channel|>analysis<|message|>and so{gpt_oss.NEXT}"
    with client(engine=gpt_oss.model(gpt_oss.THOUGHT + gpt_oss.PREAMBLE + again + gpt_oss.FINAL + "Done.")) as c:
        (inside,) = choices(c, stream=stream, reasoning_format="none", max_tokens=1000)
        (hidden,) = choices(c, stream=stream, include_reasoning=False, max_tokens=1000)
    assert inside["content"] == (
        "<think>\nhm < 3\n</think>\n\nFirst the weather.\n\n<think>\nand so\n</think>\n\nDone."
    )
    assert (hidden["content"], hidden["reasoning"]) == ("First the weather.\n\nDone.", None)


def test_the_stored_trace_has_the_reasoning_that_the_reply_leaves_out() -> None:
    store = MemoryStore()
    engine = thinking_engine("hm 4\n</think>\n\n4 it is", specials=MARKERS)
    with client(engine=engine, store=store, config=settings(trace_level="steps")) as c:
        choices(c, stream=False, include_reasoning=False)
    (trace,) = store.kept.values()
    assert "".join(step["token"]["text"] for step in trace["steps"]).startswith("hm 4\n")


def test_hidden_reasoning_that_quotes_the_answer_has_no_part_in_the_log_probabilities_of_a_response() -> None:
    with client(engine=thinking_engine("4 it is, hm\n</think>\n\n4 it is", specials=MARKERS)) as c:
        body = {"input": "Hi", "temperature": 0, "include": ["message.output_text.logprobs"]}
        apart = responses_api.whole(c, body)["output"][-1]["content"][0]["logprobs"]
        hidden = responses_api.whole(c, body | {"include_reasoning": False})["output"][-1]["content"][0]["logprobs"]
    assert [entry["logprob"] for entry in hidden] == [entry["logprob"] for entry in apart]


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"include_reasoning": True, "reasoning_format": "hidden"}, "reasoning_format"),
        ({"include_reasoning": False, "separate_reasoning": False}, "separate_reasoning"),
        ({"reasoning_format": "parsed", "reasoning_in_content": True}, "reasoning_in_content"),
        ({"reasoning_format": "harmony"}, "reasoning_format"),
    ],
)
def test_fields_that_contradict_each_other_are_refused(thinker: Any, body: Json, field: str) -> None:
    reply = thinker.post("/v1/chat/completions", json=USER | body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, field), reply.text


@pytest.mark.parametrize("path", ["/v1/completions", "/completion"])
def test_the_text_behind_a_plain_prompt_is_whole_and_cannot_be_less(thinker: Any, path: str) -> None:
    body = {"prompt": "Q", "max_tokens": 5, "temperature": 0}
    for field in ({"reasoning_format": "none"}, {"separate_reasoning": False}, {"include_reasoning": True}):
        assert thinker.post(path, json=body | field).status_code == 200
    reply = thinker.post(path, json=body | {"include_reasoning": False})  # as SillyTavern sends it with every prompt
    assert reply.status_code == 200
    assert "include_reasoning" in reply.headers["warning"]
    reply = thinker.post(path, json=body | {"reasoning_format": "hidden"})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "reasoning_format")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("body", "text", "thought"),
    [case for case in CASES if case[1:] == ("4 it is", None) or "reasoning_format" in case[0]],
    ids=lambda value: str(value)[:60],
)
def test_a_body_that_has_the_reasoning_apart_gets_it_apart_where_only_ordinary_tokens_show_it(
    body: Json, text: str, thought: str | None, stream: bool
) -> None:
    is_told = body["reasoning_format"] != "auto" if "reasoning_format" in body else True
    with client(engine=thinking_engine(INSIDE, MODEL_OPENS, pieces=MARKERS)) as c:
        (message,) = choices(c, stream=stream, **body)
    assert (message["content"], message["reasoning"]) == ((text, thought) if is_told else (INSIDE, None))


def test_a_server_that_names_no_reasoning_keeps_to_it() -> None:
    app = App(KernelSettings(request_defaults={"reasoning": "none"}))
    with client(engine=thinking_engine(INSIDE, MODEL_OPENS, pieces=MARKERS), app=app) as c:
        (message,) = choices(c, stream=False, include_reasoning=False)
    assert message["content"] == INSIDE
