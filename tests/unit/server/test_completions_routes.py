"""`/v1/completions`: OpenAI's old shapes."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("fastapi")

from openai.types import Completion

from tests.server_app import client, events, fake_engine, settings

ROUTE = "/v1/completions"
ASK: dict[str, Any] = {"prompt": "Say:", "temperature": 0}


def test_a_reply_has_openais_shape() -> None:
    with client("Hello.") as c:
        reply = c.post(ROUTE, json=ASK)
    found = Completion.model_validate(reply.json(), strict=True)
    assert (found.choices[0].text, found.choices[0].finish_reason) == ("Hello.", "stop")
    assert found.id.startswith("cmpl-")


def test_sixteen_tokens_are_given_where_nothing_is_said() -> None:
    with client("x" * 40) as c:
        found = c.post(ROUTE, json=ASK).json()
    assert (len(found["choices"][0]["text"]), found["choices"][0]["finish_reason"]) == (16, "length")


def test_a_reply_says_which_stop_text_ended_it() -> None:
    with client("Hello.") as c:
        found = c.post(ROUTE, json=ASK | {"stop": ["o"]}).json()["choices"][0]
        streamed = events(c.post(ROUTE, json=ASK | {"stop": ["o"], "stream": True}).text)
        whole = c.post(ROUTE, json=ASK).json()["choices"][0]
    assert (found["text"], found["stop_reason"]) == ("Hell", "o")
    assert json.loads(streamed[-2])["choices"][0]["stop_reason"] == "o"
    assert "stop_reason" not in whole


def test_a_stream_adds_up_to_the_whole() -> None:
    with client("Hello.") as c:
        reply = c.post(ROUTE, json=ASK | {"stream": True, "stream_options": {"include_usage": True}})
    data = events(reply.text)
    assert data[-1] == "[DONE]"
    found = [json.loads(one) for one in data[:-1]]
    for one in found:
        Completion.model_validate(one | {"choices": []}, strict=True)
    assert "".join(one["choices"][0]["text"] for one in found[:-1]) == "Hello."
    assert [one["choices"][0]["finish_reason"] for one in found[:-1]][-1] == "stop"
    assert found[-1]["usage"]["completion_tokens"] == 7


def test_several_prompts_have_n_choices_each_in_their_order() -> None:
    with client("Hi") as c:
        found = c.post(ROUTE, json=ASK | {"prompt": ["a", "bb"], "n": 2, "temperature": 1, "echo": True}).json()
    assert [one["index"] for one in found["choices"]] == [0, 1, 2, 3]
    assert [one["text"][:2] for one in found["choices"]][2:] == ["bb", "bb"]
    assert all(one["text"].startswith("a") for one in found["choices"][:2])
    assert found["usage"]["prompt_tokens"] == 2 + 3  # each with the mark at its end, counted once


def test_an_echo_is_in_a_stream_too() -> None:
    with client("Hi") as c:
        data = events(c.post(ROUTE, json=ASK | {"echo": True, "stream": True}).text)
    assert "".join(json.loads(one)["choices"][0]["text"] for one in data[:-1]) == "Say:Hi"


@pytest.mark.parametrize("stream", [False, True])
def test_log_probabilities_have_the_old_shape(stream: bool) -> None:
    with client("Hé!") as c:
        reply = c.post(ROUTE, json=ASK | {"logprobs": 2, "stream": stream})
    if stream:
        parts = [json.loads(one)["choices"][0]["logprobs"] for one in events(reply.text)[:-1]]
        found: dict[str, list[Any]] = {name: [] for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset")}
        for one in parts:
            for name in found if one else ():
                found[name] += one[name]
    else:
        found = reply.json()["choices"][0]["logprobs"]
    assert found["tokens"] == ["H", "bytes:\\xc3", "bytes:\\xa9", "!"]
    assert found["text_offset"][0] == 0
    assert found["text_offset"] == sorted(found["text_offset"])
    assert all(len(one) == 2 for one in found["top_logprobs"])
    assert all(number <= 0 for number in found["token_logprobs"])


def test_the_prompt_is_taken_as_it_is() -> None:
    with client("Hi") as c:
        assert c.post(ROUTE, json=ASK | {"prompt": "abc"}).json()["usage"]["prompt_tokens"] == 4


def test_a_constraint_holds() -> None:
    with client("maybe no") as c:
        found = c.post(ROUTE, json=ASK | {"structured_outputs": {"choice": ["yes", "no"]}}).json()
    assert found["choices"][0]["text"] in ("yes", "no")


@pytest.mark.parametrize(("field", "value"), [("prompt", []), ("suffix", "end"), ("best_of", 3)])
def test_what_cannot_be_done_is_refused_by_its_field(field: str, value: Any) -> None:
    with client("Hi") as c:
        reply = c.post(ROUTE, json=ASK | {field: value})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)


def test_outputs_are_counted_over_all_prompts() -> None:
    with client("Hi", config=settings(max_outputs="3")) as c:
        reply = c.post(ROUTE, json=ASK | {"prompt": ["a", "b"], "n": 2})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "prompt")


def test_ids_that_cannot_fit_are_refused_before_each_is_looked_at() -> None:
    engine = fake_engine()
    most = engine.capabilities.max_context
    assert most
    with client(engine=engine) as asked:
        reply = asked.post("/v1/completions", json={"prompt": [-1] * (most + 1)})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")


@pytest.mark.parametrize(
    "more", [{}, {"max_tokens": 0}, {"n": 2}, {"logprobs": 0}, {"prompt": ["one", "two"]}, {"num_beams": 2, "n": 2}]
)
def test_an_echoed_prompt_has_its_log_probabilities_in_a_stream_too(more: dict[str, Any]) -> None:
    body = ASK | {"prompt": "Say it", "echo": True, "logprobs": 2, "temperature": 0, "seed": 1} | more
    with client("Hi, you") as c:
        whole = c.post(ROUTE, json=body).json()["choices"]
        parts = [json.loads(one) for one in events(c.post(ROUTE, json=body | {"stream": True}).text)[:-1]]
    for choice in whole:
        mine = [one for part in parts for one in part["choices"] if one["index"] == choice["index"]]
        assert "".join(one["text"] for one in mine) == choice["text"]
        for name, values in choice["logprobs"].items():
            told = [one["logprobs"][name] for one in mine if one["logprobs"] is not None]
            assert values == (None if values is None else [value for one in told for value in one]), name
