"""`make bench`: runs the benchmarks several times, and writes what they noted to `docs/benchmarks.md`, with plots."""
