"""Serving and batches on a real Ray cluster of two nodes on this machine: answers are those of one engine alone,
replicas share the load and the store, and what is killed costs what it had in flight and no more."""

from __future__ import annotations

import importlib.util
import json
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import cache, partial
from pathlib import Path
from typing import Any

import httpx2
import jsonschema
import pytest

pytest.importorskip("prometheus_client", reason="the extra [server] is not installed")

from prometheus_client.parser import text_string_to_metric_families

from espalier.store.packing import unpack
from tests.batch_jobs import postgres, postgres_folder
from tests.ports import free_port
from tests.ray_cluster import RayCluster, kill, ray_cluster, until
from tests.server_app import client, fake_engine
from tests.server_process import FREE, KEYS, TIGHT, ServerProcess, start

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("ray") is None, reason="the extra [ray] is not installed"),
]
REPLICA = "x-espalier-replica"
PERSON = {
    "type": "object",
    "properties": {"name": {"type": "string", "maxLength": 9}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
CONSTRAINTS: list[dict[str, Any]] = [
    {},
    {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": PERSON}}},
    {"grammar": 'root ::= "(" root ")" | [a-z]'},
    {"response_format": {"type": "json_object"}},
    {"espalier": {"constraint": {"kind": "regex", "pattern": "[a-f]{3,9}"}}},
]
HAS_POSTGRES = importlib.util.find_spec("psycopg") is not None and postgres_folder() is not None
SHORTER = {"espalier": {"constraint": {"kind": "regex", "pattern": "[a-z ]{250,300}"}}, "max_tokens": 300}
LONG = {"espalier": {"constraint": {"kind": "regex", "pattern": "[a-z ]{700,800}"}}, "max_tokens": 800}
LONGER = {"espalier": {"constraint": {"kind": "regex", "pattern": "[a-z ]{3000,3200}"}}, "max_tokens": 3200}
"""What goes on for long enough that a replica can be killed in the middle of it."""


SOON = """
from espalier.cli.main import run
from espalier.server.cluster import plan

usual = plan.deployment_options

def soon(*given):
    options = usual(*given)
    options["autoscaling_config"] |= {
        "upscale_delay_s": 0.0, "downscale_delay_s": 2.0, "metrics_interval_s": 0.5, "look_back_period_s": 2.0
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
def database(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The replicas share PostgreSQL where there is one, else SQLite."""
    if not HAS_POSTGRES:
        yield f"sqlite:///{tmp_path_factory.mktemp('store') / 'e.db'}"
        return
    with postgres() as url:
        yield url


@pytest.fixture(scope="module")
def server(cluster: RayCluster, database: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """Two replicas of the fake model."""
    folder = tmp_path_factory.mktemp("serve")
    (folder / "keys.toml").write_text(KEYS)
    settings = {
        "DATABASE_URL": database,
        "RAY_AUTH_MODE": "disabled",
        "DRAIN_SECONDS": "2",
        "API_KEYS_FILE": str(folder / "keys.toml"),
        "BATCH_JOB_TEMP_DIR": str(folder / "uploads"),
    }
    flags = ["--ray", "--address", cluster.address, "--replicas", "2", "-m", "fake", "--port", str(free_port())]
    found = start(*flags, cwd=folder, env=settings)
    found.headers = FREE
    try:
        until(lambda: "serves at" in found.text or found.process.poll() is not None, seconds=900)
        found.until_ready()
        yield found
        assert found.terminate() == 0
    finally:
        found.kill()


def asked(number: int) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": f"item {number % 50}"}],
        "seed": number,
        "max_tokens": 40,
        "temperature": (number % 3) / 2,
        **CONSTRAINTS[number % len(CONSTRAINTS)],
    }


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


@cache
def alone() -> list[tuple[str, str]]:
    """What one engine answers to each of 200 by itself."""
    with client(engine=fake_engine_of_the_command()) as one:
        return [said(one.post("/v1/chat/completions", json=asked(number)).json()) for number in range(200)]


def sessions_known(server: ServerProcess) -> list[str]:
    """For each of the two replicas that answers by now, a session that it answers."""
    found: dict[str, str] = {}
    for number in range(100):
        if len(found) == 2:
            break
        name = server.get("/v1/models", headers={"x-session-id": str(number)}).headers[REPLICA]
        found.setdefault(name, str(number))
    return [*found.values()]


def sessions_of_each(server: ServerProcess) -> list[str]:
    until(lambda: len(sessions_known(server)) == 2)
    return sessions_known(server)


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

    sessions_of_each(server)  # the second may join long after the first is ready
    with ThreadPoolExecutor(16) as pool:
        together = list(pool.map(ask, range(200)))
    assert together == alone()
    assert len(names) == 2, "how many each takes is a matter of which one is given the processor"


def test_a_session_and_a_beginning_stay_with_their_replica(server: ServerProcess) -> None:
    """Sessions however many ask at once: Ray's own router would give a replica to whoever has waited longest."""

    def ask(number: int, session: str | None = None, system: str | None = None) -> str:
        messages = [{"role": "system", "content": f"{system} " * 80}] if system else []
        messages.append({"role": "user", "content": str(number)})
        body = {"messages": messages, "max_tokens": 2, "seed": number}
        headers = {"x-session-id": session} if session else {}
        name: str = server.post("/v1/chat/completions", body, headers=headers).headers[REPLICA]
        return name

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: (number % 7, ask(number, session=f"ann{number % 7}")), range(56)))
    assert len(set(found)) == 7
    for topic in ("weather", "cooking", "gardens"):  # one after the other: nobody is busy, so the beginning decides
        assert len({ask(number, system=topic) for number in range(6)}) == 1


@pytest.mark.skipif(not HAS_POSTGRES, reason="no PostgreSQL: psycopg and the Debian package postgresql")
def test_traces_limits_and_batches_of_both_replicas_are_in_one_postgresql(server: ServerProcess, database: str) -> None:
    import psycopg

    sessions = [{"x-session-id": one} for one in sessions_of_each(server)]
    one, other = sessions
    body = {**asked(1), "espalier": {"trace": "summary"}}
    for asking, reading in (sessions, sessions[::-1]):
        reply = server.post("/v1/chat/completions", body, headers=asking)
        trace = reply.json()["espalier"]["outputs"][0]["trace_id"]
        found = server.get(f"/traces/{trace}", headers=reading)
        assert found.status_code == 200
        assert found.headers[REPLICA] != reply.headers[REPLICA]
    began = time.monotonic()
    tight = [
        server.post("/v1/chat/completions", {**body, "max_tokens": 1}, headers={**sessions[number % 2], **TIGHT})
        for number in range(16)
    ]
    taken, given_back = sum(reply.status_code == 200 for reply in tight), (time.monotonic() - began) / 10
    assert 6 <= taken <= 7 + given_back, "six a minute, whoever is asked"
    assert len({reply.headers[REPLICA] for reply in tight}) == 2
    content = "".join(
        json.dumps({"custom_id": f"c{number}", "method": "POST", "url": "/v1/chat/completions", "body": asked(number)})
        + "\n"
        for number in range(10)
    )
    options = {"headers": {**FREE, **one}, "timeout": 60, "verify": False}
    uploaded = httpx2.post(
        f"{server.url}/v1/files", files={"file": ("in.jsonl", content)}, data={"purpose": "batch"}, **options
    )
    wanted = {"input_file_id": uploaded.json()["id"], "endpoint": "/v1/chat/completions", "completion_window": "24h"}
    made = server.post("/v1/batches", wanted, headers=other).json()

    def ended() -> bool:
        return bool(server.get(f"/v1/batches/{made['id']}", headers=one).json()["status"] == "completed")

    until(ended)
    done = server.get(f"/v1/batches/{made['id']}", headers=other).json()
    lines = server.get(f"/v1/files/{done['output_file_id']}/content", headers=one).text.splitlines()
    answers = {line["custom_id"]: said(line["response"]["body"]) for line in map(json.loads, lines)}
    assert answers == {f"c{number}": alone()[number] for number in range(10)}
    with psycopg.connect(database) as connection:
        counts = [
            connection.execute(query).fetchone()
            for query in (
                "select count(*) from traces",
                "select count(*) from rates where name like '%tight%'",
                "select count(*) from batch_results",
            )
        ]
    assert counts[0][0] >= 2
    assert counts[1:] == [(1,), (10,)]


def test_metrics_of_both_replicas_are_in_each_scrape(server: ServerProcess) -> None:
    sessions = [{"x-session-id": one} for one in sessions_of_each(server)]

    def counted(session: dict[str, str]) -> dict[str, float]:
        """Answers of a kind that no other test has, by replica."""
        return {
            one.labels["replica"]: one.value
            for family in text_string_to_metric_families(server.get("/metrics", headers=session).text)
            for one in family.samples
            if one.name == "espalier:http_responses_total"
            and (one.labels["route"], one.labels["code"]) == ("/v1/models/{model:path}", "404")
        }

    names = Counter(server.get("/v1/models/none", headers=one).headers[REPLICA] for one in sessions * 4)
    assert len(names) == 2

    def has_all(session: dict[str, str]) -> bool:
        return counted(session) == names

    for session in sessions:  # whichever is asked; an answer is counted just after it is sent
        until(partial(has_all, session))


def test_streams_of_a_killed_replica_end_with_an_error_and_another_one_joins(
    server: ServerProcess, cluster: RayCluster
) -> None:
    sessions = sessions_of_each(server)
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True, **LONGER}
    with ThreadPoolExecutor(4) as pool:
        begun: list[str] = []

        def follow(session: str) -> tuple[str, str]:
            headers = {"x-session-id": session, **FREE}
            url = f"{server.url}/v1/chat/completions"
            with httpx2.stream("POST", url, json=body, headers=headers, timeout=120, verify=False) as reply:
                lines = reply.iter_lines()
                text = [next(lines)]
                begun.append(session)
                return reply.headers[REPLICA], "\n".join([*text, *lines])

        victim = cluster.pids("ServeReplica")[0]
        following = [pool.submit(follow, one) for one in sessions * 2]
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
    for session in sessions:
        again = server.post("/v1/chat/completions", short, headers={"x-session-id": session})
        assert again.status_code == 200
        assert again.headers[REPLICA] != killed

    def joined() -> bool:
        sessions = ({"x-session-id": str(number)} for number in range(8))
        return len({server.get("/v1/models", headers=one).headers[REPLICA] for one in sessions} - {killed}) == 2

    until(joined, every=1)


