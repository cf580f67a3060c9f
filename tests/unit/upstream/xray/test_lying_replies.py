"""Replies of a server that sends anything where something else belongs: edited, or an error of ours."""

from __future__ import annotations

import json
from typing import Any

import pytest

from espalier.errors import UpstreamError
from espalier.upstream.xray.distribution import entry_of
from espalier.upstream.xray.wire.reply import stripped
from espalier.upstream.xray.wire.request import read_request
from tests.fuzz.parsers.lies import lies

ENTRY = {"id": 12, "token": "a", "bytes": [97], "logprob": -0.7, "top_logprobs": [{"id": 12, "logprob": -0.7}]}
SETTINGS = {"seed": 4, "n_probs": 3, "grammar": "x"}
REPLIES: dict[str, tuple[str, dict[str, Any]]] = {
    "completion": (
        "/completion",
        {"content": "a", "tokens": [12], "stop": True, "completion_probabilities": [ENTRY]}
        | {"generation_settings": SETTINGS, "timings": {"predicted_n": 1}, "prompt": "x", "tokens_predicted": 1},
    ),
    "chat": (
        "/v1/chat/completions",
        {
            "choices": [
                {"index": 0, "delta": {"content": "a"}, "finish_reason": None, "logprobs": {"content": [ENTRY]}}
            ],
            "__verbose": {"tokens": [12], "generation_settings": SETTINGS, "tokens_predicted": 1},
            "timings": {"predicted_n": 1},
        },
    ),
}
ASKED = ({"stream": True}, {"stream": False, "n_probs": 2, "logprobs": True, "top_logprobs": 2}, {"n": 2})


def test_a_logprob_beyond_all_floats_is_a_fault_of_the_entry() -> None:
    assert "FloatingPointError" in entry_of({**ENTRY, "top_logprobs": [{"id": 1, "logprob": 1e308}]}).fault


@pytest.mark.parametrize("asked", ASKED, ids=str)
@pytest.mark.parametrize("kind", REPLIES)
def test_a_reply_with_anything_anywhere_is_edited_or_an_error_of_ours(kind: str, asked: dict[str, Any]) -> None:
    path, reply = REPLIES[kind]
    request = read_request(path, json.dumps({"prompt": "x", "messages": [], "grammar": "x", **asked}).encode())
    edited = 0
    for lie in lies(reply):
        raw = json.dumps(lie).encode()
        try:
            text, _ = stripped(raw, request, {})
        except UpstreamError:
            assert not isinstance(lie, dict)
            continue
        assert isinstance(json.loads(text), dict | list)
        edited += 1
    assert edited > 100
