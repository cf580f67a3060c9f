"""Prompts are cut to MAX_INPUT_TOKENS, and `max_tokens` is rounded to an allowed value."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("fastapi")

import espalier
from espalier.api import make_request
from espalier.engines.base import Request
from espalier.engines.local.engine import LocalEngine
from espalier.errors import PromptTooLong
from espalier.sampling.config import SamplingConfig
from espalier.server.asking.sampling import in_buckets
from espalier.server.asking.truncate import _border, cut_prompts
from tests.server_app import client, events, settings

ROUTE = "/v1/chat/completions"
TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "first question"},
    {"role": "assistant", "content": "first answer"},
    {"role": "user", "content": "second question"},
    {"role": "assistant", "content": "second answer"},
    {"role": "user", "content": "third question"},
]


@pytest.fixture(scope="module")
def demo(demo_engine: espalier.LoadedEngine) -> Any:
    return demo_engine


@pytest.fixture(params=["fake", "demo"])
def engine(request: pytest.FixtureRequest, demo: Any) -> Any:
    """Byte tokens with an end mark, and real ones with a template of markers."""
    if request.param == "demo":
        yield demo.engine
        return
    with espalier.load("fake") as found:
        yield found.engine


def size(engine: LocalEngine, request: Request) -> int:
    return len(engine.prompt_ids(request))


def cut(engine: LocalEngine, request: Request, limit: int) -> tuple[Request, int]:
    (found,), (lost,) = cut_prompts(engine, [request], limit)
    return found, lost


def test_what_fits_is_left_as_it_is(engine: LocalEngine) -> None:
    request = make_request(TALK)
    assert cut(engine, request, size(engine, request)) == (request, 0)


def test_the_oldest_turns_go_first_each_with_its_answer(engine: LocalEngine) -> None:
    request = make_request(TALK)
    found, lost = cut(engine, request, size(engine, request) - 1)
    assert [one["content"] for one in found.messages or ()] == [one["content"] for one in (TALK[0], *TALK[3:])]
    assert lost == size(engine, request) - size(engine, found) > 0


@pytest.mark.parametrize("less", range(1, 40))
def test_fault_5_the_system_message_and_the_assistants_header_stay(engine: LocalEngine, less: int) -> None:
    request = make_request(TALK)
    shortest = make_request([TALK[0], {"role": "user", "content": "n"}])
    limit = max(size(engine, shortest), size(engine, request) - less)
    found, _ = cut(engine, request, limit)
    assert size(engine, found) <= limit
    whole, short = engine.prompt_text(request), engine.prompt_text(found)
    header = whole[whole.rindex("third question") + len("third question") :]
    assert short.endswith(header)
    assert "Be brief." in short
    assert whole[: whole.index("first question")] == short[: whole.index("first question")]


def test_fault_5_a_bos_is_there_once() -> None:
    from espalier.engines.huggingface.loading import make_encode

    class Tokenizer:
        bos_token_id, eos_token_id = 1, 2

        def __call__(self, text: str, *, add_special_tokens: bool, verbose: bool) -> dict[str, list[int]]:
            plain = [1, 5] if text.startswith("<s>") else [5]
            return {"input_ids": [1, *plain] if add_special_tokens else plain}

    assert make_encode(Tokenizer())("<s>x", add_special=True) == [1, 5]


def test_then_the_oldest_text_of_a_user_loses_its_beginning(engine: LocalEngine) -> None:
    request = make_request([TALK[0], {"role": "user", "content": "one two three four five six seven eight nine ten"}])
    limit = size(engine, request) - 4
    found, lost = cut(engine, request, limit)
    rest = (found.messages or ())[-1]["content"]
    assert "one two three four five six seven eight nine ten".endswith(rest)
    assert limit - 3 <= size(engine, found) <= limit
    assert lost >= 4


def test_what_must_stay_and_is_too_long_is_refused(engine: LocalEngine) -> None:
    with pytest.raises(PromptTooLong) as caught:
        cut(engine, make_request(TALK), 3)
    assert caught.value.field == "messages"
    with pytest.raises(PromptTooLong):
        cut(engine, make_request([TALK[0], TALK[2]]), 5)


def test_calls_and_their_results_go_together(engine: LocalEngine) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "add", "arguments": "{}"}}
    talk = [
        {"role": "user", "content": "add"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "3"},
        {"role": "assistant", "content": "three"},
        {"role": "user", "content": "thanks"},
    ]
    request = make_request(talk)
    found, _ = cut(engine, request, size(engine, request) - 1)
    assert [one["role"] for one in found.messages or ()] == ["user"]


@pytest.mark.parametrize("text", ["naïve résumé", "a👩‍👩‍👧b", "é́́x", "x<|im_end|>y<|im_start|>z"])
def test_a_cut_is_neither_within_a_character_nor_within_a_special_token(text: str) -> None:
    whole = ("<|im_end|>", "<|im_start|>", "👩‍👩‍👧", "é́́")
    for place in range(len(text)):
        found = _border(text, place, ("<|im_end|>", "<|im_start|>"))
        assert place <= found <= len(text)
        for one in whole:
            at = text.find(one)
            assert at < 0 or not at < found < at + len(one)


def test_a_plain_prompt_and_token_ids_lose_their_beginning(demo: Any) -> None:
    engine = demo.engine
    request = make_request("one two three four five six seven eight", raw=True)
    found, lost = cut(engine, request, 5)
    assert size(engine, found) <= 5
    assert lost >= 1
    assert "one two three four five six seven eight".endswith(found.prompt or "-")
    ids = tuple(engine.prompt_ids(request))
    by_id, lost = cut(engine, replace(request, prompt_ids=ids), 5)
    assert by_id.prompt_ids == ids[-5:]
    assert lost == len(ids) - 5
    marked = (engine.vocab.eos_ids[0], *ids)
    assert cut(engine, replace(request, prompt_ids=marked), 5)[0].prompt_ids == (marked[0], *ids[-4:])


def test_outputs_of_one_prompt_are_cut_once_and_alike(engine: LocalEngine) -> None:
    request = make_request(TALK, n=2)
    pair = [replace(request, stream=0), replace(request, stream=1)]
    (first, second), lost = cut_prompts(engine, pair, size(engine, request) - 2)
    assert first.messages is second.messages
    assert (first.stream, second.stream) == (0, 1)
    assert lost[0] == lost[1]


def test_the_reply_says_how_much_was_cut() -> None:
    ask = {"messages": TALK, "temperature": 0, "max_tokens": 8, "espalier": {}}
    with client("Hello.", config=settings(max_input_tokens="60")) as c:
        whole = c.post(ROUTE, json=ask)
        stream = c.post(ROUTE, json=ask | {"stream": True})
        short = c.post(ROUTE, json=ask | {"messages": TALK[:2]})
    lost = int(whole.headers["x-espalier-truncated"])
    assert lost == int(stream.headers["x-espalier-truncated"]) > 0
    assert whole.json()["espalier"]["outputs"][0]["truncated"] == lost
    assert f'"truncated":{lost}' in events(stream.text)[-2]
    assert whole.json()["usage"]["prompt_tokens"] <= 60
    assert "x-espalier-truncated" not in short.headers
    assert "truncated" not in short.json()["espalier"]["outputs"][0]


def test_without_the_setting_nothing_is_cut_and_what_is_too_long_is_a_400() -> None:
    long = [{"role": "user", "content": "x" * 5000}]
    with client("Hello.") as c:
        reply = c.post(ROUTE, json={"messages": long, "max_tokens": 8})
    assert (reply.status_code, reply.json()["error"]["code"]) == (400, "context_length_exceeded")
    with client("Hello.", config=settings(max_input_tokens="6")) as c:
        refused = c.post(ROUTE, json={"messages": TALK, "max_tokens": 8})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "messages")


@pytest.mark.parametrize(
    ("asked", "given"), [(1, 64), (64, 64), (65, 128), (100, 128), (512, 512), (513, 512), (2**31 - 1, 512)]
)
def test_max_tokens_is_rounded_up_to_a_bucket(asked: int, given: int) -> None:
    config = SamplingConfig(max_tokens=asked)
    for one in (settings(allowed_max_new_tokens="512,64,128,256"), settings(wordlist_server_compat="true")):
        assert in_buckets(config, one).max_tokens == given
    assert in_buckets(config, settings()).max_tokens == asked


def test_buckets_hold_on_every_route() -> None:
    with client("word " * 40, config=settings(allowed_max_new_tokens="8,16")) as c:
        chat = c.post(ROUTE, json={"messages": TALK, "temperature": 0, "max_tokens": 9}).json()
        text = c.post("/v1/completions", json={"prompt": "x", "temperature": 0, "max_tokens": 3}).json()
        llama = c.post("/completion", json={"prompt": "x", "temperature": 0}).json()
    assert chat["usage"]["completion_tokens"] == 16
    assert text["usage"]["completion_tokens"] == 8
    assert llama["tokens_predicted"] == 16
