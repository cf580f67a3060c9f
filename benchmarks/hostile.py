"""`python -m benchmarks.hostile [--model PATH] [--keys]` runs the attacks of `tests/hostile/` beside honest clients."""

import sys

from tests.hostile.report import main

if __name__ == "__main__":
    main(sys.argv[1:])
