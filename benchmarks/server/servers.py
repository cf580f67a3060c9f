"""The servers that are compared, each in a process of its own that ends with this one: ours, llama-server inside the
`xllamacpp` wheel, and llama-cpp-python's own. All have the same file, threads, KV cache (f16) and context."""

from __future__ import annotations

import http.client
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import tests.llama_server
from tests.ports import free_port
from tests.server_process import serving

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
    common = (
        {}
        if model.is_dir()
        else {"ESPALIER_THREADS": str(threads), "ESPALIER_CONTEXT": str(CONTEXT), "ESPALIER_KV_TYPE": "f16"}
    )
    usual = {"OMP_NUM_THREADS": str(threads), "TRACE_LEVEL": "off", "LOG_LEVEL": "WARNING"}
    with (
        tempfile.TemporaryDirectory() as folder,
        serving("-m", str(model.absolute()), cwd=Path(folder), env=usual | common | environ) as server,
    ):
        yield Server("ours", port_of(server.url), server.pid, model.name, extra={"repetition_penalty": 1.0})


@contextmanager
def llama_server(model: Path, *, slots: int, threads: int) -> Iterator[Server]:
    """As `llama-server -np SLOTS`. Prompts are cached, as they are by default and as ours are."""
    with tests.llama_server.llama_server(
        model, context=CONTEXT, sequences=slots, threads=threads, exact=False, usual=True
    ) as server:
        port = port_of(server.address)
        yield Server("llama-server", port, server.pid, model.name, extra={"repeat_penalty": 1.0})


@contextmanager
def llama_cpp_python(model: Path, *, threads: int) -> Iterator[Server]:
    """`python -m llama_cpp.server`. A stream is not interrupted by the next request, which by default it is."""
    port = free_port()
    options = {
        "model": model,
        "port": port,
        "n_ctx": CONTEXT,
        "n_threads": threads,
        "n_threads_batch": threads,
        "interrupt_requests": False,
        "verbose": False,
        "flash_attn": True,
    }
    flags = [part for name, value in options.items() for part in (f"--{name}", str(value))]
    process = subprocess.Popen(
        [sys.executable, "-m", "llama_cpp.server", *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _wait(process, port, "/v1/models")
        yield Server(
            "llama_cpp.server", port, process.pid, str(model), is_llama_cpp_python=True, extra={"repeat_penalty": 1.0}
        )
    finally:
        process.kill()
        process.communicate()


def port_of(url: str) -> int:
    port = urlsplit(url).port
    assert port is not None
    return port


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
