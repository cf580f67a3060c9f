"""Capture, store and reconstruct, one table after the other."""

from benchmarks.activations import capture, store


def main() -> None:
    capture.main()
    store.main()
