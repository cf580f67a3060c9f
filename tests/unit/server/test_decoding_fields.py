"""Decoding fields of a body: the Decoding they make, which are refused, and replies of beam search."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

from espalier.decoding.options import Decoding
from espalier.engines.fake import open_engine
from espalier.engines.local.engine import LocalEngine
from espalier.errors import EspalierError, LimitExceeded
from espalier.server.asking.draft import ParsedRequest
from espalier.server.asking.openai import ask_chat
from espalier.server.batching.executor import ServerExecutor
from espalier.server.bodies.base import read_body
from espalier.server.bodies.openai import ChatBody
from espalier.server.process.state import Process
from tests.server_app import Stuck, client, events, fake_engine, make_process, settings

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
ASK: dict[str, Any] = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 12}
CHOICES = {"structured_outputs": {"choice": ["red", "green", "blue"]}}
USAGE = ("prompt_tokens", "completion_tokens", "total_tokens")
ES = {"vocab_lang": "es", "vocab_n_words": 3000}


def made(**values: str) -> Process:
    return make_process(settings(**values))


@pytest.fixture(scope="module")
def process() -> Process:
    return made()


def ask(process: Process, **fields: Any) -> ParsedRequest:
    return ask_chat(read_body(ChatBody, ASK | fields), process)


def refused(process: Process, **fields: Any) -> EspalierError:
    with pytest.raises(EspalierError) as found:
        ask(process, **fields)
    assert found.value.http_status == 400
    return found.value


BEAM2 = {"strategy": "beam", "num_beams": 2}


@pytest.mark.parametrize(
    ("fields", "decoding"),
    [
        ({}, {}),
        ({"num_beams": 1, "length_penalty": 1.0, "early_stopping": False}, {}),
        ({"num_beams": 1, "length_penalty": 0, "use_beam_search": False}, {}),
        ({"num_beams": None}, {}),
        ({"num_beams": 2}, BEAM2),
        ({"num_beams": 2, "length_penalty": 0}, BEAM2 | {"length_penalty": 0.0}),
        (
            {"num_beams": 4, "length_penalty": 0.5, "early_stopping": "never"},
            {"strategy": "beam", "num_beams": 4, "length_penalty": 0.5, "early_stopping": "never"},
        ),
        ({"espalier": {"strategy": "beam"}}, {"strategy": "beam"}),
        ({"espalier": {"strategy": "beam", "num_beams": 1}}, {"strategy": "beam", "num_beams": 1}),
        ({"espalier": {"num_beams": 2}}, BEAM2),
        ({"espalier": {"num_beams": 2}, "num_beams": 2}, BEAM2),
        ({"num_beams": 3, "n": 2}, {"strategy": "beam", "num_beams": 3, "num_return_sequences": 2}),
        (
            {"espalier": {"strategy": "beam", "num_return_sequences": 3}},
            {"strategy": "beam", "num_return_sequences": 3},
        ),
        ({"use_beam_search": True}, {"strategy": "beam", "num_beams": 1}),
        ({"use_beam_search": True, "n": 3}, {"strategy": "beam", "num_beams": 3, "num_return_sequences": 3}),
        (
            {"use_beam_search": True, "n": 2, "num_beams": 5},
            {"strategy": "beam", "num_beams": 5, "num_return_sequences": 2},
        ),
        (
            {"espalier": {"strategy": "rejection", "on_budget": "close"}},
            {"strategy": "rejection", "on_budget": "close"},
        ),
        ({"espalier": {"strategy": "mask", "max_rewinds": 0}}, {"strategy": "mask", "max_rewinds": 0}),
        (
            {"espalier": {"strategy": "smc", "particles": 3, "ess_threshold": 0.2, "target": "truncated"}},
            {"strategy": "smc", "particles": 3, "ess_threshold": 0.2, "target": "truncated"},
        ),
        # The word-list server's default, where a vocabulary is asked for and nothing of how to draw.
        (ES, {"strategy": "beam", "num_beams": 10}),
        (ES | {"num_beams": None, "length_penalty": 0.5}, {"strategy": "beam", "num_beams": 10, "length_penalty": 0.5}),
        (ES | {"n": 12}, {"strategy": "beam", "num_beams": 12, "num_return_sequences": 12}),
        (ES | {"num_beams": 4, "temperature": 0.5}, {"strategy": "beam", "num_beams": 4}),
        (ES | {"num_beams": 1}, {}),
        (ES | {"temperature": 0.7}, {}),
        (ES | {"top_p": 0.9}, {}),
        (ES | {"top_k": 5}, {}),
        (ES | {"espalier": {"strategy": "mask"}}, {}),
        (ES | {"espalier": {"preset": "creative"}}, {}),
        (ES | {"vocab_constraint_mode": "soft"}, {}),
    ],
)
def test_each_way_of_saying_how_to_decode_is_read(
    process: Process, fields: dict[str, Any], decoding: dict[str, Any]
) -> None:
    asked = ask(process, **fields)
    assert asked.requests[0].decoding == Decoding(**decoding)
    assert asked.returned == decoding.get("num_return_sequences", 1)
    assert len(asked.requests) == (1 if decoding.get("strategy") == "beam" else fields.get("n", 1))


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"num_beams": 0}, "num_beams"),
        ({"num_beams": 1000}, "num_beams"),
        ({"num_beams": "4"}, "num_beams"),
        ({"num_beams": 4, "espalier": {"num_beams": 5}}, "num_beams"),
        ({"num_beams": 4, "espalier": {"strategy": "mask"}}, "num_beams"),
        ({"length_penalty": 0.5}, "length_penalty"),
        ({"length_penalty": 0.5, "num_beams": 1}, "length_penalty"),
        ({"early_stopping": True}, "early_stopping"),
        ({"early_stopping": "sometimes", "num_beams": 2}, "early_stopping"),
        ({"n": 3, "num_beams": 2}, "n"),
        ({"n": 3, "num_beams": 3, "espalier": {"num_return_sequences": 2}}, "n"),
        ({"espalier": {"num_beams": 2, "num_return_sequences": 3}}, "espalier.num_return_sequences"),
        ({"espalier": {"num_return_sequences": 3}}, "espalier.num_return_sequences"),
        ({"num_beams": 17, "n": 17}, "n"),  # more outputs than are given
        ({"use_beam_search": True, "espalier": {"strategy": "smc"}}, "use_beam_search"),
        ({"use_beam_search": 1}, "use_beam_search"),
        ({"best_of": 3}, "best_of"),
        ({"espalier": {"strategy": "nonsense"}}, "espalier.strategy"),
        ({"espalier": {"strategy": 3}}, "espalier.strategy"),
        ({"espalier": {"strategy": "mask", "particles": 4}}, "espalier.particles"),
        ({"espalier": {"length_penalty": 0.5}}, "espalier.length_penalty"),
        ({"espalier": {"on_budget": "later"}}, "espalier.on_budget"),
        ({"espalier": {"max_rewinds": -1}}, "espalier.max_rewinds"),
        ({"espalier": {"strategy": "smc"}, "temperature": 0}, "temperature"),
        ({"espalier": {"strategy": "smc"}, "top_k": 5}, "top_k"),
        ({"espalier": {"strategy": "smc", "target": "half"}}, "espalier.target"),
        ({"espalier": {"strategy": "smc", "ess_threshold": 2}}, "espalier.ess_threshold"),
        ({"espalier": {"safety": {"categories": []}}}, "espalier.safety"),
    ],
)
def test_what_is_wrong_is_refused_by_the_name_that_the_body_has_for_it(
    process: Process, fields: dict[str, Any], param: str
) -> None:
    assert refused(process, **fields).field == param


def test_a_wrong_name_lists_the_strategies_and_best_of_says_what_to_write(process: Process) -> None:
    assert "mask, rejection, jump, beam" in str(refused(process, espalier={"strategy": "greedy"}).hint)
    assert "use_beam_search" in str(refused(process, best_of=2).hint)


def test_as_many_beams_as_the_model_holds_where_ten_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    process = made()
    monkeypatch.setattr(type(process.engine.engine.model), "max_sequences", 6)
    assert ask(process, **ES).requests[0].decoding.num_beams == 6
    for fields, field in (
        (ES | {"num_beams": 7}, "num_beams"),
        ({"use_beam_search": True, "n": 7}, "n"),
        ({"espalier": {"num_beams": 7}}, "espalier.num_beams"),
        ({"espalier": {"strategy": "best_of", "particles": 7}}, "espalier.particles"),
        ({"espalier": {"strategy": "best_of"}}, "espalier.strategy"),  # which has 8, where nothing is said
    ):
        error = refused(process, **fields)
        assert (error.field, "holds 6" in str(error)) == (field, True)
    monkeypatch.setattr(type(process.engine.engine.model), "max_sequences", 1)
    assert ask(process, **ES).requests[0].decoding == Decoding()


def test_what_the_engine_cannot_do_is_refused_by_its_field(process: Process, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = process.engine.capabilities
    asked: dict[str, Any]
    for can, asked, field in (
        (replace(whole, fork=False), {"num_beams": 4}, "num_beams"),
        (replace(whole, truncate=False), {"espalier": {"strategy": "jump"}}, "espalier.strategy"),
    ):
        monkeypatch.setattr(type(process.engine.engine), "capabilities", can)
        assert refused(process, **asked).field == field


def test_a_seed_server_draws_nothing_unless_it_is_told_to() -> None:
    seed = made(wordlist_server_compat="true")
    assert ask(seed).requests[0].sampling.temperature == 0
    assert ask(seed, **ES, num_beams=1).requests[0].sampling.temperature == 0
    assert ask(seed, **ES, temperature=0.5).requests[0].sampling.temperature == 0.5
    assert ask(seed, **ES).requests[0].decoding.strategy == "beam"
    assert ask(seed, **ES, top_k=3).requests[0].decoding.strategy == "mask"


@pytest.mark.parametrize("level", ["off", "asked", "summary", "steps", "full"])
def test_whole_distributions_stay_out_of_a_server(level: str) -> None:
    process = made(trace_level=level)
    assert ask(process, **CHOICES).requests[0].trace == ("steps" if level in ("steps", "full") else "summary")
    assert ask(process, espalier={"trace": "full"}).requests[0].trace == "steps"
    assert ask(process, espalier={"trace": "steps"}).shown_trace == "steps"


def test_sums_are_made_only_where_somebody_reads_them() -> None:
    """Metrics count what a constraint costs; nobody reads the sums of free text, unless they are asked for or kept."""
    process = made()
    assert process.settings.trace_level == "off"
    assert ask(process).requests[0].trace == "off"
    assert ask(process, **CHOICES).requests[0].trace == "summary"
    assert ask(process, tools=[{"type": "function", "function": {"name": "f"}}]).requests[0].trace == "summary"
    assert ask(process, espalier={"trace": True}).requests[0].trace == "summary"
    assert ask(process, logprobs=True).requests[0].trace == "summary"
    assert ask(made(trace_level="summary")).requests[0].trace == "summary"
    assert ask(replace(process, log=object())).requests[0].trace == "summary"
    assert ask(ServerExecutor(process)._process).requests[0].trace == "summary", "the report of a batch"
    assert ask(ServerExecutor(process)._process).requests[0].whole, "nobody reads a token of an item before its end"
    assert not ask(process).requests[0].whole


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"num_beams": 4}, "num_beams"),
        ({"use_beam_search": True, "n": 3}, "n"),
        ({"espalier": {"strategy": "smc"}}, "espalier.strategy"),
        ({"num_beams": 4, **CHOICES}, "structured_outputs.choice"),
    ],
)
def test_a_search_that_outgrows_a_limit_asks_for_too_much(fields: dict[str, Any], field: str) -> None:
    failing = LimitExceeded("all sequences together would outgrow the cache")
    with client(serve=lambda engine: Stuck(engine, fails=failing)) as c:
        reply = c.post(CHAT, json=ASK | fields)
    assert (reply.status_code, reply.json()["error"]["param"]) == (400, field)


# Replies.


@pytest.fixture(scope="module")
def c() -> Iterator[TestClient]:
    with client("green") as found:
        yield found


def post(c: TestClient, route: str = CHAT, **fields: Any) -> dict[str, Any]:
    body = ASK | fields if route == CHAT else {"prompt": "hi", "max_tokens": 12, **fields}
    reply = c.post(route, json=body)
    assert reply.status_code == 200, reply.text
    found: dict[str, Any] = reply.json()
    return found


def stream(c: TestClient, route: str = CHAT, **fields: Any) -> list[dict[str, Any]]:
    body = ASK | fields if route == CHAT else {"prompt": "hi", "max_tokens": 12, **fields}
    data = events(c.post(route, json=body | {"stream": True}).text)
    assert data[-1] == "[DONE]"
    return [json.loads(one) for one in data[:-1]]


def test_choices_are_the_best_texts_of_one_search_best_first(c: TestClient) -> None:
    found = post(c, **CHOICES, num_beams=4, n=3, seed=1, espalier={"trace": True})
    assert [one["index"] for one in found["choices"]] == [0, 1, 2]
    texts = [one["message"]["content"] for one in found["choices"]]
    assert texts[0] == "green"
    assert sorted(texts) == ["blue", "green", "red"]
    told = found["espalier"]["outputs"]
    assert [one["index"] for one in told] == [0, 1, 2]
    assert {one["strategy"] for one in told} == {"beam"}
    scores = [one["score"] for one in told]
    assert scores == sorted(scores, reverse=True)
    assert all(one["verdict"]["valid"] for one in told)
    assert found["usage"]["completion_tokens"] == sum(len(text) + 1 for text in texts)
    alone = post(c, **CHOICES, num_beams=4)
    assert found["usage"]["prompt_tokens"] == alone["usage"]["prompt_tokens"]


@pytest.mark.parametrize("route", [CHAT, TEXT])
def test_a_stream_adds_up_to_the_whole_reply(c: TestClient, route: str) -> None:
    fields = {**CHOICES, "num_beams": 4, "n": 3, "return_token_ids": True, "logprobs": True if route == CHAT else 0}
    whole = post(c, route, **fields)
    chunks = stream(c, route, **fields, stream_options={"include_usage": True})
    for choice in whole["choices"]:
        mine = [one for chunk in chunks for one in chunk["choices"] if one["index"] == choice["index"]]
        if route == CHAT:
            assert "".join(one["delta"].get("content", "") for one in mine) == choice["message"]["content"]
            assert [one["delta"].get("role") for one in mine].count("assistant") == 1
            said = [token for one in mine for token in (one["logprobs"] or {"content": []})["content"]]
            assert said == choice["logprobs"]["content"]
        else:
            assert "".join(one["text"] for one in mine) == choice["text"]
        assert [one["finish_reason"] for one in mine if one["finish_reason"]] == [choice["finish_reason"]]
        assert [token for one in mine for token in one.get("token_ids", [])] == choice["token_ids"]
    assert {name: chunks[-1]["usage"][name] for name in USAGE} == {name: whole["usage"][name] for name in USAGE}


def test_each_other_text_comes_at_the_end_in_one_piece(c: TestClient) -> None:
    chunks = [one for chunk in stream(c, **CHOICES, num_beams=4, n=3) for one in chunk["choices"]]
    order = [one["index"] for one in chunks]
    assert order == sorted(order)
    for index in (1, 2):
        mine = [one for one in chunks if one["index"] == index]
        assert [bool(one["delta"].get("content")) for one in mine] == [False, True, False]


def test_steps_of_other_texts_are_told_too(c: TestClient) -> None:
    chunks = stream(c, **CHOICES, num_beams=3, n=2, espalier={"trace": "full", "stream_steps": True})
    told = [step for chunk in chunks for step in chunk.get("espalier", {}).get("steps", ())]
    for index in (0, 1):
        text = "".join(c["delta"].get("content", "") for k in chunks for c in k["choices"] if c["index"] == index)
        assert "".join(step["token"]["text"] for step in told if step["index"] == index).startswith(text)


def test_a_search_of_several_prompts_numbers_its_choices(c: TestClient) -> None:
    found = c.post(TEXT, json={"prompt": ["a", "b"], "max_tokens": 8, "num_beams": 3, "n": 2, "echo": True} | CHOICES)
    choices = found.json()["choices"]
    assert [one["index"] for one in choices] == [0, 1, 2, 3]
    assert [one["text"][0] for one in choices] == ["a", "a", "b", "b"]


def test_weighing_is_told(c: TestClient) -> None:
    told = post(c, **CHOICES, seed=1, espalier={"strategy": "smc", "particles": 3})["espalier"]["outputs"][0]
    assert told["strategy"] == "smc"
    assert told["weighing"]["particles"] == 3
    assert 0 < told["weighing"]["ess"] <= 3


def test_n_runs_of_faithful_sampling_are_runs_of_their_own(c: TestClient) -> None:
    found = post(c, **CHOICES, n=2, seed=3, espalier={"strategy": "best_of", "particles": 2})
    assert [one["index"] for one in found["choices"]] == [0, 1]
    both = post(c, **CHOICES, seed=3, espalier={"strategy": "best_of", "particles": 2, "num_return_sequences": 2})
    assert [one["index"] for one in both["choices"]] == [0, 1]


def test_a_text_that_was_closed_in_time_says_so() -> None:
    with client('{"a": "a very long text that goes on and on') as c:
        fields = {"response_format": {"type": "json_object"}, "max_tokens": 20, "temperature": 0}
        closed = post(c, **fields, espalier={"on_budget": "close"})
        assert closed["choices"][0]["finish_reason"] == "length"
        assert closed["espalier"]["outputs"][0]["closed_by_budget"] is True
        json.loads(closed["choices"][0]["message"]["content"])
        cut = post(c, **fields, espalier={})
        assert "closed_by_budget" not in cut["espalier"]["outputs"][0]
        error = c.post(CHAT, json=ASK | fields | {"espalier": {"on_budget": "error"}})
        assert error.status_code == 400


@pytest.mark.parametrize("strategy", ["smc", "best_of", "awrs"])
@pytest.mark.parametrize("stream", [False, True])
def test_a_run_of_particles_that_were_all_cut_was_an_internal_error(strategy: str, stream: bool) -> None:
    """Its weights are zero: minus infinity as logarithms, which JSON has no word for."""
    body = ASK | {
        "max_tokens": 2,
        "stream": stream,
        "temperature": 1.0,
        "structured_outputs": {"json_object": True},
        "espalier": {"strategy": strategy, "particles": 2, "trace": "full"},
    }
    with client('{"a": 1, "b": 2}') as http:
        reply = http.post(CHAT, json=body)
    assert reply.status_code == 200, reply.text
    texts = [one for one in events(reply.text) if one != "[DONE]"] if stream else [reply.text]
    found = [body["espalier"] for body in map(json.loads, texts) if "espalier" in body]
    weighing = found[-1]["outputs"][0]["weighing"]
    assert weighing["log_weight"] is None
    assert "weight" in weighing["reason"]


def test_drafting_is_told(c: TestClient) -> None:
    body = {"model": "fake", "prompt": "hi", "max_tokens": 20, "seed": 1, "structured_outputs": {"regex": "(abc){4}"}}
    told = c.post("/v1/completions", json={**body, "espalier": {"strategy": "draft", "drafts": ["forced", "lookup"]}})
    plain = c.post("/v1/completions", json=body)
    assert told.status_code == plain.status_code == 200, told.text
    assert told.json()["choices"][0]["text"] == plain.json()["choices"][0]["text"]
    drafting = told.json()["espalier"]["outputs"][0]["drafting"]
    assert drafting["passes"] * drafting["tokens_per_pass"] == len("abc" * 4) + 1
    refused = c.post("/v1/completions", json={**body, "espalier": {"strategy": "draft", "drafts": ["oracle"]}})
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "espalier.drafts"


def test_a_server_drafts_where_its_settings_say_so_and_counts_it() -> None:
    engine = fake_engine("abc" * 9)
    assert isinstance(engine.engine, LocalEngine)
    engine.engine.draft_with(open_engine(wish="abc" * 9))
    config = settings(strategy="draft", drafts="model,lookup", metrics_public="true")
    body = {"model": "fake", "prompt": "hi", "max_tokens": 24, "temperature": 0, "espalier": {"trace": "summary"}}
    with client(config=config, engine=engine) as c:
        told = c.post("/v1/completions", json=body).json()["espalier"]["outputs"][0]["drafting"]
        assert set(told["sources"]) <= {"model", "lookup"}
        named = c.post("/v1/completions", json={**body, "espalier": {"strategy": "mask"}}).json()
        assert "drafting" not in named["espalier"]["outputs"][0]
        lines = [line for line in c.get("/metrics").text.splitlines() if line.startswith("espalier:draft")]
        found = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines}
    passes = next(value for name, value in found.items() if name.startswith("espalier:draft_passes_total"))
    tokens = next(value for name, value in found.items() if name.startswith("espalier:draft_tokens_total"))
    assert (passes, tokens) == (told["passes"], 24)
    assert told["tokens_per_pass"] == tokens / passes
    for kind in ("drafted", "accepted"):
        counted = sum(value for name, value in found.items() if f'kind="{kind}"' in name)
        assert counted == told[kind]


@pytest.mark.parametrize(
    ("values", "field", "said"),
    [
        ({"drafts": "lookup,oracle"}, "DRAFTS", "there is no source 'oracle'"),
        ({"strategy": "draft", "drafts": "model"}, "DRAFTS", "no smaller model is open"),
    ],
)
def test_drafts_that_this_server_cannot_have_are_refused_when_it_starts(
    values: dict[str, str], field: str, said: str
) -> None:
    with pytest.raises(EspalierError, match=said) as told, client(config=settings(**values)):
        pass
    assert told.value.field == field


def test_a_rejection_log_and_drafts_do_not_go_together() -> None:
    with pytest.raises(EspalierError) as told:
        settings(strategy="draft", rejection_log="refused.jsonl")
    assert told.value.field == "STRATEGY"
