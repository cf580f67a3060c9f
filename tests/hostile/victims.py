"""Two victims that stream all the time: one plain text, one JSON under a schema. Everything they notice is kept."""

from __future__ import annotations

import http.client
import json
import os
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SCHEMA = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "plain": ("/v1/completions", {"prompt": "Once upon a time", "max_tokens": 60, "ignore_eos": True, "stream": True}),
    "json": (
        "/v1/chat/completions",
        {
            "messages": [{"role": "user", "content": "Generate user info"}],
            "max_tokens": 60,
            "stream": True,
            "response_format": {"type": "json_schema", "json_schema": {"name": "user", "schema": SCHEMA}},
        },
    ),
}


@dataclass
class Noticed:
    """Seconds between events of a stream, and to the first one; what went wrong. cpu: for each gap and each wait for a
    first event, the CPU seconds that the server used meanwhile: unlike a clock, it does not count what other programs
    of the machine do."""

    gaps: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)
    firsts: list[float] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    def worst(self) -> float:
        return max([*self.gaps, *self.firsts], default=0.0)

    def p99(self) -> float:
        return percentile(self.gaps)

    def cpu_p99(self) -> float:
        return percentile(self.cpu)


def percentile(values: list[float]) -> float:
    """The 99th."""
    found = sorted(values)
    return found[int(len(found) * 0.99)] if found else 0.0


def cpu_of(pid: int) -> float:
    """CPU seconds that all threads of a process have used, without its children. Linux."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / TICKS


TICKS = os.sysconf("SC_CLK_TCK")


class Victim:
    """Streams in a thread until it is stopped. `take` returns what was noticed since the last call."""

    def __init__(self, kind: str, host: str, port: int, headers: Mapping[str, str], pid: int) -> None:
        """pid: of the server."""
        self.kind, self._host, self._port, self._headers, self._pid = kind, host, port, dict(headers), pid
        self._cpu = cpu_of(pid)
        self._lock, self._noticed, self._since = threading.Lock(), Noticed(), time.monotonic()
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def take(self) -> Noticed:
        """A stream that is silent right now counts with its silence."""
        with self._lock:
            found, self._noticed = self._noticed, Noticed()
            found.gaps.append(time.monotonic() - self._since)
            found.cpu.append(cpu_of(self._pid) - self._cpu)
            return found

    def stop(self) -> None:
        self._is_stopped.set()
        self._thread.join(120)

    def _run(self) -> None:
        while not self._is_stopped.is_set():
            try:
                self._stream()
            except (OSError, http.client.HTTPException, ValueError) as error:
                if not self._is_stopped.is_set():
                    self._fault(f"{type(error).__name__}: {error}")
                    time.sleep(0.05)

    def _stream(self) -> None:
        path, body = BODIES[self.kind]
        connection = http.client.HTTPConnection(self._host, self._port, timeout=120)
        began = time.monotonic()
        with self._lock:
            self._since, self._cpu = began, cpu_of(self._pid)
        try:
            connection.request("POST", path, json.dumps(body), self._headers)
            reply = connection.getresponse()
            if reply.status != 200:
                self._fault(f"{reply.status}: {reply.read(300)!r}")
                time.sleep(0.05)
                return
            is_first, last, tokens = True, b"", 0
            while line := reply.readline():
                if not line.startswith(b"data: "):
                    continue
                now, used = time.monotonic(), cpu_of(self._pid)
                with self._lock:
                    self._noticed.cpu.append(used - self._cpu)
                    self._cpu = used
                    (self._noticed.firsts if is_first else self._noticed.gaps).append(now - self._since)
                    self._since = now
                is_first, last, tokens = False, line, tokens + 1
                if line.startswith(b'data: {"error"'):
                    self._fault(line.decode()[:300])
            if last.strip() != b"data: [DONE]" and not last.startswith(b'data: {"error"'):
                self._fault(f"a stream was cut after {tokens} events: {last[:100]!r}")
        finally:
            connection.close()

    def _fault(self, what: str) -> None:
        with self._lock:
            self._noticed.faults.append(what)
