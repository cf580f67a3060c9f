"""`python -m benchmarks.soak [--hours H] [--rate N]`: servers of both engines under load, and whether all is flat."""

import sys

from tests.soak.report import main

if __name__ == "__main__":
    sys.exit(main())
