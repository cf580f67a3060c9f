"""Runs parts of the page several times, each in a process of its own, when the machine is idle enough."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.figures import load
from benchmarks.page.plan import Part, selected

ROOT = Path(__file__).resolve().parents[2]
MOST_USED = 0.3
"""Cores in use: above that, a repetition waits. Not the load, which our own last repetition has raised for a minute."""
LOOK_SECONDS = 1.0
MOST_BY_OTHERS = 0.15
"""Cores that others used while a repetition ran: above that it is done again, and marked if that was in vain."""
TRIES = 3
IDLE_SECONDS = 120.0
"""How long a repetition waits for an idle machine."""


def wait_until_idle(seconds: float) -> bool:
    """Whether the machine was idle enough before the time had passed."""
    end = time.monotonic() + seconds
    while cores_in_use() > MOST_USED:
        if time.monotonic() > end:
            return False
    return True


def cores_in_use() -> float:
    """Over the next second; where that cannot be known, how many processes wanted a core over the last minute."""
    before = busy_seconds()
    threading.Event().wait(LOOK_SECONDS)
    after = busy_seconds()
    return load() if before is None or after is None else (after - before) / LOOK_SECONDS


def run_once(
    module: str, argv: Sequence[str], *, source: Path | None = None, idle_seconds: float = 0.0
) -> dict[str, Any]:
    """The report of one run of a benchmark (`figures.save`). source: the folder of the Espalier that is measured, if
    not the installed one. Raises RuntimeError where the benchmark fails."""
    is_idle = wait_until_idle(idle_seconds)
    machine = Watch()
    environment = _environment(source)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "figures.json"
        command = [sys.executable, "-m", "benchmarks.page.noting", str(file), module, *argv]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        if done.returncode or not file.exists():
            raise RuntimeError(f"{module} ended with {done.returncode}:\n{done.stdout[-4_000:]}")
        others = machine.by_others()
        is_quiet = is_idle if others is None else others <= MOST_BY_OTHERS
        return {**json.loads(file.read_text(encoding="utf-8")), "others": others or 0.0, "was_idle": is_quiet}


def warm(source: Path | None = None) -> None:
    """Have all kernels compiled: until they are, what stands in for those of samplers would be measured. source: as
    for `run_once`. Raises CalledProcessError."""
    command = [sys.executable, "-m", "espalier", "doctor", "--warm"]
    subprocess.run(command, cwd=ROOT, env=_environment(source), stdout=subprocess.DEVNULL, check=True)


def _environment(source: Path | None) -> dict[str, str]:
    paths = filter(None, (str(source or ""), os.getenv("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


class Watch:
    """How much of the machine others use from now on. Linux; elsewhere nothing is known."""

    def __init__(self) -> None:
        self._began, self._all, self._ours = time.monotonic(), busy_seconds(), _of_children()

    def by_others(self) -> float | None:
        """Cores, on average; None where it cannot be known."""
        busy = busy_seconds()
        if busy is None or self._all is None:
            return None
        ours = _of_children() - self._ours
        return max(0.0, (busy - self._all - ours) / max(0.1, time.monotonic() - self._began))


def busy_seconds() -> float | None:
    """CPU time that all processes of the machine have used so far."""
    file = Path("/proc/stat")
    if not file.exists():
        return None
    user, nice, system, _, _, irq, soft, *_ = map(int, file.read_text(encoding="ascii").split("\n")[0].split()[1:])
    return (user + nice + system + irq + soft) / os.sysconf("SC_CLK_TCK")


def _of_children() -> float:
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    return spent.ru_utime + spent.ru_stime


def run_quietly(module: str, argv: Sequence[str], *, idle_seconds: float, tries: int = TRIES) -> dict[str, Any]:
    """As `run_once`, done again while others use the machine; the quietest of the tries."""
    reports: list[dict[str, Any]] = []
    for _ in range(tries):
        reports.append(run_once(module, argv, idle_seconds=idle_seconds))
        if reports[-1]["was_idle"]:
            break
    return min(reports, key=lambda report: (not report["was_idle"], report["others"]))


def measure(
    *,
    is_quick: bool,
    repetitions: int,
    names: Sequence[str] = (),
    tell: Callable[[str], None] = print,
    idle_seconds: float = IDLE_SECONDS,
) -> Iterator[dict[str, Any]]:
    """All parts, or those with these titles. Gives the data of the page after each: for each part so far how it was
    run, and by row and engine the values of each repetition; and the machine."""
    warm()
    parts: list[dict[str, Any]] = []
    for part, argv in selected(names, is_quick=is_quick):
        reports = []
        for number in range(repetitions if part.is_repeated else 1):
            began = time.monotonic()
            if part.is_repeated:
                tries = 1 if is_quick else TRIES
                reports.append(run_quietly(part.module, argv, idle_seconds=idle_seconds, tries=tries))
            else:  # what does not depend on time needs no quiet
                reports.append(run_once(part.module, argv) | {"was_idle": True, "others": 0.0})
            used = f"others used {reports[-1]['others']:.1f} cores"
            tell(f"{part.title}, {number + 1}: {time.monotonic() - began:.0f} s, {used}")
        machine = {name: reports[-1][name] for name in ("date", "cpu", "cores", "python", "versions")}
        run = {"title": part.title, "command": _command(part, argv), "is_quick": is_quick, "repetitions": len(reports)}
        parts.append({**run, **joined(reports)})
        yield {**machine, "parts": [*parts]}


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
        "others": max(report.get("others", 0.0) for report in reports),
        "was_idle": all(report["was_idle"] for report in reports),
    }
