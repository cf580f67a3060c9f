"""The rejection tracer, row by row: its two scripts, their options and every field of their output.

The server is a real llama-server with the log of a patched one (`tests/patched_server.py`): what the log says is the
truth that the outputs are held to.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import os
import re
import subprocess
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2
import pytest

pytest.importorskip("fastapi", reason="fastapi is not installed")
pytest.importorskip("llama_cpp", reason="llama-cpp-python is not installed")

import espalier
from espalier.wiring import demo_model
from tests.llama_server import LlamaServer, llama_server
from tests.llama_tools import llama_server_program
from tests.patched_server import Generated, PatchedServer, patched_server
from tests.ports import free_port
from tests.proxies import files_of
from tests.server_process import clean_environment

pytestmark = pytest.mark.slow
SCRIPTS = Path(__file__).parents[3] / "scripts"
GRAMMAR = r'root ::= "{\"name\": \"" [A-Za-z ]{2,12} "\", \"age\": " [0-9]{1,2} "}"'
ASK = {"messages": [{"role": "user", "content": "Hello"}], "grammar": GRAMMAR, "logprobs": 5}
"""The document's request."""
REPLIES = Path("/work/shared/data/llama-server-responses")


def row(number: str, text: str) -> pytest.MarkDecorator:
    return pytest.mark.row("rejection-tracer", number, text)


@pytest.fixture(scope="module", autouse=True)
def fast_python(programs: Path) -> Iterator[None]:
    """The two scripts run in a `python` that starts fast."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", str(programs), prepend=os.pathsep)
        yield


@pytest.fixture(scope="module")
def engine() -> Iterator[Any]:
    loaded = espalier.load(demo_model() / "demo.gguf", kv_type="f32", flash_attention="off", threads=1, context=1024)
    yield loaded
    loaded.close()


@pytest.fixture(scope="module", params=["xllamacpp", "llama-server"])
def real(request: pytest.FixtureRequest) -> Iterator[LlamaServer]:
    """A llama-server: the one of the wheel, and the program where it is built."""
    model = demo_model() / "demo.gguf"
    if request.param == "xllamacpp":
        pytest.importorskip("xllamacpp", reason="xllamacpp is not installed")
        with llama_server(model) as server:
            yield server
    else:
        with llama_server_program(model) as address:
            yield LlamaServer(0, address, "llama-server")


@dataclass(frozen=True, slots=True)
class Workflow:
    """What the document's first workflow leaves behind. truth: by step, what the log says. data: what was merged."""

    folder: Path
    reply: dict[str, Any]
    truth: Mapping[int, Mapping[str, Any]]
    data: dict[str, Any]
    printed: str


def merge_logs(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["python", str(SCRIPTS / "merge_logs.py"), *arguments],
        cwd=folder,
        env=clean_environment(),
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )


def ask(url: str, **more: Any) -> httpx2.Response:
    with httpx2.Client(trust_env=False, timeout=600) as client:
        return client.post(url + "/v1/chat/completions", json={**ASK, "max_tokens": 40, **more})


