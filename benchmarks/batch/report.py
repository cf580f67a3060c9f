"""Batch jobs: the three measures, one after the other."""

from benchmarks.batch import memory, overhead, queue


def main() -> None:
    for one in (overhead, queue, memory):
        one.main()


if __name__ == "__main__":
    main()
