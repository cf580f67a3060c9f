"""Kill the server under load, and stop it under load: stored data stays intact, and no reply is torn."""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import random
import re
import signal
import sqlite3
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("fastapi")
pytest.importorskip("sqlalchemy")

import httpx2

from espalier.trace.records import Trace
from tests.server_process import PATIENT, ServerProcess, serving

pytestmark = [pytest.mark.slow, pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL here")]
URL = "/v1/chat/completions"
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 30, "espalier": {"trace": True}}
PLAIN = {"messages": CHAT["messages"], "max_tokens": 30, "stream": True}
DEMO = Path(__file__).resolve().parents[3] / "models" / "demo"
KILLS = int(os.environ.get("ESPALIER_KILLS", "2"))
KEEP = {"TRACE_LEVEL": "steps", "STORE_GENERATIONS": "true"}
COMMAND = [sys.executable, "-c", PATIENT, "serve", "-m", "fake"]


def load_until_killed(server: ServerProcess, after: int) -> list[str]:
    """Requests from four clients; the server is killed once so many have been answered. The ids of their traces."""
    kept: list[str] = []
    enough = threading.Event()

    def ask(number: int) -> None:
        with contextlib.suppress(httpx2.HTTPError), httpx2.Client(base_url=server.url, timeout=60) as http:
            while True:
                body = CHAT | ({"structured_outputs": {"regex": "[a-z]{9}"}} if number % 2 else {})
                answer = http.post(URL, json=body)
                assert answer.status_code == 200, answer.text
                kept.extend(one["trace_id"] for one in answer.json()["espalier"]["outputs"])
                assert answer.headers["x-espalier-trace"] == answer.json()["espalier"]["outputs"][0]["trace_id"]
                with http.stream("POST", URL, json=PLAIN) as stream:  # a plain client, which asks for no trace
                    lines = [line for line in stream.iter_lines() if line]
                    if lines[-1] == "data: [DONE]":  # a whole stream's trace is stored before its end
                        kept.append(stream.headers["x-espalier-trace"])
                if len(kept) >= after:
                    enough.set()

    with ThreadPoolExecutor(4) as pool:
        asking = [pool.submit(ask, number) for number in range(4)]
        assert enough.wait(120)
        server.kill()
        for one in asking:
            one.result()
    return kept


def check(path: Path) -> None:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []


def listed(server: ServerProcess) -> list[str]:
    """Every trace that is listed; each was read and is a trace."""
    seen: list[str] = []
    while True:
        page: dict[str, Any] = server.get(
            "/traces", params={"limit": 100, **({"after": seen[-1]} if seen else {})}
        ).json()
        for row in page["data"]:
            found = server.get(f"/traces/{row['id']}")
            assert found.status_code == 200, found.text
            assert len(Trace.from_json(found.json()).steps) == row["tokens"]
            seen.append(row["id"])
        if not page["has_more"]:
            return seen


def test_what_was_kept_is_whole_after_every_kill_and_the_server_serves_again(tmp_path: Path) -> None:
    said: set[str] = set()
    moments = random.Random(4)
    for _ in range(KILLS):
        with serving(cwd=tmp_path, env=KEEP, command=COMMAND) as server:
            said |= set(load_until_killed(server, moments.randrange(5, 40)))
        check(tmp_path / "espalier.db")
    with serving(cwd=tmp_path, env=KEEP) as server:
        assert server.post(URL, CHAT).status_code == 200
        there = listed(server)
        assert said <= set(there), "what a client was told is kept, is kept"
        assert server.get(f"/traces/{there[0]}/page").status_code == 200
        assert server.terminate() == 0
        assert "Traceback" not in server.text
    check(tmp_path / "espalier.db")


def nobody_is_let_in(server: ServerProcess) -> bool:
    """Until the signal has come through, others are served or get 503."""
    for _ in range(10_000):
        try:
            assert server.post(URL, CHAT).status_code in (200, 503)
        except (httpx2.NetworkError, httpx2.RemoteProtocolError):
            return True
    return False


LONG = CHAT | {"stream": True, "max_tokens": 3000, "structured_outputs": {"regex": "[a-z]{1200}"}, "espalier": None}


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGINT], ids=["SIGTERM", "SIGINT"])
def test_a_server_that_is_told_to_end_ends_what_it_has_begun(tmp_path: Path, sign: signal.Signals) -> None:
    with serving(cwd=tmp_path, env={"TRACE_LEVEL": "off", "DRAIN_SECONDS": "300"}) as server:
        with httpx2.stream("POST", server.url + URL, json=LONG, timeout=120) as answer:
            lines = answer.iter_lines()
            text = content(next(lines))
            server.process.send_signal(sign)
            assert nobody_is_let_in(server)
            rest = [line for line in lines if line]
        assert rest[-1] == "data: [DONE]"
        text += "".join(map(content, rest[:-1]))
        assert re.fullmatch("[a-z]{1200}", text)
        assert server.wait() == 0, server.text
        assert "Traceback" not in server.text


def test_what_takes_too_long_to_end_is_cut_and_the_server_ends(tmp_path: Path) -> None:
    with serving(cwd=tmp_path, env={"TRACE_LEVEL": "off", "DRAIN_SECONDS": "0"}, command=COMMAND) as server:
        # So much that it has not ended by itself when the signal has come through.
        with httpx2.stream("POST", server.url + URL, json=LONG | {"n": 8}, timeout=120) as answer:
            lines = answer.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            with contextlib.suppress(httpx2.HTTPError):
                assert "data: [DONE]" not in list(lines)
        assert server.wait() == 0, server.text


@pytest.mark.parametrize("sign", [signal.SIGTERM, signal.SIGKILL], ids=["SIGTERM", "SIGKILL"])
def test_a_server_leaves_no_temporary_file_behind(tmp_path: Path, sign: signal.Signals) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    with serving("-m", str(DEMO), cwd=tmp_path, env={"TMPDIR": str(temporary)}) as server:
        words = [f"{number} word {number * number}" for number in range(8_000)]  # built in a worker process
        body = CHAT | {"max_tokens": 1, "structured_outputs": {"choice": words}}
        assert server.post(URL, body).status_code == 200
        long = server.post("/tokenize", {"content": "word " * 20_000})  # encoded in another one
        assert len(long.json()["tokens"]) > 20_000
        server.process.send_signal(sign)
        server.wait()
    kept = f"torchinductor_{getpass.getuser()}"  # the folder of torch's own cache, shared by all processes of a user
    assert not {one.name for one in temporary.iterdir()} - {kept}


def content(line: str) -> str:
    chunk = json.loads(line.removeprefix("data: "))
    return "".join(one["delta"].get("content") or "" for one in chunk["choices"])
