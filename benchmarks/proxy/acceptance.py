"""`python -m benchmarks.proxy.acceptance`: holds the proxy's traces to the truth (`tests/xray_acceptance.py`)."""

import sys

from tests.xray_acceptance import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
