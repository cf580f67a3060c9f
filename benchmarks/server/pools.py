"""What the worker processes cost honest requests: the time to the first token and to the end, with and without them.

    python -m benchmarks "worker processes"

Two servers over the demo model in one process, one with worker processes for automata and verdicts and one without, are
asked by turns, with a constraint that is new each time and with one that is known. CPU is that of this process; the
median of the runs is shown. A light pattern is built in its request's thread, a heavy one in a worker process.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from statistics import median
from typing import Any
from unittest.mock import patch

import httpx2

import espalier
from espalier.confined import builds
from espalier.constraints.judging import in_this_process
from tests.server_app import make_app, served, settings
from tests.server_process import DEMO

RUNS = 15
HEAVY_RUNS = 4


def schema(number: int) -> dict[str, Any]:
    properties = {f"name{number}": {"type": "string", "maxLength": 8}, "age": {"type": "integer", "maximum": 150}}
    wanted = {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}
    return {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": wanted}}}


def light(number: int) -> dict[str, Any]:
    return {"structured_outputs": {"regex": f"[a-z]{{1,9}}x{number}"}}


def heavy(number: int) -> dict[str, Any]:
    return {"structured_outputs": {"regex": rf"(?:\w{{1,40}} ){{1,5}}x{number}"}}


CASES: dict[str, tuple[Callable[[int], dict[str, Any]], int]] = {
    "schema": (schema, RUNS),
    "light pattern": (light, RUNS),
    "heavy pattern": (heavy, HEAVY_RUNS),
}


@contextmanager
def servers() -> Iterator[dict[str, str]]:
    """The addresses of both."""
    with ExitStack() as stack:
        found = {}
        for name, options in (("with", {"judge": None}), ("without", {"judge": in_this_process})):
            engine = stack.enter_context(espalier.load(str(DEMO)))
            found[name] = stack.enter_context(served(make_app(engine=engine, config=settings(), **options)))
        yield found


def asked(url: str, fields: dict[str, Any]) -> tuple[float, float, float]:
    """Seconds to the first token and to the end, CPU seconds of this process."""
    body = {"messages": [{"role": "user", "content": "hi"}], "max_tokens": 20, "stream": True, "temperature": 0}
    began, cpu, first = time.perf_counter(), time.process_time(), 0.0
    with httpx2.stream("POST", f"{url}/v1/chat/completions", json=body | fields, timeout=120) as reply:
        for line in reply.iter_lines():
            if line.startswith("data: {"):
                delta = json.loads(line[6:])["choices"][0]["delta"]
                if delta.get("content") and not first:
                    first = time.perf_counter() - began
    return first, time.perf_counter() - began, time.process_time() - cpu


def measured(urls: dict[str, str], make: Callable[[int], dict[str, Any]], runs: int) -> Iterator[str]:
    """Rows of the table: new and known, with and without."""
    found: dict[tuple[str, str], list[tuple[float, float, float]]] = {}
    for number in range(runs + 1):
        for name, url in urls.items():
            near = builds.NEAR_SECONDS if name == "with" else 1e9
            with patch.object(builds, "NEAR_SECONDS", near):
                for state in ("new", "known"):
                    found.setdefault((state, name), []).append(asked(url, make(number)))
    for (state, name), rows in found.items():
        first, whole, cpu = (median(row[part] for row in rows[1:]) * 1e3 for part in range(3))
        yield f"{state:6} {name:8} first token {first:7.1f} ms  end {whole:7.1f} ms  CPU {cpu:7.1f} ms"


def main() -> None:
    with servers() as urls:
        for case, (make, runs) in CASES.items():
            for row in measured(urls, make, runs):
                print(f"{case:14} {row}", flush=True)


if __name__ == "__main__":
    main()
