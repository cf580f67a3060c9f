"""Attacks on what runs beside the server, each on a process of its own while the victims go on: the proxy over a server
that sends without end, MCP sessions, and a batch of a Parquet file that is gigabytes of rows."""

from __future__ import annotations

import contextlib
import re
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2

from tests.hostile.sockets import Behaviour, Shot
from tests.server_process import ServerProcess, clean_environment, resident_bytes, start

OURS = [sys.executable, "-m", "espalier"]
ADDRESS = re.compile(r" at (http://127\.0\.0\.1:\d+)")
MOST_MEMORY = 1_400_000_000
"""Bytes of a proxy or a batch at most: 512 MiB that it may hold of replies, and what it is without them."""
ENOUGH = 50_000_000
"""Bytes of a stream after which a client leaves."""
HEALTHY = b'HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n\r\n{"status":"ok"}'
STREAM = {"prompt": "a", "n_predict": 5, "stream": True, "grammar": 'root ::= "a"'}
ONE, TWO = ({"authorization": f"Bearer {name}-key-of-a-test"} for name in ("first", "second"))
TWO_KEYS = "".join(f'[[key]]\nname = "{name}"\nkey = "{name}-key-of-a-test"\n' for name in ("first", "second"))
INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}


class Broken(Exception):
    """The attack got through, as the message says."""


def endless_upstream(*, clients: int) -> Behaviour:
    """So many clients of a proxy ask a server that sends one line without end. Returns the status of a plain request to
    the proxy after it; raises Broken if a stream ends without an error event, or if memory grows too far."""

    def behave(shot: Shot) -> int | None:
        del shot
        with tempfile.TemporaryDirectory() as name, _endless_server() as upstream:
            flags = ("--llama-url", upstream, "--port", "0", "--no-self-test", "--no-save")
            with _beside(*OURS, "proxy", *flags, folder=Path(name)) as proxy:
                with ThreadPoolExecutor(clients) as pool:
                    are_told = [*pool.map(_ask, [proxy.url] * clients)]
                if not all(are_told):
                    raise Broken("a stream ended without an error event")
                memory = resident_bytes(proxy.pid)
                if memory > MOST_MEMORY:
                    raise Broken(f"the proxy has {memory} bytes")
                return httpx2.get(f"{proxy.url}/health", timeout=60).status_code

    return behave


def _ask(url: str) -> bool:
    """Whether a stream ends with an error event, or goes on for so long that the client leaves."""
    size, last = 0, b""
    with httpx2.stream("POST", f"{url}/completion", json=STREAM, timeout=120) as reply:
        for piece in reply.iter_raw():
            size, last = size + len(piece), (last + piece)[-300:]
            if size > ENOUGH:
                return True
    return b'"error"' in last


@contextlib.contextmanager
def _endless_server() -> Iterator[str]:
    """A server that answers each POST with a line that never ends, until the other side closes."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def send(connection: socket.socket) -> None:
            with connection, contextlib.suppress(OSError):
                if connection.recv(65_536).startswith(b"GET "):
                    connection.sendall(HEALTHY)
                    return
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: ")
                while True:
                    connection.sendall(b"a" * 1_000_000)

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=send, args=(connection,), daemon=True).start()

        threading.Thread(target=accept, daemon=True).start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def mcp_sessions(count: int) -> Behaviour:
    """One key opens as many sessions of the MCP server as it may. Returns the status of another key's `initialize`."""

    def behave(shot: Shot) -> int | None:
        with tempfile.TemporaryDirectory() as name:
            keys = Path(name) / "keys.toml"
            keys.write_text(TWO_KEYS, encoding="utf-8")
            flags = ("--http", "--port", "0", "-m", "fake", "--api-key-file", str(keys))
            accept = {"accept": "application/json, text/event-stream"}
            with _beside(*OURS, "mcp", *flags, folder=Path(name)) as mcp, httpx2.Client(timeout=60) as client:
                statuses = set()
                for _ in range(count):
                    reply = client.post(f"{mcp.url}/mcp", json=INITIALIZE, headers=accept | ONE)
                    statuses.add(reply.status_code)
                if statuses != {200, 429}:
                    raise Broken(f"{count} sessions of one key: {statuses}")
                return client.post(f"{mcp.url}/mcp", json=INITIALIZE, headers=accept | TWO).status_code

    return behave


def parquet_bomb(rows: int, size: int) -> Behaviour:
    """`espalier batch run` of a file that names one text in every row. Returns its exit code, 2 where it is refused;
    raises Broken if it wrote gigabytes."""

    def behave(shot: Shot) -> int | None:
        import pyarrow as pa  # the extra [parquet]
        from pyarrow import parquet

        del shot
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            column = pa.DictionaryArray.from_arrays(pa.array([0] * rows, pa.int32()), pa.array(["a" * size]))
            parquet.write_table(pa.table({"text": column}), folder / "bomb.parquet", compression="zstd")
            files = ("-i", str(folder / "bomb.parquet"), "-o", str(folder / "out.jsonl"))
            command = [*OURS, "batch", "run", *files, "-m", "fake", "--template", "{text}"]
            done = subprocess.run(
                command, cwd=folder, env=clean_environment(), capture_output=True, text=True, timeout=300, check=False
            )
            written = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
            if written > MOST_MEMORY:
                raise Broken(f"{written} bytes were written: {done.stderr[-300:]}")
            return done.returncode

    return behave


@contextlib.contextmanager
def _beside(*command: str, folder: Path) -> Iterator[ServerProcess]:
    """A server of ours in a process of its own, once it says where it is."""
    server = start(cwd=folder, command=[*command], env={"DATABASE_URL": f"sqlite:///{folder / 'espalier.db'}"})
    try:
        server.until(lambda: _is_ready(server), "it was never ready")
        yield server
    finally:
        server.kill()


def _is_ready(server: ServerProcess) -> bool:
    if (stated := ADDRESS.search(server.text)) is None:
        return False
    server.url = stated[1]
    with contextlib.suppress(httpx2.HTTPError):
        return httpx2.get(f"{server.url}/ready", timeout=5).status_code != 503
    return False
