"""Megabytes per second into a store beside the disk's own rate, and `espalier reconstruct` at 100,000 rows.

Writing is timed by the clock, since the disk decides; the disk's own rate is that of one file of the same bytes with an
fsync for each request. Peak memory is of a process of its own.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from espalier.activations.reconstruct.run import reconstruct
from espalier.activations.store.base import ActivationStore
from espalier.activations.store.record import CapturedVectors, RequestRecord
from tests.foreign_stores import logged, write_pair

REQUESTS, POSITIONS, LAYERS, HIDDEN = 24, 128, 16, 1024
ROWS = 100_000


def requests() -> list[CapturedVectors]:
    rng = np.random.default_rng(0)
    vectors = {("residual", n): rng.normal(size=(POSITIONS, HIDDEN)).astype(np.float16) for n in range(LAYERS)}
    return [
        CapturedVectors(
            RequestRecord(
                prompt=f"prompt {number}",
                response="r",
                model="m",
                input_length=1,
                timestamp=float(number),
                positions=tuple(range(POSITIONS)),
                sites=("residual",),
                layers=tuple(range(LAYERS)),
                hidden=HIDDEN,
            ),
            vectors,
        )
        for number in range(REQUESTS)
    ]


def writing(folder: Path) -> tuple[float, float, float]:
    """MB/s of the disk, of the store, and of the store's CPU time."""
    given = requests()
    size = POSITIONS * LAYERS * HIDDEN * 2
    block = b"".join(values.tobytes() for values in given[0].vectors.values())
    began = time.perf_counter()
    with (folder / "plain").open("wb") as file:
        for _ in given:
            file.write(block)
            file.flush()
            os.fsync(file.fileno())
    plain = time.perf_counter() - began
    with ActivationStore(folder / "store", write=True) as store:
        began, cpu = time.perf_counter(), time.process_time()
        for one in given:
            store.put(one)
        taken, cpu = time.perf_counter() - began, time.process_time() - cpu
    total = size * REQUESTS / 1e6
    return total / plain, total / taken, total / cpu


def fill(folder: Path, rows: int) -> None:
    """Questions, and a store of HalluLens' layout with the answer of each."""
    write_pair(folder / "logged", [logged(f"question {n}", f"answer {n}") for n in range(rows)], map_size=1 << 30)
    with (folder / "qa.jsonl").open("w", encoding="ascii") as file:
        file.writelines(json.dumps({"prompt": f"question {n}", "answer": "a"}) + "\n" for n in range(rows))


def rebuild(folder: Path) -> None:
    """In a process of its own: prints rows, seconds of CPU time (its reader's included), peak memory in MB."""
    report = reconstruct(folder / "qa.jsonl", folder / "logged", folder / "out.jsonl")
    spent = os.times()
    # Not ru_maxrss: that of a parent is inherited.
    peak = next(line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM"))
    print(
        report.written,
        spent.user + spent.system + spent.children_user + spent.children_system,
        int(peak.split()[1]) / 1024,
    )


def main() -> None:
    with tempfile.TemporaryDirectory(dir=".") as name:
        folder = Path(name)
        disk, store, cpu = writing(folder)
        print(f"writing: the disk {disk:.0f} MB/s, the store {store:.0f} MB/s ({cpu:.0f} MB for a second of CPU time)")
        for rows in (ROWS // 10, ROWS):
            part = folder / str(rows)
            part.mkdir()
            fill(part, rows)
            done = subprocess.run(
                [sys.executable, "-m", "benchmarks.activations.store", str(part)],
                check=True,
                capture_output=True,
                text=True,
            )
            written, taken, peak = map(float, done.stdout.split())
            print(f"reconstruct: {written:,.0f} rows, {written / taken:,.0f} rows/s of CPU time, peak {peak:.0f} MB")


if __name__ == "__main__":
    rebuild(Path(sys.argv[1])) if len(sys.argv) > 1 else main()
