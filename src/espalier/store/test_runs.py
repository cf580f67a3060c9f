"""Stores runs of test cases: one row each with its sums, and the whole report. It does not read the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Column, Double, Integer, LargeBinary, Table, Text, insert, select

from espalier.errors import InputError
from espalier.store import rows
from espalier.store.ids import is_id
from espalier.store.packing import pack, unpack
from espalier.store.tables import ID, METADATA

PREFIX = "run"
NEWEST = "last"

TEST_RUNS = Table(
    "logit_test_runs",
    METADATA,
    Column("id", ID, primary_key=True),
    Column("created", Double, nullable=False),  # Unix seconds
    Column("model", Text, nullable=False),
    Column("preset", Text),
    Column("strategy", Text),
    Column("cases", Integer, nullable=False),
    Column("cases_passed", Integer, nullable=False),
    Column("iterations", Integer, nullable=False),
    Column("iterations_passed", Integer, nullable=False),
    Column("error_count", Integer, nullable=False),
    Column("seconds", Double, nullable=False),
    Column("body", LargeBinary, nullable=False),  # packing.py
)


class TestRunRows(rows.StoreRows):
    """Runs of test cases."""

    def save_test_run(
        self, report: Mapping[str, Any], *, preset: str | None = None, strategy: str | None = None
    ) -> str:
        """Store `Report.to_json()` of the harness and return its id, `run_…`. Raises InputError if it is none."""
        try:
            results = report["results"]
            sums = [case["Summary"] for case in results]
            values = {
                "model": rows.column_text(report["model"]),
                "cases": len(results),
                "cases_passed": sum(bool(case["Passed"]) for case in results),
                "iterations": sum(int(summary["total_iterations"]) for summary in sums),
                "iterations_passed": sum(int(case["TotalPassed"]) for case in results),
                "error_count": sum(int(summary["error_count"]) for summary in sums),
                "seconds": float(report["seconds"]),
            }
        except (KeyError, TypeError, ValueError) as error:
            raise InputError(f"this is no report of test cases: {error}", field="report") from error
        values |= {"preset": rows.optional_text(preset), "strategy": rows.optional_text(strategy)}
        values["body"] = pack(report, what="report")
        values["id"], values["created"] = self._ids.new(PREFIX)
        with self.database.writing() as connection:
            connection.execute(insert(TEST_RUNS).values(values))
        return str(values["id"])

    def test_run(self, run: str) -> tuple[str, Mapping[str, Any]]:
        """The id and the report of a run; `last` is the newest one. Raises InputError if there is none."""
        query = select(TEST_RUNS.c.id, TEST_RUNS.c.body).order_by(TEST_RUNS.c.id.desc()).limit(1)
        if run != NEWEST:
            if not is_id(run, PREFIX):
                raise InputError(f"{run!r:.60} is no id of a test run", hint=_HINT, field="compare")
            query = query.where(TEST_RUNS.c.id == run)
        with self.database.reading() as connection:
            row = connection.execute(query).one_or_none()
        if row is None:
            raise InputError(f"there is no test run {run!r:.60}", hint=_HINT, field="compare")
        return str(row.id), unpack(row.body, what=f"test run {row.id}")

    def test_runs(self, *, limit: int) -> Sequence[Mapping[str, Any]]:
        """The columns of the newest runs but their reports, newest first."""
        columns = [column for column in TEST_RUNS.c if column.name != "body"]
        query = select(*columns).order_by(TEST_RUNS.c.id.desc()).limit(limit)
        with self.database.reading() as connection:
            return [dict(row) for row in connection.execute(query).mappings()]


_HINT = "`espalier test --runs` lists them; `last` is the newest"
