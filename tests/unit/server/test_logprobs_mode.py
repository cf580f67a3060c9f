"""`logprobs_mode`: log probabilities of the model itself, or of what the constraint leaves, on each OpenAI route."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

pytest.importorskip("fastapi")

from tests.server_app import client, settings

ROUTE = "/v1/chat/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "temperature": 0}


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 1, "top_p": 1, "top_k": 0, "min_p": 0}])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("route", "ask"),
    [
        (ROUTE, {"messages": ASK["messages"], "logprobs": True, "top_logprobs": 3}),
        ("/v1/completions", {"prompt": "hi", "logprobs": 3}),
        ("/v1/responses", {"input": "hi", "include": ["message.output_text.logprobs"], "top_logprobs": 3}),
    ],
)
def test_processed_log_probabilities_are_of_what_the_constraint_leaves(
    route: str, ask: dict[str, Any], stream: bool, sampling: dict[str, Any]
) -> None:
    body = ask | sampling | {"structured_outputs": {"choice": ["yes", "no"]}, "stream": stream}
    shares: dict[str, dict[str, float]] = {}
    with client("maybe") as c:
        for mode in ("raw_logprobs", "processed_logprobs"):
            reply = c.post(route, json=body | {"logprobs_mode": mode})
            assert reply.status_code == 200, reply.text
            lines = [line.removeprefix("data: ") for line in reply.text.splitlines() if line.startswith("data: {")]
            shares[mode] = first_tops([json.loads(line) for line in lines] if stream else reply.json())
    raw, processed = shares["raw_logprobs"], shares["processed_logprobs"]
    assert "m" in raw
    allowed = {text: share for text, share in processed.items() if share > 0}
    assert allowed.keys() == {"y", "n"}
    assert sum(allowed.values()) == pytest.approx(1)


def first_tops(reply: Any) -> dict[str, float]:
    """The probabilities beside the first token, by its text, wherever a reply or its events hold them."""
    if isinstance(reply, list):
        return next((tops for part in reply if (tops := first_tops(part))), {})
    if not isinstance(reply, dict):
        return {}
    tops = reply.get("top_logprobs")
    if isinstance(tops, list) and tops and isinstance(tops[0], dict):
        if "token" in tops[0]:
            return {top["token"]: math.exp(top["logprob"]) for top in tops}
        return {text: math.exp(share) for text, share in tops[0].items()}
    return first_tops([value for value in reply.values() if isinstance(value, dict | list)])


def test_a_mode_of_log_probabilities_that_has_no_effect_is_told() -> None:
    with client("Hi") as c:
        reply = c.post(ROUTE, json=ASK | {"logprobs_mode": "processed_logprobs", "espalier": {"strict": False}})
        unknown = c.post(ROUTE, json=ASK | {"logprobs": True, "logprobs_mode": "raw_logits"})
    assert "logprobs_mode" in reply.headers["warning"]
    assert unknown.status_code == 400
    assert unknown.json()["error"]["param"] == "logprobs_mode"


def test_log_probabilities_that_there_is_no_room_for_are_refused_and_not_wrong() -> None:
    """The steps that they are read from were left out, as are those that only the server wants."""
    body = ASK | {"logprobs": True, "max_tokens": 4000, "logprobs_mode": "processed_logprobs"}
    with client("Hi", config=settings(max_candidates="100")) as c:
        reply = c.post(ROUTE, json=body)
    assert (reply.status_code, "the limit is" in reply.text) == (400, True)
