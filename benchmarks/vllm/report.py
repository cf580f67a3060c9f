"""Tokens a second and the time to a first token inside vLLM: our processor beside vLLM's own backends, the same schemas
in the same processes.

    python -m benchmarks vllm

It runs in the environment that `scripts/setup_vllm.sh` makes. One process for each of vLLM's backends, since an engine
has one; in each, no constraint, ours and the backend take turns. A row is the median over the rounds; the ratio is that
of the rounds' own ratios to the backend, by CPU time, so that what else the machine does meets both sides.
"""

from __future__ import annotations

import json
import subprocess
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.harness import print_table
from espalier.wiring import demo_model
from tests.vllm.environment import ROOT, SETTINGS, variables

BACKENDS = ("xgrammar", "guidance", "outlines")
SIZES = (1, 8, 32, 128)
ROUNDS = 3


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


def table(backend: str, rows: list[dict[str, Any]]) -> list[list[str]]:
    def key(row: dict[str, Any]) -> tuple[bool, int]:
        return row["state"] == "warm", row["size"]

    lines = []
    for (is_warm, size), group in groupby(sorted(rows, key=key), key=key):
        of = {way: [row for row in found if row["way"] == way] for found in [list(group)] for way in WAYS}
        ratio = median(ours["cpu"] / theirs["cpu"] for ours, theirs in zip(of["ours"], of["theirs"], strict=True))
        lines.append(
            [
                backend,
                "warm" if is_warm else "cold",
                str(size),
                *(f"{median(row['cpu'] for row in of[way]):,.0f}" for way in WAYS),
                f"{ratio:.2f}",
                *(f"{median(row['first'] for row in of[way]):,.0f}" for way in WAYS),
                *(f"{sum(row['valid'] for row in of[way])}/{size * len(of[way])}" for way in WAYS[1:]),
            ]
        )
    return lines


WAYS = ("free", "ours", "theirs")


def main() -> None:
    python = python_there()
    if python is None:
        print("vLLM is not installed: scripts/setup_vllm.sh")
        return
    lines = [line for backend in BACKENDS for line in table(backend, rows_of(python, backend))]
    head = ("backend", "caches", "at once", *(f"{way}: tokens/s of CPU" for way in WAYS), "ours/theirs")
    print_table((*head, *(f"{way}: ms to a token" for way in WAYS), "ours valid", "theirs valid"), lines)


if __name__ == "__main__":
    main()
