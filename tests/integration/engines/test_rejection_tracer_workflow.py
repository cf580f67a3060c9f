"""The rejection tracer's workflow with no fork of llama.cpp: a run with a log, a reply with log probabilities, merged,
drawn and exported. Once from the command line, with the trace as an independent witness; once through the server."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import espalier
from espalier.cli.main import main_code
from espalier.trace.foreign.merge import merge_files
from espalier.trace.foreign.read import read, read_any
from espalier.trace.foreign.responses import read_response
from espalier.trace.records import Trace
from tests.server_app import client, settings

pytest.importorskip("llama_cpp")

DEMO = Path(__file__).parents[3] / "models" / "demo" / "demo.gguf"
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 8}}, "required": ["name"]}


@pytest.fixture(scope="module")
def engine() -> Iterator[espalier.LoadedEngine]:
    if not DEMO.exists():
        pytest.skip("models/demo/demo.gguf is not here")
    with espalier.load(str(DEMO)) as loaded:
        yield loaded


def reply_of(trace: Trace, text: str) -> dict[str, Any]:
    """What a llama-server would have replied for a run: each token, its log probability, and the best beside it."""
    entries = [
        {
            "id": one.token_id,
            "token": one.text,
            "bytes": list(one.bytes),
            "logprob": one.logprob,
            "top_logprobs": [
                {"id": near.id, "token": near.text, "bytes": list(near.bytes), "logprob": math.log(near.prob)}
                for near in one.pre_masking
                if near.prob > 0
            ],
        }
        for one in trace.steps
    ]
    choice = {"index": 0, "message": {"content": text}, "finish_reason": "stop", "logprobs": {"content": entries}}
    return {"id": "chatcmpl-1", "model": "demo", "created": 1, "choices": [choice]}


@pytest.mark.parametrize("how", [["--strategy", "rejection"], ["--sampler", "native"]])
def test_generate_with_a_log_then_merge_then_page(
    how: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any
) -> None:
    if not DEMO.exists():
        pytest.skip("models/demo/demo.gguf is not here")
    monkeypatch.chdir(tmp_path)
    common = ["generate", "-m", str(DEMO), *how, "--schema", json.dumps(SCHEMA), "--seed", "4", "--max-tokens", "40"]
    # Two requests in one log: the merge has to tell them apart.
    for prompt, name in (("Write a poem about the sea", "other.json"), ("Generate user info", "trace.json")):
        code = main_code([*common, "--temperature", "0", "--rejection-log", "log.json", "--trace", name, prompt])
        assert code == 0, capfd.readouterr().err
    trace = Trace.load("trace.json")
    Path("reply.json").write_text(json.dumps(reply_of(trace, trace.text)))
    expected = [one.step for one in trace.steps if one.was_rejected]
    assert expected

    assert main_code(["trace", "merge", "reply.json", "log.json", "--task", "1"]) == 0
    data = json.loads(Path("combined_output.json").read_text())
    assert [one["step"] for one in data["steps"] if one["rejection_sampling"]["was_rejected"]] == expected
    assert data["summary"]["final_output"] == trace.text

    merged = read("combined_output.json")
    assert merged.kind == "combined"
    for one, known in zip(merged.trace.steps, trace.steps, strict=True):
        assert one.bounds is not None
        lower, upper = one.bounds
        # What was measured lies between the bounds that the reply and the log alone allow.
        assert lower - 1e-6 <= known.removed_mass <= upper + 1e-6
        assert (one.token_id, one.was_rejected) == (known.token_id, known.was_rejected)
        if known.rejected is not None:
            assert one.rejected is not None
            assert one.rejected.id == known.rejected.id
    assert merged.trace.total_tax_nats <= trace.total_tax_nats + 1e-6

    assert main_code(["trace", "html", "combined_output.json", "page.html", "--with", "trace.json"]) == 0
    assert main_code(["trace", "show", "combined_output.json"]) == 0
    assert f"{len(expected)} rejected" in capfd.readouterr().out
    assert Path("page.html").read_text().startswith("<!doctype html>")


def test_a_reply_of_the_server_merges_with_the_server_s_log(engine: espalier.LoadedEngine, tmp_path: Path) -> None:
    log = tmp_path / "log.json"
    ask = {
        "messages": [{"role": "user", "content": "Generate user info"}],
        "max_tokens": 40,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 5,
        "response_format": {"type": "json_schema", "json_schema": {"name": "user", "schema": SCHEMA}},
    }
    with client(engine=engine, config=settings(rejection_log=str(log), model_alias="demo")) as http:
        whole = http.post("/v1/chat/completions", json=ask)
        streamed = http.post("/v1/chat/completions", json=ask | {"stream": True})
        whole.raise_for_status()
    events = json.loads(log.read_text())["events"]
    (tmp_path / "reply.json").write_bytes(whole.content)
    (tmp_path / "stream.txt").write_bytes(streamed.content)
    for name, task in (("reply.json", 0), ("stream.txt", 1)):
        made = merge_files(tmp_path / name, log, task=task)
        found = [one["step"] for one in made.data["steps"] if one["rejection_sampling"]["was_rejected"]]
        assert made.warnings == ()
        assert found
        assert found == [one["step"] for one in events if one["task_id"] == task]
        # The reply alone claims none: our server may mask before it draws.
        trace = read_any(tmp_path / name, temperature=0.0)
        assert not any(one.was_rejected for one in trace.steps)
    assert read_response(whole.content).choice().text == made.data["summary"]["final_output"]
