"""Serving and batches on a real Ray cluster of two nodes on this machine: answers are those of one engine alone,
replicas share the load and the store, and what is killed costs what it had in flight and no more."""

from __future__ import annotations

import importlib.util
import json
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.ray_cluster import RayCluster, ray_cluster, until
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
