"""`prompt_logprobs`, vLLM's field: the prompt's tokens by id, with rank and log probability, in whole replies."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("fastapi")

from tests.server_app import client, settings

TEXT: dict[str, Any] = {"prompt": "Say it", "max_tokens": 2, "seed": 1}
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "Say it"}], "max_tokens": 2, "seed": 1}


def test_they_are_those_of_an_echoed_prompt() -> None:
    with client() as c:
        told = c.post("/v1/completions", json=TEXT | {"prompt_logprobs": 2}).json()["choices"][0]["prompt_logprobs"]
        echoed = c.post("/v1/completions", json=TEXT | {"echo": True, "logprobs": 2}).json()["choices"][0]["logprobs"]
    assert told[0] is None
    tokens, logprobs = (echoed[name][1 : len(told)] for name in ("tokens", "token_logprobs"))
    for entry, token, logprob in zip(told[1:], tokens, logprobs, strict=True):
        own, *_ = entry.values()
        assert (own["decoded_token"], own["logprob"]) == (token, logprob)
        ranked = sorted(entry.values(), key=lambda one: one["rank"])
        assert [one["rank"] for one in ranked[:2]] == [1, 2]
        assert [one["logprob"] for one in ranked] == sorted((one["logprob"] for one in ranked), reverse=True)


def test_a_chat_has_them_beside_its_choices_and_each_prompt_its_own() -> None:
    with client() as c:
        chat = c.post("/v1/chat/completions", json=CHAT | {"prompt_logprobs": 0}).json()
        assert len(chat["prompt_logprobs"]) == chat["usage"]["prompt_tokens"]
        assert all(entry is None or len(entry) == 1 for entry in chat["prompt_logprobs"])
        choices = c.post("/v1/completions", json=TEXT | {"prompt": ["a", "bcd"], "n": 2, "prompt_logprobs": 0}).json()
    sizes = [len(choice["prompt_logprobs"]) for choice in choices["choices"]]
    assert sizes[0] == sizes[1] < sizes[2] == sizes[3]


def test_log_probabilities_of_the_answer_stay_its_own() -> None:
    with client() as c:
        body = TEXT | {"prompt_logprobs": 1, "logprobs": 1}
        (choice,) = c.post("/v1/completions", json=body).json()["choices"]
    assert len(choice["logprobs"]["tokens"]) == 2
    assert not choice["text"].startswith("Say it")


@pytest.mark.parametrize(
    ("route", "body", "said"),
    [
        ("/v1/completions", TEXT | {"stream": True, "prompt_logprobs": 1}, "a stream has no prompt_logprobs"),
        ("/v1/chat/completions", CHAT | {"stream": True, "prompt_logprobs": 0}, "a stream has no prompt_logprobs"),
        ("/v1/completions", TEXT | {"echo": True, "logprobs": 1, "prompt_logprobs": 1}, "leave one of them out"),
        ("/v1/completions", TEXT | {"prompt_logprobs": 21}, "at most 20"),
        ("/v1/completions", TEXT | {"prompt_logprobs": -1}, "greater than or equal to 0"),
        ("/v1/responses", {"input": "a", "prompt_logprobs": 1}, "only /v1/chat/completions and /v1/completions"),
        ("/v1/chat/completions", CHAT | {"messages": [{"role": "user", "content": "a" * 9_000}], "prompt_logprobs": 20},
         "outputs x tokens x candidates"),
    ],
)  # fmt: skip
def test_what_cannot_be_told_is_refused_by_name(route: str, body: dict[str, Any], said: str) -> None:
    with client(config=settings(max_candidates="1000")) as c:
        reply = c.post(route, json=body)
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == "prompt_logprobs"
    assert said in error["message"]
