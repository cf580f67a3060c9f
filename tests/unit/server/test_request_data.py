"""Data about a request besides its text: log line, times, usage, template variables."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

import espalier
from espalier.chat.prompt.template import ChatTemplate
from espalier.engines.base import Progress, Request
from espalier.engines.fake import open_engine
from espalier.engines.protocols import Running
from espalier.engines.serving.service import Service
from espalier.server.observe import logs
from tests.server_app import CountingMeter, Stuck, client, settings

ROUTE = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "Say hello, please."}], "temperature": 0}


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(logs.Lines())
    logs.ACCESS.addHandler(handler)
    level = logs.ACCESS.level
    logs.ACCESS.setLevel(logging.INFO)
    yield stream
    logs.ACCESS.removeHandler(handler)
    logs.ACCESS.setLevel(level)


def line(stream: io.StringIO) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(stream.getvalue().splitlines()[-1])
    return found


@pytest.mark.parametrize("stream", [False, True])
def test_the_line_of_a_request_has_its_tokens_and_why_it_ended(lines: io.StringIO, stream: bool) -> None:
    with client("Hi") as c:
        c.post(ROUTE, json=ASK | {"stream": stream, "n": 2, "temperature": 1, "top_k": 1})
    told = line(lines)
    assert (told["completion_tokens"], told["finish_reason"]) == (6, "stop,stop")
    assert told["prompt_tokens"] > 0


def test_the_line_of_a_request_that_fails_has_what_went_wrong(lines: io.StringIO) -> None:
    with client(serve=lambda engine: Stuck(engine, fails=espalier.EspalierError("no"))) as c:
        c.post(ROUTE, json=ASK | {"stream": True})
    told = line(lines)
    assert (told["completion_tokens"], told["finish_reason"]) == (0, "espalier_error")


def test_a_request_tells_its_preparing_its_waiting_and_its_compiling() -> None:
    class Late(Service):
        """Whose clock says that a place is free three seconds after it is asked for."""

        def submit(self, request: Request, **options: Any) -> Any:
            running = super().submit(request, **options)
            return Told(running, Progress(compiled=0.25, queued=3.0))

    meter = CountingMeter()
    compiles: list[float] = []
    meter.compiled = lambda *, constraint, seconds: compiles.append(seconds)  # type: ignore[method-assign]
    with client("ab", meter=meter, serve=Late) as c:
        c.post(ROUTE, json=ASK | {"n": 2, "temperature": 1, "structured_outputs": {"regex": "[ab]{2}"}})
    assert compiles == [0.25]
    for one in meter.finishes:
        assert one.queued == 3.0
        assert one.to_first_token is not None
        assert 0 <= one.preparing <= one.to_first_token <= one.total
        assert one.result is not None
        assert len(one.gaps) == one.result.usage.completion_tokens - 1
    assert sorted(one.is_first for one in meter.finishes) == [False, True]


class Told:
    """A Running with another Progress."""

    def __init__(self, running: Running, progress: Progress) -> None:
        self.bursts, self.cancel, self.progress = running.bursts, running.cancel, progress


def test_a_prompt_of_several_outputs_is_counted_once() -> None:
    with client("Hi") as c:
        usage = c.post(ROUTE, json=ASK | {"n": 3, "temperature": 1}).json()["usage"]
        found = c.get("/metrics").text
    (told,) = [one for one in found.splitlines() if one.startswith("vllm:prompt_tokens_total")]
    assert float(told.split()[-1]) == usage["prompt_tokens"]


def test_usage_tells_what_a_kept_prefix_spared() -> None:
    with client("Hi") as c:
        found = [c.post(ROUTE, json=ASK).json()["usage"] for _ in range(2)]
    spared = [one["prompt_tokens_details"]["cached_tokens"] for one in found]
    assert spared == [0, found[0]["prompt_tokens"] - 1]


def test_usage_tells_the_tokens_of_reasoning_where_it_is_split() -> None:
    with client("<think>Hm.</think>Yes.") as c:
        split = c.post(ROUTE, json=ASK | {"espalier": {"reasoning": "think"}}).json()["usage"]
        plain = c.post(ROUTE, json=ASK).json()["usage"]
        asked = ASK | {"stream": True, "stream_options": {"include_usage": True}, "espalier": {"reasoning": "think"}}
        streamed = c.post(ROUTE, json=asked).text.split("data: ")[-2]
    # Markers are reasoning, however many tokens they have.
    assert split["completion_tokens_details"] == {"reasoning_tokens": len("<think>Hm.</think>")}
    assert "completion_tokens_details" not in plain
    assert json.loads(streamed)["usage"]["completion_tokens_details"] == split["completion_tokens_details"]


def with_template(source: str) -> Any:
    engine = open_engine(wish="Hi")
    engine._template = ChatTemplate(source)
    engine._turns._template = engine._tool_turns._template = engine._template
    return client(engine=espalier.LoadedEngine(engine))


TEMPLATE = "{% for m in messages %}{{ m.content }}{% endfor %}|{{ tone }}|{% if enable_thinking %}<think>{% endif %}"


def test_a_template_is_given_the_variables_that_it_may_read() -> None:
    with with_template(TEMPLATE) as c:
        asked = {"messages": [{"role": "user", "content": "x"}]}
        calm = c.post("/apply-template", json=asked | {"chat_template_kwargs": {"tone": "calm"}}).json()
        thinking = c.post("/apply-template", json=asked | {"chat_template_kwargs": {"enable_thinking": True}}).json()
    assert calm["prompt"] == "x|calm|"
    assert thinking["prompt"] == "x||<think>"


@pytest.mark.parametrize(
    "given",
    [
        {"messages": []},
        {"tools": []},
        {"bos_token": "x"},
        {"raise_exception": 1},
        {"range": 1},
        {"a b": 1},
        {"self": 1},
        {"add_generation_prompt": False},
        {"enable_thinking": "yes"},
    ],
)
def test_a_template_is_not_given_another_meaning_of_what_it_has(given: dict[str, Any]) -> None:
    with with_template(TEMPLATE) as c:
        reply = c.post(ROUTE, json=ASK | {"chat_template_kwargs": given})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "chat_template_kwargs")


def test_a_plain_prompt_has_no_template_to_be_given_anything() -> None:
    with client() as c:
        reply = c.post("/v1/completions", json={"prompt": "x", "chat_template_kwargs": {"tone": "calm"}})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "chat_template_kwargs")


def test_a_store_of_counters_alone_keeps_no_traces(tmp_path: Any) -> None:
    config = settings(workers="2", database_url=f"sqlite:///{tmp_path}/a.db")
    with client(config=config) as c:
        reply = c.get("/traces")
    assert reply.status_code == 404
    assert "TRACE_LEVEL" in reply.json()["error"]["message"]


def test_strangers_are_told_in_the_word_list_servers_shape_where_that_is_wanted() -> None:
    with client(config=settings(wordlist_server_compat="true")) as c:
        reply = c.get("/v1/models", headers={"host": "evil.example.org"})
    assert (reply.status_code, reply.json()) == (403, {"detail": "Forbidden"})


def test_the_largest_bucket_is_of_the_context() -> None:
    with client() as c:
        c.post(ROUTE, json=ASK)
        found = c.get("/metrics").text
    bounds = [
        float(one.split('le="')[1].split('"')[0])
        for one in found.splitlines()
        if one.startswith("vllm:request_params_max_tokens_bucket")
    ]
    assert sorted(bounds)[-2] <= espalier.load("fake").capabilities.max_context
