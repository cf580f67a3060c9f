"""Connections that ask nothing keep nobody out: the oldest idle ones make room, those with a valid key stay."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import httpx2
import pytest

pytest.importorskip("httptools")
pytest.importorskip("uvicorn")
pytest.importorskip("fastapi", reason="the extra [server] is not installed")

import uvicorn

from espalier.server.http.connections import IdleConnections
from espalier.server.http.protocol import GuardedProtocol
from tests.server_app import make_app, settings

KEY = "a-long-enough-key"


class Held:
    """A connection that notes whether it was closed."""

    def __init__(self) -> None:
        self.is_closed = False

    def make_room(self) -> None:
        self.is_closed = True


def test_the_oldest_idle_one_of_the_address_that_holds_most_makes_room() -> None:
    table = IdleConnections(6)
    one, other = [Held() for _ in range(3)], [Held() for _ in range(3)]
    for held in one:
        table.opened(held, "a")
    for held in other[:2]:
        table.opened(held, "b")
    table.works(one[0], "a")
    table.waits(one[0], "a")  # the youngest idle one now
    table.opened(other[2], "b")
    assert not any(held.is_closed for held in (*one, *other))
    table.opened(Held(), "c")
    assert [held.is_closed for held in one] == [False, True, False]
    assert not any(held.is_closed for held in other)


def test_one_address_has_half_of_the_places_for_idle_ones() -> None:
    table = IdleConnections(10)
    held = [Held() for _ in range(8)]
    for connection in held:
        table.opened(connection, "a")
    assert [connection.is_closed for connection in held] == [True] * 3 + [False] * 5


def test_those_that_work_and_those_with_a_key_stay() -> None:
    table = IdleConnections(4)
    held = [Held() for _ in range(4)]
    for number, connection in enumerate(held):
        table.opened(connection, number)
        table.works(connection, number)
    table.waits(held[0], 0, has_key=True)
    table.waits(held[1], 1)
    late = Held()
    table.opened(late, "late")
    assert [connection.is_closed for connection in held] == [False, True, False, False]
    last = Held()
    table.opened(last, "last")  # nothing else is idle: the newest unknown ones are turned away
    assert late.is_closed != last.is_closed
    assert not any(connection.is_closed for connection in (held[0], held[2], held[3]))
    for number, connection in enumerate(held):
        table.closed(connection, number)
        table.closed(connection, number)


@contextlib.contextmanager
def guarded(most: int) -> Iterator[str]:
    """A server with a key that takes so many connections."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(2048)
        app = make_app(config=settings(secret_token=KEY, max_connections=str(most)))
        config = uvicorn.Config(
            app, log_config=None, access_log=False, http=GuardedProtocol, limit_concurrency=most, timeout_keep_alive=60
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        address = f"http://127.0.0.1:{listener.getsockname()[1]}"
        try:
            httpx2.get(f"{address}/ready", timeout=60)
            yield address
        finally:
            server.should_exit = True
            thread.join()


def test_many_idle_connections_make_no_request_a_503() -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    with guarded(40) as url, contextlib.ExitStack() as stack:
        known = stack.enter_context(httpx2.Client(timeout=60))
        assert known.get(f"{url}/v1/models", headers=headers).status_code == 200
        port = int(url.rpartition(":")[2])
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(150)]
        for _ in range(5):
            assert httpx2.get(f"{url}/v1/models", headers=headers, timeout=60).status_code == 200
        assert httpx2.get(f"{url}/v1/models", timeout=60).status_code == 401
        opened = len(known._transport._pool.connections)  # type: ignore[attr-defined]
        assert known.get(f"{url}/v1/models", headers=headers).status_code == 200
        assert len(known._transport._pool.connections) == opened == 1  # type: ignore[attr-defined]
        idle[0].settimeout(60)
        with contextlib.suppress(ConnectionResetError):
            assert idle[0].recv(1) == b""  # the oldest one has made room


def test_the_loop_goes_on_where_connections_close_each_other() -> None:
    async def ask() -> None:
        table = IdleConnections(3)
        for number in range(1000):
            table.opened(Held(), number % 7)

    asyncio.run(ask())
