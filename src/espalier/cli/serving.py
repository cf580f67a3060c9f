"""Listening, running an application, and ending on a signal: what the commands that serve have in common. It knows no
application."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import signal
import socket
import stat
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from espalier.errors import EspalierError, InputError
from espalier.server.settings import ServerSettings

if TYPE_CHECKING:
    from fastapi import FastAPI
    from uvicorn import Server

    from espalier.server.http.loading import Failed

BACKLOG = 2048
ERROR_FILE = "error.json"
MakeApp: TypeAlias = "Callable[[ServerSettings | None, Failed | None], FastAPI]"

KEPT_WORDS = {
    "off": "none",
    "asked": "those that requests ask for",
    "summary": "sums of every answer",
    "steps": "every step of every answer",
    "full": "every step of every answer and ten candidates",
}
TEXT_WORDS = {"yes": ", with prompts and outputs", "no": ", without texts", "hash": ", with hashes of texts"}
DAY = 86_400.0


def describe_traces(settings: ServerSettings) -> str:
    """What is kept of each answer, and for how long, for the lines that a server prints at its start."""
    level, texts = settings.trace_level, settings.trace_texts
    if level == "off":
        return KEPT_WORDS[level]
    if texts != "yes" and level in ("steps", "full"):  # a step spells its token
        return f"{KEPT_WORDS['summary']} (steps spell texts){TEXT_WORDS[texts]}; {retention_words(settings)}"
    return f"{KEPT_WORDS[level]}{TEXT_WORDS[texts]}; {retention_words(settings)}"


def retention_words(settings: ServerSettings) -> str:
    """How long traces are kept."""
    seconds, rows = settings.trace_limits
    age = [] if seconds is None else [f"{seconds / DAY:g} days" if seconds >= DAY else f"{seconds / 3600:.3g} h"]
    number = [] if rows is None else [f"at most {rows:,}"]
    return ", ".join([*age, *number]) or "forever"


@contextlib.contextmanager
def listen(settings: ServerSettings) -> Iterator[socket.socket]:
    """A bound socket that does not listen yet. Raises InputError."""
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
            raise _cannotlisten(
                f"{settings.host}:{settings.port}", error, "PORT", "--port 0 takes a free one"
            ) from error
        bound.set_inheritable(True)
        yield bound


@contextlib.contextmanager
def _unix_socket(path: Path) -> Iterator[socket.socket]:
    """A bound UNIX socket for owner and group. A socket file that a dead server left behind is replaced."""
    with socket.socket(socket.AF_UNIX) as bound:
        try:
            if path.exists() and stat.S_ISSOCK(path.stat().st_mode) and not _answers(path):
                path.unlink()
            bound.bind(str(path))
            path.chmod(0o660)
        except OSError as error:
            raise _cannotlisten(str(path), error, "UDS", None) from error
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


def _cannotlisten(where: str, error: Exception, field: str, hint: str | None) -> InputError:
    if getattr(error, "errno", None) == errno.EADDRINUSE:
        return InputError(f"{where} is in use already", hint=hint, field=field)
    return InputError(f"cannot listen on {where}: {getattr(error, 'strerror', None) or error}", field=field)


def leave() -> None:
    """End the process now. Everything is closed; what libraries do at the interpreter's exit can take seconds."""
    logging.shutdown()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(0)


@contextlib.contextmanager
def signals_taken(caught: list[int]) -> Iterator[None]:
    """Note, and do no more, the signal that uvicorn raises again after it stopped: ending on a signal is no failure.
    A terminal that closes (SIGHUP) does not end a server."""
    taken = [number for name in ("SIGTERM", "SIGINT", "SIGHUP") if (number := getattr(signal, name, None)) is not None]
    before = {number: signal.signal(number, lambda arrived, _: caught.append(arrived)) for number in taken}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def uvicorn_options(settings: ServerSettings) -> dict[str, Any]:
    """Arguments of `uvicorn.Config`."""
    from espalier.server.http.protocol import GuardedProtocol  # noqa: PLC0415
    from espalier.server.process.ending import CUT_AFTER  # noqa: PLC0415

    return {
        "log_config": None,
        "access_log": False,
        "server_header": False,
        "backlog": BACKLOG,
        "proxy_headers": True,
        "forwarded_allow_ips": list(settings.forwarded_allow_ips),
        # At the end of the drain requests are told (process/ending.py); then this cuts off who does not listen.
        "timeout_graceful_shutdown": settings.drain_seconds + CUT_AFTER,
        "limit_concurrency": settings.max_connections,
        "http": GuardedProtocol,
        "lifespan": "on",
    }


