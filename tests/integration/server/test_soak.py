"""Thousands of short requests, right and wrong, many at once, some left by their clients: afterwards nothing is left.

ESPALIER_SOAK_REQUESTS=5000 is the full run; without it 1,000 are sent."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import socket
import sys
import threading
from collections import Counter
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("fastapi")

import httpx2
import uvicorn
from prometheus_client.parser import text_string_to_metric_families

from espalier.engines.serving.service import Service
from tests.server_app import fake_engine, make_app, settings
from tests.server_process import resident_bytes

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="files and memory are read from /proc")
COUNT = int(os.environ.get("ESPALIER_SOAK_REQUESTS", "1000"))
AT_ONCE = 32
GROWTH = 32 * 2**20
PATIENCE = 120
"""Seconds for what has ended to be gone."""
KEPT = 24
"""Threads of all pools together."""
CHAT = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 6, "temperature": 0}
TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
LEFT = 0
"""In place of a status: the client has gone."""


async def ask(http: httpx2.AsyncClient, number: int, chance: random.Random) -> int:
    """The status of one request. Every kind comes as often as the others."""
    kind, body = number % 12, CHAT | {"messages": [{"role": "user", "content": f"hi {number % 50}"}]}
    url = "/v1/chat/completions"
    if kind in (0, 1):
        return (await http.post(url, json=body)).status_code
    if kind == 2:
        return (await http.post("/v1/completions", json={"prompt": "a", "n": 3, "max_tokens": 3})).status_code
    if kind == 3:
        return (
            await http.post(url, json=body | {"structured_outputs": {"regex": f"[a-z]{{{number % 5}}}x"}})
        ).status_code
    if kind == 4:
        tools = {"tools": [TOOL], "tool_choice": "required", "max_tokens": 60}
        return (await http.post(url, json=body | tools)).status_code
    if kind == 5:
        return (await http.post(url, json=body | {"response_fromat": {"type": "json_object"}})).status_code
    if kind == 6:
        return (await http.post(url, content=b'{"a":' * 500, headers={"content-type": "application/json"})).status_code
    if kind == 7:
        return (await http.post(url, json=body | {"user": "x" * 60_000})).status_code
    if kind == 8:
        return (await http.post(url, json=body | {"n": 10})).status_code
    if kind == 9:  # a client that has enough before the answer is there
        asking = asyncio.create_task(http.post(url, json=body | {"max_tokens": 400, "grammar": 'root ::= "a"{300}'}))
        for _ in range(chance.randrange(60)):
            await asyncio.sleep(0)
        asking.cancel()
        (found,) = await asyncio.gather(asking, return_exceptions=True)
        return found.status_code if isinstance(found, httpx2.Response) else LEFT
    leaves = kind == 10
    sent = body | {"stream": True} | ({"max_tokens": 400, "grammar": 'root ::= "a"{300}'} if leaves else {})
    async with http.stream("POST", url, json=sent) as answer:
        if answer.status_code == 503:  # the queue is short here, on purpose
            return 503
        async for line in answer.aiter_lines():
            assert "error" not in line, line
            if leaves and line and answer.status_code == 200:
                return LEFT
        return answer.status_code


def others() -> int:
    """Threads but for those that pools keep for a moment, in case that more work comes."""
    return len([one for one in threading.enumerate() if not one.name.startswith("espalier-")])


def open_files() -> int:
    return len([*Path("/proc/self/fd").iterdir()])


def sums(text: str) -> Counter[str]:
    """Every sample's value, summed over its labels."""
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found[sample.name] += sample.value  # type: ignore[assignment]  # whole numbers
    return found


@pytest.mark.slow
def test_nothing_is_left_after_a_soak() -> None:
    engine = fake_engine()
    api = make_app(
        engine=engine,
        config=settings(max_body_bytes="50000", max_outputs="8", queue_size="16"),
        serve=lambda one: Service(one, prefix_tokens=0, queue_size=16),
    )
    statuses: Counter[int] = Counter()

    async def main(listener: socket.socket) -> None:
        server = uvicorn.Server(uvicorn.Config(api, log_config=None, access_log=False, timeout_graceful_shutdown=5))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        chance = random.Random(3)

        async def send(numbers: range) -> None:
            """So many at once; each connection is closed after its batch."""
            async with httpx2.AsyncClient(base_url=url, timeout=120) as http:
                left = iter(numbers)

                async def one_after_another() -> None:
                    for number in left:
                        statuses[await ask(http, number, chance)] += 1

                await asyncio.gather(*(one_after_another() for _ in range(AT_ONCE)))

        async def settle() -> None:
            """Until those who left are gone, and the connections of all. Raises TimeoutError if they never are."""
            async with httpx2.AsyncClient(base_url=url, timeout=PATIENCE) as http:
                async with asyncio.timeout(PATIENCE):
                    while (await http.get("/ready")).json() != {"status": "ok", "running": 0, "waiting": 0}:
                        pass
            async with asyncio.timeout(PATIENCE):
                while server.server_state.connections or server.server_state.tasks:
                    await asyncio.sleep(0)
            gc.collect()

        await send(range(200))  # all that is made once: pools of threads, caches
        await settle()
        tasks, threads, files = len(asyncio.all_tasks()), others(), open_files()
        memory = resident_bytes(os.getpid())
        await send(range(200, COUNT))
        await settle()
        assert len(asyncio.all_tasks()) == tasks
        assert others() <= threads + 2
        assert len([*threading.enumerate()]) - others() <= KEPT
        assert open_files() <= files
        assert resident_bytes(os.getpid()) - memory < GROWTH
        load = api.state.process.scheduler.load()
        assert (load.running, load.waiting, load.tokens_held) == (0, 0, 0)
        assert engine.engine.model.live == 0
        check_metrics(sums(api.state.process.meter.text().decode()))
        server.should_exit = True
        await serving

    before = {*threading.enumerate()}
    with socket.socket() as listener, closing(engine):
        listener.bind(("127.0.0.1", 0))
        listener.listen(256)
        asyncio.run(main(listener))
    # A thread of a test before this one may end meanwhile: only new ones count, which were told to end just now.
    for thread in {*threading.enumerate()} - before:
        thread.join(30)
    assert not {*threading.enumerate()} - before
    assert set(statuses) <= {200, LEFT, 400, 413, 503}, statuses
    # How many the short queue refuses depends on how fast the engine is beside the clients.
    assert statuses[200] + statuses[503] >= len([n for n in range(COUNT) if n % 12 in (0, 1, 2, 3, 4, 11)])
    assert statuses[200] > COUNT // 20
    assert statuses[LEFT] > COUNT // 100
    assert statuses[413] == len([n for n in range(COUNT) if n % 12 == 7])
    assert statuses[400] == len([n for n in range(COUNT) if n % 12 in (5, 6, 8)])


def check_metrics(found: Counter[str]) -> None:
    """Every output that was begun has ended, in one way; every request was answered or refused."""
    assert found["vllm:request_success_total"] == found["vllm:request_params_n_sum"] > 0
    assert found["espalier:request_success_total"] == found["vllm:request_success_total"]
    assert found["vllm:e2e_request_latency_seconds_count"] <= found["vllm:request_success_total"]
    assert found["vllm:num_requests_running"] == found["vllm:num_requests_waiting"] == 0
    assert found["espalier:refused_requests_total"] > 0
    begun = found["vllm:request_params_n_count"]
    assert begun + found["espalier:refused_requests_total"] <= COUNT
    assert begun + found["espalier:refused_requests_total"] > COUNT * 0.9  # some left before they had said anything
