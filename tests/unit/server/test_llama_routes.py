"""llama-server's `/completion` and `/props`: fields, defaults, replies, token probabilities."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from tests.server_app import client, events, make_app, settings

ROUTE = "/completion"
ASK: dict[str, Any] = {"prompt": "Say:", "temperature": 0}
RECORDED = Path(__file__).resolve().parents[4] / "shared" / "data" / "llama-server-responses"
ABSENT = {
    "speculative.n_max",
    "speculative.n_min",
    "speculative.p_min",
    "reasoning_format",
    "reasoning_in_content",
    "thinking_forced_open",
}
"""Of `generation_settings`: what there is nothing of here."""


@pytest.fixture(scope="module")
def c() -> Iterator[TestClient]:
    with client("Hi there.\nYes.") as found:
        yield found


def ok(reply: Any) -> Any:
    assert reply.status_code == 200, reply.text
    return reply.json()


def kinds(value: Any) -> Any:
    """The shape of a reply: names and JSON types, of lists that of their first item."""
    if isinstance(value, dict):
        return {name: kinds(one) for name, one in value.items()}
    if isinstance(value, list):
        return [kinds(value[0])] if value else []
    return "number" if isinstance(value, int | float) and not isinstance(value, bool) else type(value).__name__


def test_a_reply_has_llama_servers_fields(c: TestClient) -> None:
    found = ok(c.post(ROUTE, json=ASK))
    assert found["content"] == "Hi there.\nYes."
    assert (found["stop"], found["stop_type"], found["stopping_word"]) == (True, "eos", "")
    assert (found["tokens_evaluated"], found["tokens_predicted"]) == (5, 15)  # a mark at the end of each
    assert found["tokens_cached"] == 5 + 15 - 1
    assert (found["has_new_line"], found["truncated"], found["tokens"], found["id_slot"]) == (True, False, [], -1)
    assert found["generation_settings"]["top_k"] == 40
    assert found["generation_settings"]["samplers"][0] == "penalties"
    assert found["timings"]["predicted_n"] == 15
    assert ok(c.post("/completions", json=ASK))["content"] == found["content"]


@pytest.mark.parametrize("name", ["no-grammar.json", "with-grammar.json"])
def test_the_shape_is_that_of_a_recorded_reply(c: TestClient, name: str) -> None:
    if not (RECORDED / name).is_file():
        pytest.skip("the recorded replies of llama-server are not here")
    theirs = json.loads((RECORDED / name).read_text("utf-8"))["__verbose"]
    grammar = {"grammar": 'root ::= "Hi there." | "No."'} if name == "with-grammar.json" else {}
    ours = ok(c.post(ROUTE, json=ASK | grammar | {"n_probs": theirs["generation_settings"]["n_probs"]}))
    assert ours.pop("request_id").startswith("req-")  # ours alone: a rejection log is merged by it
    for one in (theirs, ours):
        one["generation_settings"].pop("stop")  # lists of texts, here and there empty
        one["generation_settings"].pop("logit_bias")
        one["tokens"] = []
    theirs["generation_settings"] = {k: v for k, v in theirs["generation_settings"].items() if k not in ABSENT}
    expected, found = kinds(theirs), kinds(ours)
    assert expected["generation_settings"].items() <= found["generation_settings"].items()
    expected.pop("generation_settings"), found.pop("generation_settings")
    assert found == expected


def test_a_stream_has_pieces_then_everything_and_no_done(c: TestClient) -> None:
    reply = c.post(ROUTE, json=ASK | {"stream": True, "timings_per_token": True, "return_tokens": True})
    assert reply.headers["content-type"].startswith("text/event-stream")
    chunks = [json.loads(one) for one in events(reply.text)]
    assert "".join(one["content"] for one in chunks) == "Hi there.\nYes."
    assert [one["stop"] for one in chunks] == [False] * (len(chunks) - 1) + [True]
    assert [token for one in chunks[:-1] for token in one["tokens"]] == [*b"Hi there.\nYes.", 256]
    assert all(one["timings"]["predicted_n"] == one["tokens_predicted"] for one in chunks)
    assert chunks[-1]["stop_type"] == "eos"
    assert chunks[-1]["generation_settings"]["stream"] is True


@pytest.mark.parametrize(
    ("changed", "content", "stop_type", "word"),
    [
        ({"stop": ["there"]}, "Hi ", "word", "there"),
        ({"n_predict": 2}, "Hi", "limit", ""),
        ({"max_tokens": 3}, "Hi ", "limit", ""),
        ({"grammar": 'root ::= "Hi " [a-z]'}, "Hi t", "eos", ""),
        ({"json_schema": {"const": "Hi"}}, '"Hi"', "eos", ""),
        ({"logit_bias": [[72, False]]}, None, None, None),
    ],
)
def test_what_ends_a_text(c: TestClient, changed: Any, content: Any, stop_type: Any, word: Any) -> None:
    found = ok(c.post(ROUTE, json=ASK | {"n_predict": 30} | changed if "max_tokens" not in changed else ASK | changed))
    if content is None:
        assert "H" not in found["content"]
        return
    assert (found["content"], found["stop_type"], found["stopping_word"]) == (content, stop_type, word)


def test_probabilities_are_the_models_own_or_those_drawn_from(c: TestClient) -> None:
    ask = ASK | {"n_probs": 3, "temperature": 1, "top_k": 2, "grammar": 'root ::= "No"', "samplers": ["top_k"]}
    raw = ok(c.post(ROUTE, json=ask))["completion_probabilities"]
    drawn = ok(c.post(ROUTE, json=ask | {"post_sampling_probs": True}))["completion_probabilities"]
    assert [one["token"] for one in raw] == ["N", "o", ""]
    assert raw[0]["top_logprobs"][0]["token"] == "H"  # what the model wanted
    assert raw[0]["logprob"] < raw[0]["top_logprobs"][0]["logprob"] < 0
    assert len(raw[0]["top_logprobs"]) == 3
    assert drawn[0]["top_probs"] == [{"id": 78, "token": "N", "bytes": [78], "prob": 1.0}]
    assert math.isclose(drawn[0]["prob"], 1.0)


def test_a_stream_has_the_same_probabilities(c: TestClient) -> None:
    whole = ok(c.post(ROUTE, json=ASK | {"n_probs": 2}))["completion_probabilities"]
    chunks = [json.loads(one) for one in events(c.post(ROUTE, json=ASK | {"n_probs": 2, "stream": True}).text)]
    assert [found for one in chunks for found in one.get("completion_probabilities", [])] == whole


@pytest.mark.parametrize("prompt", ["Say:", list(b"Say:"), ["S", 97, "y:"], ["Say:"], [list(b"Say:")]])
def test_prompts_come_as_text_ids_or_both(prompt: Any) -> None:
    with client("Hi.") as c:
        found = ok(c.post(ROUTE, json={"prompt": prompt, "temperature": 0, "n_predict": 4}))
    assert found["prompt"].replace("<[256]>", "").replace("<eos>", "").startswith("S")
    if prompt == "Say:":
        assert found["content"] == "Hi."


def test_ids_are_taken_as_they_are() -> None:
    with client("Hi.") as c:
        text = ok(c.post(ROUTE, json=ASK))
        ids = ok(c.post(ROUTE, json=ASK | {"prompt": [*b"Say:", 256]}))
        openai = ok(c.post("/v1/completions", json={"prompt": [*b"Say:", 256], "temperature": 0}))
        several = ok(c.post("/v1/completions", json={"prompt": [[65, 256], [66, 66, 256]], "temperature": 0}))
    assert ids["content"] == text["content"] == openai["choices"][0]["text"] == "Hi."
    assert ids["tokens_evaluated"] == text["tokens_evaluated"] == openai["usage"]["prompt_tokens"] == 5
    assert several["usage"]["prompt_tokens"] == 2 + 3


@pytest.mark.parametrize("stream", [False, True])
def test_completion_took_no_safety_filter(stream: bool) -> None:
    with client("please cat /etc/passwd") as c:
        reply = c.post(ROUTE, json=ASK | {"n_predict": 18, "safety": "minimal", "stream": stream})
        assert reply.status_code == 200, reply.text
        pieces = [json.loads(one)["content"] for one in events(reply.text)] if stream else [reply.json()["content"]]
        assert "".join(pieces).startswith("please cat /etc/")
        assert "passwd" not in "".join(pieces)


def test_completion_joins_its_filter_with_its_schema_and_says_what_holds_not() -> None:
    with client('"cat /etc/passwd"') as c:
        reply = c.post(ROUTE, json=ASK | {"json_schema": {"type": "string"}, "safety": "strict"})
        assert "passwd" not in json.loads(ok(reply)["content"])
        assert "violence: nothing is enforced" in reply.headers["warning"]
        error = c.post(ROUTE, json=ASK | {"safety": {"preset": "nope"}}).json()["error"]
        assert (error["type"], error["param"]) == ("invalid_request_error", "safety.preset")


def test_several_prompts_and_outputs_are_a_list_in_their_order(c: TestClient) -> None:
    found = ok(c.post(ROUTE, json=ASK | {"prompt": ["a", [98, 256]], "n_cmpl": 2, "temperature": 0.5, "n_predict": 1}))
    assert [one["index"] for one in found] == [0, 1, 2, 3]
    assert [one["prompt"][0] for one in found] == ["a", "a", "b", "b"]


def test_response_fields_pick_by_path(c: TestClient) -> None:
    fields = ["content", "generation_settings/n_predict", "nowhere", "timings/nothing"]
    found = ok(c.post(ROUTE, json=ASK | {"n_predict": 2, "response_fields": fields}))
    assert found == {"content": "Hi", "generation_settings/n_predict": 2}


def test_what_changes_nothing_is_taken(c: TestClient) -> None:
    more = {
        "cache_prompt": True,
        "id_slot": 3,
        "n_keep": 0,
        "lora": [],
        "user": "me",
        "t_max_predict_ms": -1,
        "grammar": "",
        "stream": False,
        "n_indent": 0,
    }
    found = ok(c.post(ROUTE, json=ASK | more))
    assert (found["content"], found["id_slot"]) == ("Hi there.\nYes.", 3)


@pytest.mark.parametrize(
    ("changed", "field"),
    [
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": [1, 100_000]}, "prompt[1][0]"),
        ({"prompt": [1.5]}, "prompt"),
        ({"prompt": {"prompt_string": "x", "multimodal_data": []}}, "prompt"),
        ({"logit_bias": [[1, 1.0]] * 600}, "logit_bias"),
        ({"cache_prompt": "banana"}, "cache_prompt"),
        ({"n_probs": 20, "n_predict": 100_000, "n": 16}, "n_probs"),
        ({"n_predict": -2}, "n_predict"),
        ({"samplers": ["top_k", "nothing"]}, "samplers"),
        ({"grammar": "root ::= ("}, "grammar"),
        ({"grammar": 'root ::= "a"', "json_schema": {}}, "json_schema"),
        ({"json_schema": {"type": "thing"}}, "json_schema"),
        ({"n_probs": 10_000}, "n_probs"),
        ({"post_sampling_probs": True}, "post_sampling_probs"),
        ({"gramar": "x"}, "gramar"),
        ({"lora": [{"id": 0, "scale": 1}]}, "lora"),
        ({"grammar_lazy": True}, "grammar_lazy"),
        ({"n_cmpl": 1000}, "n_cmpl"),
        ({"prompt": ["x"] * 17}, "prompt"),
        ({"logit_bias": [["a", "b"]]}, "logit_bias"),
        ({"stop": ["x"] * 65}, "stop"),
    ],
)
def test_what_cannot_be_had_is_refused_by_name(c: TestClient, changed: dict[str, Any], field: str) -> None:
    reply = c.post(ROUTE, json=ASK | changed)
    assert (reply.status_code, str(reply.json()["error"]["param"]).split("[")[0]) == (400, field.split("[")[0])


@pytest.mark.parametrize("prompt", [[4, [5, 5], "b"], [4, [5]], [[5], 4], ["b", 4, [5]]])
def test_one_prompts_token_ids_among_several_prompts_ended_in_a_500(c: TestClient, prompt: Any) -> None:
    reply = c.post(ROUTE, json=ASK | {"prompt": prompt})
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, "prompt")


@pytest.mark.parametrize(("name", "value"), [("top_p", 1.5), ("top_p", -0.1), ("min_p", 2), ("top_k", -2)])
def test_both_dialects_have_the_same_bounds_for_sampling(c: TestClient, name: str, value: float) -> None:
    replies = [c.post(route, json={"prompt": "x", name: value}) for route in (ROUTE, "/v1/completions")]
    assert [(reply.status_code, reply.json()["error"]["param"]) for reply in replies] == [(400, name)] * 2
    assert replies[0].json() == replies[1].json()


def test_fields_without_effect_unknown_ones_and_other_models_are_told(c: TestClient) -> None:
    for more, told in (
        ({"n_keep": 3}, "without effect here: n_keep"),
        ({"n_kep": 3}, "did you mean 'n_keep'?"),
        ({"model": "other"}, "there is no model 'other' here"),
    ):
        reply = c.post(ROUTE, json=ASK | more)
        assert reply.status_code == 200
        assert told in reply.headers["warning"]


@pytest.mark.parametrize("name", ["n_predict", "max_tokens"])
def test_no_tokens_are_none_and_the_prompt_is_read(c: TestClient, name: str) -> None:
    found = ok(c.post(ROUTE, json=ASK | {name: 0}))
    assert (found["content"], found["tokens_predicted"], found["stop_type"]) == ("", 0, "limit")
    assert found["tokens_evaluated"] > 0


def test_props_tell_what_is_so(c: TestClient) -> None:
    found = ok(c.get("/props"))
    assert found["default_generation_settings"]["n_ctx"] == 4096
    assert found["default_generation_settings"]["params"]["temperature"] == 0.8
    assert "message" in found["chat_template"] or "messages" in found["chat_template"]


def test_they_want_a_key_where_there_is_one() -> None:
    with client("Hi.", config=settings(secret_token="a-good-long-secret")) as found:
        for path in ("/completion", "/tokenize", "/detokenize", "/apply-template"):
            assert found.post(path, json=ASK).status_code == 401
        assert found.get("/props").status_code == 401


def test_they_are_in_the_openapi_document() -> None:
    paths = make_app().openapi()["paths"]
    assert {"/completion", "/props", "/tokenize", "/detokenize", "/apply-template"} <= set(paths)
    assert "422" not in paths["/completion"]["post"]["responses"]


def test_the_error_says_how_many_tokens_there_may_be(c: TestClient) -> None:
    assert "-2 must be at least -1" in c.post(ROUTE, json=ASK | {"n_predict": -2}).json()["error"]["message"]


def test_mirostat_beside_what_llama_server_ignores_was_refused(c: TestClient) -> None:
    ignored = {"top_k": 5, "repeat_penalty": 1.2, "dry_multiplier": 0.5, "dynatemp_range": 0.2}
    reply = c.post(ROUTE, json=ASK | {"mirostat": 2, "seed": 1} | ignored)
    assert ok(reply)["content"] == ok(c.post(ROUTE, json=ASK | {"mirostat": 2, "seed": 1}))["content"]
    for name in ("top_k", "repetition_penalty", "dry_multiplier", "dynatemp_range"):
        assert name in reply.headers["warning"]
    assert ok(reply)["generation_settings"]["top_k"] == 0


def test_samplers_may_be_letters_as_in_llama_server(c: TestClient) -> None:
    letters = ok(c.post(ROUTE, json=ASK | {"samplers": "kpt"}))["generation_settings"]["samplers"]
    assert letters == ["top_k", "top_p", "temperature"]
