"""A proxy on a real port, and a server behind it whose every byte a test decides."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2
import uvicorn

from espalier.server.http.protocol import GuardedProtocol
from espalier.server.proxy.app import create_proxy_app
from espalier.server.proxy.keeping import MemoryStore
from espalier.server.proxy.settings import ProxySettings
from espalier.server.settings import ServerSettings, settings_of
from espalier.store.trace_filter import TraceFilter
from tests.server_process import ServerProcess

OK = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request as the server behind the proxy saw it. gone: set when its connection has ended."""

    line: str
    headers: list[tuple[str, str]]
    body: bytes
    gone: threading.Event = field(default_factory=threading.Event)

    def header(self, name: str) -> str | None:
        return next((value for one, value in self.headers if one.lower() == name), None)


Answers = Callable[[Asked, asyncio.StreamWriter], Awaitable[None]]


class Behind:
    """The server behind the proxy. answer: writes a whole reply, head included; the connection is closed after it."""

    def __init__(self, answer: Answers) -> None:
        self.asked: list[Asked] = []
        self.arrived = threading.Semaphore(0)
        self._answer = answer
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = await _read(reader)
            self.asked.append(asked)
            self.arrived.release()
            watch = asyncio.ensure_future(reader.read())
            answering = asyncio.ensure_future(self._answer(asked, writer))
            await asyncio.wait({watch, answering}, return_when=asyncio.FIRST_COMPLETED)
            answering.cancel()
            watch.cancel()
            asked.gone.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


async def _read(reader: asyncio.StreamReader) -> Asked:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    headers = [(name, value.strip()) for name, _, value in (one.partition(":") for one in head[1:] if one)]
    given = {name.lower(): value for name, value in headers}
    if "content-length" in given:
        body = await reader.readexactly(int(given["content-length"]))
    elif given.get("transfer-encoding") == "chunked":
        body = b""
        while size := int((await reader.readline()).strip(), 16):
            body += await reader.readexactly(size)
            await reader.readline()
        await reader.readline()
    else:
        body = b""
    return Asked(line=head[0], headers=headers, body=body)


@contextlib.contextmanager
def behind(answer: Answers) -> Iterator[Behind]:
    """The server, on a free port of this machine."""
    found = Behind(answer)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    starting = asyncio.start_server(found.serve, "127.0.0.1", 0, limit=1 << 20)
    server = asyncio.run_coroutine_threadsafe(starting, loop).result(timeout=30)
    found.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield found
    finally:
        asyncio.run_coroutine_threadsafe(_stop(server), loop).result(timeout=30)
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


async def _stop(server: asyncio.Server) -> None:
    server.close()
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await asyncio.sleep(0)


def proxy_settings(url: str, **values: Any) -> ProxySettings:
    return ProxySettings(llama_url=url, **{"mode": "off", "self_test": False, **values})


def server_settings(**values: str) -> ServerSettings:
    return settings_of({name.upper(): value for name, value in values.items()})


@contextlib.contextmanager
def proxied(proxy: ProxySettings, *, settings: ServerSettings | None = None, **parts: Any) -> Iterator[str]:
    """The address of a proxy, with traces in memory."""
    app = create_proxy_app(settings or server_settings(), proxy, **{"is_kept": False, **parts})
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(128)
        config = uvicorn.Config(
            app, log_config=None, access_log=False, timeout_graceful_shutdown=2, http=GuardedProtocol, date_header=False
        )
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()


@contextlib.contextmanager
def kept_traces(proxy: ProxySettings) -> Iterator[tuple[str, Callable[[], list[dict[str, Any]]]]]:
    """The address of a proxy, and a function that ends it, so that all its traces are stored, and returns them, the
    first output of the first request first, each with its row as `row`."""
    store = MemoryStore(100)
    with contextlib.ExitStack() as stack:
        url = stack.enter_context(proxied(proxy, store=store))

        def read() -> list[dict[str, Any]]:
            stack.close()
            rows = store.traces(TraceFilter(), limit=100)
            return [{**(store.trace(row["id"], caller=None) or {}), "row": row} for row in reversed(rows)]

        yield url, read
    store.close()


def files_of(folder: Path) -> list[Path]:
    return sorted(folder.glob("combined_*.json"))


def address_of(proxy: ServerProcess) -> str:
    """Where `espalier proxy` listens, once it says so and answers."""

    def answers() -> bool:
        if (found := re.search(r"proxy at (http://\S+)", proxy.text)) is None:
            return False
        proxy.url = found[1]
        with contextlib.suppress(httpx2.ConnectError):
            httpx2.get(proxy.url + "/traces", timeout=60)
            return True
        return False

    proxy.until(answers, "the proxy never answered")
    return proxy.url
