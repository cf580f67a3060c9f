"""`python -m benchmarks schemas`: runs every measure of JSON Schema enforcement in turn."""

from __future__ import annotations

from benchmarks.schema import gbnf, real, suite, timing


def main() -> None:
    for name, part in (("test suite", suite), ("from the wild", real), ("time", timing), ("as GBNF", gbnf)):
        print(f"\n= {name} =", flush=True)
        part.main()


if __name__ == "__main__":
    main()
