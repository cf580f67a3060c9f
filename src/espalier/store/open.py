"""Opens the store: a migrated database, with the methods of all kinds of rows and of retention.

It knows neither HTTP nor engines. It takes and returns plain JSON.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from espalier.store import generations, migrate, test_runs
from espalier.store.costs.rows import CostRows
from espalier.store.db import open_database
from espalier.store.feedback import FeedbackRows
from espalier.store.generations import GenerationRows
from espalier.store.presets import PresetRows
from espalier.store.responses import ResponseRows
from espalier.store.retention import MOST_FLAGGED, Limits, Retention
from espalier.store.tables import GENERATION_LOGS, TRACES
from espalier.store.test_runs import TestRunRows
from espalier.store.traces import TraceRows
from espalier.store.vocab_cache import VocabRows

PRUNED = {"generations": (GENERATION_LOGS, generations.PREFIX), "test_runs": (test_runs.TEST_RUNS, test_runs.PREFIX)}


class Store(TraceRows, CostRows, GenerationRows, FeedbackRows, ResponseRows, TestRunRows, PresetRows, VocabRows):
    """All that the processes on one database keep. What it can do of one kind of row is said in that kind's module."""

    def retention(self, limits: Limits, *, traces: Limits | None = None, most_flagged: int = MOST_FLAGGED) -> Retention:
        """Deletes traces and generation logs over the limits; run it regularly (`retention.keep`). traces: the limits
        of traces, where they have others. most_flagged: how many flagged rows of a table stay."""
        own = {} if traces is None else {TRACES.name: traces}
        return Retention(self.database, limits, clock=self._clock, own=own, most_flagged=most_flagged)

    def pruning(self, what: str, limits: Limits) -> Retention:
        """Deletes the rows of one table over the limits. what: `generations` or `test_runs`."""
        return Retention(self.database, limits, clock=self._clock, kept=[PRUNED[what]])

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self.database.close()


def open_store(
    url: str | None = None, *, environ: Mapping[str, str] | None = None, clock: Callable[[], float] = time.time
) -> Store:
    """Open and migrate the database at a URL, or the SQLite file in the user's data folder.

    Raises InputError for an unusable URL or file and for a database of a newer version, OutputError for a place that
    cannot be written, Unavailable if the database server does not answer, MissingDependency without the driver.
    """
    database = open_database(url, environ=environ)
    try:
        migrate.upgrade(database)
    except BaseException:
        database.close()
        raise
    database.hide_name()
    return Store(database, clock=clock)
