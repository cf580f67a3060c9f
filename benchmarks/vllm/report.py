"""Tokens a second and the time to a first token inside vLLM: our processor beside vLLM's own backends, the same schemas
in the same processes.

    python -m benchmarks vllm

It runs in the environment that `scripts/setup_vllm.sh` makes. One process for each of vLLM's backends, since an engine
has one; in each, no constraint, ours and the backend take turns. A row is the median over the rounds; the ratio is that
of the rounds' own ratios to the backend, by CPU time, so that what else the machine does meets both sides.
"""

from __future__ import annotations

import json
import os
import subprocess
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import Table, ratio
from espalier.wiring import demo_model
from tests.vllm.environment import ROOT, SETTINGS, variables

BACKENDS = ("xgrammar", "guidance", "outlines")
SIZES = (1, 8, 32, 128)
ROUNDS = int(os.environ.get("ROUNDS", "3"))
WAYS = ("free", "ours", "theirs")


def python_there() -> Path | None:
    """Of vLLM's environment, None where it is not installed."""
    script = ROOT / "scripts" / "setup_vllm.sh"
    folder = Path(subprocess.run([script, "--where"], check=True, capture_output=True, text=True).stdout.strip())
    return folder / "venv" / "bin" / "python" if (folder / "complete").is_file() else None


def rows_of(python: Path, backend: str) -> list[dict[str, Any]]:
    """The turns of one process. Raises CalledProcessError with what it said."""
    job = {"model": str(demo_model()), "backend": backend, "sizes": SIZES, "rounds": ROUNDS}
    more = {**SETTINGS, "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_LOGGING_LEVEL": "ERROR"}
    command = [str(python), "-m", "benchmarks.vllm.inside", json.dumps(job)]
    ended = subprocess.run(command, env=variables(more), cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
    found: list[dict[str, Any]] = json.loads(ended.stdout.splitlines()[-1])
    return found


def show(table: Table, backend: str, rows: list[dict[str, Any]]) -> None:
    for (is_cold, size), group in groupby(sorted(rows, key=_key), key=_key):
        met = list(group)
        of = {way: [row for row in met if row["way"] == way] for way in WAYS}
        most = size * len(of["ours"])
        table.row(
            backend,
            "cold" if is_cold else "warm",
            float(size),
            *(median(row["cpu"] for row in of[way]) for way in WAYS),
            ratio((row["cpu"] for row in of["ours"]), (row["cpu"] for row in of["theirs"])),
            *(median(row["first"] for row in of[way]) for way in WAYS),
            *(f"{sum(row['valid'] for row in of[way])}/{most}" for way in WAYS[1:]),
        )


def _key(row: dict[str, Any]) -> tuple[bool, int]:
    return row["state"] == "cold", row["size"]


def main() -> None:
    python = python_there()
    if python is None:
        print("vLLM is not installed: scripts/setup_vllm.sh")
        return
    print("tokens a second of CPU, their ratio, ms to a first token, texts that are valid")
    table = Table(
        {
            "backend": "<10",
            "": ">5",
            "at once": ">8.0f",
            **dict.fromkeys(WAYS, ">9.0f"),
            "ratio": ">7.2f",
            **{f"{way}, ms": ">12.0f" for way in WAYS},
            **dict.fromkeys((f"{way} valid" for way in WAYS[1:]), ">14"),
        }
    )
    for backend in BACKENDS:
        show(table, backend, rows_of(python, backend))


if __name__ == "__main__":
    main()
