"""`python -m benchmarks.hostile`."""

import sys

from benchmarks.hostile.report import main

main(sys.argv[1:])
