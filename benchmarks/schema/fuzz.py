"""`python -m benchmarks.schema.fuzz --seconds N --seed S`: exit 1 if a schema accepts a text that is invalid."""

from __future__ import annotations

import argparse
import sys

from benchmarks.schema.fuzzing.run import run


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.schema.fuzz", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args(arguments)
    totals = run(given.seed, seconds=given.seconds)
    print(f"seed {given.seed}, {given.seconds:g} s")
    for name, count in sorted(totals.counts.items()):
        print(f"  {name:24}{count:>8}")
    print("keywords of schemas that compiled:")
    print("  " + ", ".join(f"{name} {count}" for name, count in totals.keywords.most_common()))
    for finding in totals.findings[:50]:
        print(finding)
    print(f"{len(totals.findings)} wrong")
    return 1 if totals.findings else 0


if __name__ == "__main__":
    sys.exit(main())
