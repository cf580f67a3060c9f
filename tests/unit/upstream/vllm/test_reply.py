"""What is added to requests to a vLLM is taken out of its replies again, byte by byte. Replies as vLLM 0.32.0 wrote
them."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from espalier.errors import UpstreamError
from espalier.upstream.vllm.reply import ListedOutput, _logprob, stripped
from espalier.upstream.vllm.request import read_request, rewritten
from espalier.upstream.vllm.server import _score
from espalier.upstream.xray.wire.request import UntracedRequest

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HELD = {"structured_outputs": {"choice": ["left", "right"]}}
CHAT_REPLY = (
    '{"id":"chatcmpl-b6","object":"chat.completion","created":1,"model":"demo","choices":[{"index":0,"message":'
    '{"role":"assistant","content":"rig","reasoning":null},"logprobs":%s,"finish_reason":"length","stop_reason":null,'
    '"token_ids":%s,"routed_experts":null}],"prompt_logprobs":null,"prompt_token_ids":%s,"prompt_text":null}'
)
ENTRIES = (
    '{"content":[{"token":"ri","logprob":-0.5,"bytes":[114,105],"top_logprobs":[{"token":"ri","logprob":-0.5,'
    '"bytes":[114,105]},{"token":"r","logprob":-1.0,"bytes":[114]},{"token":"!","logprob":-9999.0,"bytes":[33]}]}]}'
)
TEXT_REPLY = (
    '{"id":"cmpl-a","choices":[{"index":0,"text":"rig","logprobs":{"text_offset":[0,2],"token_logprobs":[-2.5,-0.1],'
    '"tokens":["ri","g"],"top_logprobs":[%s]},"finish_reason":"length","token_ids":null,"prompt_token_ids":null}]}'
)


def asked(path: str = CHAT, **more: Any) -> Any:
    own = {"messages": [{"role": "user", "content": "Hi"}]} if path == CHAT else {"prompt": "Hi"}
    return read_request(path, json.dumps({"model": "demo", **own, **HELD, **more}).encode())


def test_what_the_client_did_not_ask_for_is_null_as_vllm_writes_it() -> None:
    outputs: dict[int, ListedOutput] = {}
    raw = CHAT_REPLY % (ENTRIES, "[304]", "[1,707]")
    made, ends = stripped(raw.encode(), asked(), outputs)
    assert made.decode() == CHAT_REPLY % ("null", "null", "null")
    assert ends == 1
    assert (outputs[0].ids, outputs[0].prompt_ids, outputs[0].finish) == ([304], [1, 707], "length")
    assert [candidate.is_allowed for candidate in outputs[0].steps[0].top] == [True, True, False]
    assert outputs[0].steps[0].top[2].logprob == -math.inf


def test_what_the_client_asked_for_stays() -> None:
    raw = CHAT_REPLY % (ENTRIES, "[304]", "[1,707]")
    request = asked(logprobs=True, top_logprobs=3, return_token_ids=True)
    assert stripped(raw.encode(), request, {})[0].decode() == raw


@pytest.mark.parametrize(("top", "left"), [(0, "[]"), (1, '[{"token":"ri","logprob":-0.5,"bytes":[114,105]}]')])
def test_a_chat_gets_as_many_candidates_as_it_asked_for(top: int, left: str) -> None:
    made, _ = stripped((CHAT_REPLY % (ENTRIES, "null", "null")).encode(), asked(logprobs=True, top_logprobs=top), {})
    start = ENTRIES.index('"top_logprobs":') + len('"top_logprobs":')
    assert made.decode() == CHAT_REPLY % (ENTRIES[:start] + left + "}]}", "null", "null")


@pytest.mark.parametrize(
    ("wanted", "left"),
    [
        (0, '{"ri":-2.5},{"g":-0.1}'),
        (1, '{"ri":-2.5,"a":-0.2},{"g":-0.1}'),  # the first token is not the best: one more
        (2, '{"ri":-2.5,"a":-0.2},{"g":-0.1,"h":-4.0}'),  # it is the second best
    ],
)
def test_a_completion_gets_the_token_and_as_many_of_the_best(wanted: int, left: str) -> None:
    whole = '{"ri":-2.5,"a":-0.2,"b":-3.0},{"g":-0.1,"h":-4.0}'
    made, _ = stripped((TEXT_REPLY % whole).encode(), asked(TEXT, logprobs=wanted), {})
    assert made.decode() == TEXT_REPLY % left


def test_a_chunk_that_tells_tokens_alone_is_left_out_and_one_with_a_text_is_not() -> None:
    chunk = '{"id":"c","choices":[{"index":1,"delta":%s,"logprobs":%s,"finish_reason":null,"token_ids":[5]}]}'
    outputs: dict[int, ListedOutput] = {}
    request = asked(stream=True, n=2)
    assert stripped((chunk % ("{}", ENTRIES)).encode(), request, outputs) == (b"", 0)
    made, _ = stripped((chunk % ('{"content":"é"}', ENTRIES)).encode(), request, outputs)
    assert made.decode() == (chunk % ('{"content":"é"}', "null")).replace("[5]", "null")
    assert outputs[1].text == ["é"]
    assert outputs[1].ids == [5, 5]
    assert stripped((chunk % ("{}", ENTRIES)).encode(), asked(stream=True, return_token_ids=True), {})[0]


def test_candidates_named_by_their_ids_have_no_bytes_of_that_name() -> None:
    named = '{"content":[{"token":"token_id:848","logprob":-0.1,"bytes":[72],"top_logprobs":[{"token":"token_id:848",'
    named += '"logprob":-0.1,"bytes":[116,111]},{"token":"token_id:7","logprob":-3.0,"bytes":[116]}]}]}'
    outputs: dict[int, ListedOutput] = {}
    stripped((CHAT_REPLY % (named, "[848]", "null")).encode(), asked(), outputs)
    assert [(c.id, c.text, c.bytes) for c in outputs[0].steps[0].top] == [(848, "", None), (7, "", None)]


def test_a_request_asks_for_ids_and_log_probabilities_of_its_own_route() -> None:
    assert json.loads(rewritten(asked(), 20, as_ids=True)) == {
        "model": "demo",
        "messages": [{"role": "user", "content": "Hi"}],
        **HELD,
        "return_token_ids": True,
        "logprobs": True,
        "top_logprobs": 20,
        "return_tokens_as_token_ids": True,
    }
    text = json.loads(rewritten(asked(TEXT, logprobs=2), 20, as_ids=True))
    assert text["logprobs"] == 20
    assert "return_tokens_as_token_ids" not in text  # the client sees the names of the candidates


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"structured_outputs": None}, "nothing constrains it"),
        ({"structured_outputs": None, "response_format": {"type": "text"}}, "nothing constrains it"),
        ({"echo": True}, "echo"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"include_reasoning": False}, "reasoning"),
    ],
)
def test_a_request_that_cannot_be_traced_says_why(more: dict[str, Any], why: str) -> None:
    with pytest.raises(UntracedRequest, match=why):
        asked(**more)


@pytest.mark.parametrize(
    "more",
    [
        {"response_format": {"type": "json_object"}},
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"guided_regex": "[a-z]+"},
        {"vllm_xargs": {"espalier": "{}"}},
    ],
)
def test_each_kind_of_constraint_is_traced(more: dict[str, Any]) -> None:
    assert asked(**({"structured_outputs": None} | more)).is_ours == ("vllm_xargs" in more)


@pytest.mark.parametrize("value", [10**400, -(10**400), math.inf, math.nan, None, "x", True, -9999.0])
def test_a_log_probability_that_is_none_is_minus_infinity_and_no_error_of_python(value: Any) -> None:
    assert _logprob(value) == -math.inf


@pytest.mark.parametrize("value", [-0.5, 0, -3])
def test_a_log_probability_is_a_float(value: Any) -> None:
    assert _logprob(value) == value


@pytest.mark.parametrize("logprob", [10**400, None, "x", {}])
def test_a_score_that_is_no_number_is_an_error_of_ours(logprob: Any) -> None:
    with pytest.raises(UpstreamError, match="cannot be read"):
        _score({"5": {"logprob": logprob}}, 5)
