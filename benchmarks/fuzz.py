"""`python -m benchmarks.fuzz KIND --seconds N --seed S`: runs a fuzzer of `tests/fuzz/`."""

import sys

from tests.fuzz.command import main

if __name__ == "__main__":
    sys.exit(main())
