"""What Ray Serve costs and brings: requests a second of 1, 2 and 4 replicas, CPU time for each request and token beside
one plain server, and the service times that `queueing.py` is calibrated with.

    python -m benchmarks.scale.ray --out measured.json

Requests are streams under one grammar of a fixed length, so that every one has the same number of tokens. CPU time is
that of all processes of the server (of Ray: proxies, controller, replicas), which a busy machine changes little; wall
times are those of this machine as it was, with its number of cores and its load beside them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import httpx2
import psutil

from tests.ports import free_port
from tests.ray_cluster import RayCluster, ray_cluster
from tests.server_process import ServerProcess, serving

SHORT, LONG = 10, 110
"""Tokens of a request."""
OURS = ("ServeReplica", "ProxyActor", "ServeController")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """cpu: seconds of all processes of the server for one request. works: seconds that each request took."""

    replicas: int
    at_once: int
    tokens: int
    per_second: float
    cpu: float
    median: float
    works: Sequence[float]


def ask(url: str, tokens: int, number: int) -> float:
    """Seconds of one stream."""
    body = {
        "messages": [{"role": "user", "content": f"item {number}"}],
        "max_tokens": tokens + 50,
        "stream": True,
        "grammar": "root ::= " + " ".join(['("a" | "b")'] * tokens),
        "seed": number,
    }
    began = time.monotonic()
    with httpx2.stream("POST", f"{url}/v1/chat/completions", json=body, timeout=600) as reply:
        text = "".join(reply.iter_lines())
        if reply.status_code != 200 or "[DONE]" not in text:
            raise RuntimeError(f"status {reply.status_code}: {text[:500]}")
    return time.monotonic() - began


def cpu_of(pids: Sequence[int]) -> float:
    found = 0.0
    for pid in pids:
        with contextlib.suppress(psutil.NoSuchProcess):
            whole = psutil.Process(pid)
            for one in [whole, *whole.children(recursive=True)]:
                times = one.cpu_times()
                found += times.user + times.system
    return found


def measure(url: str, pids: Sequence[int], *, replicas: int, at_once: int, tokens: int, requests: int) -> Measured:
    with ThreadPoolExecutor(at_once) as pool:
        list(pool.map(lambda number: ask(url, tokens, number), range(2 * at_once)))  # warm
        cpu, began = cpu_of(pids), time.monotonic()
        works = list(pool.map(lambda number: ask(url, tokens, number), range(requests)))
        wall, cpu = time.monotonic() - began, cpu_of(pids) - cpu
    found = Measured(
        replicas=replicas,
        at_once=at_once,
        tokens=tokens,
        per_second=requests / wall,
        cpu=cpu / requests,
        median=statistics.median(works),
        works=works,
    )
    who = f"{replicas} replicas" if replicas else "plain server"
    print(
        f"{who}, {at_once} at once, {tokens} tokens: {found.per_second:.2f} requests/s, "
        f"{found.cpu * 1000:.1f} ms of CPU each, median {found.median:.3f} s, load {os.getloadavg()[0]:.0f}",
        flush=True,
    )
    return found


@contextlib.contextmanager
def on_ray(cluster: RayCluster, model: str, replicas: int, port: int, folder: Path) -> Iterator[ServerProcess]:
    flags = ["--ray", "--address", cluster.address, "--replicas", str(replicas), "-m", model]
    flags += ["--cpus", "0.5", "--port", str(port)]
    env = {"RAY_AUTH_MODE": "disabled", "DRAIN_SECONDS": "1"}
    with serving(*flags, cwd=folder, env=env) as server:
        yield server
        server.terminate()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="models/demo")
    parser.add_argument("--requests", type=int, default=64)
    parser.add_argument("--replicas", default="1,2,4")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    model = str(Path(given.model).resolve()) if Path(given.model).exists() else given.model
    found: list[Measured] = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving("-m", model, cwd=folder) as plain:
            measure(plain.url, [plain.pid], replicas=0, at_once=8, tokens=LONG, requests=2 * given.requests)  # warm
            found += [
                measure(plain.url, [plain.pid], replicas=0, at_once=8, tokens=tokens, requests=given.requests)
                for tokens in (SHORT, LONG)
            ]
        port = free_port()  # Ray Serve keeps its first one
        with ray_cluster() as cluster:
            for replicas in map(int, given.replicas.split(",")):
                with on_ray(cluster, model, replicas, port, folder) as server:
                    pids = [pid for name in OURS for pid in cluster.pids(name)]
                    found += [
                        measure(
                            server.url,
                            pids,
                            replicas=replicas,
                            at_once=at_once,
                            tokens=tokens,
                            requests=max(given.requests, at_once),
                        )
                        for at_once in ((1, 4, 8, 16) if replicas == 1 else (8 * replicas,))
                        for tokens in (SHORT, LONG)
                    ]
    report(found)
    if given.out is not None:
        given.out.write_text(json.dumps(as_json(found), indent=1))


def report(found: Sequence[Measured]) -> None:
    """Cost of Ray Serve for each request and token, from the two lengths."""
    by = {(one.replicas, one.at_once, one.tokens): one for one in found}
    costs = {}
    for replicas in (0, 1):
        short, long = by[replicas, 8, SHORT], by[replicas, 8, LONG]
        token = (long.cpu - short.cpu) / (LONG - SHORT)
        costs[replicas] = (short.cpu - SHORT * token, token)
    request, token = (on - off for on, off in zip(costs[1], costs[0], strict=True))
    print(f"Ray Serve adds {request * 1000:.2f} ms of CPU to a request and {token * 1e6:.0f} µs to a token")


def as_json(found: Sequence[Measured]) -> dict[str, Any]:
    """What `queueing.py` reads: one replica with long requests, and how long single ones took."""
    one = [one for one in found if one.replicas == 1 and one.tokens == LONG]
    alone = next(each for each in one if each.at_once == 1)
    return {
        "cores": os.cpu_count(),
        "one_replica": [{"at_once": each.at_once, "per_second": each.per_second} for each in one],
        "works": list(alone.works),
        "all": [{name: value for name, value in asdict(each).items() if name != "works"} for each in found],
    }


if __name__ == "__main__":
    main()