def run_one(make: Callable[[Failed], FastAPI], settings: ServerSettings, listening: socket.socket) -> list[int]:
    """Run one process until a signal; returns the signals that ended it. It answers while its model is loading. make:
    the application, given what it calls if loading fails. Raises why it did not start."""
    import uvicorn  # noqa: PLC0415

    failures: list[Exception] = []

    def failed(error: Exception) -> None:
        failures.append(error)
        server.should_exit = True

    server = uvicorn.Server(uvicorn.Config(report_start(make(failed), failures.append), **uvicorn_options(settings)))
    return run_server(server, listening, failures)


def run_server(server: Server, listening: socket.socket, failures: list[Exception]) -> list[int]:
    """Run a server of uvicorn until a signal; returns the signals that ended it. failures: what was reported while it
    started. Raises the first of them."""
    caught: list[int] = []
    try:
        with signals_taken(caught):
            server.run(sockets=[listening])
    except SystemExit as leaving:  # what it raises when the application could not start, having logged why
        failures.append(EspalierError("the server did not start", hint=f"uvicorn ended with {leaving.code}"))
    if failures:
        raise start_error(failures[0]) from failures[0]
    return caught


def start_error(error: Exception) -> EspalierError:
    """Why a server did not start, in one line: an error of ours as it is, any other one with its type."""
    if isinstance(error, EspalierError):
        return error
    return EspalierError(f"the server did not start: {type(error).__name__}: {error}", hint="the log has the traceback")


def report_start(api: FastAPI, failed: Failed, ready: Callable[[], None] = lambda: None) -> FastAPI:
    """The application, which calls `failed` with the error if it cannot start, which uvicorn only logs, and else
    `ready`."""
    inner = api.router.lifespan_context

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[Any]:
        async with contextlib.AsyncExitStack() as stack:
            try:
                state = await stack.enter_async_context(inner(app))
            except Exception as error:
                failed(error)
                raise
            ready()
            yield state

    api.router.lifespan_context = lifespan
    return api


def run_workers(make: MakeApp, settings: ServerSettings, listening: socket.socket) -> None:
    """Run several processes until a signal. make: the application of one process. Raises why the first process that
    failed did not start: the others would fail in the same way."""
    import uvicorn  # noqa: PLC0415
    from uvicorn.config import STARTUP_FAILURE  # noqa: PLC0415
    from uvicorn.supervisors import Multiprocess  # noqa: PLC0415

    class Supervisor(Multiprocess):
        """Ends all processes when one cannot start, and asks none for a sign of life before it has started: where cores
        are few, a process that imports its model's library cannot answer in time, and would be ended and started again
        for ever."""

        def keep_subprocess_alive(self) -> None:
            if report.exists():
                self.should_exit.set()
            elif all(not each.process.is_alive() or (folder / str(each.pid)).exists() for each in self.processes):
                super().keep_subprocess_alive()

    with tempfile.TemporaryDirectory(prefix="espalier-workers-") as name:
        folder = Path(name)
        report = folder / ERROR_FILE
        factory = partial(make_in_worker, make, folder)
        config = uvicorn.Config(factory, factory=True, workers=settings.workers, **uvicorn_options(settings))
        supervisor = Supervisor(config, sockets=[listening])
        supervisor.run()
        if report.exists():
            message, hint, is_input = json.loads(report.read_text(encoding="utf-8"))
            raise (InputError if is_input else EspalierError)(message, hint=hint)
        if any(process.exitcode == STARTUP_FAILURE for process in supervisor.processes):
            raise EspalierError("the server did not start", hint="the log says why")


def make_in_worker(make: MakeApp, folder: Path) -> FastAPI:
    """The application in a worker process. folder: gets an empty file named after the process when it has started, or
    the first error with which one did not."""

    def failed(error: Exception) -> None:
        why = start_error(error)
        text = json.dumps([why.message, why.hint, why.exit_code == InputError.exit_code])
        written = folder / f"{os.getpid()}.json"
        written.write_text(text, encoding="utf-8")
        with contextlib.suppress(FileExistsError):
            os.link(written, folder / ERROR_FILE)  # whole, or not there

    try:
        api = make(None, None)
    except Exception as error:
        failed(error)
        raise
    return report_start(api, failed, ready=(folder / str(os.getpid())).touch)
