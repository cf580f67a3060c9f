"""Measures 600 schemas from the wild with their instances: how many compile, and whether they are enforced.

Instances are written and retried as in the test suite (`suite.py`). Unlike there, `format` is asserted: some instances
are invalid only because of it.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from benchmarks.schema.cases import Missing, real
from benchmarks.schema.suite import show


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("file", type=Path, nargs="?", help="a .jsonl.gz, or ESPALIER_REAL_SCHEMAS")
    arguments = parser.parse_args([] if argv is None else argv)
    try:
        show(real(arguments.file), kinds=True, format="assert")
    except Missing as missing:
        print(f"left out: {missing}")


if __name__ == "__main__":
    main(sys.argv[1:])
