"""`return_token_ids`: the ids of outputs and of their prompts, as vLLM's replies have them."""

from __future__ import annotations

import json
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tests.server_app import client, events

ROUTE = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}


def chunks(text: str) -> list[dict[str, Any]]:
    return [json.loads(one) for one in events(text)[:-1]]


def test_the_ids_of_the_prompt_come_with_those_of_the_output() -> None:
    """Of a chat beside the choices, and in the first chunk of each output; of a completion in each choice."""
    with client("Hi") as c:
        whole = c.post(ROUTE, json=ASK | {"return_token_ids": True}).json()
        parts = chunks(c.post(ROUTE, json=ASK | {"return_token_ids": True, "stream": True, "n": 2}).text)
        asked = {"model": "m", "prompt": ["ab", "c"], "n": 2, "max_tokens": 2, "return_token_ids": True}
        text = c.post("/v1/completions", json=asked).json()
        lines = chunks(c.post("/v1/completions", json=asked | {"stream": True}).text)
        without = c.post(ROUTE, json=ASK).json()
    prompt = whole["prompt_token_ids"]
    assert len(prompt) == whole["usage"]["prompt_tokens"]
    assert [one["prompt_token_ids"] for one in parts if "prompt_token_ids" in one] == [prompt] * 2
    ids = [[*b"ab", 256], [*b"ab", 256], [*b"c", 256], [*b"c", 256]]
    assert [one["prompt_token_ids"] for one in text["choices"]] == ids
    told = [
        (one["index"], one["prompt_token_ids"])
        for line in lines
        for one in line["choices"]
        if "prompt_token_ids" in one
    ]
    assert sorted(told) == list(enumerate(ids))
    assert "prompt_token_ids" not in whole["choices"][0]
    assert "prompt_token_ids" not in without
