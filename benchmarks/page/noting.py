"""`python -m benchmarks.page.noting FILE MODULE [ARGUMENT]...`: runs a benchmark and writes what it noted."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

from benchmarks import figures


def main() -> None:
    before = figures.load()
    file, module = Path(sys.argv[1]), sys.argv[2]
    sys.argv[:] = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
    figures.save(file, load_before=before)


if __name__ == "__main__":
    main()
