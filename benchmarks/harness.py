"""What all benchmarks share: actions that are timed, rounds in turns, medians and ratios of rounds, tables, one core.

A ratio is the median of the rounds' own ratios, so that what else the machine does meets both sides. It knows nothing
of what is measured; `tekken.py` has the large vocabulary and the peers that walk over it.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

Value = TypeVar("Value")
OFF: dict[str, Any] = {"top_k": 0, "top_p": 1.0, "min_p": 0.0, "repetition_penalty": 1.0}
"""The fields of a sampling that changes nothing."""


def timed(action: Callable[[], Value], clock: Callable[[], float] = time.process_time) -> tuple[Value, float]:
    """What an action gives, and the milliseconds that it took, of CPU time by default."""
    start = clock()
    result = action()
    return result, (clock() - start) * 1e3


def microseconds(action: Callable[[], object], count: int = 1) -> float:
    """CPU time of an action, of which `count` are done in it."""
    start = time.process_time_ns()
    action()
    return (time.process_time_ns() - start) / 1e3 / count


def in_turns(runs: Mapping[str, Callable[[int], Value]], rounds: int) -> dict[str, list[Value]]:
    """What each run gives in each round, in which all take turns, now forwards and now backwards. A run is told the
    number of its round. The first round, 0, compiles and warms, and does not count."""
    results: dict[str, list[Value]] = {name: [] for name in runs}
    for number in range(rounds + 1):
        for name, run in list(runs.items())[:: 1 if number % 2 else -1]:
            result = run(number)
            if number:
                results[name].append(result)
    return results


def ratio(ones: Iterable[float], others: Iterable[float]) -> float:
    """The median over the rounds of one measure over the other."""
    return statistics.median(one / other for one, other in zip(ones, others, strict=True))


def medians(rows: Iterable[Sequence[float]]) -> list[float]:
    """The median of each column."""
    return [statistics.median(column) for column in zip(*rows, strict=True)]


class Table:
    """Prints its head when it is made, and each row when it is known.

    columns: by name, how a cell is formatted, such as `>12.1f`; a text takes the width alone.
    """

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._formats = list(columns.values())
        self.row(*columns)

    def row(self, *cells: Any) -> None:
        """One row; more cells than columns are notes at its end."""
        formats = self._formats + [""] * (len(cells) - len(self._formats))
        shown = (
            format(cell, spec.split(".")[0].rstrip("%") if isinstance(cell, str) else spec)
            for cell, spec in zip(cells, formats, strict=False)
        )
        print("".join(shown), flush=True)


@contextmanager
def one_thread() -> Iterator[None]:
    """torch computes with one thread: matrices this small only lose by more."""
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


@contextmanager
def one_core() -> Iterator[None]:
    """This process runs on one core, with one thread of torch."""
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    try:
        with one_thread():
            yield
    finally:
        os.sched_setaffinity(0, cores)


def resident_megabytes(pid: int) -> float:
    """Memory that a process holds. Linux."""
    from tests.server_process import resident_bytes

    return resident_bytes(pid) / 2**20


def cpu_seconds(pid: int) -> float:
    """CPU time of a process and all its threads so far. The id of its clock is made as Linux makes it."""
    return time.clock_gettime(~pid << 3 | 2)
