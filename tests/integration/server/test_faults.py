"""A server and the command line while the machine below them fails: what goes on, what is said, what is kept again.

docs/operations.md has the table of faults; each of its rows names tests, most of them elsewhere.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

import httpx2
from starlette.testclient import TestClient

from espalier.cli.main import main_code
from tests.batch_jobs import postgres_folder, postgres_server
from tests.server_app import client, settings
from tests.server_process import ServerProcess, clean_environment, serving, start
from tests.small_disk import failing_writes, fill, mounted, read_only

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="there are no such signals here")]
ROUTE = "/v1/chat/completions"
CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "max_tokens": 40,
    "espalier": {"trace": "steps"},
    "structured_outputs": {"regex": "[a-z ]{30}"},
}
LONG = CHAT | {"stream": True, "max_tokens": 3000, "structured_outputs": {"regex": "[a-z]{1200}"}, "espalier": None}
KEEP = {"TRACE_LEVEL": "summary"}
DAY = 86_400.0


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    yield from mounted(tmp_path)


def trace_of(reply: httpx2.Response) -> str | None:
    """The id of the trace that a reply says is kept."""
    assert reply.status_code == 200, reply.text
    trace_id: str | None = reply.json()["espalier"]["outputs"][0].get("trace_id")
    return trace_id


def keeping_again(http: TestClient, meanwhile: Callable[[], contextlib.AbstractContextManager[object]]) -> None:
    """Replies come before, during and after a fault of the database; traces are kept before and after."""
    before = trace_of(http.post(ROUTE, json=CHAT))
    assert before is not None
    with meanwhile():
        lost = [trace_of(http.post(ROUTE, json=CHAT)) for _ in range(8)]
        assert lost[-1] is None, "nothing is said to be kept that is not"
    for trace_id in (before, *filter(None, lost), trace_of(http.post(ROUTE, json=CHAT))):
        assert http.get(f"/traces/{trace_id}").status_code == 200


def test_a_server_whose_disk_fails_answers_on_and_keeps_again(tmp_path: Path) -> None:
    path = tmp_path / "e.db"
    config = settings(database_url=f"sqlite:///{path}", trace_level="steps")
    with client(config=config) as http:
        keeping_again(http, lambda: failing_writes(path.stat().st_size))


@pytest.mark.skipif(postgres_folder() is None, reason="no PostgreSQL: the Debian package postgresql")
def test_a_server_whose_database_goes_away_answers_on_and_keeps_again() -> None:
    pytest.importorskip("psycopg")
    with postgres_server() as database:

        @contextlib.contextmanager
        def away() -> Iterator[None]:
            database.stop()
            yield
            refused = http.get("/traces")
            assert refused.status_code == 503, refused.text
            assert "cannot be reached" in refused.text
            assert "retry-after" in refused.headers
            database.start()

        with client(config=settings(database_url=database.url, trace_level="steps")) as http:
            keeping_again(http, away)


def test_a_server_on_a_disk_that_is_read_only_says_so_and_does_not_start(disk: Path, tmp_path: Path) -> None:
    with read_only(disk):
        env = {"DATABASE_URL": f"sqlite:///{disk}/e.db"}
        server = start("-m", "fake", "--port", "0", cwd=tmp_path, env=env)
        assert server.wait() == 1
        assert "Read-only file system" in server.text
        assert "Traceback" not in server.text


def test_a_command_whose_cache_cannot_be_written_goes_on(
    disk: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A trace for which there is no room is said after the text; one that can never be written, before."""
    monkeypatch.setenv("ESPALIER_CACHE_DIR", str(disk / "cache"))
    command = ["generate", "-m", "fake", "--regex", "[a-z]{5}", "hi"]
    trace = [*command, "--trace", str(disk / "trace.html")]
    filler = fill(disk)
    assert main_code(command) == 0
    assert re.fullmatch("[a-z]{5}\n", capsys.readouterr().out)
    assert main_code(trace) == 1
    output = capsys.readouterr()
    assert re.fullmatch("[a-z]{5}\n", output.out)
    assert "No space left" in output.err
    with read_only(disk):
        assert main_code(command) == 0
        assert re.fullmatch("[a-z]{5}\n", capsys.readouterr().out)
        assert main_code(trace) == 2
        output = capsys.readouterr()
        assert output.out == ""
        assert "cannot be written to" in output.err
    filler.unlink()
    assert main_code(trace) == 0


def state_of(pid: int) -> str:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="there is no /proc here")
def test_a_server_that_was_stopped_goes_on_with_its_streams(tmp_path: Path) -> None:
    with (
        serving(cwd=tmp_path, env={"TRACE_LEVEL": "off"}) as server,
        httpx2.stream("POST", server.url + ROUTE, json=LONG, timeout=120) as answer,
    ):
        lines = answer.iter_lines()
        text = content(next(lines))
        server.process.send_signal(signal.SIGSTOP)
        try:
            server.until(lambda: state_of(server.pid) == "T", "the server was not stopped")
            with pytest.raises(httpx2.TimeoutException):
                server.get("/health", timeout=1)
        finally:
            server.process.send_signal(signal.SIGCONT)
        rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        assert re.fullmatch("[a-z]{1200}", text + "".join(map(content, rest[:-1])))
        assert server.get("/ready").status_code == 200
        assert server.terminate() == 0
        assert "Traceback" not in server.text


