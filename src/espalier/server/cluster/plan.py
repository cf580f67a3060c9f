"""What is asked of a cluster: how many replicas, with how many cores and GPUs each, and what follows for Ray Serve.

The options are plain data, so that `espalier serve --ray` and the YAML of KubeRay are compared with one another. It
imports no Ray.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from espalier.errors import InputError
from espalier.server.settings import ServerSettings

APPLICATION = "espalier"
"""The name of the application, and of its deployment, in Ray Serve."""
IMPORT_PATH = "espalier.server.cluster.application:application"
ROUTER = "espalier.server.cluster.routing:EspalierRouter"
EDGE = "espalier.server.cluster.edge:middlewares"
PROXIES = {
    "RAY_SERVE_HTTP_PROXY_CALLBACK_IMPORT_PATH": EDGE,
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",
    "RAY_SERVE_PROXY_PREFER_LOCAL_NODE_ROUTING": "0",
}
"""Variables of Ray Serve's own processes: what stands before the application on each proxy; how long one may take to
start, which on a busy machine is more than Ray's five seconds; and that a proxy does not favour the replicas of its own
node, by which the one proxy of the head would leave all others idle."""
SPREAD = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
MARGIN_SECONDS = 5.0
"""Beyond the drain, after which Ray ends a replica that has not ended."""
UPSCALE_SECONDS, DOWNSCALE_SECONDS = 10.0, 120.0
"""How long there must be too many requests, or too few, before the number of replicas follows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaRange:
    """How many: `least` to `most`, by ongoing requests; a fixed number where they are equal."""

    least: int = 1
    most: int = 1

    @property
    def is_fixed(self) -> bool:
        return self.least == self.most


def read_replicas(text: str) -> ReplicaRange:
    """`4`, or `1-8`. Raises InputError."""
    match = SPREAD.fullmatch(text.strip())
    least = int(match[1]) if match else 0
    most = int(match[2] or match[1]) if match else 0
    if not 1 <= least <= most:
        raise InputError(
            f"{text[:40]!r} is no number of replicas", hint="4, or 1-8 for as many as requests need", field="replicas"
        )
    return ReplicaRange(least=least, most=most)


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterPlan:
    """cpus, gpus: what each replica reserves; gpus may be a fraction, so that replicas share one. ongoing: requests of
    a replica at which autoscaling aims."""

    replicas: ReplicaRange = ReplicaRange()
    cpus: float = 1.0
    gpus: float = 0.0
    ongoing: float = 8.0

    def __post_init__(self) -> None:
        if not self.cpus > 0:
            raise InputError("a replica needs cores", hint="--cpus 1", field="cpus")
        if self.gpus < 0 or (self.gpus > 1 and self.gpus != int(self.gpus)):
            raise InputError("GPUs of a replica are a whole number, or a part of one", field="gpus")
        if not self.ongoing > 0:
            raise InputError("autoscaling aims at more than 0 ongoing requests", field="ongoing")


def read_plan(given: Mapping[str, Any]) -> ClusterPlan:
    """A plan from the arguments of an application in a file of Ray Serve. Raises InputError."""
    known = {field.name for field in fields(ClusterPlan)}
    if unknown := sorted(set(given) - known):
        raise InputError(
            f"there is no {unknown[0]!r} here", hint=f"one of: {', '.join(sorted(known))}", field=unknown[0]
        )
    values: dict[str, Any] = {}
    for name, value in given.items():
        if name == "replicas":
            values[name] = read_replicas(str(value))
            continue
        try:
            values[name] = float(value)
        except (TypeError, ValueError):
            raise InputError(f"{name} is a number, not {str(value)[:40]!r}", field=name) from None
    return ClusterPlan(**values)


def deployment_options(plan: ClusterPlan, settings: ServerSettings) -> dict[str, Any]:
    """The options of Ray Serve's deployment, under their names in Python and in its YAML."""
    few = max(1, settings.queue_size)
    options: dict[str, Any] = {
        "name": APPLICATION,
        "ray_actor_options": {"num_cpus": plan.cpus, "num_gpus": plan.gpus},
        # Requests beyond these wait in the proxies, where any replica that is free takes them; beyond those, 503.
        "max_ongoing_requests": few,
        "max_queued_requests": few * plan.replicas.most,
        "graceful_shutdown_wait_loop_s": 0.5,
        "graceful_shutdown_timeout_s": settings.drain_seconds + MARGIN_SECONDS,
        "request_router_config": {"request_router_class": ROUTER},
    }
    if plan.replicas.is_fixed:
        return options | {"num_replicas": plan.replicas.least}
    return options | {
        "autoscaling_config": {
            "min_replicas": plan.replicas.least,
            "max_replicas": plan.replicas.most,
            "target_ongoing_requests": plan.ongoing,
            "upscale_delay_s": UPSCALE_SECONDS,
            "downscale_delay_s": DOWNSCALE_SECONDS,
        }
    }


def check_settings(settings: ServerSettings, plan: ClusterPlan) -> None:
    """Raises InputError for settings that replicas cannot have."""
    for name, is_set in (("workers", settings.workers > 1), ("uds", settings.uds is not None)):
        if is_set:
            raise InputError(
                f"{name.upper()} is for one machine; on a cluster there are replicas", hint="--replicas N", field=name
            )
    if settings.port == 0:
        raise InputError("the proxies of all nodes listen at one port, which has to be named", field="port")
    if plan.replicas.most == 1:
        return
    for name, given in (("activations_store", settings.activations_store), ("rejection_log", settings.rejection_log)):
        if given is not None:
            raise InputError(
                f"{name.upper()} has one writer, and there are up to {plan.replicas.most} replicas",
                hint="--replicas 1",
                field=name.upper(),
            )


def check_machines(settings: ServerSettings, machines: int) -> None:
    """machines: how many the cluster has. Raises InputError where they could not share what is stored."""
    if machines < 2:
        return
    url = settings.database_url or "sqlite"
    if url.startswith("sqlite"):
        raise InputError(
            f"the cluster has {machines} machines, and a SQLite file is on one of them: they would not share "
            "limits, traces and batches",
            hint="DATABASE_URL=postgresql://… (the extra postgres)",
            field="DATABASE_URL",
        )
    if settings.batch_jobs and settings.batch_job_temp_dir is None:
        raise InputError(
            f"the cluster has {machines} machines, and uploads of batches would lie on one of them",
            hint="BATCH_JOB_TEMP_DIR: a folder that all of them share; or BATCH_JOBS=false",
            field="BATCH_JOB_TEMP_DIR",
        )
