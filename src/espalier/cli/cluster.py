"""`espalier serve --ray`: deploys the server on a Ray cluster, and stays until a signal. It knows Ray by
`server/cluster/` alone, and imports that when it runs."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from espalier.cli import output
from espalier.cli.serving import signals_taken
from espalier.optional import check_extra
from espalier.server.settings import FIELDS
from espalier.version import __version__

if TYPE_CHECKING:
    from espalier.server.cluster.plan import ClusterPlan
    from espalier.server.environment import Environment
    from espalier.server.settings import ServerSettings

SERVER = frozenset(name for entry in FIELDS.values() for name in entry.variables)


def travelling(environment: Environment) -> dict[str, str]:
    """The settings that go to the replicas: those of the server and of models, whatever set them here."""
    values: Mapping[str, str] = environment.values
    return {name: value for name, value in values.items() if value and (name in SERVER or name.startswith("ESPALIER_"))}


def serve_on_ray(
    environment: Environment, settings: ServerSettings, plan: ClusterPlan, address: str | None, keys: int
) -> list[int]:
    """Serve until a signal; returns the signals that ended it. Raises EspalierError where it could not begin."""
    check_extra("ray")
    from espalier.server.cluster.plan import PROXIES, check_settings  # noqa: PLC0415

    check_settings(settings, plan)
    from espalier.server.cluster.joining import joined, total  # noqa: PLC0415  # Ray takes a second to import
    from espalier.server.cluster.running import deployed  # noqa: PLC0415

    caught: list[int] = []
    with (
        joined(address, variables=PROXIES, cpus=plan.cpus * plan.replicas.least),
        deployed(settings, plan, travelling(environment), tell=output.note),
        signals_taken(caught),
    ):
        host = f"[{settings.host}]" if ":" in settings.host else settings.host or "0.0.0.0"
        where = f"http://{host}:{settings.port}{settings.root_path}"
        each = f"{plan.cpus:g} cores" + (f", {plan.gpus:g} GPU" if plan.gpus else "")
        auth = f"API keys: {keys}" if keys else "off: anyone on this machine may use it"
        least, most = plan.replicas.least, plan.replicas.most
        count = str(least) if plan.replicas.is_fixed else f"{least} to {most}"
        for line in (
            f"Espalier {__version__} serves at {where}",
            f"  model    {settings.model_name or 'the demo model'}",
            f"  auth     {auth}",
            f"  replicas {count}, each with {each}, on a Ray cluster of {total('CPU'):g} cores",
        ):
            output.note(line)
        _until(caught)
    return caught


def _until(caught: list[int]) -> None:
    """Wait for a signal. Python runs the handlers of signals in the main thread, between two looks."""
    waiting = threading.Event()
    while not caught:
        waiting.wait(0.2)
