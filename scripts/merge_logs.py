"""Merge a response and a rejection log, with the arguments of the rejection tracer's own script.

python scripts/merge_logs.py debug_response.json rejection_log.json [combined_output.json] [--task 7] [--most-recent]

It takes the options of `espalier trace merge`, which it calls. As the original did, it exits with 1 for every error and
overwrites its own earlier output; any other file only with --force.
"""

from __future__ import annotations

import sys

from espalier.cli.main import main_code

USAGE = "usage: merge_logs.py <debug_response.json> <rejection_log.json> [output.json] [--task N ...]"


def main(arguments: list[str]) -> int:
    if len(arguments) < 2 and "--help" not in arguments:
        print(USAGE, file=sys.stderr)
        return 1
    return min(1, main_code(["trace", "merge", "--overwrite-merged", *arguments]))


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
