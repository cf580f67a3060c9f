"""llama-server itself, as xllamacpp has it, in a process of its own: two llama.cpp libraries never share one.

`Server` starts it and asks it over HTTP; run as a module, this is the child: it serves until its stdin is closed.
"""

from __future__ import annotations

import http.client
import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit


class Server:
    """A llama-server with as many slots as sequences. context: tokens of each; threads: of its forward pass."""

    def __init__(self, model: Path, *, sequences: int, context: int, threads: int) -> None:
        settings = {"model": str(model), "sequences": sequences, "context": context, "threads": threads}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.llamacpp.server", json.dumps(settings)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        started = self._process.stdout.readline()
        if not started:
            raise RuntimeError(f"llama-server did not start: exit status {self._process.wait()}")
        found = json.loads(started)
        self.build: str = found["build"]
        self._address = urlsplit(found["address"]).netloc
        self._pool = ThreadPoolExecutor(sequences)

    def complete(self, bodies: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The answers to `/completion`, all asked at once."""
        return list(self._pool.map(self._ask, bodies))

    def _ask(self, body: dict[str, Any]) -> dict[str, Any]:
        # A connection that is kept would be closed by the server while the other side has its turn.
        with closing(http.client.HTTPConnection(self._address)) as line:
            line.request("POST", "/completion", json.dumps(body), {"Content-Type": "application/json"})
            answer = line.getresponse()
            found = json.loads(answer.read())
        if answer.status != 200:
            raise RuntimeError(f"llama-server: {found}")
        return dict(found)

    def __enter__(self) -> Server:
        return self

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._pool.shutdown()
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def serve(settings: dict[str, Any]) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = settings["model"]
    params.n_parallel = settings["sequences"]
    params.n_ctx = settings["context"] * settings["sequences"]
    params.kv_unified = True
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings["threads"]
    params.cache_prompt = False
    params.cache_ram_mib = 0
    params.ui = False
    server = xllamacpp.Server(params)
    print(json.dumps({"address": server.listening_address, "build": xllamacpp.get_system_info()}), flush=True)
    sys.stdin.read()
    del server


if __name__ == "__main__":
    serve(json.loads(sys.argv[1]))
