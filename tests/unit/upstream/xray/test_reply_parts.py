"""What is learnt of a request and of its reply's parts, each by itself."""

from __future__ import annotations

import json
from typing import Any

import pytest

from espalier.upstream.xray.sampler.settings import RANDOM_SEED
from espalier.upstream.xray.wire.reply import OutputSoFar, _learn_one, _learn_rest, _prefill
from espalier.upstream.xray.wire.request import DEFAULT_TOP, PROMPT_SHOWN, ClientRequest, _top, read_request


def asked(*, dialect: Any = "completion", is_stream: bool = False, copies: int = 1, **body: Any) -> ClientRequest:
    return ClientRequest(
        dialect=dialect,
        body=body,
        is_stream=is_stream,
        top=0,
        has_tokens=False,
        has_timings=False,
        seed=None,
        copies=copies,
    )


SCHEMA = {"type": "object"}


@pytest.mark.parametrize(
    ("body", "schema"),
    [
        ({}, None),
        ({"json_schema": SCHEMA}, SCHEMA),
        ({"json_schema": SCHEMA, "grammar": "root ::= .", "response_format": None}, None),
        ({"response_format": {"type": "json_schema", "json_schema": {"schema": SCHEMA}}}, SCHEMA),
        ({"response_format": {"type": "json_object", "schema": SCHEMA}}, SCHEMA),
        ({"response_format": "json"}, None),
    ],
)
def test_the_schema_of_a_request_is_where_the_server_reads_it(body: dict[str, Any], schema: Any) -> None:
    assert asked(**body).schema == schema


def test_the_last_text_of_a_person_is_shown() -> None:
    said = [
        {"role": "user", "content": "first"},
        {"role": "user", "content": "x" * PROMPT_SHOWN + "y"},
        {"role": "user", "content": [{"type": "text", "text": "a part"}]},
        {"role": "assistant", "content": "an answer"},
        "no object",
    ]
    assert asked(messages=said).last_said(0) == "x" * PROMPT_SHOWN
    assert asked(messages=said[:1]).last_said(0) == "first"
    assert asked(messages=said[3:]).last_said(0) == ""
    assert asked(prompt=["one", "two"], copies=2).last_said(1) == "one"
    assert asked(prompt=["one", "two"], copies=2).last_said(3) == "two"
    assert asked(prompt=["one", "two"], copies=2).last_said(4) == ""
    assert asked(prompt=[1, 2]).last_said(0) == ""
    assert asked(prompt="x" * PROMPT_SHOWN + "y").last_said(0) == "x" * PROMPT_SHOWN


def test_a_chunk_of_a_stream_without_an_entry_tells_its_token() -> None:
    """The token leaves a character incomplete."""
    request, output = asked(is_stream=True), OutputSoFar()
    _learn_one({"tokens": [7], "tokens_predicted": 1}, request, output, [])
    assert (output.ids, output.count, output.entries) == ({0: 7}, 1, {})
    listed = {"id": 9, "logprob": -1.0, "top_logprobs": []}
    _learn_one({"tokens": [8], "tokens_predicted": 3, "completion_probabilities": [listed]}, request, output, [])
    assert (output.ids, output.count, [*output.entries]) == ({0: 7, 2: 9}, 3, [2])
    _learn_one({"tokens": [5, 6], "tokens_predicted": 4}, request, output, [])
    assert (output.ids, output.count) == ({0: 7, 2: 9}, 4), "of several tokens it is not told which is which"
    _learn_one({"tokens": [5], "tokens_predicted": 0}, request, output, [])
    assert output.ids == {0: 7, 2: 9}


@pytest.mark.parametrize(("index", "is_same"), [(1, True), (2, False), (3, False)])
def test_a_further_output_has_the_prompt_of_the_first_where_it_is_a_copy(index: int, is_same: bool) -> None:
    first = OutputSoFar(prompt="the first", prompt_count=2, prefill="{", settings={"seed": 5}, model="m", reply_id="r")
    output = OutputSoFar()
    _learn_rest({"text": "t"}, asked(prompt=["the first", "two"], copies=2), first, output, index)
    assert (output.prompt, output.prompt_count) == (("the first", 2) if is_same else ("", None))
    assert output.has_prompt == is_same
    assert output.settings == {"seed": 5 + index % 2}
    assert (output.prefill, output.model, output.reply_id, output.is_rest) == ("{", "m", "r", True)


@pytest.mark.parametrize(
    ("settings", "body", "prefill"),
    [
        ({"grammar": "made", "generation_prompt": "<a>"}, {"tools": [{}]}, "<a>"),
        ({"grammar": "own", "generation_prompt": "<a>"}, {"grammar": "own"}, ""),
        ({"grammar": "made", "generation_prompt": "<a>", "grammar_lazy": True}, {"tools": [{}]}, ""),
        ({"grammar": "made"}, {"tools": [{}]}, ""),
    ],
)
def test_a_grammar_that_the_server_made_has_taken_the_generation_prompt(
    settings: dict[str, Any], body: dict[str, Any], prefill: str
) -> None:
    assert _prefill(settings, asked(**body)) == prefill


def test_as_many_probabilities_are_left_as_the_server_would_have_given() -> None:
    cases: list[tuple[Any, dict[str, Any], int]] = [
        ("completion", {}, 0),
        ("completion", {"n_probs": 5, "logprobs": 3}, 5),
        ("completion", {"n_probs": 0}, 0),
        ("completion", {"n_probs": -2}, 0),
        ("completion", {"logprobs": 3}, 3),
        ("text", {"logprobs": True}, 1),
        ("text", {"logprobs": False}, 0),
        ("chat", {"logprobs": True}, DEFAULT_TOP),
        ("chat", {"logprobs": True, "top_logprobs": 3}, 3),
        ("chat", {"logprobs": False, "top_logprobs": 3}, 0),
        ("chat", {"logprobs": "yes"}, 0),
    ]
    for dialect, body, top in cases:
        assert _top(dialect, body) == top, (dialect, body)


def test_a_request_keeps_its_seed_and_what_it_asks_for() -> None:
    def read(**body: Any) -> ClientRequest:
        return read_request("/completion", json.dumps({"grammar": "root ::= .", **body}).encode())

    assert [read(seed=seed).seed for seed in (0, 7, RANDOM_SEED - 1, RANDOM_SEED, -1)] == [
        0,
        7,
        RANDOM_SEED - 1,
        None,
        None,
    ]
    assert read().seed is None
    for name, field in (("stream", "is_stream"), ("return_tokens", "has_tokens"), ("timings_per_token", "has_timings")):
        assert [getattr(read(**{name: value}), field) for value in (True, False)] == [True, False]
        assert getattr(read(), field) is False
