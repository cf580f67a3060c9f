"""Start-up: imports, of other engines too, and `espalier --help` in fresh processes; medians of five, after one to warm
the disk."""

import statistics
import subprocess
import sys
import time
from importlib.util import find_spec

from benchmarks.figures import OURS, note

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import espalier": ["-c", "import espalier"],
    "import espalier, use JsonSchema": ["-c", "import espalier; espalier.JsonSchema"],
    "espalier --help": ["-m", "espalier", "--help"],
}

PEERS = ("llguidance", "xgrammar", "outlines_core", "lmformatenforcer")
"""Modules of other engines; xgrammar's imports torch."""


def main() -> None:
    peers = {name: ["-c", f"import {name}"] for name in PEERS if find_spec(name) is not None}
    commands = COMMANDS | peers
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    for _ in range(6):
        for name, arguments in commands.items():
            start = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - start)
    idle = statistics.median(seconds["python -c pass"][1:])
    middles = {name: statistics.median(values[1:]) for name, values in seconds.items()}
    for name in COMMANDS:
        note("Start", name, "s", {name: middles[name], "python -c pass": idle})
    used = middles["import espalier, use JsonSchema"]
    note("Import of an engine", "import", "s", {OURS: used} | {name: middles[name] for name in peers})
    for name, values in seconds.items():
        print(f"{name:<34}{statistics.median(values[1:]):7.3f} s")


if __name__ == "__main__":
    main()
