"""A server on a loopback port that says what a test tells it to say, byte for byte: replies cut short, nothing at all.

It records what it was asked, and whether the client hung up.
"""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, TypeAlias


@dataclass(frozen=True)
class Asked:
    """One request. body: parsed, None without one."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


@dataclass
class ScriptedServer:
    """address: such as http://127.0.0.1:1234. asked: every request so far. left: set once a client hung up before it
    had its whole answer."""

    address: str
    asked: list[Asked] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)


class Hang:
    """In an answer: wait until the client hangs up."""


Answer: TypeAlias = Callable[[Asked], Sequence[bytes | Hang]]


def reply(data: Any, status: str = "200 OK", **headers: str) -> bytes:
    """A whole reply. data: bytes as they are, or a value for JSON."""
    body = data if isinstance(data, bytes) else json.dumps(data).encode()
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Content-Type: application/json"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def event(data: Any) -> bytes:
    """One server-sent event. data: a text as it is, or a value for JSON."""
    return f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n".encode()


@contextmanager
def scripted_server(answer: Answer) -> Iterator[ScriptedServer]:
    """Runs until the block ends."""
    listening = socket.create_server(("127.0.0.1", 0))
    server = ScriptedServer(f"http://127.0.0.1:{listening.getsockname()[1]}")
    threads: list[threading.Thread] = []
    open_ones: list[socket.socket] = []

    def accept() -> None:
        while True:
            try:
                client, _ = listening.accept()
            except OSError:  # closed: the test is over
                return
            open_ones.append(client)
            one = threading.Thread(target=_serve, args=(client, answer, server), daemon=True)
            threads.append(one)
            one.start()

    main = threading.Thread(target=accept, daemon=True)
    main.start()
    try:
        yield server
    finally:
        _shut(listening)
        main.join()
        for client in open_ones:
            _shut(client)
        for one in threads:
            one.join()


def _shut(sock: socket.socket) -> None:
    with suppress(OSError):  # not connected, or closed already
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()


def _serve(client: socket.socket, answer: Answer, server: ScriptedServer) -> None:
    try:
        with client, client.makefile("rb") as file:
            method, path, _ = file.readline().decode().split()
            headers = {}
            while line := file.readline().strip():
                name, _, value = line.decode().partition(":")
                headers[name.lower()] = value.strip()
            body = file.read(int(headers.get("content-length", 0)))
            asked = Asked(method, path, headers, json.loads(body) if body else None)
            server.asked.append(asked)
            for piece in answer(asked):
                if isinstance(piece, Hang):
                    if not client.recv(1):
                        server.left.set()
                else:
                    client.sendall(piece)
    except (OSError, ValueError):  # the client left, or spoke no HTTP
        server.left.set()
