"""Runs parts of the page several times, each in a process of its own, when the machine is idle enough."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import load
from benchmarks.page.plan import Part, selected

ROOT = Path(__file__).resolve().parents[2]
MOST_LOAD = 0.5
"""Processes that want a core, for each core: above that, a repetition waits, and is marked if it waited in vain."""
IDLE_SECONDS = 120.0
"""How long a repetition waits for an idle machine."""


def wait_until_idle(seconds: float) -> bool:
    """Whether the machine was idle enough before the time had passed."""
    waiting, end = threading.Event(), time.monotonic() + seconds
    while load() > MOST_LOAD * (os.cpu_count() or 1):
        if time.monotonic() > end:
            return False
        waiting.wait(2.0)
    return True


def run_once(
    module: str, argv: Sequence[str], *, source: Path | None = None, idle_seconds: float = 0.0
) -> dict[str, Any]:
    """The report of one run of a benchmark (`figures.save`). source: the folder of the Espalier that is measured, if
    not the installed one. Raises RuntimeError where the benchmark fails."""
    is_idle = wait_until_idle(idle_seconds)
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, (str(source or ""), os.getenv("PYTHONPATH")))),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "benchmarks.page.noting", str(file), module, *argv]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode or not file.exists():
            raise RuntimeError(f"{module} ended with {done.returncode}:\n{done.stdout[-4_000:]}")
        return {**json.loads(file.read_text(encoding="utf-8")), "was_idle": is_idle}


def measure(
    *,
    is_quick: bool,
    repetitions: int,
    names: Sequence[str] = (),
    tell: Callable[[str], None] = print,
    idle_seconds: float = IDLE_SECONDS,
) -> dict[str, Any]:
    """All parts, or those with these titles. Returns the data of the page: for each part and row, the values of each
    repetition by engine, and the machine."""
    parts, machine = [], {}
    for part, argv in selected(names, is_quick=is_quick):
        reports = []
        for number in range(repetitions if part.is_repeated else 1):
            began = time.monotonic()
            reports.append(run_once(part.module, argv, idle_seconds=idle_seconds))
            tell(f"{part.title}, {number + 1}: {time.monotonic() - began:.0f} s, load {reports[-1]['load'][1]:.1f}")
        machine = {name: reports[-1][name] for name in ("date", "cpu", "cores", "python", "versions")}
        parts.append({"title": part.title, "command": _command(part, argv), **joined(reports)})
    return {**machine, "repetitions": repetitions, "is_quick": is_quick, "parts": parts}


def _command(part: Part, argv: Sequence[str]) -> str:
    return " ".join(("python", "-m", part.module, *argv))


def joined(reports: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """The figures of several runs as rows: each with a list of values by engine. Rows that a run lacks are left out."""
    rows: dict[tuple[str, str], dict[str, Any]] = {}
    for report in reports:
        for figure in report["figures"]:
            shape = {name: figure[name] for name in ("table", "row", "unit", "more_is_better")}
            row = rows.setdefault((figure["table"], figure["row"]), {**shape, "values": {}})
            for engine, value in figure["values"].items():
                row["values"].setdefault(engine, []).append(value)
    whole = [row for row in rows.values() if all(len(values) == len(reports) for values in row["values"].values())]
    return {
        "rows": whole,
        "load": [max(report["load"][0] for report in reports), max(report["load"][1] for report in reports)],
        "was_idle": all(report["was_idle"] for report in reports),
    }
