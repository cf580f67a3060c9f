"""The rejection tracer's own workflow, command by command as its README has it, with the programs that replace it."""

from __future__ import annotations

import json
import subprocess
import sys

import httpx2
import pytest

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")
pytest.importorskip("sqlalchemy")

from tests.proxies import address_of, behind, files_of
from tests.server_process import DEMO, ROOT, clean_environment, serving, start
from tests.unit.server.proxy.test_log_mode import Patched, ask

pytestmark = pytest.mark.slow

BODY = {
    "messages": [{"role": "user", "content": "Hello"}],
    "grammar": 'root ::= "[" [0-9]+ ("," [0-9]+)* "]"',
    "logprobs": 5,
    "seed": 3,
    "temperature": 1.0,
    "max_tokens": 24,
}


@pytest.mark.parametrize("sampler", ["espalier", "native"])
def test_the_development_workflow(tmp_path, sampler):
    """Start with a rejection log, ask with "logprobs": 5, stop, merge."""
    traces = tmp_path / "traces"
    traces.mkdir()
    flags = ("-m", str(DEMO / "demo.gguf"), "--rejection-log", "./traces/rejection_log.json")
    with serving(*flags, cwd=tmp_path) as server:
        reply = server.post("/v1/chat/completions", BODY | {"sampler": sampler})
        assert reply.status_code == 200, reply.text
        (tmp_path / "debug_response.json").write_bytes(reply.content)
        server.terminate()
    events = json.loads((traces / "rejection_log.json").read_text())["events"]
    made = subprocess.run(
        [
            sys.executable,
            ROOT / "scripts" / "merge_logs.py",
            "debug_response.json",
            "traces/rejection_log.json",
            "traces/combined.json",
        ],
        cwd=tmp_path,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert made.returncode == 0, made.stderr
    combined = json.loads((traces / "combined.json").read_text())
    summary = combined["summary"]
    assert events
    assert (summary["rejected_steps"], summary["unknown_steps"]) == (len(events), 0)
    assert summary["total_steps"] >= len(events)
    rejected = [one for one in combined["steps"] if one["rejection_sampling"]["was_rejected"]]
    for step, event in zip(rejected, events, strict=True):
        sampled = step["rejection_sampling"]
        assert step["step"] == event["step"]
        assert sampled["rejected"]["id"] == event["rejected"]["id"]
        assert sampled["resampled"]["id"] == event["resampled"]["id"]
        assert step["token"]["id"] in (None, event["resampled"]["id"])  # a reply in OpenAI's format has no ids
        assert all(sampled[stage] for stage in ("pre_masking", "post_grammar", "post_chain"))


@pytest.mark.parametrize("saves", [True, False])
def test_the_production_workflow_before_a_patched_server(tmp_path, saves):
    """`python proxy_server.py` with its README's options; the client changes its address only."""
    traces = tmp_path / "traces"
    traces.mkdir()
    with behind(Patched(traces / "rejection_log.json")) as patched:
        flags = [
            "--llama-url",
            patched.url,
            "--proxy-port",
            "0",
            "--output-dir",
            "./traces",
            "--rejection-log",
            "./traces/rejection_log.json",
            *([] if saves else ["--no-save"]),
        ]
        proxy = start(
            *flags,
            cwd=tmp_path,
            command=[sys.executable, str(ROOT / "scripts" / "proxy_server.py")],
            env={"DATABASE_URL": f"sqlite:///{tmp_path}/traces.db"},
        )
        try:
            url = address_of(proxy)
            replies = [ask(url, kind) for kind in (1, 2)]
            listed = []

            def are_listed():  # a trace is stored once its file is final, which may be after the reply
                listed[:] = httpx2.get(url + "/traces", timeout=60).json()["data"]
                return len(listed) == 2

            proxy.until(are_listed, "the traces were never listed")
        finally:
            proxy.kill()
    assert [one.json()["id"] for one in replies] == ["chatcmpl-1-1", "chatcmpl-2-2"]
    assert [one["rejected_steps"] for one in listed] == [1, 1]
    found = files_of(traces)
    assert len(found) == (2 if saves else 0)
    assert all(("x-combined-data-available" in one.headers) == saves for one in replies)
    for place, one in enumerate(found, start=1):
        step = json.loads(one.read_text())["steps"][1]
        assert step["rejection_sampling"]["rejected"]["text"] == "two"
        assert step["token"]["id"] == 3 + place
