"""`espalier serve`: checks settings, keys and address, listens, and runs the server until a signal.

All of that comes before a model is loaded. Flags are passed on as environment variables, so that worker processes read
the same. The server's libraries are imported when the command runs, not before.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from espalier.cli import output
from espalier.cli.cluster import serve_on_ray
from espalier.cli.flags.groups import info_of, with_flags
from espalier.cli.flags.server import EnvFile, ServerFlags, read_server, variables_of
from espalier.cli.serving import MakeApp, describe_traces, leave, listen, run_one, run_workers
from espalier.engines.request_options import REASONING
from espalier.errors import InputError
from espalier.optional import check_extra
from espalier.server.settings import ServerSettings
from espalier.version import __version__
from espalier.wiring import build_app

if TYPE_CHECKING:
    from fastapi import FastAPI

    from espalier.server.admit.auth import Keyring
    from espalier.server.environment import Environment
    from espalier.server.http.loading import Failed


def all_routes(settings: ServerSettings | None = None, failed: Failed | None = None) -> FastAPI:
    """The application of `server/main.py`. settings: None reads the environment, as worker processes do. failed: called
    if loading the model fails."""
    from espalier.server.apps import create_app  # noqa: PLC0415

    return create_app(settings, failed=failed)


def chat_routes(settings: ServerSettings | None = None, failed: Failed | None = None) -> FastAPI:
    """As `all_routes`, without batch jobs."""
    from espalier.server.apps import create_chat_app  # noqa: PLC0415

    return create_chat_app(settings, failed=failed)


def batch_routes(settings: ServerSettings | None = None, failed: Failed | None = None) -> FastAPI:
    """As `all_routes`, batch jobs alone."""
    from espalier.server.apps import create_batch_app  # noqa: PLC0415

    return create_batch_app(settings, failed=failed)


ROUTES = {"all": all_routes, "chat": chat_routes, "batch": batch_routes}


@with_flags
def command(
    *,
    settings: ServerFlags,
    env_file: EnvFile = None,
    only: Annotated[str, typer.Option(help="Which routes: all, chat, or batch.")] = "all",
    upstream: Annotated[
        str | None, typer.Option(metavar="URL", help="Serve in front of the server at this address.")
    ] = None,
    reasoning: Annotated[str | None, info_of(REASONING)] = None,
    on_ray: Annotated[bool, typer.Option("--ray", help="Serve on a Ray cluster: docs/scale.md.")] = False,
    address: Annotated[
        str | None, typer.Option(help="Of the Ray cluster: host:port, auto. [default: RAY_ADDRESS, or a new one here]")
    ] = None,
    replicas: Annotated[
        str | None, typer.Option(metavar="N|MIN-MAX", help="Replicas on Ray, each with the model. [default: 1]")
    ] = None,
    cpus: Annotated[float | None, typer.Option(help="Cores that a replica on Ray reserves. [default: 1]")] = None,
    gpus: Annotated[float | None, typer.Option(help="GPUs of a replica on Ray, or a part. [default: 0]")] = None,
    ongoing: Annotated[
        float | None, typer.Option(help="Requests of a replica that autoscaling aims at. [default: 8]")
    ] = None,
) -> None:
    """Serve a model over HTTP, to any OpenAI client. Settings: docs/server.md, .env.example."""
    check_extra("server")
    if only not in ROUTES:
        raise InputError(f"--only {only}: one of {', '.join(ROUTES)}", field="only")
    core = {"ESPALIER_URL": upstream, "ESPALIER_REASONING": reasoning}
    flags = variables_of(settings) | {name: value for name, value in core.items() if value is not None}
    environment, read = read_server(flags, env_file)
    from espalier.server.admit.auth import check_bind, read_keys  # noqa: PLC0415
    from espalier.server.environment import export_for_libraries  # noqa: PLC0415

    keyring = read_keys(read)
    check_bind(read, keyring)
    asked = {"address": address, "replicas": replicas, "cpus": cpus, "gpus": gpus, "ongoing": ongoing}
    given = {name: value for name, value in asked.items() if value is not None}
    if on_ray:
        if only != "all":
            raise InputError(f"--only {only} is for servers without --ray", field="only")
        if _on_ray(environment, read, given, len(keyring)):
            leave()
        return
    if given:
        raise InputError(f"--{next(iter(given))} is for --ray", field=next(iter(given)))
    if read.database_url is not None and read.database_url.startswith("postgres"):
        check_extra("postgres")
    if read.otel:
        check_extra("otel")
    build_app(environ=environment.values).check_model(read.model_name)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(listen(read))
        export_for_libraries(environment)
        os.environ.update(flags)
        if environment.file is not None:
            os.environ["ENV_FILE"] = str(environment.file.resolve())
        if read.workers > 1:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = stack.enter_context(_metrics_folder(environment))
        _announce(environment, read, keyring, listening, only)
        caught = _run(ROUTES[only], read, listening)
    if caught:
        leave()


def _on_ray(environment: Environment, settings: ServerSettings, given: dict[str, Any], keys: int) -> list[int]:
    """Serve on a Ray cluster; returns the signals that ended it. given: what was asked of the cluster."""
    check_extra("ray")
    from espalier.server.cluster.plan import read_plan  # noqa: PLC0415

    address = given.pop("address", None)
    return serve_on_ray(environment, settings, read_plan(given), address, keys)


@contextlib.contextmanager
def _metrics_folder(environment: Environment) -> Iterator[str]:
    """The folder where workers share their metrics: the named one, emptied, or a private temporary one."""
    if named := environment.values.get("PROMETHEUS_MULTIPROC_DIR"):
        folder = Path(named)
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            for left in folder.glob("*.db"):
                left.unlink()
        except OSError as error:
            raise InputError(
                f"cannot use {named} for metrics: {error.strerror}", field="PROMETHEUS_MULTIPROC_DIR"
            ) from error
        yield named
        return
    made = tempfile.mkdtemp(prefix="espalier-metrics-")
    try:
        yield made
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _announce(
    environment: Environment, settings: ServerSettings, keyring: Keyring, listening: socket.socket, only: str
) -> None:
    if settings.uds is not None:
        where = f"the UNIX socket {settings.uds}"
        docs, playground = "/docs", "/"
    else:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host or "0.0.0.0"
        where = f"http://{host}:{listening.getsockname()[1]}{settings.root_path}"
        docs, playground = f"{where}/docs", f"{where}/"
    keys = len(keyring)
    auth = f"{keys} API key{'s' if keys != 1 else ''}" if keys else "off: anyone who reaches this address may use it"
    model = settings.model_name or environment.values.get("ESPALIER_URL") or "the demo model"
    lines = [f"Espalier {__version__} serves at {where}", f"  model    {model}"]
    lines += [f"  play     {playground}"] if only != "batch" else []
    lines += [f"  docs     {docs}", f"  auth     {auth}"]
    lines += [f"  routes   {only}"] if only != "all" else []
    lines += [f"  traces   {describe_traces(settings)}"]
    lines += [f"  workers  {settings.workers}, each with the model"] if settings.workers > 1 else []
    lines += [f"  log      of rejections: {settings.rejection_log}"] if settings.rejection_log is not None else []
    lines += [f"  settings {environment.file}"] if environment.file is not None else []
    for line in lines:
        output.note(line)


def _run(make: MakeApp, settings: ServerSettings, listening: socket.socket) -> list[int]:
    """Run until a signal; returns the signals that ended it.

    After SIGTERM or SIGINT running requests may finish, for at most DRAIN_SECONDS. A single process answers /health
    while its model is loading; of several, each listens when its model is loaded."""
    from espalier.server.observe.logs import configure  # noqa: PLC0415

    configure(settings)
    if settings.workers == 1:
        return run_one(partial(make, settings), settings, listening)
    run_workers(make, settings, listening)
    return []
