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

from espalier.store.packing import unpack
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
SHORTER = {"espalier": {"constraint": {"kind": "regex", "pattern": "[a-z ]{250,300}"}}, "max_tokens": 300}
LONG = {"espalier": {"constraint": {"kind": "regex", "pattern": "[a-z ]{700,800}"}}, "max_tokens": 800}


SOON = """
from espalier.cli.main import run
from espalier.server.cluster import plan

usual = plan.deployment_options

def soon(*given):
    options = usual(*given)
    options["autoscaling_config"] |= {
        "upscale_delay_s": 0.0, "downscale_delay_s": 1.0, "metrics_interval_s": 0.5, "look_back_period_s": 1.0
    }
    return options

plan.deployment_options = soon
run()
"""
"""The command, whose autoscaling decides in seconds, not in minutes."""


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


def answer_id(line: Any) -> str:
    """The id of the completion in a line of a batch's output; each run of an item makes another."""
    return str(line["response"]["body"]["id"])


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

        victim = cluster.pids("ServeReplica")[0]
        following = [pool.submit(follow, one) for one in [*sessions.values()] * 2]
        until(lambda: len(begun) == 4)
        kill(victim)
        ended = [one.result() for one in following]
    by_name: dict[str, list[bool]] = {}
    for name, text in ended:
        is_lost = '"code":"replica_lost"' in text
        assert is_lost != text.rstrip().endswith("data: [DONE]"), text[-500:]
        by_name.setdefault(name, []).append(is_lost)
    assert sorted(by_name.values()) == [[False, False], [True, True]]
    (killed,) = [name for name, lost in by_name.items() if lost[0]]
    # The same request again is answered, and soon by a replica that was not there before.
    short = {**body, **SHORTER, "stream": False}
    again = server.post("/v1/chat/completions", short, headers={"x-session-id": sessions[killed]})
    assert again.status_code == 200
    assert again.headers[REPLICA] != killed

    def joined() -> bool:
        with ThreadPoolExecutor(8) as several:
            found = {one.headers[REPLICA] for one in several.map(lambda _: server.get("/v1/models"), range(16))}
        return len(found - {killed}) == 2

    until(joined)


def test_under_load_a_replica_joins_and_at_rest_it_is_drained_and_cuts_no_stream(
    server: ServerProcess, cluster: RayCluster, tmp_path: Path
) -> None:
    """In place of the two replicas: it takes them away. Followers ask for one stream after the other, so that there is
    always one in flight wherever a follower's session is served."""
    assert server.terminate() == 0
    settings = {"DATABASE_URL": f"sqlite:///{tmp_path / 'e.db'}", "RAY_AUTH_MODE": "disabled"}
    flags = ["serve", "--ray", "--address", cluster.address, "--replicas", "1-3", "--ongoing", "4", "-m", "fake"]
    command = [sys.executable, "-c", SOON]
    scaled = start(*flags, "--port", server.url.rpartition(":")[2], cwd=tmp_path, env=settings, command=command)
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True, **SHORTER}
    busy, rest = set(range(6)), {0, 1}
    wanted, ended = set(busy), [Counter[str]() for _ in busy]

    def follow(number: int) -> None:
        while number in wanted:
            reply = scaled.post("/v1/chat/completions", body, headers={"x-session-id": str(number)})
            assert reply.status_code == 200, reply.text
            assert streamed(reply.text)[1] == "stop"
            assert reply.text.rstrip().endswith("data: [DONE]")
            ended[number][reply.headers[REPLICA]] += 1

    try:
        scaled.until_ready()
        with ThreadPoolExecutor(len(busy)) as pool:
            following = [pool.submit(follow, number) for number in busy]

            def names(after: list[Counter[str]]) -> set[str]:
                """Who has answered since."""
                assert not any(one.done() and one.exception() for one in following), following
                return {name for now, then in zip(ended, after, strict=True) for name in now - then}

            try:
                before = [one.copy() for one in ended]
                until(lambda: len(names(before)) > 1)
                wanted -= busy - rest
                until(lambda: len(cluster.pids("ServeReplica")) == 1)
            finally:
                wanted.clear()
            for one in following:
                one.result()
        assert scaled.get("/v1/models").headers[REPLICA] in names(before)
        assert scaled.terminate() == 0
    finally:
        scaled.kill()


def test_a_batch_loses_an_actor_its_driver_and_a_node_and_has_one_result_for_each_item(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """Last: it kills the second node. After its driver was killed, the same command goes on."""
    count, source, out = 150, tmp_path / "in.jsonl", tmp_path / "out.jsonl"
    with source.open("w") as file:
        for number in range(count):
            body = asked(number) if number % 2 else {**asked(0), "seed": number, **LONG, "max_tokens": 100}
            line = {"custom_id": f"c{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            file.write(json.dumps(line) + "\n")
    command = [sys.executable, "-m", "espalier", "batch", "run", "-i", str(source), "-o", str(out), "-m", "fake"]
    command += ["--executor", "ray", "--address", cluster.address, "--replicas", "2", "--pipeline", "4"]
    database = tmp_path / "out.jsonl.batch" / "jobs.db"
    env = {**cluster.env, "BATCH_LEASE_SECONDS": "5"}

    def begun() -> subprocess.Popen[str]:
        return subprocess.Popen(command, cwd=tmp_path, env=env, stderr=subprocess.PIPE, text=True)

    def answers() -> dict[int, str]:
        """The id of each answer that is recorded, by its line, from 0."""
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True)) as read:
            rows = read.execute("select line, answer from batch_results").fetchall()
            return {line - 1: answer_id(unpack(answer, what="answer")) for line, answer in rows}
        return {}

    def has_more(count: int) -> None:
        before = len(answers())

        def came() -> bool:
            assert running.poll() is None, running.stderr.read() if running.stderr else ""
            return len(answers()) >= before + count

        until(came)

    running = begun()
    has_more(5)
    kill(cluster.pids("BatchActor")[0])
    has_more(10)
    running.kill()
    running.communicate()
    kept = answers()
    assert 15 <= len(kept) < count
    running = begun()
    has_more(10)
    cluster.kill_node(1)
    _, said_there = running.communicate(timeout=240)
    assert running.returncode == 0, said_there
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["custom_id"] for one in lines] == [f"c{number}" for number in range(count)]
    assert {number: answer_id(lines[number]) for number in kept} == kept  # none of them was run again
    assert f"going on: {len(kept)} of {count} have ended" in said_there
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
