"""Serving and batches on a real Ray cluster of two nodes on this machine: answers are those of one engine alone,
replicas share the load and the store, and what is killed costs what it had in flight and no more."""

from __future__ import annotations

import importlib.util
import json
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

from tests.ray_cluster import RayCluster, kill, ray_cluster, until
from tests.server_app import client, fake_engine
from tests.server_process import ServerProcess, free_port, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra [ray] is not installed"),
]
REPLICA = "x-espalier-replica"
PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}},
          "required": ["name", "age"], "additionalProperties": False}  # fmt: skip
CONSTRAINTS: list[dict[str, Any]] = [
    {}, {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": PERSON}}},
    {"grammar": 'root ::= "(" root ")" | [a-z]'}, {"response_format": {"type": "json_object"}},
    {"espalier": {"constraint": {"kind": "regex", "pattern": "[a-f]{3,9}"}}},
]  # fmt: skip
LONG = {"espalier": {"constraint": {"kind": "regex", "pattern": "[a-z ]{900,1000}"}}, "max_tokens": 1000}


@pytest.fixture(scope="module")
def cluster() -> Iterator[RayCluster]:
    with ray_cluster() as found:
        yield found


@pytest.fixture(scope="module")
def server(cluster: RayCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Two replicas of the fake model."""
    folder = tmp_path_factory.mktemp("serve")
    settings = {"DATABASE_URL": f"sqlite:///{folder / 'e.db'}", "RAY_AUTH_MODE": "disabled", "DRAIN_SECONDS": "2"}
    flags = ["--ray", "--address", cluster.address, "--replicas", "2", "-m", "fake", "--port", str(free_port())]
    found = start(*flags, cwd=folder, env=settings)
    try:
        until(lambda: "serves at" in found.text or found.process.poll() is not None, seconds=900)
        found.until_ready()
        yield found
        assert found.terminate() == 0
    finally:
        found.kill()


def asked(number: int) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": f"item {number % 50}"}], "seed": number, "max_tokens": 40,
            "temperature": (number % 3) / 2, **CONSTRAINTS[number % len(CONSTRAINTS)]}  # fmt: skip


def said(reply: Any) -> tuple[str, str]:
    choice = reply["choices"][0]
    return choice["message"]["content"], choice["finish_reason"]


def streamed(text: str) -> tuple[str, str]:
    events = [json.loads(line[6:]) for line in text.splitlines() if line.startswith("data: {")]
    assert not any("error" in one for one in events), text
    choices = [one["choices"][0] for one in events if one["choices"]]
    return "".join(one["delta"].get("content") or "" for one in choices), choices[-1]["finish_reason"]


def alone(numbers: range) -> list[tuple[str, str]]:
    """What one engine answers to each by itself."""
    with client(engine=fake_engine_of_the_command()) as one:
        return [said(one.post("/v1/chat/completions", json=asked(number)).json()) for number in numbers]


def fake_engine_of_the_command() -> Any:
    from espalier.engines.fake import DEFAULT_WISH

    return fake_engine(DEFAULT_WISH)


def test_200_mixed_requests_through_two_replicas_equal_themselves_alone(server: ServerProcess) -> None:
    names: Counter[str] = Counter()

    def ask(number: int) -> tuple[str, str]:
        is_stream = number % 4 == 0
        reply = server.post("/v1/chat/completions", {**asked(number), "stream": is_stream})
        assert reply.status_code == 200, reply.text
        names[reply.headers[REPLICA]] += 1
        return streamed(reply.text) if is_stream else said(reply.json())

    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, range(200)))
    assert together == alone(range(200))
    assert len(names) == 2
    assert min(names.values()) > 40


def test_a_session_stays_with_its_replica_and_a_trace_is_found_through_any(server: ServerProcess) -> None:
    for session in ("ann", "bob", "eve"):
        found = {server.get("/v1/models", headers={"x-session-id": session}).headers[REPLICA] for _ in range(6)}
        assert len(found) == 1
    body = {**asked(1), "espalier": {"trace": "summary"}}
    trace = server.post("/v1/chat/completions", body).json()["espalier"]["outputs"][0]["trace_id"]
    seen = set()
    for number in range(40):
        reply = server.get(f"/traces/{trace}", headers={"x-session-id": str(number)})
        assert reply.status_code == 200
        seen.add(reply.headers[REPLICA])
    assert len(seen) == 2


def test_streams_of_a_killed_replica_end_with_an_error_and_another_one_joins(
    server: ServerProcess, cluster: RayCluster
) -> None:
    sessions: dict[str, str] = {}
    for number in range(100):
        name = server.get("/v1/models", headers={"x-session-id": str(number)}).headers[REPLICA]
        sessions.setdefault(name, str(number))
    assert len(sessions) == 2
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True, **LONG}
    with ThreadPoolExecutor(4) as pool:
        begun: list[str] = []

        def follow(session: str) -> tuple[str, str]:
            headers = {"x-session-id": session}
            url = f"{server.url}/v1/chat/completions"
            with httpx2.stream("POST", url, json=body, headers=headers, timeout=120) as reply:
                lines = reply.iter_lines()
                text = [next(lines)]
                begun.append(session)
                return reply.headers[REPLICA], "\n".join([*text, *lines])

        following = [pool.submit(follow, one) for one in [*sessions.values()] * 2]
        until(lambda: len(begun) == 4)
        kill(cluster.pids("ServeReplica")[0])
        ended = [one.result() for one in following]
    by_name: dict[str, list[bool]] = {}
    for name, text in ended:
        is_lost = '"code":"replica_lost"' in text
        assert is_lost != text.rstrip().endswith("data: [DONE]"), text[-500:]
        by_name.setdefault(name, []).append(is_lost)
    assert sorted(by_name.values()) == [[False, False], [True, True]]
    (killed,) = [name for name, lost in by_name.items() if lost[0]]
    # The same request again is answered, and soon by a replica that was not there before.
    again = server.post("/v1/chat/completions", {**body, "stream": False}, headers={"x-session-id": sessions[killed]})
    assert again.status_code == 200
    assert again.headers[REPLICA] != killed

    def joined() -> bool:
        with ThreadPoolExecutor(8) as several:
            found = {one.headers[REPLICA] for one in several.map(lambda _: server.get("/v1/models"), range(16))}
        return len(found - {killed}) == 2

    until(joined)


def test_a_batch_loses_an_actor_and_a_node_and_has_one_result_for_each_item(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """Last: it kills the second node."""
    count, source, out = 150, tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    with source.open("w") as file:
        for number in range(count):
            body = asked(number) if number % 2 else {**asked(0), "seed": number, **LONG, "max_tokens": 300}
            line = {"custom_id": f"c{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(line) + "\n")
    command = [sys.executable, "-m", "espalier", "batch", "run", "-i", str(source), "-o", str(out), "-m", "fake"]
    command += ["--executor", "ray", "--address", cluster.address, "--replicas", "2", "--pipeline", "4"]
    running = subprocess.Popen(command, cwd=tmp_path, env=cluster.env, stderr=subprocess.PIPE, text=True)
    database = tmp_path / "out.jsonl.batch" / "jobs.db"

    def done() -> int:
        assert running.poll() is None, running.stderr.read() if running.stderr else ""
        with suppress(sqlite3.Error), closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as read:
            return int(read.execute("select count(*) from batch_results").fetchone()[0])
        return 0

    until(lambda: done() >= 5)
    kill(cluster.pids("BatchActor")[0])
    before = done()
    until(lambda: done() >= before + 10)
    cluster.kill_node(1)
    _, said_there = running.communicate(timeout=240)
    assert running.returncode == 0, said_there
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["custom_id"] for one in lines] == [f"c{number}" for number in range(count)]
    odd = [number for number in range(count) if number % 2]
    expected = alone(range(count))
    for number in odd:
        assert said(lines[number]["response"]["body"]) == expected[number]
    for number in range(1, count, 5):
        text, reason = said(lines[number]["response"]["body"])
        if reason == "stop":
            jsonschema.validate(json.loads(text), PERSON)
    assert "lost, and their items were run again" in said_there
    assert not (tmp_path / "out.jsonl.batch").exists()