def test_under_load_a_replica_joins_and_at_rest_it_is_drained_and_cuts_no_stream(
    server: ServerProcess, cluster: RayCluster, tmp_path: Path
) -> None:
    """In place of the two replicas: it takes them away. The load is uploads that do not go on, which cost no CPU. Then
    two followers ask for one stream after the other, each of the less busy replica, so that there is one in flight on
    each when one of them is taken away."""
    assert server.terminate() == 0
    settings = {"DATABASE_URL": f"sqlite:///{tmp_path / 'e.db'}", "RAY_AUTH_MODE": "disabled"}
    flags = ["serve", "--ray", "--address", cluster.address, "--replicas", "1-2", "--ongoing", "2", "-m", "fake"]
    command = [sys.executable, "-c", SOON]
    scaled = start(*flags, "--port", server.url.rpartition(":")[2], cwd=tmp_path, env=settings, command=command)
    body = {"messages": [{"role": "user", "content": "hello"}], "stream": True, **SHORTER}
    ended: list[str] = []
    is_resting = threading.Event()

    def follow() -> None:
        while not is_resting.is_set():
            reply = scaled.post("/v1/chat/completions", body)
            assert reply.status_code == 200, reply.text
            assert streamed(reply.text)[1] == "stop"
            assert reply.text.rstrip().endswith("data: [DONE]")
            ended.append(reply.headers[REPLICA])

    def answering() -> set[str]:
        return {scaled.get("/v1/models").headers[REPLICA] for _ in range(6)}

    try:
        scaled.until_ready()
        with ThreadPoolExecutor(2) as pool, ExitStack() as held:
            for _ in range(6):
                held.enter_context(upload_that_does_not_go_on(scaled.url))
            until(lambda: len(answering()) == 2, every=0.5)
            following = [pool.submit(follow) for _ in range(2)]
            try:
                until(lambda: len(set(ended)) == 2 or any(one.done() for one in following), every=0.5)
                held.close()
                until(lambda: len(cluster.pids("ServeReplica")) == 1 or any(one.done() for one in following), every=0.5)
            finally:
                is_resting.set()
            for one in following:
                one.result()
        assert len(set(ended)) == 2
        assert answering() < set(ended)
        assert scaled.terminate() == 0
    finally:
        scaled.kill()


