"""`/tokenize`, `/detokenize` and `/apply-template`, in llama-server's and in vLLM's shape."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

import espalier
from espalier.wiring import demo_model
from tests.server_app import client

TALK = [{"role": "user", "content": "Hi"}]


@pytest.fixture(scope="module")
def demo() -> Iterator[TestClient]:
    pytest.importorskip("transformers")
    with espalier.load(str(demo_model())) as engine, client(engine=engine) as found:
        yield found


def ok(reply: Any) -> Any:
    assert reply.status_code == 200, reply.text
    return reply.json()


@pytest.mark.parametrize("text", ["Hello there", "naïve 東京 😀", "<|im_start|>user\nHi<|im_end|>\n", ""])
def test_a_text_comes_back_from_its_tokens(demo: TestClient, text: str) -> None:
    tokens = ok(demo.post("/tokenize", json={"content": text}))["tokens"]
    assert ok(demo.post("/detokenize", json={"tokens": tokens})) == {"content": text, "prompt": text}
    assert ok(demo.post("/detokenize", json={"tokens": tokens, "model": "m"})) == {"prompt": text}


def test_special_tokens_are_read_or_not(demo: TestClient) -> None:
    read = ok(demo.post("/tokenize", json={"content": "<|im_end|>"}))["tokens"]
    plain = ok(demo.post("/tokenize", json={"content": "<|im_end|>", "parse_special": False}))["tokens"]
    assert len(read) == 1 < len(plain)
    assert ok(demo.post("/detokenize", json={"tokens": plain}))["content"] == "<|im_end|>"


def test_pieces_are_text_or_bytes(demo: TestClient) -> None:
    pieces = ok(demo.post("/tokenize", json={"content": "a 😀", "with_pieces": True}))["tokens"]
    spelled = b"".join(p["piece"].encode() if isinstance(p["piece"], str) else bytes(p["piece"]) for p in pieces)
    assert spelled.decode() == "a 😀"
    assert any(isinstance(p["piece"], list) for p in pieces)


def test_vllms_tokenize_counts_prompts_and_conversations(demo: TestClient) -> None:
    found = ok(demo.post("/tokenize", json={"prompt": "Hello", "return_token_strs": True}))
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
    assert found["max_model_len"] > 0
    assert "".join(found["token_strs"]) == "Hello"
    talk = ok(demo.post("/tokenize", json={"messages": TALK}))
    prompt = ok(demo.post("/apply-template", json={"messages": TALK}))["prompt"]
    assert ok(demo.post("/detokenize", json={"tokens": talk["tokens"]}))["content"] == prompt
    assert talk["token_strs"] is None
    usage = ok(demo.post("/v1/chat/completions", json={"messages": TALK, "max_tokens": 1}))["usage"]
    assert usage["prompt_tokens"] == talk["count"]


def test_the_template_has_what_the_chat_route_gives_it(demo: TestClient) -> None:
    system = [{"role": "system", "content": "Be brief."}, *TALK]
    prompt = ok(demo.post("/apply-template", json={"messages": system}))["prompt"]
    assert prompt.index("Be brief.") < prompt.index("Hi")


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/tokenize", {}, "content"),
        ("/tokenize", {"content": "a", "prompt": "b"}, "prompt"),
        ("/tokenize", {"content": "a", "return_token_strs": True}, "return_token_strs"),
        ("/tokenize", {"prompt": "a", "with_pieces": True}, "with_pieces"),
        ("/tokenize", {"prompt": "a", "tools": [{}]}, "tools"),
        ("/tokenize", {"content": 7}, "content"),
        ("/tokenize", {"messages": [{"role": "nobody", "content": "x"}]}, "messages[0].role"),
        ("/tokenize", {"content": "a", "chat_template_kwargs": {"x": 1}}, "chat_template_kwargs"),
        ("/tokenize", {"prompt": "a", "continue_final_message": True}, "continue_final_message"),
        ("/tokenize", {"messages": TALK, "continue_final_message": True}, "continue_final_message"),
        ("/tokenize", {"content": "a", "parse_special": False, "add_special": True}, "parse_special"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [1, -1]}, "tokens[1]"),
        ("/detokenize", {"tokens": [10**9]}, "tokens[0]"),
        ("/detokenize", {"tokens": ["a"]}, "tokens[0]"),
        ("/apply-template", {"messages": []}, "messages"),
    ],
)
def test_what_is_wrong_is_named(demo: TestClient, path: str, body: dict[str, Any], field: str) -> None:
    reply = demo.post(path, json=body)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)


def test_a_variable_that_the_template_is_given_anyway_names_the_bodys_field(demo: TestClient) -> None:
    reply = demo.post("/apply-template", json={"messages": TALK, "chat_template_kwargs": {"messages": []}})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "chat_template_kwargs")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/tokenize", {"content": "a"}),
        ("/tokenize", {"messages": TALK}),
        ("/detokenize", {"tokens": [40]}),
        ("/apply-template", {"messages": TALK}),
        ("/v1/messages/count_tokens", {"messages": TALK}),
    ],
)
def test_unknown_fields_are_told_or_refused_as_everywhere(demo: TestClient, path: str, body: dict[str, Any]) -> None:
    reply = demo.post(path, json=body | {"fooo": 1, "user": "me"})
    assert reply.status_code == 200, reply.text
    assert "'fooo'" in reply.headers["warning"]
    assert "without effect here: user" in reply.headers["warning"]
    refused = demo.post(path, json=body | {"fooo": 1, "espalier": {"strict": True}})
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "unknown_parameter")


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"add_generation_prompt": False},
        {"chat_template_kwargs": {"enable_thinking": False}},
        {"messages": [*TALK, {"role": "assistant", "content": "Well,"}]},
        {"messages": [*TALK, {"role": "assistant", "content": "Well,"}], "continue_final_message": True},
        {"tools": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]},
    ],
)
def test_the_tokens_of_a_conversation_are_those_that_the_chat_route_reads(
    demo: TestClient, more: dict[str, Any]
) -> None:
    body = {"messages": TALK} | more
    count = ok(demo.post("/tokenize", json=body))["count"]
    assert ok(demo.post("/v1/chat/completions", json=body | {"max_tokens": 1}))["usage"]["prompt_tokens"] == count


def test_lm_evals_remote_tokenizer_works(demo: TestClient) -> None:
    """The calls of lm-eval's `RemoteTokenizer`: what it asks, and the fields that it reads."""
    info = ok(demo.get("/tokenizer_info"))
    assert isinstance(info["chat_template"], str)

    def encode(text: str) -> list[int]:
        tokens: list[int] = ok(demo.post("/tokenize", json={"prompt": text, "add_special_tokens": False}))["tokens"]
        return tokens

    assert ok(demo.post("/detokenize", json={"tokens": encode("naïve 東京")}))["prompt"] == "naïve 東京"
    [eos] = encode(info["eos_token"])
    assert ok(demo.post("/detokenize", json={"tokens": [eos]}))["prompt"] == info["eos_token"]
    assert info["eos_token"] in info["additional_special_tokens"]
    assert info["model_max_length"] == ok(demo.get("/v1/models"))["data"][0]["max_model_len"]
