"""How attackers behave on a connection: they wait for the reply, leave, drip, do not read, or lock the store."""

from __future__ import annotations

import contextlib
import http.client
import itertools
import json
import socket
import sqlite3
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

TIMEOUT = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Shot:
    """One request of an attacker. over: set when the attack ends, and everybody leaves."""

    host: str
    port: int
    database: str
    method: str
    path: str
    body: bytes | None
    headers: Mapping[str, str]
    over: threading.Event


Behaviour: TypeAlias = Callable[[Shot], int | None]
"""Returns the status of the reply, None where there was none."""


def plain(shot: Shot) -> int | None:
    """Send and wait for the reply."""
    with _connected(shot) as connection:
        return _answered(connection, shot, shot.path)


def new_schemas(fields: int = 4) -> Behaviour:
    """Send the body with a schema that nobody has sent before, and wait for the reply."""

    def behave(shot: Shot) -> int | None:
        with _NUMBERS:
            number = next(_NUMBERED)
        names = [f"of{number}x{index}" for index in range(fields)]
        schema = {"type": "object", "properties": {name: {"type": "string", "maxLength": 3} for name in names}}
        body = json.loads(shot.body or b"{}") | {"json_schema": schema | {"required": names}}
        return plain(replace(shot, body=json.dumps(body).encode()))

    return behave


_NUMBERED, _NUMBERS = itertools.count(), threading.Lock()


def leaves(after: float) -> Behaviour:
    """Send, and close the connection after so many seconds."""

    def behave(shot: Shot) -> int | None:
        with _connected(shot) as connection:
            connection.request(shot.method, shot.path, shot.body, dict(shot.headers))
            shot.over.wait(after)
        return None

    return behave


def slow_reader(seconds: float) -> Behaviour:
    """Send, and read nothing for so many seconds."""
    return leaves(seconds)


def raw(sent: bytes, *, drips: bytes = b"", waits: float = 5.0, closes: bool = False) -> Behaviour:
    """Send bytes, then `drips` ten times a second, for at most `waits` seconds or until the server closes."""

    def behave(shot: Shot) -> int | None:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((shot.host, shot.port), timeout=TIMEOUT) as connection,
        ):
            connection.sendall(sent)
            if closes:
                connection.shutdown(socket.SHUT_WR)
            ends, found = time.monotonic() + waits, b""
            connection.settimeout(0.1)
            while time.monotonic() < ends and not shot.over.is_set():
                try:
                    piece = connection.recv(65_536)
                    found = (found + piece)[:20]
                    if not piece:
                        break
                except TimeoutError:
                    if drips:
                        connection.sendall(drips)
            if found[9:12].isdigit():
                return int(found[9:12])
        return None

    return behave


def idlers(count: int, waits: float) -> Behaviour:
    """Open so many connections at once, send nothing, and hold those that the server leaves open. Returns how many it
    does."""

    def behave(shot: Shot) -> int | None:
        with contextlib.ExitStack() as stack:
            held = []
            for _ in range(count):
                with contextlib.suppress(OSError):
                    connection = socket.create_connection((shot.host, shot.port), timeout=TIMEOUT)
                    held.append(stack.enter_context(connection))
            shot.over.wait(waits)
            return sum(_is_open(connection) for connection in held)

    return behave


def _is_open(connection: socket.socket) -> bool:
    connection.settimeout(0)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def reads_own_traces(suffix: str, readers: int) -> Behaviour:
    """Make a trace of a thousand steps, and read it many times at once."""

    def behave(shot: Shot) -> int | None:
        body = {"prompt": "a", "max_tokens": 900, "ignore_eos": True, "logprobs": 5, "espalier": {"trace": "steps"}}
        with _connected(shot) as connection:
            connection.request("POST", "/v1/completions", json.dumps(body), dict(shot.headers))
            reply = json.loads(connection.getresponse().read())
        trace = reply["choices"][0].get("trace_id") or reply["espalier"]["outputs"][0]["trace_id"]

        def read() -> None:
            with contextlib.suppress(OSError, http.client.HTTPException), _connected(shot) as reading:
                _answered(reading, shot, f"/traces/{trace}{suffix}", "GET")

        threads = [threading.Thread(target=read, daemon=True) for _ in range(readers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(TIMEOUT)
        return 200

    return behave


def locked_store(seconds: float) -> Behaviour:
    """Send while somebody else holds the lock of the SQLite store."""

    def behave(shot: Shot) -> int | None:
        with contextlib.suppress(sqlite3.OperationalError):
            holder = sqlite3.connect(shot.database, timeout=0.01, isolation_level=None)
            try:
                holder.execute("BEGIN EXCLUSIVE")  # the first one gets it
                threading.Timer(0.3, lambda: None).start()
                status = plain_within(shot, seconds)
                holder.execute("ROLLBACK")
                return status
            finally:
                holder.close()
        return plain(shot)

    return behave


def plain_within(shot: Shot, seconds: float) -> int | None:
    with contextlib.suppress(TimeoutError), _connected(shot, seconds) as connection:
        return _answered(connection, shot, shot.path)
    return None


@contextlib.contextmanager
def _connected(shot: Shot, timeout: float = TIMEOUT) -> Any:
    connection = http.client.HTTPConnection(shot.host, shot.port, timeout=timeout)
    watching = threading.Event()

    def leave() -> None:
        while not watching.is_set() and not shot.over.wait(0.05):
            pass
        if not watching.is_set() and connection.sock is not None:
            with contextlib.suppress(OSError):
                connection.sock.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=leave, daemon=True).start()
    try:
        yield connection
    finally:
        watching.set()
        connection.close()


def _answered(connection: http.client.HTTPConnection, shot: Shot, path: str, method: str | None = None) -> int | None:
    is_read = method == "GET"
    connection.request(method or shot.method, path, None if is_read else shot.body, dict(shot.headers))
    reply = connection.getresponse()
    while reply.read(1_000_000):
        pass
    return reply.status
