"""Our processor inside vLLM's own OpenAI server, with vLLM's own structured outputs beside it, and our engine before
it.

vLLM runs in an environment of its own, which scripts/setup_vllm.sh makes; without it the tests skip by name.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import re
import socket
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("torch", reason="torch is not installed")

import espalier
from espalier.wiring import demo_model
from tests.ports import free_port
from tests.proxies import kept_traces, proxy_settings
from tests.vllm.environment import ROOT, installed, variables
from tests.vllm.requests import MIXED, SHORT, mixed, verdict

SECONDS = 600
pytestmark = pytest.mark.slow
ARGUMENTS = (
    "--served-model-name=demo",
    "--enforce-eager",
    "--dtype=float32",
    "--max-model-len=512",
    "--block-size=32",
    "--max-num-seqs=64",
    "--logits-processors=espalier.integrations.vllm:ConstraintProcessor",
    "--middleware=espalier.integrations.vllm.http.StockConstraints",
    '--additional-config={"espalier": {"reporter": "tests.vllm.reports:write"}}',
    "--enable-auto-tool-choice",
    "--tool-call-parser=hermes",
    "--host=127.0.0.1",
)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The file of steps that requests with a report append to."""
    return tmp_path_factory.mktemp("vllm") / "steps.jsonl"


