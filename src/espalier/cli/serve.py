"""`espalier serve` and `espalier config show`: what to serve and where, checked before anything is loaded.

Flags are handed on as environment, so that workers, which are processes of their own, read the same. Nothing of the
server is imported before a command runs.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import shutil
import signal
import socket
import stat
import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from espalier.cli import output
from espalier.errors import EspalierError, InputError, MissingDependency
from espalier.version import __version__
from espalier.wiring import build_app

if TYPE_CHECKING:
    from fastapi import FastAPI

    from espalier.server.admit.auth import Keyring
    from espalier.server.environment import Environment
    from espalier.server.settings import ServerSettings

TARGETS = {"all": "espalier.server.main:app", "chat": "espalier.server.app_chat:app"}
MODULES = ("fastapi", "uvicorn", "httptools", "pydantic_settings", "prometheus_client", "sqlalchemy", "alembic")
BACKLOG = 2048
CORE: dict[str, Callable[[Any], object]] = {
    "ESPALIER_MODEL": lambda s: s.model,
    "ESPALIER_DEVICE": lambda s: s.options.device,
    "ESPALIER_DTYPE": lambda s: s.options.dtype,
    "ESPALIER_TOOL_FORMAT": lambda s: s.options.tool_format,
    "ESPALIER_CONTEXT": lambda s: s.options.context,
    "ESPALIER_SEQUENCES": lambda s: s.options.sequences,
    "ESPALIER_KV_SIZE": lambda s: s.options.kv_size,
    "ESPALIER_BATCH_SIZE": lambda s: s.options.batch_size,
    "ESPALIER_GPU_LAYERS": lambda s: s.options.gpu_layers,
    "ESPALIER_THREADS": lambda s: s.options.threads,
    "ESPALIER_KV_TYPE": lambda s: s.options.kv_type,
    "ESPALIER_FLASH_ATTENTION": lambda s: s.options.flash_attention,
    "ESPALIER_LORA": lambda s: tuple(f"{one.path}:{one.scale:g}" for one in s.options.lora),
    "ESPALIER_CACHE_DIR": lambda s: s.cache_dir,
    "ESPALIER_WORDLIST_DIR": lambda s: s.wordlist_dir,
    "ESPALIER_CONFIG_DIR": lambda s: s.config_dir,
}
"""Settings that are not the server's own, and where they are in an App's settings."""

Model = Annotated[str | None, typer.Option("-m", "--model", help="Model: a path or a name; the demo model if none.")]
Host = Annotated[str | None, typer.Option(help="Address to listen on. [default: 127.0.0.1]")]
Port = Annotated[int | None, typer.Option(min=0, max=65535, help="Port; 0 takes a free one. [default: 8010]")]
Workers = Annotated[int | None, typer.Option(min=1, help="Processes, each with the model. [default: 1]")]
EnvFile = Annotated[str | None, typer.Option(help="File with settings. [default: .env, where there is one]")]
RootPath = Annotated[str | None, typer.Option(help="Path that a proxy in front takes off.")]
KeyFile = Annotated[str | None, typer.Option("--api-key-file", help="TOML file with API keys and their limits.")]
Uds = Annotated[str | None, typer.Option(help="UNIX socket to listen on, in place of host and port.")]
RejectionLog = Annotated[
    str | None, typer.Option("--rejection-log", help="File for refused tokens; the strategy is rejection.")
]
LogLevel = Annotated[str | None, typer.Option(help="DEBUG, INFO, WARNING or ERROR. [default: INFO]")]

app = typer.Typer(no_args_is_help=True, help="Settings: what they are, and where they come from.")


def command(
    model: Model = None,
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
    env_file: EnvFile = None,
    root_path: RootPath = None,
    api_key_file: KeyFile = None,
    uds: Uds = None,
    log_level: LogLevel = None,
    rejection_log: RejectionLog = None,
    only: Annotated[str, typer.Option(help="Which routes: all, or chat.")] = "all",
) -> None:
    """Serve a model over HTTP, to any OpenAI client. Settings: docs/server.md, .env.example."""
    _need_server()
    if only not in TARGETS:
        raise InputError(f"--only {only}: one of {', '.join(TARGETS)}", field="only")
    flags = _flags(model, host, port, workers, root_path, api_key_file, uds, log_level, rejection_log)
    found, settings = _read(flags, env_file)
    from espalier.server.admit.auth import check_bind, read_keys  # noqa: PLC0415
    from espalier.server.environment import export_for_libraries  # noqa: PLC0415

    keyring = read_keys(settings)
    check_bind(settings, keyring)
    with contextlib.ExitStack() as stack:
        listening = stack.enter_context(_listen(settings))
        export_for_libraries(found)
        os.environ.update(flags)
        if found.file is not None:
            os.environ["ENV_FILE"] = str(found.file.resolve())
        if settings.workers > 1:
            os.environ["PROMETHEUS_MULTIPROC_DIR"] = stack.enter_context(_metrics_folder(found))
        _announce(found, settings, keyring, listening, only)
        _run(TARGETS[only], settings, listening)


@app.command("show")
def show(
    model: Model = None,
    host: Host = None,
    port: Port = None,
    workers: Workers = None,
    env_file: EnvFile = None,
    root_path: RootPath = None,
    api_key_file: KeyFile = None,
    uds: Uds = None,
    log_level: LogLevel = None,
    rejection_log: RejectionLog = None,
    as_json: Annotated[bool, typer.Option("--json", help="As JSON.")] = False,
) -> None:
    """Print every setting, its value (secrets are masked) and where it comes from."""
    _need_server()
    flags = _flags(model, host, port, workers, root_path, api_key_file, uds, log_level, rejection_log)
    rows = list(_rows(*_read(flags, env_file)))
    if as_json:
        output.data_json({name: {"value": value, "origin": origin} for name, value, origin in rows})
        return
    width = max(len(name) for name, _, _ in rows)
    shown = [(name, _text(value), origin) for name, value, origin in rows]
    middle = min(max(len(value) for _, value, _ in shown), 48)
    output.data("\n".join(f"{name:<{width}}  {value:<{middle}}  {origin}" for name, value, origin in shown))


def _flags(
    model: str | None,
    host: str | None,
    port: int | None,
    workers: int | None,
    root_path: str | None,
    api_key_file: str | None,
    uds: str | None,
    log_level: str | None,
    rejection_log: str | None,
) -> dict[str, str]:
    """Those that were given, as the variables that say the same."""
    given = {
        "MODEL_NAME": model,
        "HOST": host,
        "PORT": port,
        "WORKERS": workers,
        "ROOT_PATH": root_path,
        "API_KEYS_FILE": api_key_file,
        "UDS": uds,
        "LOG_LEVEL": log_level,
        "REJECTION_LOG": rejection_log,
    }
    return {name: str(value) for name, value in given.items() if value is not None}


def _need_server() -> None:
    """Raises MissingDependency with the pip line."""
    import importlib.util  # noqa: PLC0415

    for module in MODULES:
        if importlib.util.find_spec(module) is None:
            raise MissingDependency(module.replace("_", "-"), extra="server")


def _read(flags: Mapping[str, str], env_file: str | None) -> tuple[Environment, ServerSettings]:
    from espalier.server.environment import read_environment, unread_names  # noqa: PLC0415
    from espalier.server.settings import settings_of, variables  # noqa: PLC0415

    found = read_environment(env_file=env_file, flags=flags)
    settings = settings_of(found.values)
    build_app(environ=found.values)  # raises for an `ESPALIER_…` that nobody knows
    for note in found.notes:
        output.note(note)
    known = {name for names in variables().values() for name in names} | {"ENV_FILE"}
    for name in unread_names(found, known):
        output.note(f"{found.file}: {name} is not a setting, and is not read")
    return found, settings


def _rows(found: Environment, settings: ServerSettings) -> Iterator[tuple[str, Any, str]]:
    from espalier.server.settings import SECRETS, variables  # noqa: PLC0415

    for field, names in variables().items():
        value = getattr(settings, field)
        given = next((name for name in names if found.values.get(name)), None)
        origin = "default" if given is None else found.origins[given]
        as_name = f" ({given})" if given not in (None, names[0]) else ""
        yield names[0], "***" if field in SECRETS and value else value, f"{origin}{as_name}"
    core = build_app(environ=found.values).settings
    for name, read in CORE.items():
        if name != "ESPALIER_MODEL":  # MODEL_NAME, above
            yield name, read(core), found.origins[name] if found.values.get(name) else "default"


def _text(value: Any) -> str:
    if isinstance(value, tuple):
        return ",".join(map(str, value)) or "-"
    return "-" if value is None or value == "" else str(value).lower() if isinstance(value, bool) else str(value)


@contextlib.contextmanager
def _listen(settings: ServerSettings) -> Iterator[socket.socket]:
    """A socket that is bound, not yet listening. Raises InputError."""
    if settings.uds is not None:
        with _unix_socket(Path(settings.uds)) as bound:
            yield bound
        return
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    with socket.socket(family) as bound:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            bound.bind((settings.host.strip("[]"), settings.port))
        except (OSError, OverflowError) as error:
            raise _cannot_listen(
                f"{settings.host}:{settings.port}", error, "PORT", "--port 0 takes a free one"
            ) from error
        bound.set_inheritable(True)
        yield bound


@contextlib.contextmanager
def _unix_socket(path: Path) -> Iterator[socket.socket]:
    """One that was left behind by a server that is no more is taken away. Owner and group may connect."""
    with socket.socket(socket.AF_UNIX) as bound:
        try:
            if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _answers(path):
                path.unlink()
            bound.bind(str(path))
            path.chmod(0o660)
        except OSError as error:
            raise _cannot_listen(str(path), error, "UDS", None) from error
        bound.set_inheritable(True)
        try:
            yield bound
        finally:
            path.unlink(missing_ok=True)


def _answers(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX) as asking:
        try:
            asking.connect(str(path))
        except ConnectionRefusedError:
            return False
    return True


def _cannot_listen(where: str, error: Exception, field: str, hint: str | None) -> InputError:
    if getattr(error, "errno", None) == errno.EADDRINUSE:
        return InputError(f"{where} is in use already", hint=hint, field=field)
    return InputError(f"cannot listen on {where}: {getattr(error, 'strerror', None) or error}", field=field)


@contextlib.contextmanager
def _metrics_folder(found: Environment) -> Iterator[str]:
    """Where workers put their figures together: a private folder of its own, or the one that was named, emptied."""
    if named := found.values.get("PROMETHEUS_MULTIPROC_DIR"):
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
    found: Environment, settings: ServerSettings, keyring: Keyring, listening: socket.socket, only: str
) -> None:
    if settings.uds is not None:
        where = f"the UNIX socket {settings.uds}"
        docs = "/docs"
    else:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host or "0.0.0.0"
        where = f"http://{host}:{listening.getsockname()[1]}{settings.root_path}"
        docs = f"{where}/docs"
    keys = len(keyring)
    auth = f"{keys} API key{'s' if keys != 1 else ''}" if keys else "off: whoever reaches this address is let in"
    lines = [f"Espalier {__version__} serves at {where}", f"  model    {settings.model_name or 'the demo model'}"]
    lines += [f"  docs     {docs}", f"  auth     {auth}"]
    lines += [f"  routes   {only}"] if only != "all" else []
    lines += [f"  workers  {settings.workers}, each with the model"] if settings.workers > 1 else []
    lines += [f"  log      of rejections: {settings.rejection_log}"] if settings.rejection_log is not None else []
    lines += [f"  settings {found.file}"] if found.file is not None else []
    for line in lines:
        output.note(line)


def _run(target: str, settings: ServerSettings, listening: socket.socket) -> None:
    """Until a signal. SIGTERM and SIGINT let what runs end, for DRAIN_SECONDS at most. One process answers while its
    model is being loaded; of several, each listens once it is there."""
    import uvicorn  # noqa: PLC0415
    from uvicorn.config import STARTUP_FAILURE  # noqa: PLC0415
    from uvicorn.supervisors import Multiprocess  # noqa: PLC0415

    from espalier.server.http.protocol import GuardedProtocol  # noqa: PLC0415
    from espalier.server.observe.logs import configure  # noqa: PLC0415

    configure(settings)
    failures: list[Exception] = []

    def failed(error: Exception) -> None:
        failures.append(error)
        server.should_exit = True

    config = uvicorn.Config(
        _application(target, settings, failed) if settings.workers == 1 else target,
        workers=settings.workers,
        log_config=None,
        access_log=False,
        server_header=False,
        backlog=BACKLOG,
        proxy_headers=True,
        forwarded_allow_ips=list(settings.forwarded_allow_ips),
        timeout_graceful_shutdown=math.ceil(settings.drain_seconds),
        limit_concurrency=settings.max_connections,
        http=GuardedProtocol,
        lifespan="on",
    )
    if settings.workers > 1:
        supervisor = Multiprocess(config, sockets=[listening])
        supervisor.run()
        if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
            raise EspalierError("the server did not start", hint="the log says why")
        return
    server = uvicorn.Server(config)
    try:
        with _signals_taken():
            server.run(sockets=[listening])
    except SystemExit as leaving:  # what it raises when the application could not start, having logged why
        failures.append(EspalierError(f"uvicorn has ended with {leaving.code}"))
    if failures:
        raise EspalierError("the server did not start", hint="the log says why") from failures[0]


def _application(target: str, settings: ServerSettings, failed: Callable[[Exception], None]) -> FastAPI:
    from espalier.server.apps import create_app, create_chat_app  # noqa: PLC0415

    make = create_chat_app if target == TARGETS["chat"] else create_app
    return make(settings, failed=failed)


@contextlib.contextmanager
def _signals_taken() -> Iterator[None]:
    """A signal that has ended the server is not raised once more, as uvicorn does when all is done: that it was told
    to end, and did, is no failure."""
    before = {one: signal.signal(one, lambda *_: None) for one in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
