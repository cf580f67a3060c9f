"""The programs of llama.cpp that `scripts/build_llama_tools.sh` builds, for tests that skip by name without them."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import pytest

from espalier.errors import Unavailable, UpstreamError
from espalier.upstream.link import ServerLink
from espalier.upstream.llama_server.client import LlamaServer
from tests.ports import free_port

SCRIPT = Path(__file__).parents[1] / "scripts" / "build_llama_tools.sh"


@cache
def built() -> Path:
    """The folder of the built programs."""
    return Path(subprocess.run([SCRIPT, "--where"], check=True, capture_output=True, text=True).stdout.strip())


def tool(name: str) -> str:
    """The path of a built program. Skips the module where it is not built."""
    path = built() / name
    if not path.is_file():
        pytest.skip(f"{name} is not built: scripts/build_llama_tools.sh", allow_module_level=True)
    return str(path)


def with_whole_stdout(run: Callable[[], subprocess.CompletedProcess[bytes]]) -> subprocess.CompletedProcess[bytes]:
    """What a run of llama-completion gives; again where the end of its stdout was lost (llama.cpp issue 22142)."""
    ran = run()
    for _ in range(8):
        if ran.returncode != 0 or ran.stdout.endswith(b"\n\n"):
            break
        ran = run()
    return ran


@contextmanager
def llama_server_program(model: Path, *more: str) -> Iterator[str]:
    """The address of the built `llama-server` program, serving a model on a free port until the block ends.
    more: further arguments."""
    port = free_port()
    arguments = ["-m", str(model), "--host", "127.0.0.1", "--port", str(port), "-c", "2048", "-np", "2", "-t", "1"]
    process = subprocess.Popen(
        [tool("llama-server"), *arguments, "--no-warmup", *more], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    address = f"http://127.0.0.1:{port}"
    try:
        waiting = threading.Event()  # never set
        while True:
            try:
                LlamaServer(ServerLink(address)).health()
                break
            except (Unavailable, UpstreamError):
                assert process.poll() is None, "llama-server did not start"
                waiting.wait(0.1)
        yield address
    finally:
        process.kill()
        process.wait()
