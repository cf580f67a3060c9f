"""Trace rejections in front of a llama-server, with the options of the rejection tracer's own proxy.

python scripts/proxy_server.py [--llama-url URL] [--proxy-port PORT] [--output-dir DIR] [--rejection-log FILE]
    [--no-save]

`espalier proxy` is the same and takes more: see docs/proxy.md.
"""

from __future__ import annotations

import sys
from pathlib import Path

from espalier.cli.main import main_code

LOG = Path("traces/rejection_log.json")
"""Where the tracer's proxy looks for a log if none is named. It is used if it grows with the requests; beside a stock
server, a log that was left there does not."""


def main(arguments: list[str]) -> int:
    names = {one.partition("=")[0] for one in arguments}
    if not names & {"--rejection-log", "--mode", "--help", "-h"}:
        arguments = [*arguments, "--rejection-log", str(LOG)]
    return main_code(["proxy", *arguments])


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
