"""The figures of benchmarks as data: what each engine took, by the row of a table, in one run on one machine.

A benchmark prints its own tables, and notes here what belongs on the page; `page/noting.py` runs one and writes what
was noted, with the machine, its load and the versions. This module measures nothing.
"""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from espalier.distribution import compiled_modules

OURS = "Espalier"
PEERS = (
    "llguidance",
    "xgrammar",
    "outlines_core",
    "lm-format-enforcer",
    "xllamacpp",
    "llama_cpp_python",
    "transformers",
    "torch",
)
"""The distributions whose versions are written, where they are installed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One row: the same measure of several engines, or of several ways of one."""

    table: str
    row: str
    unit: str
    #: By the name of an engine; ratios are those of the first to each of the others.
    values: dict[str, float]
    more_is_better: bool = False


_NOTED: list[Figure] = []


def note(table: str, row: str, unit: str, values: Mapping[str, float], *, more_is_better: bool = False) -> None:
    """Keep a row for `save`."""
    _NOTED.append(Figure(table=table, row=row, unit=unit, values=dict(values), more_is_better=more_is_better))


def load() -> float:
    """How many processes wanted a core, over the last minute."""
    return os.getloadavg()[0]


def save(path: Path, *, load_before: float) -> None:
    """Write what was noted as JSON."""
    report = {
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
        "cpu": cpu(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions(),
        "load": [load_before, load()],
        "figures": [asdict(figure) for figure in _NOTED],
    }
    path.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def versions() -> dict[str, str]:
    installed = {}
    for name in ("espalier-llm", *PEERS):
        try:
            installed[name] = version(name)
        except PackageNotFoundError:
            continue
    if compiled_modules():
        installed["espalier-llm"] += " as a wheel with compiled modules (`make wheel`)"
    return installed


def cpu() -> str:
    """The name of this machine's processor."""
    if not Path("/proc/cpuinfo").exists():
        return platform.processor() or platform.machine()
    names = [line for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines() if "model name" in line]
    return names[0].partition(":")[2].strip() if names else platform.machine()