def upload_that_does_not_go_on(url: str) -> socket.socket:
    host, _, port = url.removeprefix("http://").partition(":")
    made = socket.create_connection((host, int(port)))
    head = f"POST /v1/files HTTP/1.1\r\nhost: {host}\r\ncontent-type: multipart/form-data; boundary=x\r\n"
    made.sendall(f"{head}content-length: 999\r\n\r\n--x\r\n".encode())
    return made


def test_a_batch_loses_an_actor_its_driver_and_a_node_and_has_one_result_for_each_item(
    cluster: RayCluster, tmp_path: Path
) -> None:
    """Last: it kills the second node. After its driver was killed, the same command goes on. The node may hold no actor
    when it is killed, and the first driver cannot say what it has lost: so an actor of the second is killed too."""
    count, source, out = 100, tmp_path / "in.jsonl", tmp_path / "out.jsonl"
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
    of_the_first = cluster.pids("BatchActor")
    running = begun()
    has_more(10)
    kill(next(pid for pid in cluster.pids("BatchActor") if pid not in of_the_first))
    cluster.kill_node(1)
    _, said_there = running.communicate(timeout=240)
    assert running.returncode == 1, said_there  # some answers are cut at max_tokens
    lines = [json.loads(line) for line in out.read_text().splitlines()]
    assert [one["custom_id"] for one in lines] == [f"c{number}" for number in range(count)]
    assert {number: answer_id(lines[number]) for number in kept} == kept  # none of them was run again
    assert f"going on: {len(kept)} of {count} have ended" in said_there
    odd = [number for number in range(count) if number % 2]
    for number in odd:
        assert said(lines[number]["response"]["body"]) == alone()[number]
    for number in range(1, count, 5):
        text, reason = said(lines[number]["response"]["body"])
        if reason == "stop":
            jsonschema.validate(json.loads(text), PERSON)
    assert "lost, and their items were run again" in said_there
    assert not (tmp_path / "out.jsonl.batch").exists()
