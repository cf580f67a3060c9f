"""The servers that are compared, each in a process of its own that ends with this one: ours, llama-server inside the
`xllamacpp` wheel, and llama-cpp-python's own. All have the same file, threads, KV cache (f16) and context."""

from __future__ import annotations

import http.client
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

CONTEXT = 512  # positions of one sequence
START_SECONDS = 120.0
NEEDED = {
    "llama-server": ("xllamacpp",),
    "llama_cpp.server": ("llama_cpp", "fastapi", "sse_starlette", "starlette_context", "pydantic_settings"),
}


@dataclass(frozen=True, slots=True)
class Server:
    """One that listens on a port of this machine. schema: how it is told a schema, as fields of a request."""

    name: str
    port: int
    process: int
    model: str
    is_llama_cpp_python: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def body(self, schema: Mapping[str, Any] | None) -> dict[str, Any]:
        """The fields by which this server is told its model and a schema."""
        found = {"model": self.model, **self.extra}
        if schema is None:
            return found
        if self.is_llama_cpp_python:
            return {**found, "response_format": {"type": "json_object", "schema": schema}}
        return {**found, "response_format": {"type": "json_schema", "json_schema": {"name": "rows", "schema": schema}}}


def missing(name: str) -> str | None:
    """Why a server cannot be started here."""
    gone = [module for module in NEEDED.get(name, ()) if find_spec(module) is None]
    return f"not installed: {', '.join(gone)}" if gone else None


@contextmanager
def ours(model: Path, *, threads: int, **environ: str) -> Iterator[Server]:
    """`espalier serve` with its defaults, except for what all servers have in common. environ: more settings."""
    common = {} if model.is_dir() else {
        "ESPALIER_THREADS": str(threads), "ESPALIER_CONTEXT": str(CONTEXT), "ESPALIER_KV_TYPE": "f16",
    }  # fmt: skip
    usual = {"OMP_NUM_THREADS": str(threads), "STORE_TRACES": "never", "LOG_LEVEL": "WARNING"}
    port = free_port()
    command = [sys.executable, "-m", "espalier", "serve", "-m", str(model), "--port", str(port)]
    with _running(command, usual | common | environ) as process:
        _wait(process, port, "/ready")
        yield Server("ours", port, process.pid, model.name, extra={"repetition_penalty": 1.0})


@contextmanager
def llama_server(model: Path, *, slots: int, threads: int) -> Iterator[Server]:
    """As `llama-server -np SLOTS`. Prompts are cached, as they are by default and as ours are."""
    port = free_port()
    settings = {"model": str(model), "slots": slots, "threads": threads, "port": port}
    command = [sys.executable, "-m", "benchmarks.server.servers", json.dumps(settings)]
    with _running(command, {}) as process:
        _wait(process, port, "/health")
        yield Server("llama-server", port, process.pid, model.name, extra={"repeat_penalty": 1.0})


@contextmanager
def llama_cpp_python(model: Path, *, threads: int) -> Iterator[Server]:
    """`python -m llama_cpp.server`. A stream is not interrupted by the next request, which by default it is."""
    port = free_port()
    options = {
        "model": model, "port": port, "n_ctx": CONTEXT, "n_threads": threads, "n_threads_batch": threads,
        "interrupt_requests": False, "verbose": False, "flash_attn": True,
    }  # fmt: skip
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    with _running([sys.executable, "-m", "llama_cpp.server", *flags], {}) as process:
        _wait(process, port, "/v1/models")
        yield Server(
            "llama_cpp.server", port, process.pid, str(model), is_llama_cpp_python=True, extra={"repeat_penalty": 1.0}
        )


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def _running(command: list[str], environ: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    clean = {name: value for name, value in os.environ.items() if not name.startswith("ESPALIER_")}
    process = subprocess.Popen(
        command, env=clean | environ, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def _wait(process: subprocess.Popen[bytes], port: int, path: str) -> None:
    """Until it answers. Raises RuntimeError where it ends, or takes too long."""
    end = time.monotonic() + START_SECONDS
    while time.monotonic() < end:
        line = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
        with suppress(OSError, http.client.HTTPException):
            line.request("GET", path)
            if line.getresponse().status == http.HTTPStatus.OK:
                return
        line.close()
        with suppress(subprocess.TimeoutExpired):
            raise RuntimeError(f"{process.args!r} ended with {process.wait(0.2)}")
    raise RuntimeError(f"{process.args!r} does not answer")


def serve(settings: dict[str, Any]) -> None:
    """Be a llama-server, until stdin is closed."""
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.hostnames = ["127.0.0.1"]
    params.port = settings["port"]
    params.n_parallel = settings["slots"]
    params.n_ctx = CONTEXT * settings["slots"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.ui = False
    server = xllamacpp.Server(params)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
