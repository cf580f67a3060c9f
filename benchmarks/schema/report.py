"""`python -m benchmarks schemas`: runs every measure of JSON Schema enforcement in turn."""

from __future__ import annotations

from benchmarks import cold
from benchmarks.schema import gbnf, real, suite


def main() -> None:
    for name, part in (("test suite", suite), ("from the wild", real), ("as GBNF", gbnf)):
        print(f"\n= {name} =", flush=True)
        part.main()
    print("\n= time =", flush=True)
    cold.main(["schemas", "--width", *map(str, cold.WIDTHS)])


if __name__ == "__main__":
    main()
