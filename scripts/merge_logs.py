"""Merge a response and a rejection log, with the arguments of the rejection tracer's own script.

python scripts/merge_logs.py debug_response.json rejection_log.json [combined_output.json]

`espalier trace merge` does the same and takes more: see docs/traces.md.
"""

from __future__ import annotations

import sys

from espalier.errors import EspalierError
from espalier.trace.foreign.merge import merge_files, save

USAGE = "usage: merge_logs.py <debug_response.json> <rejection_log.json> [output.json]"


def main(arguments: list[str]) -> int:
    if not 2 <= len(arguments) <= 3:
        print(USAGE, file=sys.stderr)
        return 1
    target = arguments[2] if len(arguments) == 3 else "combined_output.json"
    try:
        combined = merge_files(arguments[0], arguments[1])
        save(combined, target)
    except EspalierError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    for warning in combined.warnings:
        print(f"note: {warning}", file=sys.stderr)
    summary = combined.data["summary"]
    print(
        f"{target}: {summary['total_steps']} steps, {summary['rejected_steps']} rejected "
        f"({100 * summary['rejection_rate']:.1f} %)",
        file=sys.stderr,
    )
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
