"""Ollama's routes over the fake model: replies and lines against the SDK's types, options, formats, tools, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("httpx")
pytest.importorskip("ollama", reason="the SDK ollama is not installed")

import ollama
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from espalier.engines.gguf.header import Header
from espalier.errors import Unavailable
from espalier.server.answering.ollama import card
from espalier.server.asking.ollama.messages import talk_of
from tests.examples import examples
from tests.ollama_api import CHAT, GENERATE, OF_RUN, TYPES, gathered, streamed, text_of, whole
from tests.server_app import OneKeyGate, Stuck, client, settings

Json = dict[str, Any]
SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}},
    "required": ["city"],
    "additionalProperties": False,
}
TOOL = {"type": "function", "function": {"name": "look_up", "description": "Finds a place.", "parameters": SCHEMA}}
HI = [{"role": "user", "content": "Hi"}]
SEEDED = {"seed": 1, "num_predict": 80}
FORCED: Json = {"tools": [TOOL], "tool_choice": "required", "parallel_tool_calls": False}
ASKED: dict[str, Json] = {CHAT: {"messages": HI, "options": SEEDED}, GENERATE: {"prompt": "Hi", "options": SEEDED}}


@pytest.fixture(scope="module")
def api() -> Iterator[TestClient]:
    with client("Hello there.") as http:
        yield http


def same(reply: Json) -> Json:
    """What two replies to one request share: no times, no random ids."""
    shared = {name: value for name, value in reply.items() if name not in OF_RUN}
    for call in shared.get("message", {}).get("tool_calls", ()):
        call.pop("id")
    for output in shared.get("espalier", {}).get("outputs", ()):
        output.pop("summary", None)
    return shared


MORE: dict[str, Json] = {
    "a text": {},
    "cut": {"options": {"num_predict": 4, "seed": 1}},
    "a stop text": {"options": {"stop": ["e", "l"], "temperature": 0}},
    "json": {"format": "json"},
    "a schema": {"format": SCHEMA},
    "no format": {"format": ""},
    "log probabilities": {"logprobs": True, "top_logprobs": 2},
    "our key": {"espalier": {"trace": "summary"}},
    "each step": {"espalier": {"trace": "full", "stream_steps": True}, "options": {"num_predict": 3}},
}
OF_CHAT: dict[str, Json] = {"a tool": FORCED, "a call that is cut": FORCED | {"options": {"num_predict": 20}}}
OF_GENERATE: dict[str, Json] = {
    "a system message": {"system": "Be short."},
    "a raw prompt": {"raw": True},
    "a template": {"template": "{{ .Prompt }}:"},
    "a context": {"context": [65, 66]},
}
GRID = [
    *((path, name, more) for path in (CHAT, GENERATE) for name, more in MORE.items()),
    *((CHAT, name, more) for name, more in OF_CHAT.items()),
    *((GENERATE, name, more) for name, more in OF_GENERATE.items()),
]


@pytest.mark.parametrize(("path", "name", "more"), GRID, ids=[f"{path}: {name}" for path, name, _ in GRID])
def test_the_lines_of_a_stream_make_the_whole_reply(api: TestClient, path: str, name: str, more: Json) -> None:
    body = {**ASKED[path], **more}
    if name == "each step":
        assert all("steps" in part["espalier"] for part in streamed(api, body, path)[:-1])
        return
    assert same(gathered(streamed(api, body, path), path)) == same(whole(api, body, path))


def test_a_stream_is_what_a_body_gets_that_does_not_say(api: TestClient) -> None:
    assert len(streamed(api, ASKED[CHAT], CHAT)) > 2
    assert len(streamed(api, {**ASKED[CHAT], "stream": True}, CHAT)) > 2


def test_why_a_text_ended_is_said(api: TestClient) -> None:
    def ending(**options: Any) -> str:
        reply = whole(api, {"messages": HI, "options": {"temperature": 0, **options}}, CHAT)
        return str(reply["done_reason"])

    assert ending() == "stop"
    assert ending(num_predict=3) == "length"
    assert ending(stop=["the"]) == "stop"
    assert ending(num_predict=-1) == ending(num_predict=-2) == "stop"
    assert whole(api, {"messages": HI, **FORCED}, CHAT)["done_reason"] == "stop"


def test_tokens_are_counted(api: TestClient) -> None:
    reply = whole(api, {"prompt": "Hi", "raw": True, "options": {"temperature": 0}}, GENERATE)
    assert reply["response"] == "Hello there."
    assert (reply["prompt_eval_count"], reply["eval_count"]) == (3, len("Hello there.") + 1)


def test_a_format_and_the_schema_of_a_tool_are_enforced(api: TestClient) -> None:
    text = whole(api, {"prompt": "Hi", "format": SCHEMA, "options": SEEDED}, GENERATE)["response"]
    assert json.loads(text)["city"] in ("Rome", "Oslo")
    assert isinstance(json.loads(whole(api, {**ASKED[CHAT], "format": "json"}, CHAT)["message"]["content"]), dict)
    (call,) = whole(api, {**ASKED[CHAT], **FORCED}, CHAT)["message"]["tool_calls"]
    assert call["function"]["name"] == "look_up"
    assert call["function"]["arguments"]["city"] in ("Rome", "Oslo")


@pytest.mark.parametrize("stream", [True, False])
def test_a_call_that_is_cut_is_left_out_and_told(api: TestClient, stream: bool) -> None:
    body = {"messages": HI, **FORCED, "options": {"num_predict": 36, "seed": 1}}
    reply = gathered(streamed(api, body)) if stream else whole(api, body, CHAT)
    assert "tool_calls" not in reply["message"]
    assert reply["done_reason"] == "length"
    assert reply["espalier"]["warnings"] == ["the text ends inside a call of look_up, which is left out"]


def test_options_without_effect_and_unknown_ones_are_named(api: TestClient) -> None:
    options = {"num_thread": 4, "use_mmap": True, "num_gpu": None, "tempurature": 1, "num_ctx": 1_000_000}
    reply = api.post(CHAT, json={"messages": HI, "options": options, "keep_alive": "5m"})
    assert reply.status_code == 200
    told = reply.headers["warning"]
    for part in ("options.num_thread", "options.use_mmap", "keep_alive", "did you mean 'temperature'", "1000000"):
        assert part in told
    assert "num_gpu" not in told


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"top_p": 7}, "options.top_p"),
        ({"top_k": "many"}, "options.top_k"),
        ({"num_predict": -3}, "options.num_predict"),
        ({"num_predict": 1.5}, "options.num_predict"),
        ({"temperature": -1}, "options.temperature"),
        ({"stop": [3]}, "options.stop"),
        ({"n": 3}, "options.n"),
        ({"grammar": "x"}, "options.grammar"),
        ([], "options"),
    ],
)
def test_a_wrong_option_is_refused_by_name(api: TestClient, options: Any, field: str) -> None:
    reply = api.post(CHAT, json={"messages": HI, "options": options})
    assert reply.status_code == 400
    assert reply.json()["param"].startswith(field), reply.json()
    assert isinstance(reply.json()["error"], str)


def test_an_option_that_contradicts_a_field_is_refused(api: TestClient) -> None:
    body = {"messages": HI, "temperature": 1, "options": {"temperature": 0.5}}
    assert api.post(CHAT, json=body).json()["param"] == "options.temperature"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        (CHAT, {"messages": [{**HI[0], "images": ["aGk="]}]}, "messages[0].images"),
        (GENERATE, {"prompt": "Hi", "images": ["aGk="]}, "images"),
        (CHAT, {"messages": [{"role": "boss", "content": ""}]}, "messages[0].role"),
        (CHAT, {"messages": ["Hi"]}, "messages[0]"),
        (CHAT, {"messages": [{"role": "assistant", "tool_calls": [{}]}, *HI]}, "messages[0].tool_calls[0].function"),
        (CHAT, {"messages": HI, "format": "yaml"}, "format"),
        (CHAT, {"messages": HI, "format": {"type": 3}}, "format"),
        (CHAT, {"messages": HI, "think": "deeply"}, "think"),
        (CHAT, {"messages": HI, "tools": [{"function": {}}]}, "tools[0]"),
        (CHAT, {"messages": HI, "tool_choise": "required", "tools": [TOOL]}, "tool_choise"),
        (GENERATE, {"prompt": "Hi", "raw": True, "system": "x"}, "system"),
        (GENERATE, {"prompt": "Hi", "raw": True, "context": [65]}, "context"),
        (GENERATE, {"prompt": "Hi", "context": [10**6]}, "context[0]"),
        (GENERATE, {"prompt": "Hi", "template": "{{ range .Messages }}{{ end }}"}, "template"),
        (GENERATE, {"prompt": "Hi", "suffix": "x"}, "suffix"),
        (GENERATE, {"prompt": 3}, "prompt"),
        (CHAT, {"messages": [], "options": 3}, "options"),
        ("/api/show", {}, "model"),
        ("/api/embed", {"input": 3}, "input"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(api: TestClient, path: str, body: Json, param: str) -> None:
    reply = api.post(path, json=body)
    assert reply.status_code == 400, reply.text
    assert (reply.json()["param"] or "").startswith(param), reply.json()
    assert isinstance(reply.json()["error"], str)


def test_errors_have_one_text_at_every_status() -> None:
    with client(gate=OneKeyGate()) as api:
        for path in (CHAT, "/api/tags", "/api/nothing", "/api/show"):
            reply = api.request("GET" if path == "/api/tags" else "POST", path, json={"messages": HI})
            assert reply.status_code in (401, 404)
            assert isinstance(reply.json()["error"], str)
        assert api.get(CHAT).status_code == 405
        assert isinstance(api.get(CHAT).json()["error"], str)
        assert isinstance(api.get("/v1/nothing").json()["error"], dict)


def test_a_stream_that_fails_ends_with_an_error() -> None:
    with client(serve=lambda engine: Stuck(engine, fails=Unavailable("gone"))) as api:
        assert streamed(api, ASKED[CHAT], CHAT)[-1]["error"] == "gone"


def test_curl_sends_no_type_and_pages_of_other_origins_get_nothing(api: TestClient) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    body = json.dumps({**ASKED[CHAT], "stream": False}).encode()
    assert api.post(CHAT, content=body, headers=form).status_code == 200
    for more in ({"origin": "http://elsewhere.example"}, {"sec-fetch-site": "cross-site"}):
        assert api.post(CHAT, content=body, headers=form | more).status_code == 403
    assert api.post("/v1/chat/completions", content=body, headers=form).status_code == 415


def test_names_go_with_and_without_latest() -> None:
    with client(config=settings(strict_model="true")) as api:
        for name in ("fake", "fake:latest"):
            assert checked_name(api.post(CHAT, json={**ASKED[CHAT], "model": name, "stream": False}).json()) == name
            assert api.post("/api/show", json={"model": name}).status_code == 200
            assert api.post("/api/pull", json={"model": name, "stream": False}).json() == {"status": "success"}
        for name in ("fake:7b", "other", "other:latest"):
            for path, body in ((CHAT, ASKED[CHAT]), ("/api/show", {}), ("/api/pull", {}), (CHAT, {"messages": []})):
                reply = api.post(path, json={**body, "model": name})
                assert (reply.status_code, reply.json()["param"]) == (404, "model")


def checked_name(reply: Json) -> str:
    return str(reply["model"])


def test_a_body_that_asks_nothing_loads_the_model(api: TestClient) -> None:
    for path, body, part in ((CHAT, {"messages": []}, "message"), (GENERATE, {}, "response"), (CHAT, {}, "message")):
        for keep_alive, reason in ((None, "load"), (0, "unload"), ("0s", "unload"), (-1, "load")):
            reply = api.post(path, json={**body, "model": "fake", "keep_alive": keep_alive}).json()
            assert (reply["done"], reply["done_reason"]) == (True, reason)
            assert part in TYPES[path].model_validate(reply).model_dump(exclude_unset=True)


def test_the_model_is_listed_shown_and_running(api: TestClient) -> None:
    (listed,) = ollama.ListResponse.model_validate(api.get("/api/tags").json()).models
    assert listed.model == "fake:latest"
    (running,) = ollama.ProcessResponse.model_validate(api.get("/api/ps").json()).models
    assert (running.model, running.digest) == (listed.model, listed.digest)
    shown = ollama.ShowResponse.model_validate(api.post("/api/show", json={"name": "fake"}).json())
    assert "completion" in shown.capabilities
    architecture = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{architecture}.context_length"] > 0
    assert api.head("/api/tags").status_code == api.head("/api/version").status_code == 200
    version = api.get("/api/version").json()["version"]
    assert tuple(map(int, version.split("."))) > (0, 6, 4), "the least that editors ask for"


@pytest.mark.parametrize("path", ["/api/create", "/api/copy", "/api/push"])
def test_models_cannot_be_changed(api: TestClient, path: str) -> None:
    assert api.post(path, json={"model": "x"}).status_code == 501
    assert api.request("DELETE", "/api/delete", json={"model": "x"}).status_code == 501


def test_the_root_is_a_page_for_browsers_and_says_that_ollama_is_running_to_all_others(api: TestClient) -> None:
    for accept in ("*/*", "application/json", ""):
        reply = api.get("/", headers={"accept": accept})
        assert (reply.status_code, reply.text) == (200, "Ollama is running")
        assert api.head("/", headers={"accept": accept}).status_code == 200
    page = api.get("/", headers={"accept": "text/html,application/xhtml+xml,*/*;q=0.8"})
    assert page.headers["content-type"].startswith("text/html")


def test_texts_are_embedded(api: TestClient) -> None:
    reply = api.post("/api/embed", json={"model": "fake", "input": ["a", "b"], "keep_alive": "5m"})
    both = ollama.EmbedResponse.model_validate(reply.json())
    assert "keep_alive" in reply.headers["warning"]
    one = api.post("/api/embed", json={"input": "b"}).json()
    assert one["embeddings"] == [list(both.embeddings[1])]
    old = ollama.EmbeddingsResponse.model_validate(api.post("/api/embeddings", json={"prompt": "b"}).json())
    assert list(old.embedding) == one["embeddings"][0]
    openai = api.post("/v1/embeddings", json={"input": "b"}).json()["data"][0]["embedding"]
    assert openai == one["embeddings"][0]
    assert api.post("/api/embed", json={"input": []}).json()["embeddings"] == []
    assert api.post("/api/embeddings", json={"prompt": ""}).json() == {"embedding": []}


def test_what_is_too_long_is_cut_and_told_unless_the_body_refuses_that(api: TestClient) -> None:
    long = [{"role": "user", "content": "x" * 9000}]
    reply = api.post(CHAT, json={"messages": long, "options": {"num_predict": 4}, "stream": False})
    assert reply.status_code == 200
    assert int(reply.headers["x-espalier-truncated"]) > 4000
    reply = api.post(CHAT, json={"messages": long, "truncate": False})
    assert (reply.status_code, reply.json()["code"]) == (400, "context_length_exceeded")
    reply = api.post("/api/embed", json={"input": ["x" * 9000, "a"]})
    assert "1 of the texts" in reply.headers["warning"]
    assert api.post("/api/embed", json={"input": "x" * 9000, "truncate": False}).status_code == 400


def test_a_context_is_gone_on_from(api: TestClient) -> None:
    options = {"temperature": 0, "num_predict": 30}
    first = whole(api, {"prompt": "Hi", "options": options}, GENERATE)
    again = whole(api, {"prompt": "More", "context": first["context"], "options": options}, GENERATE)
    assert again["context"][: len(first["context"])] == first["context"]
    alone = whole(api, {"prompt": "More", "options": options}, GENERATE)
    new = again["context"][len(first["context"]) : again["prompt_eval_count"]]
    assert new == alone["context"][: alone["prompt_eval_count"]]
    assert "context" not in whole(api, {"prompt": "Hi", "raw": True, "options": options}, GENERATE)


def test_think_has_no_effect_on_a_model_that_cannot_and_that_is_told(api: TestClient) -> None:
    for think in (True, "high"):
        reply = api.post(CHAT, json={**ASKED[CHAT], "think": think, "stream": False})
        assert reply.status_code == 200
        assert "think has no effect" in reply.headers["warning"]
    assert "warning" not in api.post(CHAT, json={**ASKED[CHAT], "think": False, "stream": False}).headers


@pytest.mark.parametrize(("path", "holds"), [(CHAT, "message"), (GENERATE, None)])
def test_the_thoughts_of_a_reply_are_its_thinking(path: str, holds: str | None) -> None:
    body = {**ASKED[path], "espalier": {"reasoning": "think"}, "options": {"temperature": 0}}
    with client("<think>Hm.</think>Yes.") as api:
        for reply in (whole(api, body, path), gathered(streamed(api, body, path), path)):
            held = reply if holds is None else reply[holds]
            assert (held["thinking"].strip(), text_of(reply).strip()) == ("Hm.", "Yes.")


TEXTS = st.text(max_size=6).filter(lambda text: text.isprintable())
JUNK = st.none() | st.booleans() | st.integers(-3, 3) | TEXTS | st.lists(TEXTS, max_size=2)
CALLS = st.lists(st.fixed_dictionaries({"function": st.fixed_dictionaries({"name": TEXTS, "arguments": JUNK})}) | JUNK)
ROLES = st.sampled_from(["user", "assistant", "tool", "system", "Boss"])
FIELDS = {"content": TEXTS | JUNK, "thinking": TEXTS, "tool_calls": CALLS, "tool_name": TEXTS, "images": JUNK}
BODIES = st.fixed_dictionaries(
    {"messages": st.lists(st.fixed_dictionaries({"role": ROLES}, optional=FIELDS) | JUNK, max_size=3)},
    optional={
        "format": st.sampled_from(["json", "", SCHEMA, {}, True, {"type": 3}]),
        "options": st.dictionaries(st.sampled_from(["top_k", "top_p", "stop", "num_ctx", "numa", "x"]), JUNK),
        "think": JUNK,
        "tools": st.lists(st.sampled_from([TOOL, {}, {"function": {"name": "f"}}]), max_size=2),
        "keep_alive": JUNK,
        "truncate": st.booleans(),
    },
)


@hypothesis_settings(max_examples=examples(60), deadline=None)
@given(BODIES)
def test_any_body_is_answered_or_refused_and_its_stream_is_the_whole_reply(api: TestClient, body: Json) -> None:
    body["options"] = {"num_predict": 6, "seed": 1, **body.get("options", {})}
    reply = api.post(CHAT, json={**body, "stream": False})
    assert reply.status_code in (200, 400, 501), reply.text
    if reply.status_code != 200:
        assert isinstance(reply.json()["error"], str)
        assert api.post(CHAT, json=body).status_code == reply.status_code
    elif reply.json()["done_reason"] not in ("load", "unload"):
        assert same(gathered(streamed(api, body))) == same(reply.json())


def result(**more: Any) -> Json:
    return {"role": "tool", "content": "sun", **more}


def test_messages_of_earlier_replies_come_back(api: TestClient) -> None:
    first = whole(api, {"messages": HI, **FORCED}, CHAT)["message"]
    history = [*HI, {**first, "thinking": "Hm."}, result(tool_name="look_up"), {"role": "User", "content": "Well?"}]
    assert whole(api, {"messages": history, "tools": [TOOL], "options": SEEDED}, CHAT)["message"]["content"]
    talk = talk_of(history)
    assert talk.messages[1]["reasoning_content"] == "Hm."
    assert talk.messages[1]["tool_calls"][0]["function"]["arguments"] == first["tool_calls"][0]["function"]["arguments"]
    assert not talk.warnings
    assert "colour" in talk_of([{**HI[0], "colour": "red"}]).warnings[0]


@pytest.mark.parametrize(
    ("file_type", "quantization"), [(1, "F16"), (99, "unknown"), ("F16", "unknown"), (None, "unknown")]
)
def test_a_gguf_file_may_say_anything_of_its_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file_type: Any, quantization: str
) -> None:
    path = tmp_path / f"{file_type}.gguf"
    path.write_bytes(b"GGUF")
    values = {} if file_type is None else {"general.file_type": file_type}
    monkeypatch.setattr(card, "read_header", lambda _: Header(values=values))
    assert card.read_model_file(str(path)).quantization == quantization
