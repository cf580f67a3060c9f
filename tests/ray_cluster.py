"""A Ray cluster of two nodes on this machine: two `ray start` processes, on free ports, killed at the end."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.ports import free_port
from tests.server_process import clean_environment

LOOKS, STARTS = 1200, 5
SETTINGS = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_AUTH_MODE": "disabled",
    "RAY_worker_niceness": "0",
    "RAY_ADDRESS": "",
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_DEDUP_LOGS": "0",
    # A busy machine starts late and answers late; a dead process is told by its closed connection.
    "RAY_worker_register_timeout_seconds": "600",
    "RAY_health_check_initial_delay_ms": "60000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "60000",
    # A proxy asks a replica how busy it is, and asks another one after a tenth of a second; here it waits.
    "RAY_SERVE_QUEUE_LENGTH_RESPONSE_DEADLINE_S": "60",
    "RAY_SERVE_MAX_QUEUE_LENGTH_RESPONSE_DEADLINE_S": "60",
    "HOST": "",
    "PORT": "",
}


@dataclass
class RayCluster:
    """address: what a driver joins. nodes: the head first."""

    address: str
    env: dict[str, str]
    nodes: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def pids(self, name: str) -> list[int]:
        """Processes of this cluster's actors of a class, oldest first."""
        found = []
        for node in self.nodes:
            with contextlib.suppress(psutil.NoSuchProcess):
                for one in psutil.Process(node.pid).children(recursive=True):
                    with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                        if name in " ".join(one.cmdline()):
                            found.append((one.create_time(), one.pid))
        return [pid for _, pid in sorted(found)]

    def kill_node(self, place: int) -> None:
        """SIGKILL to everything of a node."""
        node = self.nodes.pop(place)
        with contextlib.suppress(psutil.NoSuchProcess):
            whole = psutil.Process(node.pid)
            for one in [whole, *whole.children(recursive=True)]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    one.kill()
        node.wait()


@contextlib.contextmanager
def ray_cluster(*, cpus: int = 4, **env: str) -> Iterator[RayCluster]:
    """env: variables of the nodes."""
    folder = tempfile.mkdtemp(prefix="ray", dir="/tmp")  # short: paths of sockets have a limit
    cluster = RayCluster("", clean_environment(**SETTINGS, **env))
    try:
        for place in range(2):
            for _ in range(STARTS):
                port = free_port()
                node = _start(cluster, Path(folder, str(place)), port, cpus)
                if node is not None:
                    cluster.nodes.append(node)
                    cluster.address = cluster.address or f"127.0.0.1:{port}"
                    break
            assert len(cluster.nodes) == place + 1, "ray start timed out each time"
        yield cluster
    finally:
        while cluster.nodes:
            cluster.kill_node(-1)
        shutil.rmtree(folder, ignore_errors=True)


def _start(cluster: RayCluster, folder: Path, port: int, cpus: int) -> subprocess.Popen[bytes] | None:
    """A node; None where Ray has given up waiting for it, which it does after half a minute on a busy machine."""
    folder.mkdir(exist_ok=True)
    command = [
        sys.executable,
        "-m",
        "ray.scripts.scripts",
        "start",
        "--block",
        f"--num-cpus={cpus}",
        "--num-gpus=0",
        "--node-ip-address=127.0.0.1",
        "--object-store-memory=80000000",
        "--min-worker-port=0",
        "--max-worker-port=0",
        "--include-log-monitor=false",
        f"--dashboard-agent-listen-port={free_port()}",
        f"--runtime-env-agent-port={free_port()}",
    ]
    if cluster.nodes:
        command.append(f"--address={cluster.address}")
    else:
        client = f"--ray-client-server-port={free_port()}"
        command += ["--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={folder}", client]
    log = folder / "log"
    with log.open("wb") as said:
        node = subprocess.Popen(command, stdout=said, stderr=said, cwd=folder, env=cluster.env, start_new_session=True)
    for _ in range(LOOKS):
        if b"Ray runtime started" in log.read_bytes():
            return node
        with contextlib.suppress(subprocess.TimeoutExpired):
            code, text = node.wait(0.1), log.read_text()
            assert "timed out during startup" in text, f"ray start ended with {code}:\n{text}"
            return None
    raise AssertionError(f"ray start took too long:\n{log.read_text()}")


def kill(pid: int) -> None:
    os.kill(pid, 9)


def until(what: object, *, seconds: float = 480, every: float = 0.1) -> None:
    """Look until a function says so."""
    assert callable(what)
    ends = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < ends, f"never came: {what}"
        time.sleep(every)
