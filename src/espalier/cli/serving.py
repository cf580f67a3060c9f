"""Listening, and ending on a signal: what `espalier serve` and `espalier proxy` have in common. It serves nothing."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import signal
import socket
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

from espalier.errors import InputError
from espalier.server.settings import ServerSettings

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
    taken = [found for name in ("SIGTERM", "SIGINT", "SIGHUP") if (found := getattr(signal, name, None)) is not None]
    before = {one: signal.signal(one, lambda number, _: caught.append(number)) for one in taken}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)
