"""A reply to the request that was added to is, once cut, byte for byte the reply to the request as the client sent it;
and what it told of each output is what was generated."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest

from espalier.upstream.xray.sampler.settings import RANDOM_SEED
from espalier.upstream.xray.wire.reply import Tolds, stripped
from espalier.upstream.xray.wire.request import MOST_COPIES, UntracedRequest, read_request, rewritten
from espalier.upstream.xray.wire.spans import text_of

TOKENS = [5, 9, 12, 3]
TEXTS = ["a", " é", "", "."]
"""The third one ends inside a character, so that it has no entry and, in a stream, no chunk with one."""
GAP = 2
GIVEN = {"grammar": "root ::= .*", "prompt": "adc"}
BOTH = {"grammar": "root ::= .*", "messages": [{"role": "user", "content": "adc"}]}
CLIENTS: dict[str, tuple[str, dict[str, Any], int]] = {
    "completion": ("/completion", GIVEN, 0),
    "with probabilities": ("/completion", GIVEN | {"n_probs": 2}, 2),
    "with tokens": ("/completions", GIVEN | {"return_tokens": True, "seed": 8}, 0),
    "with more than we want": ("/completion", GIVEN | {"n_probs": 6}, 6),
    "text": ("/v1/completions", GIVEN | {"max_tokens": 4}, 0),
    "text with probabilities": ("/v1/completions", GIVEN | {"logprobs": 3}, 3),
    "chat": ("/v1/chat/completions", BOTH, 0),
    "chat with probabilities": ("/chat/completions", BOTH | {"logprobs": True, "top_logprobs": 1}, 1),
    "chat with timings": ("/v1/chat/completions", BOTH | {"timings_per_token": True, "seed": 3}, 0),
    "chat of copies": ("/v1/chat/completions", BOTH | {"n": 2}, 0),
}
"""The route, the request, and how many probabilities of each token it asks for."""


def entry(place: int, top: int, output: int) -> dict[str, Any]:
    listed = [
        {"id": token, "token": "é", "bytes": [195, 169], "logprob": -0.5 - token - place}
        for token in [TOKENS[place] + output, *range(20, 40)][:top]
    ]
    return {"id": TOKENS[place] + output, "token": "é", "bytes": [195], "logprob": -0.5, "top_logprobs": listed}


def replies(path: str, body: Mapping[str, Any], top: int) -> list[str]:
    """The objects that the server sends: one, or the chunks of a stream."""
    is_stream, copies = body.get("stream") is True, body.get("n", 1)
    settings = {"n_predict": 4, "seed": body.get("seed", RANDOM_SEED), "n_probs": top, "grammar": body.get("grammar")}
    verbose = {"prompt": "adc é", "tokens_evaluated": 6, "generation_settings": settings, "stop_type": "limit"}
    timings = {"predicted_n": len(TOKENS), "predicted_ms": 1.25}
    if "chat" not in path and not path.startswith("/v1"):
        made = []
        if is_stream:
            for place, token in enumerate(TOKENS):
                given = {"completion_probabilities": [entry(place, top, 0)]} if top and place != GAP else {}
                chunk = {"index": 0, "content": TEXTS[place], "tokens": [token], "stop": False}
                made.append(chunk | {"tokens_predicted": place + 1} | given | {"id_slot": 0})
        whole = {"index": 0, "content": "" if is_stream else "".join(TEXTS), "model": "m", "stop": True}
        whole["tokens"] = TOKENS if body.get("return_tokens") and not is_stream else []
        whole |= {"tokens_predicted": len(TOKENS), **verbose, "timings": timings}
        if top and not is_stream:
            whole["completion_probabilities"] = [entry(place, top, 0) for place in range(len(TOKENS)) if place != GAP]
        return [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in [*made, whole]]

    def choice(output: int, places: range, finish: str | None) -> dict[str, Any]:
        text = "".join(TEXTS[place] for place in places)
        said: dict[str, Any] = {"text": text}
        if "chat" in path:
            said = {"delta" if is_stream else "message": {"content": text}}
        entries = [entry(place, top, output) for place in places if place != GAP]
        logprobs: dict[str, Any] = {"logprobs": {"content": entries}} if top and entries else {}
        if path == "/v1/completions" and not logprobs:
            logprobs = {"logprobs": None}
        return {"index": output} | said | logprobs | {"finish_reason": finish}

    def outer(choices: list[Any], more: Mapping[str, Any], told: Mapping[str, Any]) -> dict[str, Any]:
        found = {"choices": choices, "created": 1, "model": "m", "id": "chatcmpl-1"}
        return found | ({"__verbose": told} if body.get("verbose") else {}) | more

    if not is_stream:
        choices = [choice(output, range(len(TOKENS)), "length") for output in range(copies)]
        told = {"tokens": TOKENS if body.get("return_tokens") else [], **verbose}
        made = [outer(choices, {"usage": {"completion_tokens": 4}, "timings": timings}, told)]
    else:
        made = []
        for output in range(copies):
            for place in range(len(TOKENS)):
                more = {"timings": {"predicted_n": place + 1}} if body.get("timings_per_token") else {}
                told = {"tokens": [TOKENS[place] + output]}
                made.append(outer([choice(output, range(place, place + 1), None)], more, told))
            made.append(outer([choice(output, range(0), "length")], {"timings": timings}, verbose))
        counts = {"usage": {"completion_tokens": 4 * copies}, "timings": timings | {"predicted_n": 4 * copies}}
        made.append(outer([], counts, {}))
    return [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in made]


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("name", CLIENTS)
def test_a_reply_is_as_without_us_and_tells_what_was_generated(name: str, is_stream: bool, count: int) -> None:
    path, body, top = CLIENTS[name]
    body = body | ({"stream": True} if is_stream else {})
    request = read_request(path, json.dumps(body).encode())
    assert (request.top, request.is_stream, request.body) == (top, is_stream, body)
    raw, seed = rewritten(request, count, lambda: 77)
    asked = json.loads(raw)
    given = asked["top_logprobs"] if asked.get("logprobs") is True else asked["n_probs"]
    assert given == max(count, top)
    assert seed == asked["seed"] == body.get("seed", 77)
    theirs = replies(path, asked, given)
    outputs: Tolds = {}
    ours = [stripped(one.encode(), request, outputs) for one in theirs]
    expected = replies(path, body, top)
    assert [one.decode() for one, _ in ours] == expected
    ends = [json.loads(one) for one in theirs]
    assert [is_end for _, is_end in ours] == [
        bool(one.get("stop") or (one.get("choices") or [{}])[0].get("finish_reason")) for one in ends
    ]
    assert sorted(outputs) == list(range(body.get("n", 1)))
    for index, output in outputs.items():
        tokens = [token + index for token in TOKENS]
        named = {place: token for place, token in enumerate(tokens) if place != GAP or is_stream}
        listed = [one.chosen for one in output.listed]
        if is_stream:
            assert (output.ids, output.count) == (named, len(TOKENS))
            assert {place: one.chosen for place, one in output.entries.items()} == {
                place: token for place, token in enumerate(tokens) if place != GAP
            }
        else:
            assert listed == [token for place, token in enumerate(tokens) if place != GAP]
            assert output.tokens == (TOKENS if index == 0 else None)
            assert output.count == (len(TOKENS) if index == 0 else 0)
        assert output.is_rest == (index > 0 and not is_stream)
        assert text_of("".join(output.text)) == "".join(TEXTS)
        assert (output.finish, output.model, output.prompt) == ("length", "m", "adc é")
        assert output.prompt_count == 6
        assert output.settings is not None
        assert output.settings["seed"] == seed + (index if output.is_rest else 0)
        assert output.reply_id == ("" if "chat" not in path and not path.startswith("/v1") else "chatcmpl-1")
        assert not output.is_stopped_by_word


@pytest.mark.parametrize("copies", [1, 3])
def test_no_seed_of_an_output_is_the_servers_word_for_a_random_one(copies: int) -> None:
    request = read_request("/completion", json.dumps(GIVEN | {"n_cmpl": copies}).encode())
    assert request.outputs == copies
    for drawn in (0, RANDOM_SEED - 1 - copies, RANDOM_SEED - copies, RANDOM_SEED - 1, RANDOM_SEED):
        _, seed = rewritten(request, 1, lambda drawn=drawn: drawn)
        assert seed == (drawn if drawn + copies <= RANDOM_SEED else RANDOM_SEED - copies)
        assert [request.seed_of(seed, index) for index in range(copies)] == [*range(seed, seed + copies)]


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"grammar": ""}, "nothing constrains it"),
        ({"verbose": True}, "it asks for verbose"),
        ({"n": 0}, f"its n is no whole number from 1 to {MOST_COPIES}"),
        ({"n": MOST_COPIES + 1}, f"its n is no whole number from 1 to {MOST_COPIES}"),
        ({"n": True}, f"its n is no whole number from 1 to {MOST_COPIES}"),
        ({"prompt": {"prompt_string": "a"}}, "its prompt is an object"),
        ({"prompt": ["a", {"prompt_string": "a"}]}, "its prompt is an object"),
        ({"seed": "7"}, r"its seed is no whole number below 2\*\*32"),
        ({"seed": -2}, r"its seed is no whole number below 2\*\*32"),
        ({"seed": 2**32}, r"its seed is no whole number below 2\*\*32"),
    ],
)
def test_a_request_that_is_not_traced_says_why_and_what_it_asked_for(more: dict[str, Any], why: str) -> None:
    with pytest.raises(UntracedRequest, match=f"^{why}$") as found:
        read_request("/completion", json.dumps(GIVEN | more).encode())
    asked = found.value.asked
    assert (asked is None) == (why == "nothing constrains it")
    assert asked is None or asked.outputs == (2 if isinstance(more.get("prompt"), list) else 1)


@pytest.mark.parametrize(
    ("path", "body", "why"),
    [
        ("/v1/models", b"{}", "no generation"),
        ("/completion", b"{", "the body is no JSON"),
        ("/completion", b"[]", "the body is no object"),
        ("/completion", b"[" * 100_000, "the body is no JSON"),
    ],
)
def test_what_is_no_request_for_text_is_not_traced(path: str, body: bytes, why: str) -> None:
    with pytest.raises(UntracedRequest, match=why):
        read_request(path, body)


@pytest.mark.parametrize(
    ("prompt", "copies", "outputs"),
    [
        ("a", 1, 1),
        (["a", "b"], 1, 2),
        (["a", "b"], 2, 4),
        ([1, 2], 2, 2),
        (["a", 1], 1, 1),
        ([[1], [2]], 1, 2),
        ([], 1, 1),
    ],
)
def test_a_reply_has_the_outputs_of_each_prompt(prompt: Any, copies: int, outputs: int) -> None:
    request = read_request("/completion", json.dumps(GIVEN | {"prompt": prompt, "n": copies}).encode())
    assert request.outputs == outputs
    several = len(request.prompts) > 1
    assert [request.prompt_of(index) for index in range(outputs)] == [
        prompt[index // copies] if several else prompt for index in range(outputs)
    ]
    assert request.prompt_of(outputs) is None
    assert request.prompt_of(-1) is None
    assert [request.seed_of(2**32 - 1, index) for index in range(outputs)] == [
        (2**32 - 1 + index % copies) % 2**32 for index in range(outputs)
    ]
    most = read_request("/completion", json.dumps(GIVEN | {"n": MOST_COPIES}).encode())
    assert most.copies == MOST_COPIES
    first = read_request("/completion", json.dumps(GIVEN | {"n": 3, "n_cmpl": copies}).encode())
    assert first.copies == copies


@pytest.mark.parametrize("ends", [(True, False), (False, True), (False, False), (True, True)])
def test_a_list_of_objects_says_that_a_text_has_ended_where_one_of_them_does(ends: tuple[bool, bool]) -> None:
    request = read_request("/completion", json.dumps(GIVEN).encode())
    raw = json.dumps([{"index": index, "content": "a", "stop": end} for index, end in enumerate(ends)]).encode()
    assert stripped(raw, request, {}) == (raw, any(ends))


def test_a_choice_without_probabilities_left_those_of_the_choices_after_it_to_the_client() -> None:
    request = read_request("/v1/chat/completions", json.dumps(BOTH | {"n": 2}).encode())
    choices = [{"index": 0, "logprobs": None}, {"index": 1, "logprobs": {"content": [entry(0, 2, 0)]}}]
    raw, _ = stripped(json.dumps({"choices": choices}).encode(), request, {})
    assert json.loads(raw) == {"choices": [{"index": 0, "logprobs": None}, {"index": 1}]}
