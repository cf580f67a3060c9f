"""What clients of llama-server read beyond the text: state, chunks of a stream, gaps, fields of older servers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")

from starlette.testclient import TestClient

import espalier
from espalier.engines.base import Load
from espalier.engines.fake import open_engine
from espalier.engines.options import Lora
from espalier.server.answering.llama import outdented
from espalier.settings import KernelSettings
from espalier.wiring import App
from tests.server_app import Stuck, client, events, settings

ASK: dict[str, Any] = {"prompt": "Say:", "temperature": 0, "n_predict": 40}
WHOLE = "Hi there.\n  Yes.\nNo."
FIM = {"prefix": 1, "suffix": 2, "middle": 3}


@pytest.fixture(scope="module")
def c() -> Iterator[TestClient]:
    with client("Hi there.\n  Yes.\nNo.") as found:
        yield found


def chunks(c: TestClient, **more: Any) -> list[dict[str, Any]]:
    reply = c.post("/completion", json={**ASK, "stream": True, **more})
    assert reply.status_code == 200, reply.text
    return [json.loads(one) for one in events(reply.text)]


def test_every_chunk_says_how_many_tokens_the_prompt_has(c: TestClient) -> None:
    *pieces, last = chunks(c)
    assert {one["tokens_evaluated"] for one in (*pieces, last)} == {5}
    assert [one["tokens_predicted"] for one in pieces] == sorted(one["tokens_predicted"] for one in pieces)
    assert all({"index", "content", "tokens", "stop", "id_slot", "tokens_predicted"} <= one.keys() for one in pieces)
    assert all(one["stop"] is False for one in pieces)
    assert last["stop"] is True


def test_timings_are_in_every_chunk_when_asked(c: TestClient) -> None:
    *pieces, last = chunks(c, timings_per_token=True)
    names = {"cache_n", "prompt_n", "prompt_ms", "prompt_per_second", "predicted_n", "predicted_ms"}
    assert all(names <= one["timings"].keys() for one in (*pieces, last))
    assert all(one["timings"]["cache_n"] + one["timings"]["prompt_n"] == 5 for one in pieces)
    assert not any("timings" in one for one in chunks(c)[:-1])


def test_progress_comes_before_the_text(c: TestClient) -> None:
    told, *pieces = chunks(c, return_progress=True)
    progress = told["prompt_progress"]
    assert (progress["total"], progress["processed"]) == (5, 5)
    assert progress.keys() == {"total", "cache", "processed", "time_ms"}
    assert (told["content"], told["tokens"], told["tokens_predicted"]) == ("", [], 0)
    plain = chunks(c)
    assert "".join(one["content"] for one in pieces) == "".join(one["content"] for one in plain)
    assert [token for one in pieces for token in one["tokens"]] == [token for one in plain for token in one["tokens"]]


@pytest.mark.parametrize(("least", "text"), [(0, "Hi there.\n  Yes.\nNo."), (2, "Hi there.\n  Yes.\n")])
def test_n_indent_ends_the_text_at_a_line_that_is_less_indented(c: TestClient, least: int, text: str) -> None:
    found = c.post("/completion", json={**ASK, "n_indent": least}).json()
    assert found["content"] == text
    assert found["stop_type"] == ("limit" if least else "eos")


def test_n_indent_by_hand() -> None:
    for text, least, wanted in [
        ("a", 3, "a"),
        ("a\n b", 2, "a\n "),
        ("a\n\n  b", 1, "a\n"),
        ("a\n  ", 4, "a\n  "),
        ("a\n\tb\nc", 1, "a\n\tb\n"),
    ]:
        assert outdented(text, least) == wanted


def test_n_indent_is_refused_in_a_stream(c: TestClient) -> None:
    found = c.post("/completion", json={**ASK, "stream": True, "n_indent": 2})
    assert (found.status_code, found.json()["error"]["param"]) == (400, "n_indent")


@pytest.mark.parametrize("field", [{"tfs_z": 0.5}, {"penalize_nl": True}, {"t_max_prompt_ms": 500}])
def test_fields_that_llama_cpp_has_no_more_are_taken_and_told(c: TestClient, field: dict[str, Any]) -> None:
    found = c.post("/completion", json={**ASK, **field})
    assert found.status_code == 200
    assert next(iter(field)) in found.headers["warning"]
    assert found.json()["content"] == c.post("/completion", json=ASK).json()["content"]


@pytest.mark.parametrize(
    ("limit", "text", "kind"),
    [(1e-6, "Hi there.\n", "limit"), (1e9, WHOLE, "eos"), (0, WHOLE, "eos"), (-1, WHOLE, "eos")],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_time_limit_ends_the_text_at_the_next_new_line(
    c: TestClient, limit: float, text: str, kind: str, stream: bool
) -> None:
    found = c.post("/completion", json={**ASK, "t_max_predict_ms": limit, "stream": stream})
    assert found.status_code == 200
    assert "warning" not in found.headers
    replies = (
        [json.loads(line[6:]) for line in found.text.splitlines() if line.startswith("data: {")]
        if stream
        else [found.json()]
    )
    assert "".join(one["content"] for one in replies) == text
    assert (replies[-1]["stop_type"], replies[-1]["stop"]) == (kind, True)


def test_health_under_v1_needs_no_key() -> None:
    with client(config=settings(secret_token="a" * 32)) as c:
        assert c.get("/v1/health").json() == {"status": "ok"}
        for path in ("/slots", "/lora-adapters"):
            assert c.get(path).status_code == 401


def test_slots_say_how_many_run_and_nothing_of_the_prompts(c: TestClient) -> None:
    found = c.get("/slots").json()
    assert found
    assert all(one.keys() == {"id", "n_ctx", "speculative", "is_processing"} for one in found)
    assert not any(one["is_processing"] for one in found)
    refused = c.post("/slots/0?action=save", json={})
    assert (refused.status_code, refused.json()["error"]["type"]) == (501, "not_supported_error")


class Busy(Stuck):
    """It says that it runs three requests."""

    def load(self) -> Load:
        return Load(running=3)


def test_slots_show_no_other_keys_requests(tmp_path: Path) -> None:
    keys = tmp_path / "keys.toml"
    keys.write_text('[[key]]\nname = "one"\nkey = "first-secret"\n[[key]]\nname = "two"\nkey = "second-secret"\n')
    with client(config=settings(api_keys_file=str(keys)), serve=Busy) as c:
        process = c.app.state.process  # type: ignore[attr-defined]
        process.running["one"] = 2

        def busy(key: str) -> list[bool]:
            shown = c.get("/slots", headers={"authorization": f"Bearer {key}"}).json()
            return [slot["is_processing"] for slot in shown]

        assert all(busy("first-secret")[:2])
        assert not any(busy("first-secret")[2:])  # of three outputs that the model runs, two are its own
        assert not any(busy("second-secret"))


def test_a_request_counts_for_its_caller_while_it_runs(c: TestClient) -> None:
    process = c.app.state.process  # type: ignore[attr-defined]
    with c.stream("POST", "/completion", json={"prompt": "a", "stream": True}) as reply:
        reply.read()
    assert not process.running


def test_adapters_are_listed_by_name_and_not_changed() -> None:
    options = replace(KernelSettings().options, lora=(Lora(path="/secret/a.gguf", scale=0.5),))
    with client(app=App(replace(KernelSettings(), options=options))) as c:
        assert c.get("/lora-adapters").json() == [{"id": 0, "path": "a.gguf", "scale": 0.5}]
        assert c.post("/lora-adapters", json=[{"id": 0, "scale": 0}]).status_code == 501


def test_a_model_without_tokens_for_it_does_not_fill_gaps(c: TestClient) -> None:
    found = c.post("/infill", json={"input_prefix": "a", "input_suffix": "b"})
    assert (found.status_code, found.json()["error"]["type"]) == (501, "not_supported_error")
    wanted = "prefix token is missing. suffix token is missing. middle token is missing"
    assert wanted in found.json()["error"]["message"]


@pytest.fixture
def filling() -> Iterator[TestClient]:
    """The fake model with three special tokens for gaps."""
    engine = open_engine(wish="b = 2")
    special = {**engine.vocab.special_texts, **{number: f"<|fim_{part}|>" for part, number in FIM.items()}}
    tokens = tuple(b"" if number in FIM.values() else one for number, one in enumerate(engine.vocab.tokens))
    engine._vocab = replace(engine.vocab, tokens=tokens, special_texts=special)
    with client(engine=espalier.LoadedEngine(engine)) as c:
        yield c


def test_a_gap_is_filled_between_prefix_and_suffix_in_llama_servers_order(filling: TestClient) -> None:
    body = {"input_prefix": "a", "input_suffix": "c", "prompt": "x", "n_predict": 4, "return_tokens": True}
    found = filling.post("/infill", json=body)
    assert found.status_code == 200, found.text
    assert found.json()["tokens_evaluated"] == 6
    assert found.json()["prompt"] == "<|fim_prefix|>ax<|fim_suffix|>c<|fim_middle|>"
    streamed = filling.post("/infill", json={**body, "stream": True})
    assert [json.loads(one) for one in events(streamed.text)][-1]["stop"] is True


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"input_suffix": "b"}, "input_prefix"),
        ({"input_prefix": "a"}, "input_suffix"),
        ({"input_prefix": "a", "input_suffix": "b", "input_extra": [{"text": "x"}]}, "input_extra"),
    ],
)
def test_what_is_wrong_with_a_gap_is_named(filling: TestClient, body: dict[str, Any], param: str) -> None:
    found = filling.post("/infill", json=body)
    assert (found.status_code, found.json()["error"]["param"]) == (400, param)


def test_openais_suffix_is_filled_as_infill_does(filling: TestClient) -> None:
    body = {"prompt": ["ax", "b"], "suffix": "c", "max_tokens": 3, "temperature": 0, "seed": 1}
    found = filling.post("/v1/completions", json=body)
    assert found.status_code == 200, found.text
    for choice, prefix in zip(found.json()["choices"], body["prompt"], strict=True):
        other = {"input_prefix": prefix, "input_suffix": "c", "n_predict": 3, "temperature": 0, "seed": 1}
        assert choice["text"] == filling.post("/infill", json=other).json()["content"]
    echoed = filling.post("/v1/completions", json=body | {"echo": True}).json()["choices"][0]["text"]
    assert echoed.startswith("ax")
    assert "<|fim" not in echoed
    ids = filling.post("/tokenize", json={"content": "ax"}).json()["tokens"]
    alike = filling.post("/v1/completions", json=body | {"prompt": ids}).json()
    assert alike["choices"][0]["text"] == found.json()["choices"][0]["text"]
    refused = filling.post("/v1/completions", json=body | {"echo": True, "logprobs": 1})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "suffix")
    chat = filling.post("/v1/chat/completions", json={"messages": [{"role": "user", "content": "x"}], "suffix": "c"})
    assert (chat.status_code, chat.json()["error"]["param"]) == (400, "suffix")
