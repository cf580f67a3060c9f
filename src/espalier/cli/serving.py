"""Listening, running an application, and ending on a signal: what the commands that serve have in common. It knows no
application."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from espalier.errors import EspalierError, InputError
from espalier.server.settings import ServerSettings

if TYPE_CHECKING:
    from fastapi import FastAPI

    from espalier.server.http.loading import Failed

BACKLOG = 2048


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
    the application, given what it calls if loading fails. Raises EspalierError if it did not start."""
    import uvicorn  # noqa: PLC0415

    failures: list[Exception] = []

    def failed(error: Exception) -> None:
        failures.append(error)
        server.should_exit = True

    server = uvicorn.Server(uvicorn.Config(make(failed), **uvicorn_options(settings)))
    caught: list[int] = []
    try:
        with signals_taken(caught):
            server.run(sockets=[listening])
    except SystemExit as leaving:  # what it raises when the application could not start, having logged why
        failures.append(EspalierError(f"uvicorn has ended with {leaving.code}"))
    if failures:
        raise EspalierError("the server did not start", hint="the log says why") from failures[0]
    return caught
