"""Joins a Ray cluster, or starts one on this machine, and says how many machines it has.

What Ray raises becomes our errors. Ray's usage reports are off for a cluster that is started here.
"""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from espalier.errors import EspalierError, InputError, Unavailable
from espalier.optional import optional_imports

with optional_imports("ray"):
    import ray

CONNECT_SECONDS = 10.0
HINT = "`ray start --head` starts one; ray://… and clusters of other versions of Ray or Python cannot be joined"


@contextmanager
def joined(address: str | None, *, variables: Mapping[str, str], cpus: float = 1.0) -> Iterator[None]:
    """While open, this process belongs to the cluster at an address (`auto`: this machine's), by default that of
    RAY_ADDRESS; without either, to a new one on this machine, which ends with it. variables: of the processes that are
    started from here. cpus: that a new cluster says it has at the least. Raises InputError and Unavailable."""
    where = address or os.environ.get("RAY_ADDRESS") or None
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    os.environ.setdefault("RAY_worker_niceness", "0")  # of a new cluster: engines are what it is for
    options: dict[str, Any] = {
        "address": where or "local",
        "log_to_driver": True,
        "logging_level": logging.WARNING,
        "namespace": "espalier",
        "runtime_env": {"env_vars": dict(variables)},
    }
    if where is None:
        cores = os.cpu_count() or 1
        options |= {"include_dashboard": False, "num_cpus": max(cores, int(-(-cpus // 1)))}
    else:
        _check_reachable(where)
    try:
        ray.init(**options)
    except ConnectionError as error:
        raise Unavailable(
            f"there is no Ray cluster at {where or 'this machine'}", hint=HINT, field="address"
        ) from error
    except (ValueError, RuntimeError) as error:
        raise InputError(f"cannot join a Ray cluster at {where}: {error}", hint=HINT, field="address") from error
    try:
        yield
    finally:
        ray.shutdown()


def _check_reachable(where: str) -> None:
    """Ray itself would try for minutes. Raises InputError and Unavailable."""
    host, _, port = where.removeprefix("ray://").rpartition(":")
    if not host:  # `auto`, or a name that Ray knows
        return
    if not port.isdecimal():
        raise InputError(f"{where[:100]!r} is no address of a Ray cluster", hint="host:port, or auto", field="address")
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=CONNECT_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise Unavailable(f"there is no Ray cluster at {where[:100]}: {error}", hint=HINT, field="address") from error


def machines() -> int:
    """How many machines the cluster has: nodes at one address share files."""
    return len(addresses(_nodes()))


def _nodes() -> list[dict[str, Any]]:
    alive: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return alive


def addresses(nodes: Iterable[Mapping[str, Any]]) -> set[str]:
    return {str(node["NodeManagerAddress"]) for node in nodes if node["Alive"]}


def home() -> str:
    """The address of this machine in the cluster."""
    return str(ray.util.get_node_ip_address())  # type: ignore[no-untyped-call]


def total(resource: str) -> float:
    """What the whole cluster has of `CPU` or `GPU`."""
    resources: Mapping[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    return resources.get(resource, 0.0)


def room(cpus: float, gpus: float) -> int:
    """How many replicas the nodes could hold, were they empty. Raises InputError where none could, which Ray would wait
    for without end."""
    nodes = [node["Resources"] for node in _nodes() if node["Alive"]]
    fitting = sum(_fit(node, cpus, gpus) for node in nodes)
    if not fitting:
        raise InputError(
            f"no node of the cluster has {cpus:g} cores and {gpus:g} GPUs for a replica",
            hint="--cpus, --gpus: what a replica reserves",
            field="cpus",
        )
    return fitting


def _fit(node: Mapping[str, float], cpus: float, gpus: float) -> int:
    by_gpu = node.get("GPU", 0.0) / gpus if gpus else float("inf")
    return int(min(node.get("CPU", 0.0) / cpus, by_gpu) + 1e-9)


def failure(error: BaseException) -> EspalierError:
    """An error of ours for what Ray says of replicas that did not start: the last line that names a cause."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    ours = [line for line in lines if line.startswith("espalier.errors.")]
    said = ours[-1].split(":", 1)[-1].strip() if ours else (lines[0] if lines else type(error).__name__)
    return EspalierError(f"the replicas did not start: {said[:500]}", hint="Ray's logs have the rest")
