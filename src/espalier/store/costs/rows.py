"""Reads the sums of a window of time: of all constraints, and of one with its paths and wanted tokens."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sqlalchemy import ColumnElement, Table, func, select

from espalier.store import rows
from espalier.store.costs.answer import NAME
from espalier.store.costs.kept import KeptCosts
from espalier.store.costs.report import ConstraintCosts, ConstraintWindow, PathWindow, Point, WantedRow
from espalier.store.costs.tables import CONSTRAINTS, COST_SUMS, PATH_SUMS, SUMMED, TAX_BINS, WANTED
from espalier.store.costs.window import DAY, HOUR, CostWindow
from espalier.store.db import Database

HASH, SHOWN = "hash:", {"model": 40, "template": 8}
"""Before the hash of a template; characters of each that stand on a trend."""
POINTS = 24
"""Of a trend."""
MOST_WANTED = 5
"""Pairs of a wanted and a taken token that are listed of a path."""


class CostRows(rows.StoreRows):
    """The sums of all processes on one database."""

    def __init__(self, database: Database, *, clock: Callable[[], float] = time.time) -> None:
        super().__init__(database, clock=clock)
        self._kept_costs = KeptCosts(database)

    def costs(self, window: CostWindow) -> list[ConstraintCosts]:
        """The costs of each constraint in a window, that with the greatest tax first; free text has no fingerprint."""
        return self._kept_costs.costs(window, lambda: self._read_costs(window))

    def _read_costs(self, window: CostWindow) -> list[ConstraintCosts]:
        now, past = self.cost_windows(window, has_bins=True), self.cost_windows(window.before)
        known = self._constraints(window)
        trends = self._trends(window)
        free = now.get("")
        made = [
            ConstraintCosts(
                fingerprint=fingerprint,
                **known.get(fingerprint, {"kind": "", "title": ""}),
                now=sums,
                past=past.get(fingerprint),
                free=free,
                trend=trends.get(fingerprint, ()),
            )
            for fingerprint, sums in now.items()
        ]
        return sorted(made, key=lambda costs: (-costs.now.tax, costs.fingerprint))

    def cost_paths(self, window: CostWindow, fingerprint: str) -> list[PathWindow]:
        """The costs of each path of a constraint, the dearest first."""
        columns = [
            func.sum(PATH_SUMS.c[name]).label(name) for name in ("answers", "tokens", "tax", "tax_squares", "removed")
        ]
        which = [PATH_SUMS.c.fingerprint == fingerprint, *_within(PATH_SUMS, window)]
        query = select(PATH_SUMS.c.path, *columns).where(*which).group_by(PATH_SUMS.c.path)
        wanted = self._wanted(window, fingerprint)
        with self.database.reading() as connection:
            read = [dict(row) for row in connection.execute(query).mappings()]
        paths = [PathWindow(**_numbers(row), wanted=tuple(wanted[row["path"]])) for row in read]
        return sorted(paths, key=lambda path: (-path.tax, path.path))

    def cost_constraint(self, fingerprint: str, *, caller: str | None) -> Mapping[str, Any] | None:
        """What is known of a constraint: `kind`, `title`, and `spec` as JSON text where texts are kept; None where this
        caller has no answers of it."""
        query = (
            select(CONSTRAINTS).where(CONSTRAINTS.c.fingerprint == fingerprint).order_by(CONSTRAINTS.c.spec.is_(None))
        )
        if caller is not None:
            query = query.where(CONSTRAINTS.c.caller == rows.caller_text(caller))
        with self.database.reading() as connection:
            row = connection.execute(query.limit(1)).mappings().first()
        return None if row is None else dict(row)

    def cost_windows(self, window: CostWindow, *, has_bins: bool = False) -> dict[str, ConstraintWindow]:
        """The sums of each constraint in a window. has_bins: with those from which percentiles are told."""
        sums = [func.sum(COST_SUMS.c[name]).label(name) for name in SUMMED]
        which = _within(COST_SUMS, window)
        query = select(COST_SUMS.c.fingerprint, *sums).where(*which).group_by(COST_SUMS.c.fingerprint)
        bins: dict[str, dict[str, dict[int, int]]] = defaultdict(lambda: {"answer": {}, "token": {}})
        keys = (TAX_BINS.c.fingerprint, TAX_BINS.c.measure, TAX_BINS.c.bin)
        # The bins are not kept by model: a percentile of one model's answers is not told.
        counted = select(*keys, func.sum(TAX_BINS.c.answers)).where(*_within(TAX_BINS, window)).group_by(*keys)
        with self.database.reading() as connection:
            read = [dict(row) for row in connection.execute(query).mappings()]
            if has_bins and window.model is None:
                for fingerprint, measure, number, count in connection.execute(counted):
                    bins[fingerprint][measure][int(number)] = int(count)
        return {
            row["fingerprint"]: ConstraintWindow(
                **{name: value for name, value in _numbers(row).items() if name != "fingerprint"},
                bins=bins[row["fingerprint"]],
            )
            for row in read
        }

    def _constraints(self, window: CostWindow) -> dict[str, dict[str, str]]:
        query = select(CONSTRAINTS.c.fingerprint, CONSTRAINTS.c.kind, CONSTRAINTS.c.title)
        if window.caller is not None:
            query = query.where(CONSTRAINTS.c.caller == rows.caller_text(window.caller))
        with self.database.reading() as connection:
            return {row.fingerprint: {"kind": row.kind, "title": row.title} for row in connection.execute(query)}

    def _trends(self, window: CostWindow) -> dict[str, tuple[Point, ...]]:
        """Of each constraint the tax for each answer, for each part of the window; and what began in it: a model, a
        prompt template."""
        first, past = window.hours()
        size = max(HOUR, -(-(past - first) // POINTS // HOUR) * HOUR)
        columns = ("model", "template", "hour", "measured", "tax")
        query = select(COST_SUMS.c.fingerprint, *(COST_SUMS.c[name] for name in columns)).where(
            *_within(COST_SUMS, window)
        )
        sums: dict[str, dict[int, list[float]]] = defaultdict(dict)
        begins: dict[str, dict[tuple[str, str], int]] = defaultdict(dict)
        with self.database.reading() as connection:
            for fingerprint, model, template, hour, measured, tax in connection.execute(query):
                point = sums[fingerprint].setdefault(first + (int(hour) - first) // size * size, [0.0, 0.0])
                point[0] += float(measured)
                point[1] += float(tax)
                for what in (("model", model), ("template", template)):
                    seen = begins[fingerprint]
                    seen[what] = min(seen.get(what, int(hour)), int(hour))
        versions = self._versions(window)
        trends: dict[str, tuple[Point, ...]] = {}
        for fingerprint, points in sums.items():
            earliest = min(begins[fingerprint].values())
            marks: list[tuple[float, str]] = [
                (at, f"{kind} {name.removeprefix(HASH)[: SHOWN[kind]]}")
                for (kind, name), at in begins[fingerprint].items()
                if at > earliest and name
            ]
            marks += versions.get(fingerprint, [])
            trends[fingerprint] = tuple(
                Point(
                    at=at,
                    answers=int(measured),
                    tax=tax,
                    marks=tuple(sorted(said for moment, said in marks if at <= moment < at + size)),
                )
                for at, (measured, tax) in sorted(points.items())
            )
        return trends

    def _versions(self, window: CostWindow) -> dict[str, list[tuple[float, str]]]:
        """When a constraint of the same title was first seen, by the fingerprint of each constraint of that title."""
        first, past = window.hours()
        query = select(CONSTRAINTS.c.fingerprint, CONSTRAINTS.c.title, CONSTRAINTS.c.first_seen)
        if window.caller is not None:
            query = query.where(CONSTRAINTS.c.caller == rows.caller_text(window.caller))
        by_title: dict[str, dict[str, float]] = defaultdict(dict)
        with self.database.reading() as connection:
            for fingerprint, title, seen in connection.execute(query):
                if title:
                    by_title[title][fingerprint] = min(by_title[title].get(fingerprint, seen), seen)
        versions: dict[str, list[tuple[float, str]]] = defaultdict(list)
        for same in by_title.values():
            oldest = min(same.values())
            new = [
                (seen, f"version {name[:8]}") for name, seen in same.items() if seen > oldest and first <= seen < past
            ]
            for fingerprint in same:
                versions[fingerprint] += new
        return versions

    def _wanted(self, window: CostWindow, fingerprint: str) -> dict[str, list[WantedRow]]:
        keys = (WANTED.c.path, WANTED.c.wanted, WANTED.c.taken)
        first, past = window.hours()
        which = [WANTED.c.fingerprint == fingerprint, WANTED.c.day >= first // DAY * DAY, WANTED.c.day < past]
        if window.caller is not None:
            which.append(WANTED.c.caller == rows.caller_text(window.caller))
        times, tax = func.sum(WANTED.c.times), func.sum(WANTED.c.tax)
        query = select(*keys, times, tax).where(*which).group_by(*keys).order_by(times.desc(), *keys)
        by_path: dict[str, list[WantedRow]] = defaultdict(list)
        with self.database.reading() as connection:
            for path, wanted, taken, count, cost in connection.execute(query):
                if len(by_path[path]) < MOST_WANTED:
                    by_path[path].append(WantedRow(wanted=wanted, taken=taken, times=int(count), tax=float(cost)))
        return by_path


def _within(table: Table, window: CostWindow) -> Sequence[ColumnElement[bool]]:
    first, past = window.hours()
    which = [table.c.hour >= first, table.c.hour < past]
    if window.caller is not None:
        which.append(table.c.caller == rows.caller_text(window.caller))
    if window.model is not None and "model" in table.c:
        which.append(table.c.model == rows.column_text(window.model)[:NAME])
    return which


def _numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """Sums as Python's numbers: PostgreSQL has decimals for sums of whole numbers."""
    texts = ("fingerprint", "path")
    real = ("tax", "tax_squares", "removed", "seconds")
    return {
        name: value if name in texts else float(value) if name in real else int(value) for name, value in row.items()
    }
