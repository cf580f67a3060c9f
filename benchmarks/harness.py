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
from dataclasses import dataclass
from typing import Any, TypeAlias, TypeVar

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


Steps: TypeAlias = "tuple[Callable[[], object], Callable[[int], object]]"
"""One sequence of an engine: what gives its mask, and what takes a token. An engine that refuses a token raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextTimes:
    """Microseconds that one text took under a constraint which its engine had never met."""

    compile: float
    #: The first mask, after compiling.
    first: float
    masks: list[float]
    advances: list[float]
    #: A second sequence over the same text: all its masks and advances.
    again: float

    @property
    def whole(self) -> float:
        """From the constraint to the end of the text."""
        return self.compile + self.first + sum(self.masks) + sum(self.advances)


def time_text(compiled: Callable[[], Callable[[], Steps]], tokens: Sequence[int]) -> TextTimes:
    """Compile, then walk a text twice. compiled: compiles, and gives what starts a sequence. CPU time."""
    clock = time.process_time_ns
    masks, advances = [], []
    begin = clock()
    start = compiled()
    mask, advance = start()
    built = clock()
    mask()
    before = first = clock()
    for token in tokens:
        advance(token)
        between = clock()
        mask()
        after = clock()
        advances.append((between - before) / 1e3)
        masks.append((after - between) / 1e3)
        before = clock()
    mask, advance = start()

    def walk() -> None:
        mask()
        for token in tokens:
            advance(token)
            mask()

    again = microseconds(walk)
    return TextTimes(
        compile=(built - begin) / 1e3, first=(first - built) / 1e3, masks=masks, advances=advances, again=again
    )


def print_times(texts: Mapping[str, Sequence[TextTimes]]) -> None:
    """One row for each measure and engine, by the name of the engine. The ratio is that of the means to the second
    engine's, 1 for itself."""
    columns = {"": "<16", "engine": "<12", "p50": ">11.1f", "p90": ">11.1f", "p99": ">11.1f", "max": ">12.1f"}
    table = Table(columns | {"mean": ">11.1f", "ratio": ">8.2f"})
    measures: dict[str, Callable[[TextTimes], Sequence[float]]] = {
        "compile": lambda text: [text.compile],
        "to first mask": lambda text: [text.compile + text.first],
        "mask": lambda text: text.masks,
        "advance": lambda text: text.advances,
        "whole text": lambda text: [text.whole],
        "second text": lambda text: [text.again],
    }
    for measure, times in measures.items():
        rows = {name: [time for text in some for time in times(text)] for name, some in texts.items() if some}
        means = {name: statistics.fmean(row) for name, row in rows.items()}
        peer = ([*means.values()] * 2)[1]
        for name, row in rows.items():
            ordered = sorted(row)
            ranks = [ordered[min(len(row) - 1, len(row) * q // 100)] for q in (50, 90, 99)]
            table.row(measure, name, *ranks, ordered[-1], means[name], means[name] / peer)


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