@pytest.fixture(scope="module")
def workflow(real: LlamaServer, engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Workflow:
    folder = tmp_path_factory.mktemp("workflow")
    (folder / "traces").mkdir()
    with patched_server(real, engine, folder / "traces" / "rejection_log.json") as (server, running):
        reply = ask(running.url).json()
        server.close_log()
    (folder / "debug_response.json").write_text(json.dumps(reply))
    done = merge_logs(folder, "debug_response.json", "traces/rejection_log.json", "traces/combined.json")
    assert done.returncode == 0, done.stderr
    data = json.loads((folder / "traces" / "combined.json").read_text())
    return Workflow(folder, reply, server.requests[0].events, data, done.stderr)


def entries(reply: Mapping[str, Any]) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = reply["choices"][0]["logprobs"]["content"]
    return listed


def is_true(data: Mapping[str, Any], made: Generated) -> None:
    """Every step that is known is as the sampler drew it."""
    for step in data["steps"]:
        sampled, event = step["rejection_sampling"], made.events.get(step["step"])
        if sampled["was_rejected"] is None:
            continue
        assert sampled["was_rejected"] == (event is not None)
        if event is not None:
            assert sampled["rejected"]["id"] == event["rejected"]["id"]
            assert sampled["resampled"]["id"] == event["resampled"]["id"]


# 1. merge_logs.py


@row("1.1", "`python merge_logs.py <debug_response.json> <rejection_log.json> [output.json]`")
def test_the_workflow_needs_no_further_flag(workflow: Workflow) -> None:
    assert len(workflow.truth) >= 1
    assert workflow.data["metadata"]["link"]["by"] != "none"
    assert "link: " in workflow.printed


@row("1.2", "without a third argument: `combined_output.json`; a second run overwrites it")
def test_the_default_output(workflow: Workflow) -> None:
    for _ in range(2):
        assert merge_logs(workflow.folder, "debug_response.json", "traces/rejection_log.json").returncode == 0
    assert json.loads((workflow.folder / "combined_output.json").read_text())["steps"] == workflow.data["steps"]
    (workflow.folder / "notes.json").write_text("mine")
    kept = merge_logs(workflow.folder, "debug_response.json", "traces/rejection_log.json", "notes.json")
    assert (kept.returncode, (workflow.folder / "notes.json").read_text()) == (1, "mine")


@row("1.3", "exit code 1 without arguments and for a file that is not there")
def test_errors_of_the_script(workflow: Workflow) -> None:
    none = merge_logs(workflow.folder)
    assert (none.returncode, none.stderr[:6]) == (1, "usage:")
    missing = merge_logs(workflow.folder, "debug_response.json", "nothing.json", "x.json")
    assert missing.returncode == 1
    assert "nothing.json" in missing.stderr


@row("1.4", "`metadata`: `request_id`, `model`, `created`")
def test_metadata(workflow: Workflow) -> None:
    given = workflow.data["metadata"]
    assert given["request_id"] == workflow.reply["id"]
    assert given["model"] == workflow.reply["model"]
    assert given["created"] == workflow.reply["created"]


@row("1.5", "`steps[].step`, from 0, one for each generated token")
def test_steps(workflow: Workflow) -> None:
    assert [one["step"] for one in workflow.data["steps"]] == list(range(workflow.reply["usage"]["completion_tokens"]))


@row("1.6", "`steps[].token`: `id`, `text`, `logprob`")
def test_tokens(workflow: Workflow) -> None:
    for entry in entries(workflow.reply):
        tokens = [one["token"] for one in workflow.data["steps"] if one["token"]["logprob"] == entry["logprob"]]
        assert any((one["id"], one["text"]) == (entry["id"], entry["token"]) for one in tokens)


@row("1.7", "`steps[].api_top_logprobs`, as the reply has them")
def test_candidates(workflow: Workflow) -> None:
    listed = [one["api_top_logprobs"] for one in workflow.data["steps"] if not one["token"].get("is_missing")]
    assert [one for one in listed if one] == [one["top_logprobs"] for one in entries(workflow.reply)]


@row("1.8", "`rejection_sampling.was_rejected`: at the steps of the log, and false at all others")
def test_verdicts(workflow: Workflow) -> None:
    states = {one["step"]: one["rejection_sampling"]["was_rejected"] for one in workflow.data["steps"]}
    assert states == {step: step in workflow.truth for step in states}


@row("1.9", "`rejection_sampling.rejected`: `id`, `text`, `prob`")
@row("1.10", "`rejection_sampling.pre_masking`: what the model wanted")
@row("1.11", "`rejection_sampling.post_grammar`: with `-inf` as `null`")
@row("1.12", "`rejection_sampling.post_chain`: what the samplers left")
@row("1.13", "`rejection_sampling.resampled`: `id`, `text`, `prob`")
def test_stages(workflow: Workflow) -> None:
    for step, event in workflow.truth.items():
        sampled = workflow.data["steps"][step]["rejection_sampling"]
        for name in ("rejected", "pre_masking", "post_chain", "resampled"):
            assert sampled[name] == event[name]
        logits = [None if one["logit"] == -math.inf else one["logit"] for one in event["post_grammar"]]
        assert [one["logit"] for one in sampled["post_grammar"]] == logits
        assert None in logits


@row("1.14", "`summary`: `total_steps`, `rejected_steps`, `rejection_rate`")
def test_summary(workflow: Workflow) -> None:
    summary, total = workflow.data["summary"], len(workflow.data["steps"])
    assert (summary["total_steps"], summary["rejected_steps"]) == (total, len(workflow.truth))
    assert summary["rejection_rate"] == len(workflow.truth) / total


@row("1.15", "`final_output`, an indent of 2")
def test_the_rest_of_the_file(workflow: Workflow) -> None:
    assert workflow.data["summary"]["final_output"] == workflow.reply["choices"][0]["message"]["content"]
    assert (workflow.folder / "traces" / "combined.json").read_text().startswith('{\n  "metadata": {\n    "request_id"')


# 2. proxy_server.py


@contextlib.contextmanager
def proxy_script(folder: Path, llama_url: str, *options: str) -> Iterator[tuple[str, list[str]]]:
    """The address of the script, running in a folder with a database of its own, and the lines that it writes."""
    port = free_port()
    process = subprocess.Popen(
        ["python", str(SCRIPTS / "proxy_server.py"), "--llama-url", llama_url, "--proxy-port", str(port), *options],
        cwd=folder,
        env=clean_environment(XDG_DATA_HOME=str(folder / "data-home")),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    lines: list[str] = []
    assert process.stderr is not None
    reading = threading.Thread(target=lambda: lines.extend(process.stderr or ()))
    reading.start()
    url = f"http://127.0.0.1:{port}"
    try:
        until(lambda: is_up(url) or process.poll() is not None, "the proxy")
        assert process.poll() is None, lines
        yield url, lines
    finally:
        process.terminate()
        process.wait(60)
        reading.join()
        process.stderr.close()


def is_up(url: str) -> bool:
    with contextlib.suppress(httpx2.HTTPError), httpx2.Client(trust_env=False, timeout=60) as client:
        return client.get(url + "/health").status_code == 200
    return False


def until(found: Any, what: str) -> None:
    end, never = time.monotonic() + 60, threading.Event()
    while not found():
        assert time.monotonic() < end, f"{what} does not come"
        never.wait(0.1)


def read(file: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads(file.read_text())
    return data


def settled(folder: Path, count: int) -> list[dict[str, Any]]:
    """The files, once there are so many and none will be written again."""
    until(lambda: len(files_of(folder)) == count, f"{count} files in {folder}")
    return [read(one) for one in files_of(folder)]


@dataclass(frozen=True, slots=True)
class Production:
    """What the document's second workflow leaves behind."""

    folder: Path
    server: PatchedServer
    replies: list[httpx2.Response]
    lines: list[str]


@pytest.fixture(scope="module")
def production(real: LlamaServer, engine: Any, tmp_path_factory: pytest.TempPathFactory) -> Production:
    """A patched server, the proxy with all its options, one whole reply, one stream, one without logprobs."""
    folder = tmp_path_factory.mktemp("production")
    (folder / "traces").mkdir()
    log = folder / "traces" / "rejection_log.json"
    options = ("--output-dir", "./traces", "--rejection-log", "./traces/rejection_log.json")
    with (
        patched_server(real, engine, log, first_task=7) as (server, running),
        proxy_script(folder, running.url, *options) as (url, lines),
    ):
        more: tuple[dict[str, Any], ...] = ({}, {"stream": True}, {"logprobs": None})
        replies = [ask(url, **one) for one in more]
    return Production(folder, server, replies, lines)


@row("2.1", "`python proxy_server.py --llama-url … --proxy-port … --output-dir … --rejection-log …`")
@row("2.2", "the client's request goes to llama-server, and its reply comes back as it is")
def test_replies_come_back_as_they_are(production: Production) -> None:
    sent = {made.reply for made in production.server.requests.values()}
    assert all(one.status_code == 200 and one.content in sent for one in production.replies)


@row("2.3", "reads the log, finds the request's events and merges them into the combined form")
@row("2.4", "saves `combined_TIMESTAMP.json` in the output folder")
def test_each_reply_has_its_file(production: Production) -> None:
    files = settled(production.folder / "traces", 3)
    for data in files:
        made = next(
            one for one in production.server.requests.values() if data["metadata"]["request_id"].encode() in one.reply
        )
        is_true(data, made)
        assert data["summary"]["rejected_steps"] == len(made.events) >= 1
        assert data["summary"]["unknown_steps"] == 0
    assert all(
        re.fullmatch(r"combined_\d{8}_\d{6}\w*.*\.json", one.name) for one in files_of(production.folder / "traces")
    )


@row("2.5", "`X-Combined-Data-Available` names the file, for streams too")
def test_the_header_names_a_file_that_is_there(production: Production) -> None:
    for one in production.replies:
        name = one.headers["x-combined-data-available"]
        assert (production.folder / name).is_file()


@row("2.6", "a reply without logprobs is traced from the log alone, with a note")
def test_a_reply_without_logprobs(production: Production) -> None:
    notes = [one["metadata"].get("note", "") for one in settled(production.folder / "traces", 3)]
    assert sum("no log probabilities" in one for one in notes) == 1


@row("2.7", "the proxy says whether it reads the log, and why")
def test_the_mode_is_told(production: Production) -> None:
    assert any("log mode" in one and "grows with the requests" in one for one in production.lines)


@row("2.8", "`--no-save`: nothing is written to disk")
def test_no_save(real: LlamaServer, engine: Any, tmp_path: Path) -> None:
    options = ("--rejection-log", "log.json", "--no-save")
    with (
        patched_server(real, engine, tmp_path / "log.json") as (_, running),
        proxy_script(tmp_path, running.url, *options) as (url, _),
        httpx2.Client(trust_env=False) as client,
    ):
        assert ask(url).status_code == 200
        assert client.get(url + "/traces").json()["data"][0]["rejected_steps"] >= 1
    assert not list(tmp_path.rglob("combined_*"))


@row("2.9", "a client such as Ballerina's: `/v1` of the proxy, no `model`, further fields of llama-server")
def test_a_client_changes_its_address_only(real: LlamaServer, engine: Any, tmp_path: Path) -> None:
    with patched_server(real, engine, tmp_path / "log.json") as (_, running):
        direct = ask(running.url, temperature=0.0, top_p=0.9, top_k=20).json()
        with proxy_script(tmp_path, running.url, "--rejection-log", "log.json") as (url, _):
            through = ask(url, temperature=0.0, top_p=0.9, top_k=20).json()
    assert direct["choices"] == through["choices"]


@row("2.10", "a log that was left there beside a stock server is no log of it")
def test_a_left_over_log_beside_a_stock_server(real: LlamaServer, tmp_path: Path) -> None:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "rejection_log.json").write_text('{"log_version":"1","timestamp":"t","events":[]}')
    with proxy_script(tmp_path, real.address) as (url, lines):
        assert ask(url).status_code == 200
        (data,) = settled(tmp_path / "traces", 1)
    assert '"traced": "xray"' in json.dumps(data["espalier"])
    assert any("x-ray mode" in one and "does not grow" in one for one in lines)


# 3. Notes


@row("3.1", "the heuristic of the most recent task: on demand, and never against the tokens")
def test_most_recent(workflow: Workflow, tmp_path: Path) -> None:
    event = next(iter(workflow.truth.values()))
    plain = {**event, "pre_masking": [], "post_grammar": [], "post_chain": []}
    events = [{**plain, "task_id": task, "slot_id": 0} for task in (7, 9)]
    wrong = {**plain, "task_id": 11, "slot_id": 0, "resampled": {"id": 0, "text": "no", "prob": 1.0}}
    (tmp_path / "log.json").write_text(json.dumps({"events": [*events, wrong]}))
    reply = str(workflow.folder / "debug_response.json")
    refused = merge_logs(tmp_path, reply, "log.json")
    assert refused.returncode == 1
    assert "task 7" in refused.stderr
    assert "task 9" in refused.stderr
    assert "task 11" not in refused.stderr
    taken = merge_logs(tmp_path, reply, "log.json", "--most-recent")
    assert taken.returncode == 0, taken.stderr
    assert read(tmp_path / "combined_output.json")["metadata"]["link"]["task_id"] == 9
    assert merge_logs(tmp_path, reply, "log.json", "--task", "11").returncode == 1
    assert merge_logs(tmp_path, reply, "log.json", "--task", "11", "--force").returncode == 0


@row("3.2", "concurrent requests: each reply has its own rejections, although the API tells no task id")
@pytest.mark.parametrize("stream", [False, True])
def test_four_at_once(real: LlamaServer, engine: Any, tmp_path: Path, stream: bool) -> None:
    prompts = ["Hello", "Write a poem", "What is 7 + 5?", "Tell me about Paris"]
    with patched_server(real, engine, tmp_path / "log.json") as (server, running):
        with proxy_script(tmp_path, running.url, "--rejection-log", "log.json") as (url, _):
            assert ask(url).status_code == 200  # alone, after what x-ray asks the server
            server.together = asyncio.Barrier(4)
            with ThreadPoolExecutor(4) as clients:
                asked = [
                    clients.submit(ask, url, stream=stream, messages=[{"role": "user", "content": one}])
                    for one in prompts * 2
                ]
                assert all(one.result().status_code == 200 for one in asked)
            with httpx2.Client(trust_env=False) as client:
                until(lambda: len(client.get(url + "/traces").json()["data"]) == 9, "9 traces")
        known = 0
        for data in settled(tmp_path / "traces", 9):
            name = data["metadata"]["request_id"].encode()
            is_true(data, next(one for one in server.requests.values() if name in one.reply))
            known += data["metadata"]["link"].get("task_id") is not None
            assert data["metadata"]["link"].get("task_id") is not None or data["metadata"]["link"]["candidates"]
    assert known >= 5


@row("3.3", "bare `-inf` of the log is `null` in the output; texts stay as they are")
def test_minus_infinity(workflow: Workflow) -> None:
    assert "-inf" in (workflow.folder / "traces" / "rejection_log.json").read_text()
    assert "Infinity" not in (workflow.folder / "traces" / "combined.json").read_text()


@row("3.4", "the log need not be closed: one that is still open is read whole")
def test_an_open_log(workflow: Workflow, tmp_path: Path) -> None:
    text = (workflow.folder / "traces" / "rejection_log.json").read_text()
    (tmp_path / "open.json").write_text(text.rpartition("]")[0] + ",")
    reply = str(workflow.folder / "debug_response.json")
    assert merge_logs(tmp_path, reply, "open.json").returncode == 0
    data = read(tmp_path / "combined_output.json")
    assert (data["steps"], data["summary"]) == (workflow.data["steps"], workflow.data["summary"])


@row("3.5", "a log that was cut in mid-event: what comes after the cut is unknown")
def test_a_cut_log(workflow: Workflow, tmp_path: Path) -> None:
    text = (workflow.folder / "traces" / "rejection_log.json").read_text()
    (tmp_path / "cut.json").write_text(text[: text.rindex('"step"') + 4])
    done = merge_logs(tmp_path, str(workflow.folder / "debug_response.json"), "cut.json")
    if len(workflow.truth) > 1:
        assert done.returncode == 0, done.stderr
        states = [one["rejection_sampling"]["was_rejected"] for one in read(tmp_path / "combined_output.json")["steps"]]
        last = sorted(workflow.truth)[-2]
        assert states == [step in workflow.truth if step <= last else None for step in range(len(states))]


@row("3.6", "real replies of llama-server b6790, with a log of one task")
@pytest.mark.skipif(not REPLIES.is_dir(), reason="replies of a real llama-server are not here")
def test_real_replies(tmp_path: Path) -> None:
    reply = json.loads((REPLIES / "with-grammar.json").read_text())
    entry = entries(reply)[1]
    drawn = [{"id": entry["id"], "text": entry["token"], "prob": 1.0}, {"id": 1, "text": "x", "prob": 0.5}]
    event = {"task_id": 3, "slot_id": 0, "step": 1, "rejected": drawn[1], "resampled": drawn[0]}
    (tmp_path / "log.json").write_text(json.dumps({"events": [event]}))
    reply.pop("__verbose", None)
    (tmp_path / "reply.json").write_text(json.dumps(reply))
    done = merge_logs(tmp_path, "reply.json", "log.json")
    assert done.returncode == 0, done.stderr
    assert "only task in the log; evidence weak: " in done.stderr
    summary = read(tmp_path / "combined_output.json")["summary"]
    assert summary["rejection_rate"] == 1 / summary["total_steps"]