def content(line: str) -> str:
    chunk = json.loads(line.removeprefix("data: "))
    return "".join(choice["delta"].get("content") or "" for choice in chunk["choices"])


def test_two_servers_that_begin_at_once_share_a_store(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        env = {"DATABASE_URL": f"sqlite:///{tmp_path}/e.db", "BATCH_JOBS": "true", **KEEP}
        servers = [start("-m", "fake", "--port", "0", cwd=tmp_path, env=env) for _ in range(2)]
        for server in servers:
            stack.callback(server.kill)
        for server in servers:
            server.until_ready()
        kept = [trace_of(server.post(ROUTE, CHAT)) for server in servers for _ in range(3)]
        for server in servers:
            assert {row["id"] for row in server.get("/traces").json()["data"]} == set(kept)
        first, second = servers
        batch = begin_batch(first, 20)
        second.kill()  # beside its half of the batch
        first.until(lambda: batch_of(first, batch)["status"] == "completed", "the batch never ended")
        assert batch_of(first, batch)["request_counts"] == {"total": 20, "completed": 20, "failed": 0}
        assert first.terminate() == 0
        assert "Traceback" not in first.text


def begin_batch(server: ServerProcess, count: int) -> str:
    """A batch of so many chats; its id."""
    rows = [
        {"custom_id": f"c{number}", "method": "POST", "url": ROUTE, "body": {**CHAT, "model": "fake"}}
        for number in range(count)
    ]
    file = "".join(json.dumps(row) + "\n" for row in rows).encode()
    url, form = f"{server.url}/v1/files", {"purpose": "batch"}
    uploaded = httpx2.post(url, files={"file": ("in.jsonl", file)}, data=form, timeout=60)
    body = {"input_file_id": uploaded.json()["id"], "endpoint": ROUTE, "completion_window": "24h"}
    created = server.post("/v1/batches", body)
    assert created.status_code == 200, created.text
    return str(created.json()["id"])


def batch_of(server: ServerProcess, batch_id: str) -> dict[str, Any]:
    batch: dict[str, Any] = server.get(f"/v1/batches/{batch_id}").json()
    return batch


JUMPING = """
import sys, time

real, path = time.time, sys.argv.pop(1)
time.time = lambda: real() + float(open(path).read() or 0)

from espalier.cli.main import run

run()
"""
"""The command, with a clock that is ahead by the seconds that a file says."""


def test_a_clock_that_jumps_ends_no_stream_and_keeps_neither_slots_nor_a_batch(tmp_path: Path) -> None:
    ahead = tmp_path / "ahead"

    def jump(seconds: float) -> None:
        ahead.with_suffix(".new").write_text(str(seconds))
        os.replace(ahead.with_suffix(".new"), ahead)

    jump(0)
    env = {"BATCH_JOBS": "true", "AUTH_TOKEN": "sk-of-the-clock", "CONCURRENT_PER_KEY": "2", **KEEP}
    command = [sys.executable, "-c", JUMPING, str(ahead), "serve", "-m", "fake"]
    with serving(cwd=tmp_path, env=env, command=command) as server:
        server.headers = {"authorization": "Bearer sk-of-the-clock"}
        for seconds in (DAY, -DAY, 0.0):
            with httpx2.stream("POST", server.url + ROUTE, json=LONG, headers=server.headers, timeout=120) as answer:
                lines = answer.iter_lines()
                next(lines)
                jump(seconds)
                assert [line for line in lines if line][-1] == "data: [DONE]"
            assert trace_of(server.post(ROUTE, CHAT)) is not None
        rows = server.get("/traces").json()["data"]
        assert len(rows) == 6, "streams keep theirs too"
        assert server.terminate() == 0
        assert "Traceback" not in server.text


def test_a_damaged_cache_costs_time_alone(tmp_path: Path) -> None:
    """Token trie, safety filter and word list: every file of the cache folder is made again by the next process."""
    command = ["generate", "--seed", "3", "--max-tokens", "8", "--safety", "strict"]
    command += ["--vocab-lang", "en", "--vocab-n-words", "1500", "hi"]

    def run() -> str:
        env = clean_environment(ESPALIER_CACHE_DIR=str(tmp_path))
        whole = [sys.executable, "-m", "espalier", *command]
        return subprocess.run(whole, env=env, check=True, capture_output=True, text=True, timeout=500).stdout

    before = run()
    files = [path for path in tmp_path.rglob("*") if path.is_file() and "kernels" not in path.parts]
    whole = {path: path.read_bytes() for path in files}
    assert len({path.suffix for path in files}) >= 3
    for number, (path, data) in enumerate(sorted(whole.items())):
        middle = len(data) // 2
        changed = data[:middle] + bytes([data[middle] ^ 1]) + data[middle + 1 :]
        path.write_bytes((data[:middle], changed, b"")[number % 3])
    assert run() == before
    assert {path: path.read_bytes() for path in files} == whole