@pytest.fixture(scope="module")
def port(reports: Path) -> Iterator[int]:
    """vLLM's server. It says that it has started on its log, which ends where it cannot start."""
    number = free_port()
    command = [installed(), "-m", "vllm.entrypoints.openai.api_server", f"--model={demo_model()}", f"--port={number}"]
    process = subprocess.Popen(
        [*command, *ARGUMENTS],
        env=variables({"STEP_REPORTS": str(reports)}),
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            if "Application startup complete" in line:
                break
        else:
            pytest.fail("vLLM's server did not start:\n" + "".join(lines[-40:]))
        with ThreadPoolExecutor(1) as pool:
            drained = pool.submit(process.stdout.read)
            while not is_listening(number):  # which is a moment after it said that it has started
                with contextlib.suppress(subprocess.TimeoutExpired):
                    pytest.fail(f"vLLM's server ended with {process.wait(0.1)}")
            yield number
            process.terminate()
            process.wait(60)
            drained.result(60)
    finally:
        process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


def is_listening(port: int) -> bool:
    with contextlib.suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def post(port: int, body: dict[str, Any], path: str = "/v1/completions") -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    try:
        connection.request("POST", path, json.dumps(body), {"content-type": "application/json"})
        reply = connection.getresponse()
        return reply.status, json.loads(reply.read())
    finally:
        connection.close()


def body_of(one: dict[str, Any], **more: Any) -> dict[str, Any]:
    asked = {} if one["asked"] is None else {"vllm_xargs": {"espalier": json.dumps(one["asked"])}}
    return {"model": "demo", "prompt": one["prompt"], **one["params"], **asked, **more}


def said(port: int, one: dict[str, Any]) -> str:
    """What is wrong with the answer to a request, "" if nothing is."""
    status, reply = post(port, body_of(one))
    if status != 200:
        return f"{status}: {reply}"
    choice = reply["choices"][0]
    return verdict(one["kind"], choice["text"], choice["finish_reason"])


def leave_early(port: int, one: dict[str, Any]) -> str:
    """Begin to read a stream, and close it."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(body_of(one, stream=True)), headers)
    connection.getresponse().read(1)
    connection.close()
    return ""


def test_200_at_once_with_20_that_leave_are_each_held_by_their_own_constraint(port: int) -> None:
    with ThreadPoolExecutor(220) as pool:
        held = [pool.submit(said, port, one) for one in mixed(200, seed=11)]
        left = [pool.submit(leave_early, port, one) for one in mixed(20, seed=12)]
        wrong = [one.result() for one in (*held, *left)]
    assert not any(wrong), [one for one in wrong if one]


def test_vllms_own_structured_outputs_run_beside_ours(port: int) -> None:
    choice = {"choice": ["left", "right"], "disable_any_whitespace": True}  # an option that is vLLM's alone
    own = {"model": "demo", "prompt": "Say", "max_tokens": 30, "structured_outputs": choice}
    with ThreadPoolExecutor(12) as pool:
        ours = [pool.submit(said, port, one) for one in mixed(len(MIXED), seed=13)]
        theirs = [pool.submit(post, port, own) for _ in range(4)]
        assert not any(one.result() for one in ours)
        assert {one.result()[1]["choices"][0]["text"] for one in theirs} <= {"left", "right"}


def test_what_stock_clients_ask_for_is_ours_with_a_report(port: int, reports: Path) -> None:
    """A schema with a keyword that vLLM's own backends leave out: pairs that differ."""
    schema = {"type": "array", "items": {"enum": [1, 2]}, "minItems": 2, "maxItems": 2, "uniqueItems": True}
    form = {"type": "json_schema", "json_schema": {"name": "pair", "schema": schema}}
    messages = [{"role": "user", "content": "Two numbers"}]
    body = {"model": "demo", "messages": messages, "response_format": form, "max_tokens": 60, "n": 8}
    status, reply = post(port, body, "/v1/chat/completions")
    assert status == 200, reply
    found = [json.loads(one["message"]["content"]) for one in reply["choices"]]
    assert all(sorted(one) == [1, 2] for one in found), found
    steps = [json.loads(line) for line in reports.read_text("utf-8").splitlines()]
    assert any(step["tax_nats"] > 0 for step in steps)


TOOL = {"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}}


@pytest.mark.parametrize("choice", ["required", "f"])
def test_calls_that_must_come_are_calls_when_vllm_is_behind_us(port: int, choice: str) -> None:
    with espalier.load(url=f"http://127.0.0.1:{port}") as engine:
        result = engine.generate("Call f", tools=[TOOL], tool_choice=choice, trace="off", temperature=0, max_tokens=90)
    assert result.verdict is not None
    assert result.verdict.valid, result
    assert {call.name for call in result.tool_calls} == {"f"}
    assert all(isinstance(call.parsed["a"], int) for call in result.tool_calls)


def test_several_outputs_of_a_chat_are_each_held(port: int) -> None:
    messages = [{"role": "user", "content": "Generate user info"}]
    asked = {"vllm_xargs": {"espalier": json.dumps(MIXED["small schema"][0])}}
    body = {"model": "demo", "messages": messages, "n": 4, "max_tokens": 80, **asked}
    status, reply = post(port, body, "/v1/chat/completions")
    assert status == 200, reply
    assert [verdict("small schema", one["message"]["content"], "stop") for one in reply["choices"]] == [""] * 4


def test_a_stream_is_held_as_a_whole_reply_is(port: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=SECONDS)
    one = mixed(len(MIXED), seed=14, greedy=True)[0]
    headers = {"content-type": "application/json"}
    connection.request("POST", "/v1/completions", json.dumps(body_of(one, stream=True)), headers)
    lines = connection.getresponse().read().decode().splitlines()
    connection.close()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    assert len(events) > 2
    assert verdict(one["kind"], "".join(event["choices"][0]["text"] for event in events), "stop") == ""


@pytest.mark.parametrize(
    ("more", "about"),
    [
        ({"use_beam_search": True, "n": 2, "temperature": 0}, "use_beam_search"),
        ({"min_tokens": 3}, "min_tokens"),
        ({"structured_outputs": {"choice": ["a"]}}, "structured_outputs"),
        ({"vllm_xargs": {"espalier": '{"jsonschema": {}}'}}, "jsonschema"),
    ],
)
def test_no_request_is_unconstrained_in_silence(port: int, more: dict[str, Any], about: str) -> None:
    one = mixed(len(MIXED), seed=15)[0]
    status, reply = post(port, body_of(one) | more)
    assert status == 400
    assert about in json.dumps(reply)


def test_a_server_that_nobody_has_named_is_found_to_be_vllm(port: int) -> None:
    with espalier.load(url=f"http://127.0.0.1:{port}") as engine:
        result = engine.generate("Write a word.", regex=SHORT["pattern"], raw=True, trace="off", seed=3, max_tokens=40)
    assert re.fullmatch("[a-z]{2,4}", result.text)


OWN = {"disable_any_whitespace": True}
"""An option that is vLLM's alone, so that its own mask holds the constraint."""
NAMES = ["left", "right", "lefty"]


def comparable(raw: str) -> str:
    """A reply without what is new in each."""
    return re.sub(r'"(id|created)":("[^"]*"|\d+)|chatcmpl-tool-\w+', "", raw)


def texts(raw: str) -> list[Any]:
    """What a stream says, without how vLLM cut it into chunks."""
    deltas: dict[Any, str] = {}
    for line in raw.splitlines():
        if not line.startswith("data: {"):
            continue
        for choice in json.loads(line[6:]).get("choices", ()):
            delta = choice.get("delta") or {"content": choice.get("text")}
            parts = [delta.get("content"), delta.get("reasoning")]
            for call in delta.get("tool_calls") or ():
                parts += [call["function"].get("name"), call["function"].get("arguments")]
            own = "".join(part or "" for part in parts) + (choice["finish_reason"] or "")
            deltas[choice["index"]] = deltas.get(choice["index"], "") + own
    return sorted(deltas.items())


CALL = {"type": "function", "function": {**TOOL, "strict": True}}
SHAPE = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
PASSED: dict[str, dict[str, Any]] = {
    "vLLM's own mask": {"structured_outputs": {"json": SHAPE, **OWN}},
    "stock field": {"response_format": {"type": "json_schema", "json_schema": {"name": "s", "schema": SHAPE}}},
    "our processor": {"vllm_xargs": {"espalier": json.dumps({"json_schema": SHAPE, "safety": "minimal"})}},
    "a call that must come": {"tools": [CALL], "tool_choice": "required"},
    "a call that may come": {"tools": [CALL]},
    "log probabilities": {"structured_outputs": {"json": SHAPE, **OWN}, "logprobs": True, "top_logprobs": 2},
    "ids": {"structured_outputs": {"json": SHAPE, **OWN}, "return_token_ids": True},
    "usage": {"structured_outputs": {"json": SHAPE, **OWN}, "stream_options": {"include_usage": True}},
    "an error": {"vllm_xargs": {"espalier": '{"jsonschema": {}}'}},
}


@pytest.mark.parametrize("name", PASSED)
def test_the_proxy_passes_replies_on_as_vllm_writes_them(port: int, name: str) -> None:
    body = {"model": "demo", "messages": [{"role": "user", "content": "Who?"}], "temperature": 0, "max_tokens": 50}
    body |= PASSED[name]
    address = f"http://127.0.0.1:{port}"
    with kept_traces(proxy_settings(address, mode="xray")) as (url, kept):
        for stream in (False, True):
            asked = {key: value for key, value in body.items() if stream or key != "stream_options"}
            direct, passed = (
                httpx2.post(f"{one}/v1/chat/completions", json=asked | {"stream": stream}, timeout=SECONDS)
                for one in (address, url)
            )
            assert direct.status_code == passed.status_code
            if stream:
                assert texts(direct.text) == texts(passed.text)
            else:
                assert comparable(direct.text) == comparable(passed.text)
                assert ("x-espalier-trace" in passed.headers) == (name != "an error")
        traces = kept()
    assert len(traces) == (0 if name == "an error" else 2)
    assert all(len(trace["steps"]) > 1 for trace in traces)


def own_steps(prompt: str, **constraint: Any) -> Any:
    """The steps of the same greedy text by our own engine, which measures every mass."""
    with espalier.load(demo_model()) as engine:
        result = engine.generate(prompt, raw=True, temperature=0, max_tokens=40, trace="steps", **constraint)
    assert result.trace is not None
    return result.trace.steps


@pytest.mark.parametrize("holder", ["vLLM", "our processor"])
def test_what_the_proxy_says_of_each_step_holds_what_our_engine_measures(port: int, holder: str) -> None:
    prompt = "The hand is"
    ours = json.dumps({"constraint": {"kind": "choice", "options": NAMES}})
    held = {
        "vLLM": {"structured_outputs": {"choice": NAMES, **OWN}},
        "our processor": {"vllm_xargs": {"espalier": ours}},
    }[holder]
    asked = {"model": "demo", "prompt": prompt, "temperature": 0, "max_tokens": 40, **held}
    with kept_traces(proxy_settings(f"http://127.0.0.1:{port}", mode="xray")) as (url, kept):
        assert httpx2.post(f"{url}/v1/completions", json=asked, timeout=SECONDS).status_code == 200
        (trace,) = kept()
    steps = trace["steps"]
    measured = own_steps(prompt, choice=NAMES)
    assert [step["token"]["id"] for step in steps] == [step.token_id for step in measured]
    for told, own in zip(steps, measured, strict=True):
        least, most = told.get("bounds") or (told["removed_mass"], told["removed_mass"])
        assert least - 1e-4 <= own.removed_mass <= most + 1e-4
        assert told["allowed_count"] in (0, own.allowed_count)
        assert told["was_changed"] in (None, own.is_changed)
        assert told["token"]["logprob"] == pytest.approx(own.logprob, abs=1e-3)


def test_each_output_of_a_request_has_its_trace(port: int) -> None:
    asked = {"model": "demo", "prompt": ["One", "Two"], "n": 2, "max_tokens": 8, "stream": True}
    asked |= {"structured_outputs": {"choice": NAMES, **OWN}}
    with kept_traces(proxy_settings(f"http://127.0.0.1:{port}", mode="xray")) as (url, kept):
        assert httpx2.post(f"{url}/v1/completions", json=asked, timeout=SECONDS).status_code == 200
        rows = [trace["row"] for trace in kept()]
    assert sorted(row["output_index"] for row in rows) == [0, 1, 2, 3]
    assert {row["text"] for row in rows} <= set(NAMES)
    assert all(row["tax_nats"] > 0 for row in rows)


def test_the_docs_name_the_versions_that_run_here() -> None:
    version = re.search("^version=(.*)$", (ROOT / "scripts" / "setup_vllm.sh").read_text("utf-8"), re.MULTILINE)
    assert version is not None
    assert f"vLLM {version[1]}" in Path(ROOT / "docs" / "scale.md").read_text("utf-8")
