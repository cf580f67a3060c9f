"""`espalier mcp`: the verbs as tools of the Model Context Protocol, on standard input and output or over HTTP.

Keys, limits, database and log are those of `espalier serve`, from the same variables. On standard input and output
there is one client, who started the process, so no key is asked for. The libraries are imported when the command runs.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from espalier.cli import output
from espalier.cli.flags.groups import with_flags
from espalier.cli.flags.model import EngineFlags, Model
from espalier.cli.flags.server import EnvFile, read_server
from espalier.cli.serving import leave, listen, run_one
from espalier.engines.options import EngineOptions
from espalier.errors import InputError
from espalier.optional import check_extra
from espalier.version import __version__
from espalier.wiring import App, build_app

if TYPE_CHECKING:
    from espalier.server.environment import Environment
    from espalier.server.settings import ServerSettings

HTTP_ONLY = ("host", "port", "api_key_file")


@with_flags
def command(
    *,
    http: Annotated[bool, typer.Option("--http", help="Over streamable HTTP, at /mcp.")] = False,
    host: Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]")] = None,
    port: Annotated[
        int | None, typer.Option(help="Port; 0 takes a free one. [default: 8010]", min=0, max=65535)
    ] = None,
    api_key_file: Annotated[str | None, typer.Option(help="TOML file with API keys and their limits.")] = None,
    log_level: Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR.")] = None,
    env_file: EnvFile = None,
    model: Model = None,
    engine: EngineFlags,
) -> None:
    """Offer generation, explanation and tests to agents as MCP tools. See docs/mcp.md."""
    for extra in ("mcp", "server"):
        check_extra(extra)
    given = {"HOST": host, "PORT": port, "API_KEYS_FILE": api_key_file, "LOG_LEVEL": log_level, "MODEL_NAME": model}
    if not http:
        for name, value in zip(HTTP_ONLY, (host, port, api_key_file), strict=True):
            if value is not None:
                raise InputError(f"--{name.replace('_', '-')} is for --http", field=name)
    flags = {name: str(value) for name, value in given.items() if value is not None}
    environment, settings = read_server(flags, env_file)
    from espalier.server.environment import export_for_libraries  # noqa: PLC0415

    export_for_libraries(environment)
    app = _app(environment, EngineOptions(**engine))
    if http:
        app.check_model(settings.model_name)  # over stdio each call says it: agents hide what a server writes
        _serve_http(settings, app)
    else:
        _serve_stdio(settings, app)


def _app(environment: Environment, options: EngineOptions) -> App:
    """With the engine options of the flags over those of the environment."""
    app = build_app(environ=environment.values)
    return App(replace(app.settings, options=options.over(app.settings.options)))


def _serve_stdio(settings: ServerSettings, app: App) -> None:
    import anyio  # noqa: PLC0415

    from espalier.server.mcp.stdio import serve_stdio  # noqa: PLC0415
    from espalier.server.process.opening import Parts, open_process  # noqa: PLC0415

    async def serve() -> None:
        await serve_stdio(open_process(settings, Parts(app=app, takes_batches=False), ()))

    anyio.run(serve)
    logging.shutdown()
    leave()


def _serve_http(settings: ServerSettings, app: App) -> None:
    from espalier.server.admit.auth import check_bind, read_keys  # noqa: PLC0415
    from espalier.server.mcp.http import create_mcp_app  # noqa: PLC0415
    from espalier.server.observe.logs import configure  # noqa: PLC0415
    from espalier.server.process.opening import Parts  # noqa: PLC0415

    keyring = read_keys(settings)
    check_bind(settings, keyring)
    configure(settings)
    with listen(settings) as listening:
        where = f"http://{settings.host or '0.0.0.0'}:{listening.getsockname()[1]}/mcp"
        keys = len(keyring)
        auth = f"{keys} API key{'s' if keys != 1 else ''}" if keys else "off: only this machine may use it"
        for line in (
            f"Espalier {__version__} serves MCP at {where}",
            f"  model  {settings.model_name or 'the demo model'}",
            f"  auth   {auth}",
        ):
            output.note(line)
        parts = Parts(app=app, takes_batches=False)
        caught = run_one(partial(create_mcp_app, settings, parts), settings, listening)
    if caught:
        leave()
