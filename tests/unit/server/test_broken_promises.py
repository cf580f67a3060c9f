"""A finished text that breaks what was called enforced: each dialect says so in its own form, and the operator hears.

The matcher is planted: it is compiled from a looser constraint than the one that was asked for, so that it accepts what
the independent judge then refuses.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from espalier.constraints.compiler import Compiler
from espalier.constraints.spec import JsonObject, JsonSchema, Regex, Spec
from espalier.constraints.tools.spec import ToolCalls
from espalier.constraints.words.spec import Wordlist
from tests.server_app import client, events, fake_engine, served, settings

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
WRONG = '{"a": "x"}'
"""JSON, and not valid under the schema."""
BACKREFERENCE = {"type": "object", "properties": {"a": {"type": "string", "pattern": r"^(a+)\1$"}}}
"""Its `pattern` is only checked."""
SAID = "the text breaks its constraint (json_schema), which was called enforced"
USER = [{"role": "user", "content": "Hi"}]
FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}}
GREEDY = {"model": "fake", "temperature": 0}
METRIC = "espalier:broken_outputs_total"

DIALECTS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": ("/v1/chat/completions", {"messages": USER, "response_format": FORMAT}),
    "completions": ("/v1/completions", {"prompt": "Hi", "max_tokens": 99, "structured_outputs": {"json": SCHEMA}}),
    "responses": (
        "/v1/responses",
        {"input": "Hi", "text": {"format": {"type": "json_schema", "name": "x", "schema": SCHEMA}}},
    ),
    "messages": (
        "/v1/messages",
        {"messages": USER, "max_tokens": 99, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
    ),
    "llama": ("/completion", {"prompt": "Hi", "json_schema": SCHEMA}),
    "ollama": ("/api/chat", {"messages": USER, "format": SCHEMA, "stream": False}),
}


def looser(spec: Spec) -> Spec:
    """What the planted matcher enforces instead."""
    if isinstance(spec, JsonSchema):
        return JsonObject()
    if isinstance(spec, ToolCalls):
        anything = json.dumps({"type": "object"})
        return replace(spec, tools=tuple(replace(one, parameters=anything) for one in spec.tools))
    return Regex(r"[^\n]*") if isinstance(spec, Wordlist) else spec


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_rightly = Compiler.compile
    monkeypatch.setattr(
        Compiler, "compile", lambda self, spec, **more: compile_rightly(self, looser(spec), **more), raising=True
    )


@pytest.fixture
def web(planted: None) -> Iterator[TestClient]:
    with client(WRONG) as found:
        yield found


def ending(name: str, last: dict[str, Any]) -> Any:
    """What a whole reply, or the last chunk of a stream, says about its end."""
    if name in ("chat", "completions"):
        return last["choices"][0]["finish_reason"]
    if name == "responses":
        last = last.get("response", last)
        return last["status"], last["incomplete_details"], last["output"][-1]["status"]
    if name == "ollama":
        return last["done_reason"]
    return last.get("delta", last)["stop_reason"] if name == "messages" else last["stop_type"]


WORDED = {
    "chat": "content_filter",
    "completions": "content_filter",
    "responses": ("incomplete", {"reason": "content_filter"}, "incomplete"),
    "messages": "refusal",
    "llama": "none",
    "ollama": "content_filter",
}
USUAL = {
    "chat": "stop",
    "completions": "stop",
    "responses": ("completed", None, "completed"),
    "messages": "end_turn",
    "llama": "eos",
    "ollama": "stop",
}


def last_chunk(name: str, text: str) -> dict[str, Any]:
    """The last chunk with the end of the output."""
    if name == "ollama":
        return dict(json.loads(text.splitlines()[-1]))
    chunks = [json.loads(one) for one in events_of(text) if one != "[DONE]"]
    return {
        "chat": lambda: chunks[-1],
        "completions": lambda: chunks[-1],
        "responses": lambda: chunks[-1],
        "messages": lambda: next(one for one in chunks if one["type"] == "message_delta"),
        "llama": lambda: chunks[-1],
    }[name]()


def events_of(text: str) -> list[str]:
    """The data of all events, named ones too."""
    return [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]


def broken(web: TestClient, kind: str = "json_schema") -> float:
    """The counter in /metrics."""
    lines = web.get("/metrics").text.splitlines()
    counted = [line for line in lines if line.startswith(METRIC) and f'constraint="{kind}"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in counted)


@pytest.mark.parametrize("name", DIALECTS)
def test_a_whole_reply_says_so(name: str, web: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    route, body = DIALECTS[name]
    assert broken(web) == 0
    with caplog.at_level(logging.ERROR):
        reply = web.post(route, json={**GREEDY, **body})
    assert reply.status_code == 200, reply.text
    assert ending(name, reply.json()) == WORDED[name]
    assert SAID in reply.headers["warning"]
    assert "espalier" not in reply.json()
    assert broken(web) == 1
    (line,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    fields = line.fields  # type: ignore[attr-defined]
    assert fields["schema"] == JsonSchema(SCHEMA).fingerprint
    assert (fields["constraint"], fields["output"], fields["route"]) == ("json_schema", 0, route)
    assert fields["request_id"] == reply.headers["x-request-id"]
    assert "'x'" not in str(line.__dict__)  # the log quotes no text


@pytest.mark.parametrize("name", DIALECTS)
def test_a_stream_says_so_in_its_last_chunk(name: str, web: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    route, body = DIALECTS[name]
    with caplog.at_level(logging.ERROR):
        reply = web.post(route, json={**GREEDY, **body, "stream": True})
    last = last_chunk(name, reply.text)
    assert ending(name, last) == WORDED[name]
    told = last.get("response", last)["espalier"]
    assert told["warnings"][0].startswith(SAID)
    assert set(told) == {"warnings"}
    assert broken(web) == 1
    assert [one.levelname for one in caplog.records if one.levelno >= logging.ERROR] == ["ERROR"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("name", DIALECTS)
def test_without_a_planted_matcher_nothing_is_said(name: str, stream: bool) -> None:
    route, body = DIALECTS[name]
    with client('{"a": 7}') as web:
        reply = web.post(route, json={**GREEDY, **body, "stream": stream})
        last = last_chunk(name, reply.text) if stream else reply.json()
        assert ending(name, last) == USUAL[name]
        assert "espalier" not in last.get("response", last)
        assert "warning" not in reply.headers
        assert broken(web) == 0


@pytest.mark.parametrize("name", DIALECTS)
def test_a_text_that_the_token_limit_cuts_is_no_fault(name: str, planted: None) -> None:
    route, body = DIALECTS[name]
    limit = {"responses": "max_output_tokens", "llama": "n_predict"}.get(name, "max_tokens")
    with client(json.dumps({"a": "a text of more than sixteen bytes"})) as web:
        reply = web.post(route, json={**GREEDY, **body, limit: 16})
        cut = ("incomplete", {"reason": "max_output_tokens"}, "incomplete")
        assert ending(name, reply.json()) in ("length", "max_tokens", "limit", cut)
        assert broken(web) == 0
        assert "warning" not in reply.headers


def test_a_text_that_a_stop_text_cuts_is_no_fault_but_cut_short(web: TestClient) -> None:
    route, body = DIALECTS["chat"]
    reply = web.post(route, json={**GREEDY, **body, "stop": ["x"], "espalier": {}})
    assert ending("chat", reply.json()) == "length"
    assert reply.json()["espalier"]["outputs"][0]["verdict"]["breaks"] == "cut"
    assert broken(web) == 0


def test_a_keyword_that_is_only_checked_is_no_fault(caplog: pytest.LogCaptureFixture) -> None:
    """Here the matcher is the right one: the contract says beforehand that the pattern is checked."""
    shape = {"type": "json_schema", "json_schema": {"name": "x", "schema": BACKREFERENCE, "strict": False}}
    with client('{"a": "b"}') as web:
        body = {"messages": USER, "response_format": shape, "espalier": {"allow": "checked"}}
        reply = web.post("/v1/chat/completions", json={**GREEDY, **body})
        assert reply.status_code == 200, reply.text
        verdict = reply.json()["espalier"]["outputs"][0]["verdict"]
        assert (verdict["valid"], verdict["breaks"]) == (False, "checked")
        assert ending("chat", reply.json()) == "stop"
        assert broken(web) == 0
    assert not [one for one in caplog.records if one.levelno >= logging.ERROR]


def test_the_report_names_the_verdict_and_the_warning_once(web: TestClient) -> None:
    route, body = DIALECTS["chat"]
    for stream in (False, True):
        reply = web.post(route, json={**GREEDY, **body, "stream": stream, "espalier": {}})
        told = (last_chunk("chat", reply.text) if stream else reply.json())["espalier"]
        assert told["outputs"][0]["verdict"]["breaks"] == "enforced"
        assert [one.startswith(SAID) for one in told["warnings"]] == [True]


def test_every_output_counts(web: TestClient) -> None:
    route, body = DIALECTS["chat"]
    reply = web.post(route, json={**GREEDY, **body, "n": 3})
    assert [one["finish_reason"] for one in reply.json()["choices"]] == ["content_filter"] * 3
    assert reply.headers["warning"].count(SAID) == 1
    assert broken(web) == 3


def test_the_beams_of_one_run_count_each(web: TestClient) -> None:
    route, body = DIALECTS["chat"]
    more = {"num_beams": 2, "num_return_sequences": 2, "max_tokens": 40}
    reply = web.post(route, json={**GREEDY, **body, **more})
    assert reply.status_code == 200, reply.text
    wrong = [one["finish_reason"] for one in reply.json()["choices"]].count("content_filter")
    assert wrong >= 1
    assert broken(web) == wrong


def test_the_calls_of_a_tool(planted: None) -> None:
    tool = {"type": "function", "function": {"name": "f", "parameters": SCHEMA, "strict": True}}
    body = {**GREEDY, "messages": USER, "tools": [tool], "tool_choice": "required"}
    with client('<tool_call>\n{"name": "f", "arguments": {"a": "x"}}\n</tool_call>') as web:
        reply = web.post("/v1/chat/completions", json=body)
        assert reply.status_code == 200, reply.text
        assert ending("chat", reply.json()) == "content_filter"
        assert "(tool_calls)" in reply.headers["warning"]
        assert broken(web, "tool_calls") == 1


@pytest.mark.parametrize("stream", [False, True])
def test_the_word_list_servers_route(stream: bool, planted: None) -> None:
    config = settings(wordlist_server_compat="true")
    with client("qqq zzz", config=config) as web:
        body = {
            "model": "m",
            "messages": USER,
            "vocab_lang": "es",
            "vocab_n_words": 100,
            "num_beams": 1,
            "temperature": 0,
        }
        reply = web.post("/v1/chat/completions", json=body | {"stream": stream})
        last = last_chunk("chat", reply.text) if stream else reply.json()
        assert ending("chat", last) == "content_filter"
        assert broken(web, "wordlist") == 1
        if not stream:
            assert "(wordlist)" in reply.headers["warning"]
            assert set(last) == {"id", "object", "created", "model", "choices", "usage"}


@pytest.mark.slow
def test_the_items_of_a_batch(planted: None, tmp_path: Path) -> None:
    config = settings(
        batch_jobs="true", database_url=f"sqlite:///{tmp_path}/e.db", batch_job_temp_dir=str(tmp_path / "files")
    )
    with client(WRONG, config=config) as web:
        body = {**GREEDY, **DIALECTS["chat"][1]}
        item = {"custom_id": "one", "method": "POST", "url": "/v1/chat/completions", "body": body}
        sent = {"file": ("in.jsonl", json.dumps(item) + "\n")}
        name = web.post("/v1/files", files=sent, data={"purpose": "batch"}).json()["id"]
        asked = {"input_file_id": name, "endpoint": "/v1/chat/completions", "completion_window": "24h"}
        batch = web.post("/v1/batches", json=asked).json()
        batch = ended(web, f"/v1/batches/{batch['id']}")
        reply = json.loads(web.get(f"/v1/files/{batch['output_file_id']}/content").text)["response"]["body"]
        assert ending("chat", reply) == "content_filter"
        assert reply["espalier"]["warnings"][0].startswith(SAID)
        report = web.get(f"/v1/batches/{batch['id']}/report").json()
        assert report["verdicts"] == {"valid": 0, "broken": 1}
        assert broken(web) == 1


def ended(web: TestClient, address: str) -> dict[str, Any]:
    """The batch once it has ended; each request gives the worker a turn."""
    for _ in range(10_000):
        batch: dict[str, Any] = web.get(address).json()
        if batch["status"] in ("completed", "failed"):
            return batch
    raise AssertionError(batch)


def test_a_tool_of_mcp_fails(planted: None) -> None:
    pytest.importorskip("mcp", reason="mcp is not installed")
    from tests.unit.server.test_mcp import connected, make  # it needs mcp

    async def ask(url: str) -> Any:
        async with connected(url) as mcp:
            return await mcp.call_tool("generate", {"prompt": "Hi", "json_schema": SCHEMA, "temperature": 0})

    with served(make(fake_engine(WRONG))) as url:
        reply = asyncio.run(ask(url))
    assert reply.is_error
    assert SAID in reply.content[0].text
    assert '\'{"a": "x"}\'' in reply.content[0].text


def test_the_stream_of_chat_has_one_such_chunk(web: TestClient) -> None:
    route, body = DIALECTS["chat"]
    reply = web.post(route, json={**GREEDY, **body, "stream": True, "stream_options": {"include_usage": True}})
    chunks = [json.loads(one) for one in events(reply.text) if one != "[DONE]"]
    assert ["espalier" in one for one in chunks[-2:]] == [True, False]  # the usage comes last
