"""Deploys the application on the cluster that was joined, and takes it away again."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from ray import serve
from ray.exceptions import RayError
from ray.serve.config import ProxyLocation
from ray.serve.exceptions import RayServeException

from espalier.errors import InputError
from espalier.server.admit.auth import is_loopback
from espalier.server.cluster import joining
from espalier.server.cluster.application import application
from espalier.server.cluster.plan import APPLICATION, ClusterPlan, check_machines
from espalier.server.settings import ServerSettings

log = logging.getLogger(__name__)


@contextmanager
def deployed(
    settings: ServerSettings, plan: ClusterPlan, variables: Mapping[str, str], *, tell: Callable[[str], None]
) -> Iterator[None]:
    """While open, the replicas serve. At the end requests that run may finish, as long as the settings say. variables:
    the settings by their names. tell: gets remarks for the user. Raises InputError for what the cluster cannot hold,
    EspalierError where the replicas did not start."""
    check_machines(settings, joining.machines())
    if (room := joining.room(plan.cpus, plan.gpus)) < plan.replicas.least:
        tell(f"the cluster has room for {room} of {plan.replicas.least} replicas; the others start when it has more")
    is_local = is_loopback(settings.host)
    http = {"host": settings.host, "port": settings.port, "root_path": settings.root_path, "request_timeout_s": None}
    _check_port(settings.port)
    keeps_file = (settings.database_url or "sqlite").startswith("sqlite")
    made = application(arguments(plan, variables, home=joining.home() if keeps_file else None))
    try:
        # Without a key only this machine is let in, so a proxy on another one would answer nobody.
        serve.start(http_options=http, proxy_location=ProxyLocation.HeadOnly if is_local else ProxyLocation.EveryNode)
        serve.run(made, name=APPLICATION, route_prefix="/")
    except (RuntimeError, RayError, RayServeException) as error:
        _delete()
        raise joining.failure(error) from error
    try:
        yield
    finally:
        _delete()


def arguments(plan: ClusterPlan, variables: Mapping[str, str], *, home: str | None) -> dict[str, Any]:
    """What `application` reads."""
    replicas = f"{plan.replicas.least}-{plan.replicas.most}"
    return {
        "settings": dict(variables),
        "home": home,
        "replicas": replicas,
        "cpus": plan.cpus,
        "gpus": plan.gpus,
        "ongoing": plan.ongoing,
    }


def _delete() -> None:
    try:
        serve.delete(APPLICATION)
    except (RuntimeError, RayError, RayServeException) as error:  # the cluster is gone, and the application with it
        log.warning("the application could not be taken from the cluster: %s", error)


def _check_port(port: int) -> None:
    """Raises InputError where Ray Serve runs on this cluster already, at another port: it keeps its own."""
    from ray.serve.context import _get_global_client  # noqa: PLC0415

    running = _get_global_client(raise_if_no_controller_running=False)
    if running is None:
        return
    actual = getattr(running.http_config, "port", port)
    if actual != port:
        raise InputError(
            f"Ray Serve runs on this cluster already, at port {actual}", hint=f"--port {actual}", field="port"
        )
