"""A whole server as a process of its own, on a free port of this machine: started, asked, ended, killed."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx2

ROOT = Path(__file__).resolve().parents[1]
DEMO = ROOT / "models" / "demo"
LOOKS = 2400
"""How often a process is looked at before it is given up; each look waits for 50 ms."""
NOT_OURS = re.compile(r"[A-Z]+_PROXY|ENV_FILE|MODEL_NAME|ESPALIER_|PROMETHEUS_|[a-z]+_proxy")
FREE, TIGHT, OTHER = ({"authorization": f"Bearer sk-of-{name}-long"} for name in ("free", "tight", "other"))
KEYS = """
[[key]]
name = "free"
key = "sk-of-free-long"
may_read_metrics = true

[[key]]
name = "tight"
key = "sk-of-tight-long"
requests_per_minute = 6

[[key]]
name = "other"
key = "sk-of-other-long"
"""
"""A key file for FREE, which may do all, TIGHT and OTHER."""
PATIENT = """
from espalier.cli.main import run
from espalier.server.answering import generation
from espalier.server.process import ending
from espalier.store import writer

generation.SLOW_SECONDS = generation.ASKED_SECONDS = writer.SLOW_SECONDS = 60.0
ending.CUT_AFTER, ending.FORCED_AFTER, ending.ALARM_AFTER = 60.0, 120.0, 150.0
run()
"""
"""The command, for a server that may take long to end after its drain, and to store what its replies name: a second is
short on a busy machine."""


@dataclass
class ServerProcess:
    """url: where it answers, once it is ready. said: the lines that it wrote. headers: of each request that `get` and
    `post` send."""

    process: subprocess.Popen[str]
    said: list[str] = field(default_factory=list)
    url: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)

    @property
    def pid(self) -> int:
        return self.process.pid

    @property
    def text(self) -> str:
        """All that it wrote."""
        return "\n".join(self.said)

    def get(self, path: str, **options: Any) -> httpx2.Response:
        return httpx2.get(self.url + path, **self._options(60, options))

    def post(self, path: str, body: Any, **options: Any) -> httpx2.Response:
        return httpx2.post(self.url + path, json=body, **self._options(120, options))

    def _options(self, timeout: float, given: dict[str, Any]) -> dict[str, Any]:
        """verify: without it each call reads the certificates of this machine, 25 ms for a plain http address."""
        headers = {**self.headers, **given.pop("headers", {})}
        return {"timeout": timeout, "verify": False, "headers": headers, **given}

    def terminate(self) -> int:
        """SIGTERM, and wait. Its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """SIGKILL to it and to all of its workers."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()

    def wait(self) -> int:
        code = self.process.wait(LOOKS * 0.05)
        self._reader.join()
        return code

    def read_on(self) -> None:
        """Take what it writes, in a thread, so that it never waits for a reader."""

        def read() -> None:
            assert self.process.stderr is not None
            for line in self.process.stderr:
                self.said.append(line.rstrip("\n"))
            self.process.stderr.close()

        self._reader = threading.Thread(target=read, daemon=True)
        self._reader.start()

    def until_ready(self) -> None:
        """Raises AssertionError, with what it said, where it ends or never is."""

        def ready() -> bool:
            if (found := re.search(r"serves at (http://\S+)", self.text)) is None:
                return False
            self.url = found[1]
            with contextlib.suppress(httpx2.HTTPError):
                return httpx2.get(f"{self.url}/ready", timeout=5, verify=False).status_code == 200
            return False

        self.until(ready, "the server was never ready")

    def until(self, holds: Callable[[], object], otherwise: str) -> None:
        """Look until it holds. Raises AssertionError, with this message and what the server said, where it ends or the
        looks do."""
        for _ in range(LOOKS):
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self.process.wait(0.05)
                self._reader.join()
                raise AssertionError(f"the server ended with {code}:\n{self.text}")
            if holds():
                return
        raise AssertionError(f"{otherwise}:\n{self.text}")


def clean_environment(**more: str) -> dict[str, str]:
    """This process's own without what a server reads, so that a developer's settings change no test."""
    kept = {name: value for name, value in os.environ.items() if not NOT_OURS.match(name)}
    paths = [str(ROOT / "src"), str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    usual = {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1", "PYTHONUNBUFFERED": "1"}
    return {**kept, **usual, **more}


def start(
    *flags: str, cwd: Path, env: Mapping[str, str] | None = None, command: list[str] | None = None
) -> ServerProcess:
    """`espalier serve` with these flags, not waited for. env: settings. command: another way to start it."""
    begun = subprocess.Popen(
        [*(command or [sys.executable, "-m", "espalier", "serve"]), *flags],
        cwd=cwd,
        env=clean_environment(**(env or {})),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    server = ServerProcess(begun)
    server.read_on()
    return server


@contextlib.contextmanager
def serving(
    *flags: str, cwd: Path, env: Mapping[str, str] | None = None, command: list[str] | None = None
) -> Iterator[ServerProcess]:
    """`espalier serve` on a free port, ready, with the fake model if no flag says another; killed at the end."""
    model = () if "-m" in flags or command is not None else ("-m", "fake")
    settings = {"DATABASE_URL": f"sqlite:///{cwd / 'espalier.db'}", **(env or {})}
    server = start(*model, "--port", "0", *flags, cwd=cwd, env=settings, command=command)
    try:
        server.until_ready()
        yield server
    finally:
        server.kill()


def resident_bytes(pid: int) -> int:
    """Memory that a process holds. Linux."""
    fields = Path(f"/proc/{pid}/statm").read_text().split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE")


def raw_exchange(url: str, sent: bytes, *, closes: bool = False, timeout: float = 60) -> bytes:
    """What a server answers to these bytes until it closes; closes: our side of the connection goes first."""
    host, _, port = url.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=timeout) as connection:
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            connection.sendall(sent)
            if closes:
                connection.shutdown(socket.SHUT_WR)
        pieces = []
        with contextlib.suppress(ConnectionResetError):
            while piece := connection.recv(65_536):
                pieces.append(piece)
        return b"".join(pieces)
