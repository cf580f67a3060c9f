"""`python -m benchmarks.schema.fuzz --seconds N --seed S`: the same as `python -m benchmarks.fuzz schema`."""

from __future__ import annotations

import sys

from benchmarks.fuzz import main

if __name__ == "__main__":
    sys.exit(main(["schema", *sys.argv[1:]]))
