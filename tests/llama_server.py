"""A real llama-server for tests and benchmarks: the one inside the `xllamacpp` wheel, in a process of its own.

In a process of its own since its library has the same symbols as the engine's. Run as a program it is that process: it
serves until its stdin is closed, or its parent is gone.
"""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 600  # for one answer


class LlamaServer:
    """A running one. address: such as http://127.0.0.1:1234; build: of its library; pid: of its process."""

    def __init__(self, pid: int, address: str, build: str) -> None:
        self.pid, self.address, self.build = pid, address, build
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON of the reply. Raises urllib.error.HTTPError for an error of the server's."""
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{self.address}{path}", json.dumps(body).encode(), headers)
        with self._opener.open(request, timeout=SECONDS) as reply:
            return json.load(reply)

    def complete(self, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers to `/completion`, all asked at once."""
        with ThreadPoolExecutor(len(bodies)) as pool:
            return list(pool.map(lambda body: self.post("/completion", body), bodies))


@contextmanager
def llama_server(
    model: Path, *, context: int = 1024, sequences: int = 1, threads: int = 1, exact: bool = True, usual: bool = False
) -> Iterator[LlamaServer]:
    """Ready when it is yielded, and gone afterwards. context: tokens of each sequence. exact: F32 cache and no flash
    attention, so that logits are the same as in an engine that is set so; else llama-server's own defaults.
    usual: slots of their own and a cache of prompts, which are its defaults too. Raises RuntimeError where it does not
    start."""
    settings = {"model": str(model), "context": context, "sequences": sequences, "threads": threads, "exact": exact}
    settings["usual"] = usual
    process = subprocess.Popen(
        [sys.executable, __file__, json.dumps(settings)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    try:
        started = process.stdout.readline()  # written when the model is loaded and the port is open
        if not started:
            raise RuntimeError(f"llama-server did not start: exit status {process.wait()}")
        yield LlamaServer(process.pid, **json.loads(started))
    finally:
        process.kill()
        process.communicate()


def serve(settings: dict[str, Any]) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.n_parallel = settings["sequences"]
    params.n_ctx = settings["context"] * settings["sequences"]
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.ui = False
    if not settings["usual"]:
        params.kv_unified = True
        params.cache_prompt = params.warmup = False
        params.cache_ram_mib = 0
    if settings["exact"]:
        params.cache_type_k = params.cache_type_v = xllamacpp.ggml_type.GGML_TYPE_F32
        params.flash_attn_type = xllamacpp.llama_flash_attn_type.LLAMA_FLASH_ATTN_TYPE_DISABLED
    server = xllamacpp.Server(params)
    sys.stdout.write(json.dumps({"address": server.listening_address, "build": xllamacpp.get_system_info()}) + "\n")
    sys.stdout.flush()
    sys.stdin.read()
    del server


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
