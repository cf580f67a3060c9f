"""A real llama-server for tests: the one inside the `xllamacpp` wheel, in a process of its own, over HTTP.

In a process of its own since its library has the same symbols as the engine's. Run as a program it is that process.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

TRIES = 240
PAUSE = 0.25  # seconds that the server may take to say that it is there, per try


class LlamaServer:
    """A running one. `post` gives the JSON of its reply."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}"

    def get(self, path: str) -> Any:
        return self._send(urllib.request.Request(f"{self.url}{path}"))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """Raises urllib.error.HTTPError for an error of the server's."""
        data = json.dumps(body).encode()
        return self._send(urllib.request.Request(f"{self.url}{path}", data, {"Content-Type": "application/json"}))

    def _send(self, request: urllib.request.Request) -> Any:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(request, timeout=120) as reply:
            return json.load(reply)


@contextmanager
def llama_server(model: Path, *, context: int = 1024, threads: int = 1) -> Iterator[LlamaServer]:
    """Ready when it is yielded, and gone afterwards. F32 cache and no flash attention, so that logits are the same as
    in an engine that is set so. Skips by name where xllamacpp is missing."""
    if find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp (a real llama-server) is not installed")
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port = found.getsockname()[1]
    command = [sys.executable, __file__, str(model), str(port), str(context), str(threads)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    server = LlamaServer(port)
    try:
        for _ in range(TRIES):
            if _is_ready(server):
                break
            try:
                code = process.wait(PAUSE)
            except subprocess.TimeoutExpired:
                continue
            raise RuntimeError(f"llama-server ended with {code}")
        else:
            raise RuntimeError("llama-server did not come up")
        yield server
    finally:
        process.kill()
        process.communicate()


def _is_ready(server: LlamaServer) -> bool:
    try:
        return bool(server.get("/health") == {"status": "ok"})
    except (urllib.error.URLError, OSError, ValueError):
        return False  # not there, or still loading


def main(model: str, port: str, context: str, threads: str) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = model
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.n_ctx = int(context)
    params.n_parallel = 1
    params.warmup = False
    params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
    params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = int(threads)
    server = xllamacpp.Server(params)
    sys.stdin.buffer.read()  # until the parent closes it, or is gone
    del server


if __name__ == "__main__":
    main(*sys.argv[1:])
