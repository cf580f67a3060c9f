"""Samples of what a server holds, and whether each is flat: its slope after the warm-up, by the median of all pairs."""

from __future__ import annotations

import os
import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

import httpx2

from espalier.store.costs.tables import CONSTRAINTS, COST_SUMS, PATH_SUMS, TAX_BINS, WANTED
from tests.server_process import ServerProcess, resident_bytes

SEQUENCES = re.compile(r"^espalier:sequences\{[^}]*\} (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """One that is sampled. read: its value now, of a server and the folder of its store. may_grow: over the whole time
    after the warm-up. unit: one of what tables say, in what is read. of_start: the share of its first value that it may
    grow by too."""

    name: str
    read: Callable[[ServerProcess, Path], float]
    may_grow: float
    unit: float = 1.0
    of_start: float = 0.0


def _files(server: ServerProcess, folder: Path) -> float:
    return len(os.listdir(f"/proc/{server.pid}/fd"))


def _threads(server: ServerProcess, folder: Path) -> float:
    return len(os.listdir(f"/proc/{server.pid}/task"))


def _sequences(server: ServerProcess, folder: Path) -> float:
    """Those that run and those kept for their prefixes."""
    text = httpx2.get(f"{server.url}/metrics", timeout=60, verify=False).text
    return sum(float(value) for value in SEQUENCES.findall(text))


SUMS = frozenset(table.name for table in (CONSTRAINTS, COST_SUMS, TAX_BINS, PATH_SUMS, WANTED))
"""Tables of what constraints cost. They fill by design, to 1,000 constraints of one caller, each of some 20 kB."""


def _table_bytes(folder: Path) -> Mapping[str, int]:
    """The bytes of each table's pages, those of its indexes too."""
    sizes = "SELECT tbl_name, sum(pgsize) FROM dbstat JOIN sqlite_schema USING (name) GROUP BY tbl_name"
    with closing(sqlite3.connect(f"{(folder / 'espalier.db').as_uri()}?mode=ro", uri=True, timeout=60)) as connection:
        return dict(connection.execute(sizes))


def _database(server: ServerProcess, folder: Path) -> float:
    return sum(size for name, size in _table_bytes(folder).items() if name not in SUMS)


def _sums(server: ServerProcess, folder: Path) -> float:
    return sum(size for name, size in _table_bytes(folder).items() if name in SUMS)


def _resident(server: ServerProcess, folder: Path) -> float:
    return resident_bytes(server.pid)


MB = 1e6
QUANTITIES = (
    Quantity(name="memory, MB", read=_resident, may_grow=16 * MB, unit=MB, of_start=0.02),
    Quantity(name="open files", read=_files, may_grow=4),
    Quantity(name="threads", read=_threads, may_grow=4),
    Quantity(name="sequences", read=_sequences, may_grow=3),
    Quantity(name="database, MB", read=_database, may_grow=4 * MB, unit=MB),
    Quantity(name="sums of costs, MB", read=_sums, may_grow=12 * MB, unit=MB),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Flatness:
    """How a quantity went after the warm-up. growth: what its slope makes of the whole time. bound: the most that this
    may be."""

    quantity: Quantity
    first: float
    last: float
    highest: float
    growth: float
    bound: float

    @property
    def is_flat(self) -> bool:
        return self.growth <= self.bound


def slope(points: Sequence[tuple[float, float]]) -> float:
    """The median slope of all pairs of points (Theil and Sen): a few high values do not move it. 0 without pairs."""
    slopes = [(b - a) / (t - s) for (s, a), (t, b) in combinations(_thinned(points), 2) if t > s]
    return median(slopes) if slopes else 0.0


def _thinned(points: Sequence[tuple[float, float]], most: int = 300) -> Sequence[tuple[float, float]]:
    return points[:: max(1, len(points) // most)]


def judge(samples: Sequence[tuple[float, Mapping[str, float]]], quantity: Quantity, *, warm_up: float) -> Flatness:
    """samples: seconds since the start, and values by name. warm_up: seconds that do not count. Raises ValueError for
    fewer than two samples after it."""
    points = [(second, values[quantity.name]) for second, values in samples if second >= warm_up]
    if len(points) < 2:
        raise ValueError(f"{len(points)} samples after a warm-up of {warm_up:g} s say nothing")
    edge = max(1, len(points) // 10)
    first = median(value for _, value in points[:edge])
    return Flatness(
        quantity=quantity,
        first=first,
        last=median(value for _, value in points[-edge:]),
        highest=max(value for _, value in points),
        growth=slope(points) * (points[-1][0] - points[0][0]),
        bound=quantity.may_grow + quantity.of_start * first,
    )
